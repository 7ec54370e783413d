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
	const uint32_t size = s->cfg.block_size, *row = q->table.ids + (size_t)q->n_named * s->kinds.n;
	memcpy(s->padded, q->tokens + (size_t)q->n_named * size, n * sizeof *s->padded);
	for (uint32_t i = n; i < size; i++)
		s->padded[i] = CONTENTS_NO_TOKEN;
	const int32_t node = contents_add(s->contents, &root, q->node, s->padded);
	if (node == CONTENTS_NONE)
		return;
	q->node = node;
	q->n_named++;
	for (uint32_t k = 0; k < s->kinds.n; k++)
		if (contents_at(s->contents, node, k, STORE_DEVICE) == CONTENTS_NONE &&
		    contents_node(s->contents, STORE_DEVICE, row[k]) == CONTENTS_NONE)
			contents_put(s->contents, node, k, STORE_DEVICE, row[k]);
}

/* Call do_it for each block that q retains. */
static void each_retained(const struct sched *s, const struct seq *q,
			  void (*do_it)(struct blocks *, int32_t node, uint32_t kind))
{
	uint32_t row = q->n_named;
	for (int32_t at = q->node; at != CONTENTS_NONE; at = contents_parent(s->contents, at)) {
		row--;
		for (uint32_t k = 0; k < s->kinds.n; k++)
			if (row >= blocks_first(s->blocks, k, q->n_retained))
				do_it(s->blocks, at, k);
	}
}

static void retain(struct sched *s, struct seq *q)
{
	const uint32_t size = s->cfg.block_size, n = q->n_computed;
	sched_publish(s, q);
	if (n % size && q->n_named == n / size)
		name_last(s, q, n % size);
	q->n_retained = q->n_named * size < n ? q->n_named * size : n;
	each_retained(s, q, blocks_retain);
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
	s->n_leaving += blocks_held(s->blocks, &q->table);
}

void sched_left_at(struct sched *s, struct seq *q)
{
	if (!q->leaving || q->n_pending)
		return;
	q->leaving = false;
	s->n_leaving -= blocks_held(s->blocks, &q->table);
	retain(s, q);
}

void sched_unretain(struct sched *s, struct seq *q)
{
	if (!q->n_retained)
		return;
	each_retained(s, q, blocks_unretain);
	q->n_retained = 0;
}

/* Return n, if ids [*][kinds] has all blocks of windows that position n reads and only lacks those before
 * them, which are removed; else 0. */
static uint32_t with_windows(const struct sched *s, uint32_t *ids, uint32_t n)
{
	const uint32_t rows = blocks_for(s->blocks, n), n_kinds = s->kinds.n;
	bool all = true;
	for (uint32_t i = 0; i < rows * n_kinds; i++) {
		if (i / n_kinds < blocks_first(s->blocks, i % n_kinds, n))
			ids[i] = (uint32_t)CONTENTS_NONE;
		else
			all &= ids[i] != (uint32_t)CONTENTS_NONE;
	}
	return all ? n : 0;
}

uint32_t sched_retained(const struct sched *s, const struct seq *q, uint32_t *ids)
{
	const bool whole = params_needs_rows(&q->group->params);
	const uint32_t size = s->cfg.block_size, total = seq_total(q), n_kinds = s->kinds.n;
	uint32_t n = q->n_named;
	int32_t at = q->node;
	if (!q->n_retained)
		return 0;
	for (uint32_t row = n; row-- > 0; at = contents_parent(s->contents, at))
		for (uint32_t k = 0; k < n_kinds; k++) {
			const int32_t id = contents_at(s->contents, at, k, STORE_DEVICE);
			ids[(size_t)row * n_kinds + k] = (uint32_t)id;
			if (id == CONTENTS_NONE && row >= blocks_first(s->blocks, k, q->n_retained))
				n = row;
		}
	/* A sequence that needs the whole pool has no room for copies of its last blocks. */
	uint32_t n_copies = 0;
	for (uint32_t k = 0; n == q->n_named && q->n_retained % size && k < n_kinds; k++)
		n_copies += sched_copies_last(s, q, k, ids[(size_t)(n - 1) * n_kinds + k]);
	if (n_copies && sched_blocks_of(s, total + 1) + n_copies > blocks_total(s->blocks))
		n--;
	if (n == q->n_named && q->n_retained < total)
		return with_windows(s, ids, q->n_retained);
	if (whole) /* rows that were computed are known already: either all of them, or none */
		return 0;
	return with_windows(s, ids, (n * size < total ? n : (total - 1) / size) * size);
}

