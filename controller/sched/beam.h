/* beam.h - beam search of one job: which hypotheses continue, which are finished, when the search has
 * finished.  Pure: candidates in, survivors out.  Owns the hypotheses' tokens; knows nothing of blocks, slots
 * or plans.
 *
 * The search is that of Hugging Face transformers (generate(num_beams=width), 5.x).  Hypotheses are stored at
 * places 0 .. width-1; the first hypothesis, which has no token, is at place 0.  A step sorts the candidates
 * (hypothesis, next token) of all hypotheses by the sum of their log-probabilities:
 *
 *   - among the first `width` candidates, those that end in a stop token become finished hypotheses; after
 *     the first `width`, candidates with a stop token are skipped. The first `width` candidates without a
 *     stop token continue;
 *   - at max_tokens, the first `width` candidates are finished, whatever their last token is;
 *   - a finished hypothesis scores sum / length ^ length_penalty, where the length counts generated
 *     tokens including the stop token; the `width` best finished hypotheses are kept;
 *   - the search has finished when `width` hypotheses are kept and no live hypothesis can be expected to
 *     beat the worst of them: judged by its score at its present length (EARLY_NO), by its score at
 *     max_tokens if the penalty favours long outputs (EARLY_NEVER), or without a check (EARLY_YES);
 *   - before min_tokens there are no stop tokens.
 *
 * Equal sums: the hypothesis of the higher rank first, then the lower token id.  Sums are floats, as in
 * transformers.  The result depends on the candidates only, not on the order in which they arrive. */
#ifndef QUERN_CONTROLLER_SCHED_BEAM_H
#define QUERN_CONTROLLER_SCHED_BEAM_H

#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

struct beam;

/* A hypothesis that continues: that of `parent` with one more token.  The first child of a parent stays at
 * the parent's place; further children get free places, or places of dead hypotheses. */
struct beam_move {
	uint32_t place;
	uint32_t parent;
	uint32_t token;
};

/* One token of a finished hypothesis.  The arrays of `top` are valid until beam_free(). */
struct beam_token {
	uint32_t token;
	float logprob;
	uint32_t rank; /* 1: the most likely token */
	uint32_t n_top;
	const uint32_t *top_ids; /* [n_top] */
	const float *top_logprobs;
};

/* Return how many of the most likely next tokens a step needs per hypothesis; at most PARAMS_TOP_MAX for
 * parameters within bounds. */
uint32_t beam_n_candidates(const struct params *p);

/* Create a search.  Fields of p that are read: beam_width, max_tokens, min_tokens, length_penalty, early,
 * stop_ids, and logprobs (how many of the most likely tokens are kept for each token).  p is borrowed and
 * must outlive the search. */
struct beam *beam_new(const struct params *p);
void beam_free(struct beam *b); /* NULL is fine */

bool beam_lives(const struct beam *b, uint32_t place);
bool beam_offered(const struct beam *b, uint32_t place); /* ... and its candidates were offered */
/* Offer the most likely next tokens of the hypothesis at place, most likely first, lower id first among
 * equals.  At most beam_n_candidates() are read.  Return true if now every hypothesis has its candidates. */
bool beam_offer(struct beam *b, uint32_t place, const uint32_t *ids, const float *logprobs, uint32_t n);
/* Take the step, once all hypotheses have their candidates.  Write the moves, by rank, into moves[width].
 * Return their number; 0: the search has finished. */
uint32_t beam_step(struct beam *b, struct beam_move *moves);

/* Finished hypotheses, best first. */
uint32_t beam_n_finished(const struct beam *b);
float beam_score(const struct beam *b, uint32_t i);
uint32_t beam_length(const struct beam *b, uint32_t i); /* tokens */
bool beam_stopped(const struct beam *b, uint32_t i);    /* its last token is a stop token */
void beam_tokens(const struct beam *b, uint32_t i, struct beam_token *out); /* [beam_length] */

void beam_check(const struct beam *b); /* aborts if an invariant is broken */

#endif
