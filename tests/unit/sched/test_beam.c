/* Beam search over a table of logits finds transformers' hypotheses (tests/golden/beams.json, made by
 * make_beams_golden.py). Also tested: candidates in another order, too few candidates, and equal sums. */
#include "base/alloc.h"
#include "base/json.h"
#include "controller/sched/beam.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 64 };

static json_t *golden;
static uint32_t vocab, rows;
static float *table; /* [rows, vocab] */

static void load_golden(void)
{
	struct why why;
	cr_assert_eq(json_read(repofile("tests/golden/beams.json"), 16 << 20, &golden, &why), 0, "%s",
		     why.text);
	vocab = (uint32_t)json_integer_value(json_object_get(golden, "vocab"));
	rows = (uint32_t)json_integer_value(json_object_get(golden, "rows"));
	const json_t *t = json_object_get(golden, "table");
	table = xmalloc(json_array_size(t) * sizeof *table);
	for (size_t i = 0; i < json_array_size(t); i++)
		table[i] = (float)json_number_value(json_array_get(t, i));
}

static void free_golden(void)
{
	json_decref(golden);
	free(table);
}

TestSuite(beam, .init = load_golden, .fini = free_golden, .timeout = 60);

/* ---- a model ---- */

struct search {
	struct beam *b;
	struct params p;
	uint32_t tokens[PARAMS_N_MAX][TOKENS_MAX * 2]; /* indexed by place */
	uint32_t n;                                    /* tokens of each live hypothesis */
	bool backwards;                                /* candidates arrive in another order */
};

static const float *row_of(const uint32_t *tokens, uint32_t n)
{
	return table + (size_t)((tokens[n - 1] * 5 + (n - 1) * 3) % rows) * vocab;
}

/* Rank all tokens by log-probability. */
static uint32_t rank_all(const float *row, uint32_t *ids, float *logprobs)
{
	for (uint32_t i = 0; i < vocab; i++) {
		uint32_t at = i;
		for (; at > 0 && row[i] > logprobs[at - 1]; at--) {
			ids[at] = ids[at - 1];
			logprobs[at] = logprobs[at - 1];
		}
		ids[at] = i;
		logprobs[at] = row[i];
	}
	return vocab;
}

static void offer(struct search *s, uint32_t place, bool last)
{
	uint32_t ids[TOKENS_MAX];
	float logprobs[TOKENS_MAX];
	uint32_t n = rank_all(row_of(s->tokens[place], s->n), ids, logprobs);
	cr_assert_eq(beam_offer(s->b, place, ids, logprobs, n), last);
}

static void offer_all(struct search *s)
{
	uint32_t left = 0, w = s->p.beam_width;
	for (uint32_t i = 0; i < w; i++)
		left += beam_lives(s->b, i);
	for (uint32_t k = 0; k < w; k++) {
		uint32_t place = s->backwards ? w - 1 - k : k;
		if (beam_lives(s->b, place))
			offer(s, place, --left == 0);
	}
}

static bool go_on(struct search *s)
{
	static uint32_t was[PARAMS_N_MAX][TOKENS_MAX * 2];
	struct beam_move moves[PARAMS_N_MAX];
	offer_all(s);
	uint32_t n = beam_step(s->b, moves);
	beam_check(s->b);
	memcpy(was, s->tokens, sizeof was);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(s->tokens[moves[i].place], was[moves[i].parent], s->n * sizeof **was);
		s->tokens[moves[i].place][s->n] = moves[i].token;
	}
	s->n++;
	return n > 0;
}

static void open_search(struct search *s, const uint32_t *prompt, uint32_t n_prompt)
{
	s->b = beam_new(&s->p);
	s->n = n_prompt;
	memcpy(s->tokens[0], prompt, n_prompt * sizeof *prompt);
}

/* ---- compared with transformers ---- */

static uint32_t ids_of(const json_t *array, uint32_t *out)
{
	for (size_t i = 0; i < json_array_size(array); i++)
		out[i] = (uint32_t)json_integer_value(json_array_get(array, i));
	return (uint32_t)json_array_size(array);
}

static int number(const json_t *c, const char *key)
{
	return (int)json_integer_value(json_object_get(c, key));
}

static void set_params(struct params *p, const json_t *c, uint32_t *stop)
{
	const json_t *early = json_object_get(c, "early_stopping");
	params_init(p);
	p->beam_width = (uint32_t)number(c, "width");
	p->max_tokens = (uint32_t)number(c, "max_tokens");
	p->min_tokens = (uint32_t)number(c, "min_tokens");
	p->length_penalty = (float)json_number_value(json_object_get(c, "length_penalty"));
	p->early = json_is_string(early) ? PARAMS_EARLY_NEVER
		   : json_is_true(early) ? PARAMS_EARLY_YES
					 : PARAMS_EARLY_NO;
	p->n_stop_ids = ids_of(json_object_get(c, "stop"), stop);
	p->stop_ids = stop;
}

