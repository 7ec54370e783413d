/* draft.h - guesses of the tokens that follow in a sequence.
 * A draft is verified against the token that is drawn (open_runs.h), so a wrong one costs time and changes
 * nothing.  Guesses must be the same whenever they are made from the same tokens only where ranks of a group
 * make them; rank 0 makes them for all. */
#ifndef QUERN_WORKER_DRAFT_H
#define QUERN_WORKER_DRAFT_H

#include <stdint.h>

/* A source of drafts for tests, in the place of all others: guess up to max tokens that follow tokens [n].
 * Return how many. */
struct draft_source {
	uint32_t (*propose)(void *arg, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t max,
			    int32_t *out);
	void *arg;
};

#endif
