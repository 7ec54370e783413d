/* guide.h - outputs that keep a form: the vocabulary, the forms by their numbers, and for each slot its
 * output so far and a matcher that follows it.
 *
 *     guide_vocabulary()               once per load
 *     guide_add(7, form)               plan.forms: known by its number, compiled when it is needed
 *     guide_set(slot, 7, output, n)    plan.seqs, copy, put, drop: as the slot itself changes
 *     guide_mask(slot, mask)           the tokens that may come next
 *     guide_expect(slot, plan, i)      a token more, the i-th that this plan samples, not known yet
 *     guide_hear(plan, tokens, n)      what that plan has sampled
 *
 *     output     t0  t1  t2  t3  ?     n = 5; the last one is expected, and not known yet
 *     matcher    ^^^^^^^^^^            n_taken = 3: the rest is accepted when a mask is needed
 *
 * Matchers and compiled grammars are caches: where they take too much memory the ones not used for the
 * longest time are freed, and made again from the outputs.  A mask depends on vocabulary, form and output
 * alone.  A form that does not compile, or whose bounds an output meets, fails that output and no other.
 *
 * Single-threaded.  Owns all of it; no device, no plan. */
#ifndef QUERN_WORKER_GUIDE_H
#define QUERN_WORKER_GUIDE_H

#include "proto/form.h"
#include "proto/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guide;

/* Tokens of a slot that are not known yet, at most: as many as plans may be under way. */
enum { GUIDE_AHEAD = 2 };

struct guide_limits {
	uint32_t max_slots;
	uint32_t n_vocab;
	/* Of compiled grammars, between two steps; within one, twice as much and a grammar more.  0: 1 GiB.
	 */
	size_t bytes;
};

void guide_new(struct guide **out, const struct guide_limits *lim);
void guide_free(struct guide *g);            /* NULL is fine */
void guide_reset(struct guide *g);           /* forgets outputs and forms; the vocabulary stays */
uint32_t guide_words(const struct guide *g); /* of a mask: (n_vocab + 31) / 32 */

/* Copies v; tokens that v lacks are never allowed, ids that the model lacks are left out.  What was compiled
 * before is made again.  -EINVAL, -E2BIG with the reason. */
int guide_vocabulary(struct guide *g, const struct vocabulary *v, char *why, size_t why_n);

/* A number that is in use by another form goes over to this one, for slots set from now on.  f: shared. */
void guide_add(struct guide *g, uint32_t number, struct form *f);
void guide_remove(struct guide *g, uint32_t number); /* slots keep their forms; an unknown one is fine */

/* The slot's output, so far output[0..n), has this form; 0: none.  -EINVAL: no form has this number. */
int guide_set(struct guide *g, uint32_t slot, uint32_t number, const uint32_t *output, uint32_t n, char *why,
	      size_t why_n);
/* child, another slot, goes on where the first n tokens of the parent's output end. */
void guide_copy(struct guide *g, uint32_t child, uint32_t parent, uint32_t n);
/* Token `at` of the slot's output, its last one or the one behind, is this one. */
void guide_put(struct guide *g, uint32_t slot, uint32_t at, uint32_t token);
void guide_drop(struct guide *g, uint32_t slot);
bool guide_has(const struct guide *g, uint32_t slot); /* its output has a form; false where g is NULL */

/* A token more in the output of a slot with a form: the one with this index among those of the plan. */
void guide_expect(struct guide *g, uint32_t slot, uint64_t plan, uint32_t index);
bool guide_waits(const struct guide *g, uint32_t slot); /* for a token that is not known yet */
/* The tokens [n] of a plan, for all slots that expect one; a second time is fine. */
void guide_hear(struct guide *g, uint64_t plan, const int32_t *tokens, uint32_t n);

/* Which tokens may come next in the output of a slot that waits for none: bit t % 32 of out[t / 32],
 * [guide_words()]; at least one.  Behind a token that ends a text those that end one: its sequence goes on
 * while plans are under way, and where it may not end (ignore_eos, min_tokens).  False: there is no mask,
 * since the output has no form, or has failed. */
bool guide_mask(struct guide *g, uint32_t slot, uint32_t *out);
/* Why the slot's output has failed, good until the slot changes, and only once; NULL: it has not. */
const char *guide_take_failure(struct guide *g, uint32_t slot);
/* At the end of a step: brings the memory of grammars below the limit. */
void guide_trim(struct guide *g);

struct guide_counts {
	uint32_t n_forms;    /* that a number or a slot has */
	uint32_t n_compiled; /* of these, now */
	uint64_t compiled;   /* grammars made since guide_new() */
	size_t bytes;        /* of compiled grammars */
};
void guide_counts(const struct guide *g, struct guide_counts *out);

#endif