static void same_as_golden(size_t at, bool backwards)
{
	const json_t *c = json_array_get(json_object_get(golden, "cases"), at);
	const json_t *want = json_object_get(c, "tokens"), *scores = json_object_get(c, "scores");
	uint32_t prompt[8], stop[32], ids[TOKENS_MAX];
	struct search *s = xcalloc(1, sizeof *s);
	s->backwards = backwards;
	set_params(&s->p, c, stop);
	open_search(s, prompt, ids_of(json_object_get(c, "prompt"), prompt));
	while (go_on(s))
		;
	cr_assert_eq(beam_n_finished(s->b), s->p.beam_width, "case %zu", at);
	for (uint32_t i = 0; i < s->p.beam_width; i++) {
		struct beam_token out[TOKENS_MAX];
		uint32_t n = ids_of(json_array_get(want, i), ids);
		cr_assert_eq(beam_length(s->b, i), n, "case %zu, hypothesis %u: %u tokens, not %u", at, i,
			     beam_length(s->b, i), n);
		beam_tokens(s->b, i, out);
		for (uint32_t k = 0; k < n; k++)
			cr_assert_eq(out[k].token, ids[k], "case %zu, hypothesis %u, token %u", at, i, k);
		cr_assert_eq(beam_stopped(s->b, i), params_is_stop(&s->p, ids[n - 1]));
		cr_assert_float_eq(beam_score(s->b, i), json_number_value(json_array_get(scores, i)), 2e-4,
				   "case %zu, hypothesis %u: score %g", at, i, (double)beam_score(s->b, i));
	}
	beam_free(s->b);
	free(s);
}

Test(beam, finds_what_transformers_finds)
{
	size_t n = json_array_size(json_object_get(golden, "cases"));
	cr_assert_gt(n, 40);
	for (size_t i = 0; i < n; i++)
		same_as_golden(i, false);
}

Test(beam, the_order_of_offers_does_not_matter)
{
	for (size_t i = 0; i < json_array_size(json_object_get(golden, "cases")); i++)
		same_as_golden(i, true);
}

/* ---- worked out by hand ---- */

static struct params by_hand(uint32_t width, uint32_t max_tokens, uint32_t *stop)
{
	struct params p;
	params_init(&p);
	p.beam_width = width;
	p.max_tokens = max_tokens;
	p.stop_ids = stop;
	p.n_stop_ids = stop ? 1 : 0;
	return p;
}

static struct beam_token last_token(const struct beam *b, uint32_t i)
{
	struct beam_token out[TOKENS_MAX];
	beam_tokens(b, i, out);
	return out[beam_length(b, i) - 1];
}

Test(beam, equal_sums_go_by_rank_then_by_token)
{
	struct params p = by_hand(2, 2, NULL);
	struct beam *b = beam_new(&p);
	struct beam_move m[2];
	cr_assert(beam_offer(b, 0, (uint32_t[]){4, 9, 11}, (float[]){-1, -1, -1}, 3));
	cr_assert_eq(beam_step(b, m), 2);
	cr_expect_eq(m[0].token, 4);
	cr_expect_eq(m[1].token, 9);
	cr_expect_eq(m[0].place, 0);
	cr_expect_eq(m[1].place, 1);
	/* Adding to 3e7 loses the difference: the sums are equal although the log-probabilities are not. */
	cr_assert_not(beam_offer(b, 1, (uint32_t[]){8, 2}, (float[]){-3e7f, -3e7f}, 2));
	cr_assert(beam_offer(b, 0, (uint32_t[]){5, 3}, (float[]){-3e7f, -3e7f - 0.1f}, 2));
	cr_assert_eq(beam_step(b, m), 0);
	cr_expect_eq(last_token(b, 0).token, 3);
	cr_expect_eq(last_token(b, 1).token, 5);
	beam_free(b);
}

Test(beam, a_place_is_kept_by_the_first_child_and_given_to_others_when_free)
{
	struct params p = by_hand(3, 9, NULL);
	struct beam *b = beam_new(&p);
	struct beam_move m[3];
	cr_assert(beam_offer(b, 0, (uint32_t[]){1, 2, 3}, (float[]){-1, -2, -3}, 3));
	cr_assert_eq(beam_step(b, m), 3);
	cr_assert_not(beam_offer(b, 0, (uint32_t[]){1, 2, 3}, (float[]){-9, -9, -9}, 3));
	cr_assert_not(beam_offer(b, 1, (uint32_t[]){1, 2, 3}, (float[]){-9, -9, -9}, 3));
	cr_assert(beam_offer(b, 2, (uint32_t[]){7, 8, 9}, (float[]){-1, -2, -3}, 3));
	cr_assert_eq(beam_step(b, m), 3);
	for (uint32_t i = 0; i < 3; i++) {
		cr_expect_eq(m[i].parent, 2);
		cr_expect_eq(m[i].token, 7 + i);
	}
	cr_expect_eq(m[0].place, 2);
	cr_expect_eq(m[1].place, 0);
	cr_expect_eq(m[2].place, 1);
	beam_check(b);
	beam_free(b);
}

