/* beam.h - beam search of one job: which hypotheses continue, which are finished, when the search is over.
 * Pure: candidates in, survivors out.  Owns the hypotheses' tokens; knows nothing of blocks,
 * slots or plans.
 *
 * The search is that of Hugging Face transformers (generate(num_beams=width), 5.x).  Hypotheses
 * live at places 0 .. width-1; the first one, without a token, at place 0.  A step takes the
 * candidates (hypothesis, next token) of all of them by the sum of their log-probabilities:
 *
 *   - of the `width` first, those that end in a stop token are finished; behind them, a stop token
 *     is passed over.  The first `width` others live on;
 *   - at max_tokens the `width` first are finished, whatever they end in;
 *   - a finished hypothesis scores sum / length ^ length_penalty, where the length counts generated
 *     tokens, the stop token too; the `width` best finished ones are kept;
 *   - it is over when as many are finished and no living one can be expected to be better than the
 *     worst of them: judged by its score at its present length (EARLY_NO), at max_tokens where the
 *     penalty favours long ones (EARLY_NEVER), or without looking (EARLY_YES);
 *   - before min_tokens there are no stop tokens.
 *
 * Equal sums: the hypothesis of the higher rank first, then the lower token id.  Sums are floats,
 * as there.  The result depends on the candidates only, not on when they come. */
#ifndef QUERN_CONTROLLER_SCHED_BEAM_H
#define QUERN_CONTROLLER_SCHED_BEAM_H

#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

struct beam;

/* A hypothesis that lives on: that of `parent` with one more token.  The first one of a parent
 * stays at its place; others get places that are free, or of hypotheses that have died. */
struct beam_move {
	uint32_t place;
	uint32_t parent;
	uint32_t token;
};

/* One token of a finished hypothesis.  What `top` points at lives as long as the search. */
struct beam_token {
	uint32_t token;
	float logprob;
	uint32_t rank; /* 1: it was the most likely one */
	uint32_t n_top;
	const uint32_t *top_ids; /* [n_top] */
	const float *top_logprobs;
};

/* How many of the most likely tokens behind each hypothesis a step needs; at most PARAMS_TOP_MAX for
 * parameters within bounds. */
uint32_t beam_n_candidates(const struct params *p);

/* p: beam_width, max_tokens, min_tokens, length_penalty, early, stop_ids, and logprobs: how many of
 * the most likely tokens are remembered beside each one.  Borrowed; p lives longer. */
struct beam *beam_new(const struct params *p);
void beam_free(struct beam *b); /* NULL is fine */

bool beam_lives(const struct beam *b, uint32_t place);
bool beam_offered(const struct beam *b, uint32_t place); /* ... and has its candidates */
/* The most likely tokens behind the hypothesis that lives at place, most likely first, of equals
 * the lower id; at most beam_n_candidates() are looked at.  True: the last hypothesis has them. */
bool beam_offer(struct beam *b, uint32_t place, const uint32_t *ids, const float *logprobs, uint32_t n);
/* All have their candidates: take the step.  Writes the moves, by rank, into moves[width]; returns their
 * number, 0 when the search is over. */
uint32_t beam_step(struct beam *b, struct beam_move *moves);

/* Finished hypotheses, best first. */
uint32_t beam_n_finished(const struct beam *b);
float beam_score(const struct beam *b, uint32_t i);
uint32_t beam_length(const struct beam *b, uint32_t i); /* tokens */
bool beam_stopped(const struct beam *b, uint32_t i);    /* the last of them is a stop token */
void beam_tokens(const struct beam *b, uint32_t i, struct beam_token *out); /* [beam_length] */

void beam_check(const struct beam *b); /* aborts where an invariant is broken */

#endif
