/* guide.h - structured outputs: the vocabulary, the constraints by number, and for each slot its output so
 * far with a matcher that follows it.
 *
 *     guide_vocabulary()               once per load
 *     guide_add(7, constraint)               plan.constraints: registers a constraint; it is compiled when
 *     needed
 *     guide_set(slot, 7, output, n)    plan.seqs; copy, put, drop: follow changes of the slot
 *     guide_mask(slot, plan, mask)     get the tokens that may come next; if later: guide_awake()
 *     guide_expect(slot, plan, i)      add the i-th token that this plan samples, not known yet
 *     guide_receive(plan, tokens, n)      receive the tokens that the plan sampled
 *     guide_rest(now)                  periodically: frees grammars that were unused for a while
 *
 *     output     t0  t1  t2  t3  ?     n = 5; the last one is expected, and not known yet
 *     matcher    ^^^^^^^^^^            n_taken = 3: the rest is accepted when a mask is needed
 *
 * Matchers and compiled grammars are caches, rebuilt from the outputs.  The least recently used are freed
 * if they take too much memory, and all that were unused for GUIDE_IDLE_US.  A mask depends on vocabulary,
 * constraint and output alone.  If a constraint does not compile, or an output exceeds one of its limits,
 * only that output fails.
 *
 * Other threads (mask_pool.h) compile grammars, and make masks that take more than a little work, so that
 * no call waits for them.  Without threads everything is made within the call.
 *
 * Single-threaded.  Owns all of this; knows no device and no plan. */
#ifndef QUERN_WORKER_GUIDE_H
#define QUERN_WORKER_GUIDE_H

#include "base/err.h"
#include "proto/constraint.h"
#include "proto/vocabulary.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guide;

/* Most unknown tokens per slot: as many as plans may be in flight. */
enum { GUIDE_AHEAD = 2 };

/* A grammar is freed when no mask was requested for this long, even if a sequence still has the constraint:
 * a service without work sends no plan that drops it. */
enum { GUIDE_IDLE_US = 5000000 };

/* Counters shared with the thread that sends heartbeats. */
struct guide_report {
	atomic_ullong waits; /* masks that a step waited for (guide_counts.n_waits), of all guides */
	atomic_ullong bytes; /* bytes of compiled grammars, at the last guide_rest() */
};

/* How masks are made.  Units of work: grammar/work.h. */
struct guide_work {
	/* besides the caller's; 0: everything is made within the call, whatever it takes */
	unsigned n_threads;
	/* units for a mask made within the call; 0: 16,384 for a mask, 65,536 for all of a step */
	uint64_t at_once;
	uint64_t most;            /* units for any mask; beyond, the output fails; 0: 134,217,728 */
	void (*begin)(void *arg); /* for tests: called by a thread that begins a job; or NULL */
	void *arg;
	struct guide_report *report; /* or NULL */
};

struct guide_limits {
	uint32_t max_slots;
	uint32_t n_vocab;
	/* Limit of the compiled grammars' bytes between two steps.  Within a step: without threads, twice
	 * the limit and one more grammar; with threads, a quarter more and one grammar per thread.  0: 1
	 * GiB. */
	size_t bytes;
	struct guide_work work;
};

/* Create a guide.  -errno with the reason: the threads could not be started. */
int guide_new(struct guide **out, const struct guide_limits *lim, struct why *why);
void guide_free(struct guide *g);            /* NULL is fine */
void guide_reset(struct guide *g);           /* forgets outputs and constraints; the vocabulary stays */
uint32_t guide_words(const struct guide *g); /* words of a mask: (n_vocab + 31) / 32 */

/* Copy v.  Tokens that v lacks are never allowed; ids that the model lacks are ignored.  Grammars compiled
 * before are compiled again.  -EINVAL, -E2BIG with the reason. */
int guide_vocabulary(struct guide *g, const struct vocabulary *v, struct why *why);