Test(beam, impossible_tokens_and_nan_are_not_candidates)
{
	struct params p = by_hand(4, 3, NULL);
	struct beam *b = beam_new(&p);
	struct beam_move m[4];
	cr_assert(beam_offer(b, 0, (uint32_t[]){1, 2, 3, 4}, (float[]){-1, NAN, -INFINITY, -2}, 4));
	cr_assert_eq(beam_step(b, m), 2);
	cr_assert_not(beam_offer(b, 0, (uint32_t[]){5}, (float[]){-1}, 1));
	cr_assert(beam_offer(b, 1, NULL, NULL, 0));
	cr_assert_eq(beam_step(b, m), 1);
	cr_assert(beam_offer(b, m[0].place, NULL, NULL, 0));
	cr_expect_eq(beam_step(b, m), 0);
	cr_expect_eq(beam_n_finished(b), 0);
	beam_check(b);
	beam_free(b);
}

Test(beam, tokens_come_with_their_ranks_and_the_likeliest_beside_them)
{
	struct params p = by_hand(2, 1, NULL);
	struct beam_token t;
	p.logprobs = 3;
	cr_assert_eq(beam_n_candidates(&p), 3);
	struct beam *b = beam_new(&p);
	struct beam_move m[2];
	cr_assert(beam_offer(b, 0, (uint32_t[]){6, 2, 5}, (float[]){-1, -1, -4}, 3));
	cr_assert_eq(beam_step(b, m), 0);
	beam_tokens(b, 1, &t);
	cr_expect_eq(t.token, 6);
	cr_expect_eq(t.rank, 1);
	cr_expect_eq(t.n_top, 3);
	cr_expect_arr_eq(t.top_ids, ((uint32_t[]){6, 2, 5}), 3 * sizeof(uint32_t));
	cr_expect_float_eq(t.top_logprobs[2], -4, 0);
	beam_free(b);
}

Test(beam, stop_tokens_count_only_among_the_first)
{
	uint32_t stop = 9;
	struct params p = by_hand(2, 9, &stop);
	struct beam *b = beam_new(&p);
	struct beam_move m[2];
	cr_assert(beam_offer(b, 0, (uint32_t[]){1, 2, 9, 3}, (float[]){-1, -2, -3, -4}, 4));
	cr_assert_eq(beam_step(b, m), 2);
	cr_expect_eq(beam_n_finished(b), 0);
	cr_assert_not(beam_offer(b, 0, (uint32_t[]){9, 2, 3}, (float[]){-1, -2, -3}, 3));
	cr_assert(beam_offer(b, 1, (uint32_t[]){4, 5, 6}, (float[]){-9, -9, -9}, 3));
	cr_assert_eq(beam_step(b, m), 2);
	cr_expect_eq(beam_n_finished(b), 1);
	cr_expect(beam_stopped(b, 0));
	cr_expect_eq(beam_length(b, 0), 2);
	cr_expect_float_eq(beam_score(b, 0), -1, 1e-6);
	cr_expect_eq(m[0].parent, 0);
	cr_expect_eq(m[1].parent, 0);
	beam_free(b);
}

/* If the constraint allows only the end, workers return it although it is banned until min_tokens. */
Test(beam, a_form_that_must_end_ends_before_min_tokens)
{
	uint32_t stop = 9;
	struct params p = by_hand(2, 9, &stop);
	struct beam_move m[2];
	p.min_tokens = 5;
	for (uint32_t with_form = 0; with_form < 2; with_form++) {
		p.constraint = with_form ? constraint_new(0, "x", 1) : NULL;
		struct beam *b = beam_new(&p);
		cr_assert(beam_offer(b, 0, (uint32_t[]){1, 2, 9}, (float[]){-1, -2, -3}, 3));
		cr_assert_eq(beam_step(b, m), 2);
		cr_assert_not(beam_offer(b, 0, &stop, (float[]){-1}, 1));
		cr_assert(beam_offer(b, 1, (uint32_t[]){9, 4}, (float[]){-1, -2}, 2));
		cr_expect_eq(beam_step(b, m), 1); /* the second hypothesis can continue */
		cr_expect_eq(m[0].token, 4);
		cr_expect_eq(beam_n_finished(b), with_form);
		cr_expect(!with_form || (beam_stopped(b, 0) && beam_length(b, 0) == 2));
		beam_check(b);
		beam_free(b);
		constraint_free(p.constraint);
	}
}
