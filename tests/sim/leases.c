#include "tests/sim/leases.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Users of a block other than sequence numbers. */
enum { NONE = 0, SEVERAL = 1, FIRST_OWNER = 2 };

struct slot {
	uint64_t owner;           /* a number for each sequence that gets a slot; NONE: the slot is free */
	uint32_t *table, n_table; /* [max_blocks][KINDS_MAX] */
	uint32_t pos0; /* first position of its run, else the least of its next one: blocks before the windows
			  of this position are not used */
};

/* A plan in flight. */
struct lease {
	uint64_t number;
	uint64_t *users; /* [n_blocks] */
	uint64_t *host;  /* [n_host] */
	bool *leaves;    /* [n_blocks] the plan swaps this block out */
};

struct leases {
	uint32_t n_slots, n_blocks, n_host, block_size, max_blocks;
	struct kinds kinds;
	struct slot *slots;
	uint64_t last_owner;
	struct lease plans[LEASES_AHEAD + 1]; /* [n] oldest first; the rest are spare */
	uint32_t n;
};

struct leases *leases_new(uint32_t n_slots, uint32_t n_blocks, uint32_t n_host, uint32_t block_size,
			  uint32_t max_blocks)
{
	struct leases *l = xcalloc(1, sizeof *l);
	l->n_slots = n_slots;
	l->n_blocks = n_blocks;
	l->n_host = n_host;
	l->block_size = block_size;
	l->max_blocks = max_blocks;
	l->kinds = KINDS_ONE;
	l->last_owner = FIRST_OWNER;
	l->slots = xcalloc(n_slots, sizeof *l->slots);
	for (uint32_t i = 0; i < n_slots; i++)
		l->slots[i].table = xcalloc((size_t)max_blocks * KINDS_MAX, sizeof(uint32_t));
	for (int i = 0; i < LEASES_AHEAD + 1; i++) {
		l->plans[i].users = xcalloc(n_blocks, sizeof(uint64_t));
		l->plans[i].host = xcalloc(n_host + 1, sizeof(uint64_t));
		l->plans[i].leaves = xcalloc(n_blocks, sizeof(bool));
	}
	return l;
}

void leases_set_kinds(struct leases *l, const struct kinds *kinds)
{
	l->kinds = *kinds;
}

void leases_free(struct leases *l)
{
	for (uint32_t i = 0; i < l->n_slots; i++)
		free(l->slots[i].table);
	for (int i = 0; i < LEASES_AHEAD + 1; i++) {
		free(l->plans[i].users);
		free(l->plans[i].host);
		free(l->plans[i].leaves);
	}
	free(l->slots);
	free(l);
}

static void given_away(const struct leases *l, const char *what, uint32_t block, const struct lease *user)
{
	fprintf(stderr,
		"device: plan %" PRIu64 " writes to %s %u, which plan %" PRIu64 " uses: no result yet\n",
		l->plans[l->n].number, what, block, user->number);
	abort();
}

/* ---- tables, updated with each plan ---- */

static void set_entry(struct slot *s, uint32_t logical, uint32_t kind, uint32_t block)
{
	s->table[logical * KINDS_MAX + kind] = block;
	if (logical >= s->n_table)
		s->n_table = logical + 1;
}

static void copy_slot(struct leases *l, uint32_t to, uint32_t from)
{
	struct slot *t = &l->slots[to], *f = &l->slots[from];
	t->owner = ++l->last_owner;
	t->n_table = f->n_table;
	t->pos0 = f->pos0;
	memcpy(t->table, f->table, (size_t)f->n_table * KINDS_MAX * sizeof *f->table);
}

static void follow(struct leases *l, const struct plan *p)
{
	for (uint32_t i = 0; i < p->n_drop; i++)
		l->slots[p->drop[i]].owner = NONE;
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		struct slot *s = &l->slots[p->seqs[i].slot];
		s->owner = ++l->last_owner;
		s->n_table = s->pos0 = 0;
		for (uint32_t k = 0; k < p->seqs[i].n_blocks * l->kinds.n; k++)
			set_entry(s, k / l->kinds.n, k % l->kinds.n, p->seqs[i].blocks[k]);
	}
	for (uint32_t i = 0; i < p->n_sets; i++)
		if (p->sets[i].from != p->sets[i].slot)
			copy_slot(l, p->sets[i].slot, p->sets[i].from);
	for (uint32_t i = 0; i < p->n_tables; i++)
		set_entry(&l->slots[p->tables[i].slot], p->tables[i].logical, p->tables[i].kind,
			  p->tables[i].block);
	for (uint32_t i = 0; i < p->n_forks; i++)
		copy_slot(l, p->forks[i].child, p->forks[i].parent);
}

/* ---- uses ---- */