bool sched_copies_last(const struct sched *s, const struct seq *q, uint32_t kind, uint32_t id)
{
	return blocks_n_refs(s->blocks, id) || contents_retain(s->contents, q->node, kind, 0) > 1;
}

/* A block in this entry of tables is copied by a plan: running sequences that have it write into copies,
 * too. */
static void not_writable(const struct sched *s, uint32_t row, uint32_t kind, uint32_t id)
{
	for (uint32_t i = 0; i < s->n_running; i++) {
		struct block_table *t = &s->running[i]->table;
		if (row < t->n && t->ids[(size_t)row * s->kinds.n + kind] == id)
			t->n_writable = 0;
	}
}

void sched_take_retained(struct sched *s, struct planning *p, struct seq *q, uint32_t n)
{
	const uint32_t full = n / s->cfg.block_size, n_kinds = s->kinds.n;
	const bool is_part = n % s->cfg.block_size != 0;
	uint32_t *ids = q->table.ids, *last = ids + (size_t)full * n_kinds;
	bool copies[KINDS_MAX] = {false};
	int32_t node = q->node;
	for (uint32_t row = q->n_named; row > full; row--)
		node = contents_parent(s->contents, node);
	for (uint32_t k = 0; is_part && k < n_kinds; k++)
		copies[k] = sched_copies_last(s, q, k, last[k]);
	for (uint32_t i = 0; i < (full + is_part) * n_kinds; i++)
		if (ids[i] != (uint32_t)CONTENTS_NONE)
			blocks_ref(s->blocks, ids[i]);
	q->table.n = full + is_part;
	q->table.from = n;
	sched_unretain(s, q);
	for (uint32_t k = 0; is_part && k < n_kinds; k++) {
		const uint32_t id = last[k];
		if (!copies[k]) {
			contents_lost(s->contents, STORE_DEVICE, id);
			continue;
		}
		last[k] = blocks_take(s->blocks);
		*plan_add_copy(p->plan) = (struct plan_pair){id, last[k]};
		blocks_unref(s->blocks, id, &p->flight->later[STORE_DEVICE]);
		not_writable(s, full, k, id);
	}
	sched_name(s, q, full, node);
	q->n_computed = n;
}

uint32_t sched_available(const struct sched *s, const struct seq *q)
{
	const uint32_t n_free = blocks_n_free(s->blocks), max = blocks_total(s->blocks) / PROTECTED_SHARE;
	uint32_t n = blocks_n_retained(s->blocks), row = q->n_named;
	if (n == 0 || s->n_running == 0 || blocks_total(s->host))
		return n_free;
	for (int32_t at = q->n_retained ? q->node : CONTENTS_NONE; at != CONTENTS_NONE;
	     at = contents_parent(s->contents, at)) {
		row--;
		for (uint32_t k = 0; k < s->kinds.n; k++) {
			const int32_t id = contents_at(s->contents, at, k, STORE_DEVICE);
			n -= id != CONTENTS_NONE && blocks_n_refs(s->blocks, (uint32_t)id) == 0 &&
			     row >= blocks_first(s->blocks, k, q->n_retained);
		}
	}
	return n_free - (n < max ? n : max);
}

static bool last_is_lost(const struct sched *s, const struct seq *q)
{
	bool lost = false;
	for (uint32_t k = 0; q->n_retained && k < s->kinds.n; k++)
		lost |= contents_at(s->contents, q->node, k, STORE_DEVICE) == CONTENTS_NONE;
	return lost;
}

/* Give up the nodes at the end, if their blocks were evicted: all nodes, if they are of no use without the
 * last ones, as with windows. */
static void trim(struct sched *s, struct seq *q)
{
	const bool whole = params_needs_rows(&q->group->params) || kinds_have_windows(&s->kinds);
	while (last_is_lost(s, q)) {
		if (whole) {
			sched_unretain(s, q);
			sched_name(s, q, 0, CONTENTS_NONE);
			return;
		}
		for (uint32_t k = 0; k < s->kinds.n; k++)
			blocks_unretain(s->blocks, q->node, k);
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
