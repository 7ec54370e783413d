/* leases.h - the blocks that plans under way use, and whether a later plan may write to them.
 * A block that a plan under way reads or writes for one sequence must not be written for another before that
 * plan has been answered, in whatever order the device gets to its work.
 *
 *   plan 7   slot 2 (sequence a)  reads 4 9, writes 12          under way
 *   plan 8   slot 2 (sequence a)  reads 4 9, writes 12          allowed: its own
 *            slot 5 (sequence b)  reads 4, copies 9 -> 6        allowed: 4 and 9 are read
 *            slot 3 (sequence c)  writes 12                     given away: plan 7 is not answered
 *
 * Follows the slots' tables as plans change them, so that it knows them before a plan is carried out. */
#ifndef QUERN_TESTS_SIM_LEASES_H
#define QUERN_TESTS_SIM_LEASES_H

#include "proto/plan.h"

struct leases;

enum { LEASES_AHEAD = 2 /* plans under way at a time */ };

struct leases *leases_new(uint32_t n_slots, uint32_t n_blocks, uint32_t n_host, uint32_t block_size,
			  uint32_t max_blocks);
void leases_free(struct leases *l);
/* The plan is under way from now on.  Aborts with a message where it writes to a block that an earlier one
 * under way uses, or that it swaps out itself.  Its own copies come before its runs. */
void leases_begin(struct leases *l, const struct plan *p);
/* The oldest plan is answered. */
void leases_end(struct leases *l);

#endif