/* Return whether runs from position pos0 on read no block of this kind in this row. */
static bool is_before(const struct leases *l, uint32_t kind, uint32_t row, uint32_t pos0)
{
	return row < kinds_first(&l->kinds, kind, pos0) / l->block_size;
}

static void use(uint64_t *user, uint64_t owner)
{
	*user = *user == NONE || *user == owner ? owner : SEVERAL;
}

/* Mark a block that the plan fills as used by every sequence with it in its table. */
static void use_filled(struct leases *l, uint32_t block)
{
	uint64_t *user = &l->plans[l->n].users[block];
	for (uint32_t i = 0; i < l->n_slots; i++)
		for (uint32_t k = 0; l->slots[i].owner && k < l->slots[i].n_table * KINDS_MAX; k++)
			if (k % KINDS_MAX < l->kinds.n && l->slots[i].table[k] == block &&
			    !is_before(l, k % KINDS_MAX, k / KINDS_MAX, l->slots[i].pos0))
				use(user, l->slots[i].owner);
	if (*user == NONE)
		*user = SEVERAL;
}

/* Check a write to a block.  owner NONE: the write fills the block for no single sequence. */
static void write_block(struct leases *l, uint32_t block, uint64_t owner)
{
	for (uint32_t i = 0; i < l->n; i++) {
		uint64_t user = l->plans[i].users[block];
		if (user != NONE && user != owner)
			given_away(l, "block", block, &l->plans[i]);
	}
	if (l->plans[l->n].leaves[block])
		given_away(l, "block", block, &l->plans[l->n]);
}

static void write_host(struct leases *l, uint32_t block)
{
	for (uint32_t i = 0; i <= l->n; i++)
		if (l->plans[i].host[block])
			given_away(l, "host block", block, &l->plans[i]);
}

static void run(struct leases *l, const struct plan_run *r)
{
	const struct slot *s = &l->slots[r->slot];
	/* An open run may write all of its blocks. */
	uint32_t end = r->flags & PLAN_OPEN ? s->n_table * l->block_size : r->pos0 + r->n_rows;
	for (uint32_t i = 0; r->n_rows && i * l->block_size < end; i++)
		for (uint32_t k = 0; k < l->kinds.n; k++) {
			const uint32_t block = s->table[i * KINDS_MAX + k];
			if (is_before(l, k, i, r->pos0))
				continue;
			if ((i + 1) * l->block_size > r->pos0)
				write_block(l, block, s->owner);
			use(&l->plans[l->n].users[block], s->owner);
		}
}

void leases_begin(struct leases *l, const struct plan *p)
{
	struct lease *own = &l->plans[l->n];
	own->number = p->number;
	memset(own->users, 0, l->n_blocks * sizeof *own->users);
	memset(own->host, 0, l->n_host * sizeof *own->host);
	memset(own->leaves, 0, l->n_blocks * sizeof *own->leaves);
	follow(l, p);
	for (uint32_t i = 0; i < p->n_runs; i++)
		l->slots[p->runs[i].slot].pos0 = p->runs[i].pos0;
	for (uint32_t i = 0; i < p->n_swap_out; i++) {
		write_host(l, p->swap_out[i].to);
		own->host[p->swap_out[i].to] = SEVERAL;
		own->leaves[p->swap_out[i].from] = true;
	}
	/* A plan may swap in what it has just swapped out. */
	for (uint32_t i = 0; i < p->n_swap_in; i++)
		own->host[p->swap_in[i].from] = SEVERAL;
	for (uint32_t i = 0; i < p->n_swap_in; i++)
		write_block(l, p->swap_in[i].to, NONE);
	for (uint32_t i = 0; i < p->n_copies; i++)
		write_block(l, p->copies[i].to, NONE);
	for (uint32_t i = 0; i < p->n_swap_in; i++)
		use_filled(l, p->swap_in[i].to);
	for (uint32_t i = 0; i < p->n_copies; i++)
		use_filled(l, p->copies[i].to);
	for (uint32_t i = 0; i < p->n_runs; i++)
		run(l, &p->runs[i]);
	for (uint32_t i = 0; i < p->n_swap_out; i++)
		own->users[p->swap_out[i].from] = SEVERAL;
	for (uint32_t i = 0; i < p->n_copies; i++)
		own->users[p->copies[i].from] = SEVERAL;
	/* The next run begins after this one, or, if LEASES_AHEAD results are held back, so much before. */
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct plan_run *r = &p->runs[i];
		const uint32_t end = r->pos0 + (r->flags & PLAN_OPEN ? 1 : r->n_rows); /* the least */
		l->slots[r->slot].pos0 = end > LEASES_AHEAD ? end - LEASES_AHEAD : 0;
	}
	l->n++;
}

void leases_end(struct leases *l)
{
	struct lease first = l->plans[0];
	memmove(l->plans, l->plans + 1, LEASES_AHEAD * sizeof first);
	l->plans[LEASES_AHEAD] = first;
	l->n--;
}
