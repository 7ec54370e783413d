/* sched_names.c - the names of computed blocks: which content a sequence's blocks hold (contents.h), so that
 * other sequences find them. */
#include "controller/sched/sched_impl.h"

/* Without a cache, groups find nothing of each other; the outputs of one group still share its contents. */
struct contents_root sched_root(const struct sched *s, const struct group *g)
{
	return (struct contents_root){.salt = g->salt, .owner = s->cfg.no_cache ? g->job + 1 : 0};
}

void sched_name(struct sched *s, struct seq *q, uint32_t n, int32_t node)
{
	if (node == q->node)
		return;
	contents_hold(s->contents, node);
	contents_release(s->contents, q->node);
	q->n_named = n;
	q->node = node;
}

uint32_t sched_blocks_of(const struct sched *s, uint32_t n)
{
	return kinds_blocks(&s->kinds, n, s->cfg.block_size, s->cfg.chunk);
}

/* The block holds the node's content now. */
static void name(struct sched *s, int32_t node, uint32_t kind, uint32_t id)
{
	/* If two sequences compute the same tokens at the same time, one block gets the name.  A block before
	 * a window is not there. */
	if (id == (uint32_t)CONTENTS_NONE ||
	    contents_at(s->contents, node, kind, STORE_DEVICE) != CONTENTS_NONE)
		return;
	contents_lost(s->contents, STORE_DEVICE, id); /* of the block when it was not full */
	contents_put(s->contents, node, kind, STORE_DEVICE, id);
}

void sched_publish(struct sched *s, struct seq *q)
{
	const uint32_t size = s->cfg.block_size, n_kinds = s->kinds.n;
	uint32_t known = q->n_computed < q->n_tokens ? q->n_computed : q->n_tokens;
	for (; (q->n_named + 1) * size <= known; q->n_named++) {
		const struct contents_root root = sched_root(s, q->group);
		const int32_t node =
			contents_add(s->contents, &root, q->node, q->tokens + (size_t)q->n_named * size);
		if (node == CONTENTS_NONE)
			return;
		for (uint32_t k = 0; k < n_kinds; k++)
			name(s, node, k, q->table.ids[(size_t)q->n_named * n_kinds + k]);
		q->node = node;
	}
}
