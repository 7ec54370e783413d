/* constraints.h - the numbers by which a replica's workers know the constraints of structured outputs.
 * A constraint is sent once, with the first plan that has a sequence with it.  It is dropped when no slot
 * uses it and enough others were used since, so that frequently requested constraints stay compiled.  The
 * constraint of each slot follows from the plans alone.  Numbers belong to one epoch: they end with the
 * replica.  Engine thread only. */
#ifndef QUERN_CONTROLLER_FLEET_CONSTRAINTS_H
#define QUERN_CONTROLLER_FLEET_CONSTRAINTS_H

#include "proto/plan.h"

/* Limits of the constraints that are kept without a slot: their number, and the bytes of their texts. */
enum { CONSTRAINTS_IDLE_MAX = 32, CONSTRAINTS_IDLE_BYTES = 32 << 20 };

struct constraints;

struct constraints *constraints_new(uint32_t max_slots);
void constraints_free(struct constraints *f); /* NULL is fine */
/* Number the constraints of the next plan's sequences, and add new and dropped constraints to the plan.  The
 * plan borrows the constraints; they are valid until the next call. */
void constraints_number(struct constraints *f, struct plan *p);

#endif
