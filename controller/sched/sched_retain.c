/* sched_retain.c - the blocks of a preempted sequence stay cached where they are (blocks.h: retained).
 *
 *             preempted                      evicted meanwhile       admitted again
 *   running   [ 5 ][ 9 ][ 2 ]   cached   [ 5 ][ 9 ][ - ]   running   [ 5 ][ 9 ][ 4 ]
 *                                         node node node                        recomputed
 *
 * Its full blocks have names already (contents.h).  The last block, which is not full, gets the name of its
 * tokens and CONTENTS_NO_TOKEN, which no prompt contains, so that only this sequence finds it, and outputs of
 * its job with the same tokens.  Blocks are evicted from the end of a sequence, and blocks of sequences that
 * were preempted first before others: these are admitted last. */
#include "controller/sched/sched_impl.h"

#include <string.h>

/* Evicted blocks, as a part of the pool, whose nodes are kept for now: contents_new() has room for them. */
enum { TRIM_SHARE = 8 };
/* Retained blocks that running sequences leave alone, as a part of the pool.  With a fourth, preempted
 * sequences recompute less than with two pools of the same memory (measured in the simulation). */
enum { PROTECTED_SHARE = 4 };

/* Name the last block, of n tokens, after the full blocks.  It has no other name, unless outputs of one job
 * share it; then it may stay without. */
static void name_last(struct sched *s, struct seq *q, uint32_t n)
{
	const struct contents_root root = sched_root(s, q->group);
	const uint32_t size = s->cfg.block_size, id = q->table.ids[q->n_named];
	memcpy(s->padded, q->tokens + (size_t)q->n_named * size, n * sizeof *s->padded);
	for (uint32_t i = n; i < size; i++)
		s->padded[i] = CONTENTS_NO_TOKEN;
	const int32_t node = contents_add(s->contents, &root, q->node, s->padded);
	if (node == CONTENTS_NONE)
		return;
	q->node = node;
	q->n_named++;
	if (contents_at(s->contents, node, STORE_DEVICE) == CONTENTS_NONE &&
	    contents_node(s->contents, STORE_DEVICE, id) == CONTENTS_NONE)
		contents_put(s->contents, node, STORE_DEVICE, id);
}

static void retain(struct sched *s, struct seq *q)
{
	const uint32_t size = s->cfg.block_size, n = q->n_computed;
	sched_publish(s, q);
	if (n % size && q->n_named == n / size)
		name_last(s, q, n % size);
	q->n_retained = q->n_named * size < n ? q->n_named * size : n;
	for (int32_t at = q->node; at != CONTENTS_NONE; at = contents_parent(s->contents, at))
		blocks_retain(s->blocks, at);
	blocks_drop(s->blocks, &q->table, sched_later(s, STORE_DEVICE));
	q->n_computed = q->n_before = 0;
}

void sched_leave(struct sched *s, struct seq *q)
{
	if (q->n_reached < q->n_computed)
		q->n_reached = q->n_computed;
	if (q->n_pending == 0) {
		retain(s, q);
		return;
	}
	q->leaving = true;
	s->n_leaving += q->table.n;
}

void sched_left_at(struct sched *s, struct seq *q)
{
	if (!q->leaving || q->n_pending)
		return;
	q->leaving = false;
	s->n_leaving -= q->table.n;
	retain(s, q);
}

void sched_unretain(struct sched *s, struct seq *q)
{
	if (!q->n_retained)
		return;
	for (int32_t at = q->node; at != CONTENTS_NONE; at = contents_parent(s->contents, at))
		blocks_unretain(s->blocks, at);
	q->n_retained = 0;
}

