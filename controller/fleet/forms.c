#include "controller/fleet/forms.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
	struct form *form; /* holds a reference */
	uint32_t number;
	uint32_t n_slots;
	uint64_t used; /* clock when a slot last got or gave up this constraint */
};

struct forms {
	struct entry *entries; /* [n] constraints that the workers have */
	uint32_t n, cap;
	uint32_t *slots; /* [max_slots] number of each slot's constraint; 0: none */
	uint32_t max_slots;
	uint32_t last; /* number assigned last */
	uint64_t clock;
};

struct forms *forms_new(uint32_t max_slots)
{
	struct forms *f = xcalloc(1, sizeof *f);
	f->slots = xcalloc(max_slots, sizeof *f->slots);
	f->max_slots = max_slots;
	return f;
}

void forms_free(struct forms *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->n; i++)
		form_free(f->entries[i].form);
	free(f->entries);
	free(f->slots);
	free(f);
}

static struct entry *by_number(struct forms *f, uint32_t number)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (f->entries[i].number == number)
			return &f->entries[i];
	return NULL;
}

static struct entry *by_form(struct forms *f, const struct form *form)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (form_same(f->entries[i].form, form))
			return &f->entries[i];
	return NULL;
}

/* Give the slot the constraint with this number; 0: none. */
static void set_slot(struct forms *f, uint32_t slot, uint32_t number)
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
static uint32_t next_number(struct forms *f)
{
	do
		f->last++;
	while (f->last == 0 || by_number(f, f->last));
	return f->last;
}

static uint32_t number_of(struct forms *f, struct plan *p, struct form *form)
{
	if (!form)
		return 0;
	struct entry *e = by_form(f, form);
	if (e)
		return e->number;
	uint32_t number = next_number(f);
	array_grow(f->entries, f->cap, f->n + 1);
	f->entries[f->n++] = (struct entry){.form = form_ref(form), .number = number};
	*plan_add_form(p) = (struct plan_form){number, form};
	return number;
}

/* Drop the constraints that were given up first, until few enough are without a slot. */
static void drop_idle(struct forms *f, struct plan *p)
{
	for (;;) {
		uint32_t n_idle = 0, oldest = UINT32_MAX;
		uint64_t bytes = 0;
		for (uint32_t i = 0; i < f->n; i++) {
			if (f->entries[i].n_slots)
				continue;
			n_idle++;
			bytes += f->entries[i].form->n;
			if (oldest == UINT32_MAX || f->entries[i].used < f->entries[oldest].used)
				oldest = i;
		}
		if (n_idle <= FORMS_IDLE_MAX && bytes <= FORMS_IDLE_BYTES)
			return;
		*plan_add_drop_form(p) = f->entries[oldest].number;
		form_free(f->entries[oldest].form);
		f->entries[oldest] = f->entries[--f->n];
	}
}

void forms_number(struct forms *f, struct plan *p)
{
	/* Drops only constraints without a slot since the previous plan, because workers drop constraints
	 * before they add sequences. */
	drop_idle(f, p);
	for (uint32_t i = 0; i < p->n_drop; i++)
		set_slot(f, p->drop[i], 0);
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		struct plan_seq *s = &p->seqs[i];
		s->form = number_of(f, p, s->params->form);
		set_slot(f, s->slot, s->form);
	}
	for (uint32_t i = 0; i < p->n_sets; i++)
		set_slot(f, p->sets[i].slot, f->slots[p->sets[i].from]);
	for (uint32_t i = 0; i < p->n_forks; i++)
		set_slot(f, p->forks[i].child, f->slots[p->forks[i].parent]);
}
