/* draft.h - guesses of the tokens that follow in a sequence, from its own tokens.
 * A draft is verified against the token that is drawn (open_runs.h), so a wrong one costs time and changes no
 * token.
 *
 * The lookup finds the latest place where the sequence's last tokens stood before, the longest match first,
 * and guesses what followed there.  It pays for outputs that repeat the prompt: edits, summaries, code, JSON.
 *
 *   tokens   7 3 9 4 5 8 1 3 9 4         the last 3 tokens, 3 9 4, stand at position 1 as well
 *                  '-- - - guess         5 8 1
 *
 * draft_limit() and draft_took() adapt the length to what was accepted: an accepted run doubles the length, a
 * partly accepted one sets it to one more than was accepted, and after runs of which nothing was accepted the
 * sequence drafts nothing for 1, 2, 4 .. 64 steps. */
#ifndef QUERN_WORKER_DRAFT_H
#define QUERN_WORKER_DRAFT_H

#include <stdatomic.h>
#include <stdint.h>

/* How a sequence drafts; zeros: its first time. */
struct draft_pace {
	uint8_t length; /* most drafts of the next run; 0: any */
	uint8_t waits;  /* steps without drafts after the last run of which nothing was accepted */
	uint8_t wait;   /* of these, steps that are left */
};

/* Return how many of at most max tokens may be drafted in this step. */
uint32_t draft_limit(struct draft_pace *p, uint32_t max);
/* Record how many of the proposed drafts were accepted. */
void draft_took(struct draft_pace *p, uint32_t proposed, uint32_t accepted);

/* Guess at most max tokens that follow tokens [n].  Return how many. */
uint32_t draft_lookup(const int32_t *tokens, uint32_t n, uint32_t max, int32_t *out);

/* A source of drafts for tests, in the place of the lookup.  slot: the sequence's. */
struct draft_source {
	uint32_t (*propose)(void *arg, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t max,
			    int32_t *out);
	void *arg;
};

/* Counters shared with the thread that sends heartbeats. */
struct draft_report {
	atomic_ullong runs;     /* open runs that had drafts */
	atomic_ullong drafted;  /* tokens */
	atomic_ullong accepted; /* tokens */
};

#endif
