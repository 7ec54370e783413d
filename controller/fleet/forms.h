/* forms.h - the numbers that a replica's workers know forms by.
 * A form is sent once, with the first plan that has a sequence of it, and dropped when no slot has it and
 * others were used since: what clients ask for again and again stays compiled.  Which slot has which form
 * follows from the plans alone.  Of one epoch: a replica's end is theirs.  Engine thread only. */
#ifndef QUERN_CONTROLLER_FLEET_FORMS_H
#define QUERN_CONTROLLER_FLEET_FORMS_H

#include "proto/plan.h"

/* Forms without a slot that are kept, and the bytes of their texts. */
enum { FORMS_IDLE_MAX = 32, FORMS_IDLE_BYTES = 32 << 20 };

struct forms;

struct forms *forms_new(uint32_t max_slots);
void forms_free(struct forms *f); /* NULL is fine */
/* The next plan: numbers its sequences' forms, and adds those that are new and those that are dropped.  The
 * plan borrows the forms; they are valid until the next call. */
void forms_number(struct forms *f, struct plan *p);

#endif
