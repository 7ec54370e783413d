#include "controller/fleet/constraints.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
	struct constraint *constraint; /* holds a reference */
	uint32_t number;
	uint32_t n_slots;
	uint64_t used; /* clock when a slot last got or gave up this constraint */
};

struct constraints {
	struct entry *entries; /* [n] constraints that the workers have */
	uint32_t n, cap;
	uint32_t *slots; /* [max_slots] number of each slot's constraint; 0: none */
	uint32_t max_slots;
	uint32_t last; /* number assigned last */
	uint64_t clock;
};

struct constraints *constraints_new(uint32_t max_slots)
{
	struct constraints *f = xcalloc(1, sizeof *f);
	f->slots = xcalloc(max_slots, sizeof *f->slots);
	f->max_slots = max_slots;
	return f;
}

void constraints_free(struct constraints *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->n; i++)
		constraint_free(f->entries[i].constraint);
	free(f->entries);
	free(f->slots);
	free(f);
}

static struct entry *by_number(struct constraints *f, uint32_t number)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (f->entries[i].number == number)
			return &f->entries[i];
	return NULL;
}

static struct entry *by_constraint(struct constraints *f, const struct constraint *constraint)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (constraint_same(f->entries[i].constraint, constraint))
			return &f->entries[i];
	return NULL;
}

/* Give the slot the constraint with this number; 0: none. */
static void set_slot(struct constraints *f, uint32_t slot, uint32_t number)
{
	assert(slot < f->max_slots);
	if (f->slots[slot] == number)
		return;
	struct entry *old = by_number(f, f->slots[slot]), *new = by_number(f, number);
	if (old) {
		old->n_slots--;
		old->used = ++f->clock;
	}
	if (new) {
		new->n_slots++;
		new->used = ++f->clock;
	}
	f->slots[slot] = number;
}

/* Return an unused number; numbers repeat only after four billion. */
static uint32_t next_number(struct constraints *f)
{
	do
		f->last++;
	while (f->last == 0 || by_number(f, f->last));
	return f->last;
}

static uint32_t number_of(struct constraints *f, struct plan *p, struct constraint *constraint)
{
	if (!constraint)
		return 0;
	struct entry *e = by_constraint(f, constraint);
	if (e)
		return e->number;
	uint32_t number = next_number(f);
	array_grow(f->entries, f->cap, f->n + 1);
	f->entries[f->n++] = (struct entry){.constraint = constraint_ref(constraint), .number = number};
	*plan_add_constraint(p) = (struct plan_constraint){number, constraint};
	return number;
}

/* Drop the constraints that were given up first, until few enough are without a slot. */
static void drop_idle(struct constraints *f, struct plan *p)
{
	for (;;) {
		uint32_t n_idle = 0, oldest = UINT32_MAX;
		uint64_t bytes = 0;
		for (uint32_t i = 0; i < f->n; i++) {
			if (f->entries[i].n_slots)
				continue;
			n_idle++;
			bytes += f->entries[i].constraint->n;
			if (oldest == UINT32_MAX || f->entries[i].used < f->entries[oldest].used)
				oldest = i;
		}
		if (n_idle <= CONSTRAINTS_IDLE_MAX && bytes <= CONSTRAINTS_IDLE_BYTES)
			return;
		*plan_add_drop_constraint(p) = f->entries[oldest].number;
		constraint_free(f->entries[oldest].constraint);
		f->entries[oldest] = f->entries[--f->n];
	}
}

void constraints_number(struct constraints *f, struct plan *p)
{
	/* Drops only constraints without a slot since the previous plan, because workers drop constraints
	 * before they add sequences. */
	drop_idle(f, p);
	for (uint32_t i = 0; i < p->n_drop; i++)
		set_slot(f, p->drop[i], 0);
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		struct plan_seq *s = &p->seqs[i];
		s->constraint = number_of(f, p, s->params->constraint);
		set_slot(f, s->slot, s->constraint);
	}
	for (uint32_t i = 0; i < p->n_sets; i++)
		set_slot(f, p->sets[i].slot, f->slots[p->sets[i].from]);
	for (uint32_t i = 0; i < p->n_forks; i++)
		set_slot(f, p->forks[i].child, f->slots[p->forks[i].parent]);
}