uint32_t sched_retained(const struct sched *s, const struct seq *q, uint32_t *ids)
{
	const bool whole = params_needs_rows(&q->group->params);
	const uint32_t size = s->cfg.block_size, total = seq_total(q);
	uint32_t n = q->n_named;
	int32_t at = q->node;
	if (!q->n_retained)
		return 0;
	for (uint32_t k = n; k-- > 0; at = contents_parent(s->contents, at)) {
		ids[k] = (uint32_t)contents_at(s->contents, at, STORE_DEVICE);
		if (ids[k] == (uint32_t)CONTENTS_NONE)
			n = k;
	}
	/* A sequence that needs the whole pool has no room for its last block and a copy. */
	if (n == q->n_named && q->n_retained % size && sched_copies_last(s, q, ids[n - 1]) &&
	    blocks_for(s->blocks, total + 1) >= blocks_total(s->blocks))
		n--;
	if (n == q->n_named && q->n_retained < total)
		return q->n_retained;
	if (whole) /* rows that were computed are known already: either all of them, or none */
		return 0;
	return (n * size < total ? n : (total - 1) / size) * size;
}

bool sched_copies_last(const struct sched *s, const struct seq *q, uint32_t id)
{
	return blocks_n_refs(s->blocks, id) || contents_retain(s->contents, q->node, STORE_DEVICE, 0) > 1;
}

/* The block is copied by a plan: running sequences that have it write into copies, too. */
static void not_writable(const struct sched *s, uint32_t logical, uint32_t id)
{
	for (uint32_t i = 0; i < s->n_running; i++) {
		struct block_table *t = &s->running[i]->table;
		if (logical < t->n && t->ids[logical] == id)
			t->n_writable = 0;
	}
}

void sched_take_retained(struct sched *s, struct planning *p, struct seq *q, uint32_t n)
{
	const uint32_t full = n / s->cfg.block_size;
	const bool is_part = n % s->cfg.block_size != 0;
	const uint32_t last = q->table.ids[is_part ? full : 0];
	const bool copies = is_part && sched_copies_last(s, q, last);
	for (; q->table.n < full + is_part; q->table.n++)
		blocks_ref(s->blocks, q->table.ids[q->table.n]);
	const int32_t node =
		full ? contents_node(s->contents, STORE_DEVICE, q->table.ids[full - 1]) : CONTENTS_NONE;
	sched_unretain(s, q);
	if (copies) {
		const uint32_t id = q->table.ids[full] = blocks_take(s->blocks);
		*plan_add_copy(p->plan) = (struct plan_pair){last, id};
		blocks_unref(s->blocks, last, &p->flight->later[STORE_DEVICE]);
		not_writable(s, full, last);
	} else if (is_part) {
		contents_lost(s->contents, STORE_DEVICE, last);
	}
	sched_name(s, q, full, node);
	q->n_computed = n;
}

uint32_t sched_available(const struct sched *s, const struct seq *q)
{
	const uint32_t n_free = blocks_n_free(s->blocks), max = blocks_total(s->blocks) / PROTECTED_SHARE;
	uint32_t n = blocks_n_retained(s->blocks);
	if (n == 0 || s->n_running == 0 || blocks_total(s->host))
		return n_free;
	for (int32_t at = q->n_retained ? q->node : CONTENTS_NONE; at != CONTENTS_NONE;
	     at = contents_parent(s->contents, at)) {
		const int32_t id = contents_at(s->contents, at, STORE_DEVICE);
		n -= id != CONTENTS_NONE && blocks_n_refs(s->blocks, (uint32_t)id) == 0;
	}
	return n_free - (n < max ? n : max);
}

/* Give up the nodes at the end whose blocks were evicted. */
static void trim(struct sched *s, struct seq *q)
{
	const bool whole = params_needs_rows(&q->group->params);
	while (q->n_retained && contents_at(s->contents, q->node, STORE_DEVICE) == CONTENTS_NONE) {
		if (whole) {
			sched_unretain(s, q);
			sched_name(s, q, 0, CONTENTS_NONE);
			return;
		}
		blocks_unretain(s->blocks, q->node);
		sched_name(s, q, q->n_named - 1, contents_parent(s->contents, q->node));
		q->n_retained = q->n_named * s->cfg.block_size;
	}
}

void sched_trim_retained(struct sched *s)
{
	if (blocks_n_lost(s->blocks) - s->n_lost <= blocks_total(s->blocks) / TRIM_SHARE)
		return;
	s->n_lost = blocks_n_lost(s->blocks);
	for (struct group *g = s->all.next; g != &s->all; g = g->next)
		for (uint32_t i = 0; i < g->n_seqs; i++)
			trim(s, &g->seqs[i]);
}
