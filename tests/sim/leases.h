/* leases.h - the blocks that plans in flight use, and whether a later plan may write to them.
 * A block that a plan in flight reads or writes for one sequence must not be written for another sequence
 * before that plan has been answered, in whatever order the device executes its work.
 *
 *   plan 7   slot 2 (sequence a)  reads 4 9, writes 12          in flight
 *   plan 8   slot 2 (sequence a)  reads 4 9, writes 12          allowed: the same sequence
 *            slot 5 (sequence b)  reads 4, copies 9 -> 6        allowed: 4 and 9 are only read
 *            slot 3 (sequence c)  writes 12                     refused: plan 7 is not answered
 *
 * Tracks the slots' block tables as plans change them, so that the tables are known before a plan is
 * executed. */
#ifndef QUERN_TESTS_SIM_LEASES_H
#define QUERN_TESTS_SIM_LEASES_H

#include "proto/plan.h"

struct leases;

enum { LEASES_AHEAD = 2 /* most plans in flight */ };

struct leases *leases_new(uint32_t n_slots, uint32_t n_blocks, uint32_t n_host, uint32_t block_size,
			  uint32_t max_blocks);
/* Set the kinds of layers, before the first plan; the default is one without a window. */
void leases_set_kinds(struct leases *l, const struct kinds *kinds);
void leases_free(struct leases *l);
/* Put the plan in flight.  Aborts with a message if it writes to a block that an earlier plan in flight uses,
 * or that it swaps out itself.  A plan's copies come before its runs. */
void leases_begin(struct leases *l, const struct plan *p);
/* Remove the oldest plan in flight: it is answered. */
void leases_end(struct leases *l);

#endif