/* Register a constraint.  A number already in use means this constraint from now on; slots set before keep
 * the previous one.  f is shared. */
void guide_add(struct guide *g, uint32_t number, struct constraint *f);
/* slots keep their constraints; an unknown number is fine */
void guide_remove(struct guide *g, uint32_t number);

/* Give the slot's output, so far output[0..n), this constraint; number 0: none.  -EINVAL: unknown number. */
int guide_set(struct guide *g, uint32_t slot, uint32_t number, const uint32_t *output, uint32_t n,
	      struct why *why);
/* Let child, another slot, continue after the first n tokens of the parent's output. */
void guide_copy(struct guide *g, uint32_t child, uint32_t parent, uint32_t n);
/* Set token `at` of the slot's output: its last token or the next one. */
void guide_put(struct guide *g, uint32_t slot, uint32_t at, uint32_t token);
void guide_drop(struct guide *g, uint32_t slot);
/* true: its output is constrained; false if g is NULL */
bool guide_has(const struct guide *g, uint32_t slot);

/* Append a token, not known yet, to the output of a constrained slot: the token with this index in the
 * plan. */
void guide_expect(struct guide *g, uint32_t slot, uint64_t plan, uint32_t index);
bool guide_waits(const struct guide *g, uint32_t slot); /* a token of it is not known yet */
/* Receive the tokens [n] of a plan, for all slots that expect one.  A repeated call is fine. */
void guide_receive(struct guide *g, uint64_t plan, const int32_t *tokens, uint32_t n);

enum guide_answer {
	GUIDE_NONE,  /* the output has no constraint, or has failed */
	GUIDE_MASK,  /* out is filled */
	GUIDE_LATER, /* a thread makes it: see guide_awake() */
};
/* Get the tokens that may come next in a slot's output, which must have no unknown token: bit t % 32 of
 * out[t / 32], [guide_words()]; at least one bit is set.  After a token that ends the text, the end tokens
 * are allowed: the sequence continues while plans are in flight, and if it may not end (ignore_eos,
 * min_tokens).  plan: the number of the requesting plan. */
enum guide_answer guide_mask(struct guide *g, uint32_t slot, uint64_t plan, uint32_t *out);
/* Set token `at`, a draft that the mask before it allows, as guide_put() does, and get the mask after it.
 * GUIDE_NONE: that takes too much work, or the output would fail.  A guide_put() of the token that was drawn
 * instead takes the draft back. */
enum guide_answer guide_mask_after(struct guide *g, uint32_t slot, uint32_t at, uint32_t token,
				   uint32_t *out);
/* Descriptor that is readable if guide_awake() may have slots; -1: there are no threads. */
int guide_fd(const struct guide *g);
/* Return, once each, a slot with a mask that was LATER for a plan up to number `ended` and is ready now.
 * False: none. */
bool guide_awake(struct guide *g, uint64_t ended, uint32_t *slot);
/* Return once why the slot's output has failed, valid until the slot changes; NULL: it has not. */
const char *guide_take_failure(struct guide *g, uint32_t slot);
/* Call at the end of a step: brings the grammars' memory below the limit. */
void guide_trim(struct guide *g);
/* Call several times a second, also without steps: frees grammars unused for GUIDE_IDLE_US, and returns the
 * memory to the system.  now_us: clock_us(), not 0. */
void guide_rest(struct guide *g, int64_t now_us);

struct guide_counts {
	uint32_t n_constraints; /* constraints with a number or a slot */
	uint32_t n_compiled;    /* those of n_constraints that are compiled now */
	uint64_t compiled;      /* grammars compiled since guide_new() */
	size_t bytes;           /* memory of compiled grammars */
	uint64_t n_late;        /* masks that were LATER */
	/* Masks made within the call that took 16,384 units more than allowed: a step waited for them. */
	uint64_t n_waits;
};
void guide_counts(const struct guide *g, struct guide_counts *out);

#endif
