/* Requests become validated submits: defaults, precedence, limits, and the errors of invalid ones. */
#include "base/buf.h"
#include "tests/unit/request/api_rig.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

TestSuite(api, .init = open_demo, .fini = close_demo, .timeout = 60);

/* Return a job with these params; the caller owns it. */
static struct submit *job(const char *params)
{
	char text[4096];
	struct submit *s;
	struct api_problem p;
	snprintf(text, sizeof text, "{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once\", \"params\": {%s}}",
		 params);
	cr_assert_eq(submit(API_JOBS, text, &s, NULL, &p), 0, "%s: %s", params, p.why);
	return s;
}

static void refused(enum api_dialect dialect, const char *text, enum code code, const char *words)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_expect_neq(submit(dialect, text, &s, &reply, &p), 0, "taken: %s", text);
	cr_expect_eq(p.code, code, "%s: %s", text, p.why);
	cr_expect(strstr(p.why, words), "%s: \"%s\" does not contain \"%s\"", text, p.why, words);
	submit_free(s);
}

static void bad_param(const char *params, const char *words)
{
	char text[8192];
	snprintf(text, sizeof text, "{\"prompt\": \"Once\", \"params\": {%s}}", params);
	refused(API_JOBS, text, E_BAD_REQUEST, words);
}

/* --- defaults and precedence --- */

Test(api, generation_config_sets_defaults)
{
	struct submit *s = job("");
	cr_expect_float_eq(s->params.temperature, 0.7f, 1e-6f);
	cr_expect_float_eq(s->params.top_p, 0.9f, 1e-6f);
	cr_expect_eq(s->params.top_k, 40);
	submit_free(s);
}

Test(api, without_generation_config_defaults_are_vllms)
{
	demo.config.gen_temperature = demo.config.gen_top_p = NAN;
	demo.config.gen_top_k = -1;
	struct submit *s = job("");
	struct params *p = &s->params;
	cr_expect_eq(p->temperature, 1);
	cr_expect_eq(p->top_p, 1);
	cr_expect_eq(p->top_k, 0);
	cr_expect_eq(p->min_p, 0);
	cr_expect_eq(p->repetition, 1);
	cr_expect_eq(p->presence, 0);
	cr_expect_eq(p->n, 1);
	cr_expect_eq(p->logprobs, -1);
	cr_expect_eq(p->prompt_logprobs, -1);
	cr_expect_eq(p->max_tokens, 2048 - s->n_tokens);
	cr_expect(s->skip_special);
	cr_expect_not(s->include_stop || s->stream || s->keep || p->ignore_eos);
	submit_free(s);
}

Test(api, request_overrides_generation_config)
{
	struct submit *s = job("\"temperature\": 0.25, \"top_p\": 1, \"top_k\": -1, \"max_tokens\": 7");
	cr_expect_eq(s->params.temperature, 0.25f);
	cr_expect_eq(s->params.top_p, 1);
	cr_expect_eq(s->params.top_k, 0);
	cr_expect_eq(s->params.max_tokens, 7);
	submit_free(s);
}

Test(api, null_means_absent)
{
	struct submit *s =
		job("\"temperature\": null, \"stop\": null, \"response_format\": null, \"seed\": null");
	cr_expect_float_eq(s->params.temperature, 0.7f, 1e-6f);
	submit_free(s);
}

Test(api, generation_config_max_new_tokens_is_only_a_default)
{
	demo.config.gen_max_new_tokens = 20;
	struct submit *s = job(""), *t = job("\"max_tokens\": 100");
	cr_expect_eq(s->params.max_tokens, 20);
	cr_expect_eq(t->params.max_tokens, 100);
	submit_free(s);
	submit_free(t);
}

Test(api, temperature_near_0_is_greedy_and_a_small_one_is_raised)
{
	struct submit *s = job("\"temperature\": 0"), *t = job("\"temperature\": 1e-6"),
		      *u = job("\"temperature\": 1e-3");
	cr_expect_eq(s->params.temperature, 0);
	cr_expect_eq(t->params.temperature, 0);
	cr_expect_float_eq(u->params.temperature, 0.01f, 1e-9f);
	submit_free(s);
	submit_free(t);
	submit_free(u);
}

Test(api, seed_is_kept_or_drawn_per_job)
{
	struct submit *s = job("\"seed\": 42"), *n = job("\"seed\": -1"), *t = job(""), *u = job("");
	cr_expect_eq(s->params.seed, 42);
	cr_expect_eq(n->params.seed, UINT64_MAX);
	cr_expect_neq(t->params.seed, u->params.seed);
	cr_expect_leq(t->params.seed, (uint64_t)INT64_MAX);
	submit_free(s);
	submit_free(n);
	submit_free(t);
	submit_free(u);
}

/* --- lists --- */

Test(api, stop_ids_of_request_and_model_are_merged)
{
	struct submit *s = job("\"stop_token_ids\": [5, 5, 1663]");
	cr_expect(params_is_stop(&s->params, 5));
	cr_expect(params_is_stop(&s->params, 1661));
	cr_expect(params_is_stop(&s->params, 1663));
	cr_expect_eq(s->params.n_stop_ids, 3);
	struct submit *t = job("\"stop_token_ids\": [5], \"ignore_eos\": true");
	cr_expect_eq(t->params.n_stop_ids, 1);
	submit_free(s);
	submit_free(t);
}

Test(api, stop_is_a_string_or_an_array)
{
	struct submit *s = job("\"stop\": \"END\""), *t = job("\"stop\": [\"a\", \"\\n\\n\"]"),
		      *u = job("\"stop\": []");
	cr_expect_eq(s->n_stop, 1);
	cr_expect_str_eq(s->stop[0], "END");
	cr_expect_eq(t->n_stop, 2);
	cr_expect_str_eq(t->stop[1], "\n\n");
	cr_expect_eq(u->n_stop, 0);
	submit_free(s);
	submit_free(t);
	submit_free(u);
}

Test(api, biases_are_clamped_to_100)
{
	struct submit *s = job("\"logit_bias\": {\"7\": 1000, \"8\": -1e30, \"9\": 0.5}");
	cr_assert_eq(s->params.n_bias, 3);
	for (uint32_t i = 0; i < 3; i++) {
		int32_t id = s->params.bias_ids[i];
		cr_expect_eq(s->params.bias[i], id == 7 ? 100 : id == 8 ? -100 : 0.5f);
	}
	submit_free(s);
}

static bool has_bad(const struct params *p, const struct token_ids *ids)
{
	const int32_t *at = p->bad;
	for (uint32_t i = 0; i < p->n_bad; at += p->bad_len[i++]) {
		bool same = (size_t)p->bad_len[i] == ids->n;
		for (size_t k = 0; same && k < ids->n; k++)
			same = at[k] == (int32_t)ids->ids[k];
		if (same)
			return true;
	}
	return false;
}

Test(api, bad_words_are_banned_with_and_without_a_space)
{
	struct submit *s = job("\"bad_words\": [\" dog\", \"cat\"]");
	static const char *const texts[] = {"dog", " dog", "cat", " cat"};
	for (int i = 0; i < 4; i++) {
		struct token_ids ids = {0}, bare = {0};
		struct why why;
		tokenizer_encode(demo.tokenizer, texts[i], strlen(texts[i]), 0, NULL, 0, &ids, &why);
		tokenizer_encode(demo.tokenizer, texts[i] + (i & 1), strlen(texts[i]) - (i & 1), 0, NULL, 0,
				 &bare, &why);
		/* The second form is expected only if it is as long and begins with a different token. */
		if (ids.n == bare.n)
			cr_expect(has_bad(&s->params, &ids), "%s", texts[i]);
		token_ids_fini(&ids);
		token_ids_fini(&bare);
	}
	submit_free(s);
}

/* A worker takes a limited number of bad tokens. */
Test(api, bad_words_of_too_many_tokens_are_refused)
{
	enum { WORDS = 200, BYTES = 1000 };
	struct submit *s;
	struct api_problem p;
	uint64_t x = 1;
	for (int words = WORDS; words > 1; words /= 10) {
		struct buf b = {0};
		buf_puts(&b, "{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once\", \"params\": "
			     "{\"bad_words\": [");
		for (int i = 0; i < words; i++) {
			buf_puts(&b, i ? ", \"" : "\"");
			for (int k = 0; k < BYTES; k++)
				buf_putc(&b,
					 (char)('A' + (x = x * 6364136223846793005u + 1442695040888963407u) /
							      (1ull << 59) % 26));
			buf_putc(&b, '"');
		}
		buf_puts(&b, "]}}");
		int rc = submit(API_JOBS, b.p, &s, NULL, &p);
		cr_expect_eq(rc != 0, words == WORDS, "%d words: %s", words, p.why);
		if (rc)
			cr_expect(strstr(p.why, "more than 65536 tokens"), "%s", p.why);
		else
			cr_expect(s->params.n_bad_ids > 1000 && s->params.n_bad_ids <= PARAMS_BAD_IDS_MAX);
		submit_free(rc ? NULL : s);
		buf_fini(&b);
	}
}

Test(api, allowed_ids_must_leave_one_to_choose)
{
	struct submit *s =
		job("\"allowed_token_ids\": [300, 301], \"stop_token_ids\": [300], \"min_tokens\": 2");
	submit_free(s);
	bad_param("\"allowed_token_ids\": [300], \"stop_token_ids\": [300], \"min_tokens\": 2",
		  "bad_words leave none");
	submit_free(job("\"allowed_token_ids\": [300], \"stop_token_ids\": [300]"));
	s = job("\"bad_words\": [\"a\"]");
	char text[256];
	cr_assert_eq(s->params.bad_len[0], 1);
	snprintf(text, sizeof text, "\"allowed_token_ids\": [%d], \"bad_words\": [\"a\"]", s->params.bad[0]);
	submit_free(s);
	bad_param(text, "bad_words leave none");
}

Test(api, llama_cpp_samplers_are_read)
{
	struct submit *s = job("\"typical_p\": 0.5, \"top_n_sigma\": 1.5, \"xtc_probability\": 0.25, "
			       "\"xtc_threshold\": 0.125, \"dry_multiplier\": 0.75, \"dry_base\": 2, "
			       "\"dry_allowed_length\": 3, \"dry_penalty_last_n\": 99, "
			       "\"dry_sequence_breakers\": [\"e\"], \"mirostat\": 2, "
			       "\"mirostat_tau\": 3, \"mirostat_eta\": 0.5");
	const struct params *p = &s->params;
	cr_expect(p->typical_p == 0.5f && p->top_n_sigma == 1.5f && p->xtc_probability == 0.25f);
	cr_expect(p->xtc_threshold == 0.125f && p->dry_multiplier == 0.75f && p->dry_base == 2);
	cr_expect(p->dry_allowed == 3 && p->dry_last_n == 99);
	cr_expect(p->mirostat == 2 && p->mirostat_tau == 3 && p->mirostat_eta == 0.5f);
	cr_expect_eq(params_first_mu(p), 6 * PARAMS_MIROSTAT_ONE);
	cr_expect(p->n_breakers > 10);
	for (uint32_t i = 1; i < p->n_breakers; i++)
		cr_expect(p->breakers[i - 1] < p->breakers[i]);
	submit_free(s);
	s = job("\"top_n_sigma\": -1, \"dry_multiplier\": 1");
	cr_expect(s->params.top_n_sigma == 0 && s->params.n_breakers >= 4);
	submit_free(s);
	s = job("\"dry_multiplier\": 1, \"dry_penalty_last_n\": 0"); /* no token is looked at */
	cr_expect(s->params.dry_multiplier == 0 && s->params.n_breakers == 0);
	submit_free(s);
	s = job("\"dry_multiplier\": 1, \"dry_sequence_breakers\": []");
	cr_expect(s->params.dry_multiplier == 1 && s->params.n_breakers == 0);
	submit_free(s);
}

/* --- wrong values --- */

Test(api, numbers_out_of_range_are_named)
{
	static const char *const bad[][2] = {
		{"\"temperature\": -0.1", "temperature"},
		{"\"temperature\": 1e300", "temperature"},
		{"\"temperature\": \"1\"", "temperature"},
		{"\"temperature\": true", "temperature"},
		{"\"top_p\": 0", "top_p"},
		{"\"top_p\": 1.01", "top_p"},
		{"\"top_p\": 1e-300", "top_p"},
		{"\"top_k\": -2", "top_k"},
		{"\"top_k\": 1.5", "top_k must be an integer"},
		{"\"top_k\": 99999999999", "top_k"},
		{"\"min_p\": -1", "min_p"},
		{"\"presence_penalty\": 2.1", "presence_penalty"},
		{"\"frequency_penalty\": -3", "frequency"},
		{"\"repetition_penalty\": 0", "repetition_penalty"},
		{"\"typical_p\": 0", "typical_p"},
		{"\"typical_p\": 1e-300", "typical_p is too small"},
		{"\"typical_p\": 1.5", "typical_p"},
		{"\"top_n_sigma\": -2", "top_n_sigma"},
		{"\"top_n_sigma\": 1e-300", "top_n_sigma is too small"},
		{"\"xtc_probability\": 1.1", "xtc_probability"},
		{"\"xtc_threshold\": -0.1", "xtc_threshold"},
		{"\"dry_multiplier\": -1", "dry_multiplier"},
		{"\"dry_base\": 0.5", "dry_base"},
		{"\"dry_allowed_length\": -1", "dry_allowed_length"},
		{"\"dry_penalty_last_n\": -2", "dry_penalty_last_n"},
		{"\"dry_sequence_breakers\": [\"\"]", "dry_sequence_breakers[0]"},
		{"\"dry_sequence_breakers\": [5]", "dry_sequence_breakers[0]"},
		{"\"dry_multiplier\": 1, \"dry_sequence_breakers\": [\"\\u0001\\u0002zq\"]", "in no token"},
		{"\"mirostat\": 3", "mirostat"},
		{"\"mirostat\": 1.5", "mirostat"},
		{"\"mirostat_tau\": -1", "mirostat_tau"},
		{"\"mirostat_tau\": 101", "mirostat_tau"},
		{"\"mirostat_eta\": 11", "mirostat_eta"},
		{"\"mirostat\": 1, \"use_beam_search\": true, \"n\": 2", "mirostat"},
		{"\"n\": 0", "n is 0"},
		{"\"n\": 65", "n is 65"},
		{"\"n\": -1", "n is -1"},
		{"\"n\": 9223372036854775807", "n is 9223372036854775807"},
		{"\"max_tokens\": 0", "max_tokens"},
		{"\"max_tokens\": -5", "max_tokens"},
		{"\"max_tokens\": 2.5", "max_tokens"},
		{"\"max_tokens\": [1]", "max_tokens"},
		{"\"min_tokens\": -1", "min_tokens"},
		{"\"min_tokens\": 5000", "min_tokens"},
		{"\"logprobs\": 65", "logprobs"},
		{"\"logprobs\": -1", "logprobs"},
		{"\"prompt_logprobs\": 100", "prompt_logprobs"},
		{"\"seed\": 1.5", "seed"},
		{"\"seed\": 1e17", "seed must be an integer"},
		{"\"n\": 65.0", "n is 65"},
		{"\"ignore_eos\": 1", "ignore_eos"},
		{"\"skip_special_tokens\": \"no\"", "skip_special_tokens"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		bad_param(bad[i][0], bad[i][1]);
}

Test(api, invalid_lists_are_named)
{
	static const char *const bad[][2] = {
		{"\"stop\": 5", "stop"},
		{"\"stop\": [\"\"]", "stop[0]"},
		{"\"stop\": [\"a\", 5]", "stop"},
		{"\"stop\": [\"a\\u0000b\"]", "stop[0]"},
		{"\"stop\": "
		 "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\","
		 "\"15\","
		 "\"16\",\"17\"]",
		 "17 strings"},
		{"\"stop_token_ids\": 5", "stop_token_ids"},
		{"\"stop_token_ids\": [1, -1]", "stop_token_ids[1]"},
		{"\"stop_token_ids\": [1664]", "stop_token_ids[0] is 1664"},
		{"\"stop_token_ids\": [\"a\"]", "stop_token_ids[0]"},
		{"\"allowed_token_ids\": []", "allowed_token_ids is empty"},
		{"\"allowed_token_ids\": [99999999999]", "allowed_token_ids[0]"},
		{"\"logit_bias\": []", "logit_bias"},
		{"\"logit_bias\": {\"a\": 1}", "logit_bias"},
		{"\"logit_bias\": {\"1664\": 1}", "1664"},
		{"\"logit_bias\": {\"07\": 1}", "07"},
		{"\"logit_bias\": {\"-1\": 1}", "-1"},
		{"\"logit_bias\": {\"99999999999999999999\": 1}", "99999999999999999999"},
		{"\"logit_bias\": {\"1\": \"x\"}", "logit_bias of 1"},
		{"\"bad_words\": \"x\"", "bad_words"},
		{"\"bad_words\": [\"  \"]", "bad_words[0]"},
		{"\"bad_words\": [1]", "bad_words[0]"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		bad_param(bad[i][0], bad[i][1]);
}

Test(api, neutral_values_are_taken)
{
	submit_free(job("\"best_of\": 3, \"n\": 3, \"use_beam_search\": false, \"length_penalty\": 1.0, "
			"\"early_stopping\": false, \"response_format\": {\"type\": \"text\"}"));
}

Test(api, beam_width_is_given_as_width_or_best_of_or_n)
{
	static const struct {
		const char *params;
		uint32_t width, n;
	} widths[] = {
		{"\"use_beam_search\": true, \"n\": 3", 3, 3},
		{"\"use_beam_search\": true, \"best_of\": 5, \"n\": 3", 5, 3},
		{"\"use_beam_search\": true, \"beam_width\": 64", 64, 1},
		{"\"use_beam_search\": true, \"beam_width\": 4, \"best_of\": 4, \"temperature\": 0", 4, 1},
		{"\"use_beam_search\": true, \"beam_width\": 4, \"temperature\": 1, \"top_p\": 1, \"top_k\": "
		 "-1",
		 4, 1},
	};
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
		struct submit *s = job(widths[i].params);
		cr_expect_eq(s->params.beam_width, widths[i].width, "%s", widths[i].params);
		cr_expect_eq(s->params.n, widths[i].n);
		cr_expect_eq(s->best_of, 0);
		cr_expect_float_eq(s->params.length_penalty, 1, 0);
		cr_expect_eq(s->params.early, PARAMS_EARLY_NO);
		submit_free(s);
	}
	struct submit *s = job("\"use_beam_search\": true, \"n\": 2, \"length_penalty\": -0.5, "
			       "\"early_stopping\": \"never\"");
	cr_expect_float_eq(s->params.length_penalty, -0.5, 1e-6);
	cr_expect_eq(s->params.early, PARAMS_EARLY_NEVER);
	submit_free(s);
}

Test(api, beam_width_of_1_is_greedy)
{
	struct submit *s = job("\"use_beam_search\": true");
	cr_expect_eq(s->params.beam_width, 0);
	cr_expect_eq(s->params.temperature, 0);
	submit_free(s);
}

Test(api, fields_that_beams_cannot_honour_are_refused_by_name)
{
	static const char *const bad[][2] = {
		{"\"temperature\": 0.7", "temperature can only be 0 or 1"},
		{"\"top_p\": 0.9", "top_p"},
		{"\"top_k\": 5", "top_k"},
		{"\"min_p\": 0.1", "min_p"},
		{"\"presence_penalty\": 1", "presence_penalty"},
		{"\"frequency_penalty\": 1", "frequency_penalty"},
		{"\"repetition_penalty\": 1.1", "repetition_penalty is 1.1"},
		{"\"logit_bias\": {\"5\": 1}", "logit_bias"},
		{"\"allowed_token_ids\": [1, 2]", "allowed_token_ids"},
		{"\"bad_words\": [\"a\"]", "bad_words"},
		{"\"n\": 5", "beam_width is 4, less than n"},
		{"\"best_of\": 5", "best_of 5"},
		{"\"beam_width\": 65", "beam_width"},
		{"\"length_penalty\": 6", "length_penalty"},
		{"\"length_penalty\": \"long\"", "length_penalty"},
		{"\"early_stopping\": \"soon\"", "early_stopping must be true, false or"},
		{"\"early_stopping\": 1", "early_stopping"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char params[256];
		bool width = strstr(bad[i][0], "beam_width") != NULL;
		snprintf(params, sizeof params, "\"use_beam_search\": true%s, %s",
			 width ? "" : ", \"beam_width\": 4", bad[i][0]);
		bad_param(params, bad[i][1]);
	}
	bad_param("\"use_beam_search\": 1", "use_beam_search must be true or false");
	bad_param("\"beam_width\": 4", "beam_width is only taken with use_beam_search");
	bad_param("\"length_penalty\": 0.5", "length_penalty is only taken");
	bad_param("\"early_stopping\": true", "early_stopping is only taken");
}

Test(api, durable_jobs_are_kept_without_listeners)
{
	struct submit *s;
	struct api_problem p;
	cr_assert_eq(submit(API_JOBS, "{\"prompt\": \"a\", \"durable\": true}", &s, NULL, &p), 0, "%s",
		     p.why);
	cr_expect(s->durable && s->keep);
	submit_free(s);
}

static void digest(const char *text, uint8_t out[16])
{
	json_t *v = json_loads(text, 0, NULL);
	cr_assert_not_null(v);
	api_digest(v, out);
	json_decref(v);
}

Test(api, digest_covers_only_fields_that_determine_the_result)
{
	uint8_t a[16], b[16];
	digest("{\"prompt\": \"a\", \"params\": {\"n\": 2, \"seed\": 1}, \"key\": \"x\", \"stream\": true}",
	       a);
	digest("{\"params\": {\"seed\": 1, \"n\": 2}, \"prompt\": \"a\", \"deadline_ms\": 5, \"user\": null, "
	       "\"cache_salt\": null, \"op\": \"submit\", \"id\": 7, \"durable\": true}",
	       b);
	cr_expect_eq(memcmp(a, b, 16), 0);
	digest("{\"prompt\": \"a\", \"params\": {\"n\": 3, \"seed\": 1}, \"key\": \"x\"}", b);
	cr_expect_neq(memcmp(a, b, 16), 0);
}

Test(api, unknown_fields_are_named)
{
	refused(API_JOBS, "{\"prompt\": \"a\", \"colour\": 1}", E_BAD_REQUEST, "colour");
	refused(API_JOBS, "{\"prompt\": \"a\", \"temperature\": 1}", E_BAD_REQUEST, "temperature");
	bad_param("\"colour\": null", "colour in params");
}

Test(api, truncated_reasons_stay_utf8)
{
	struct buf b = {0};
	struct submit *s;
	struct api_problem p;
	buf_puts(&b, "{\"prompt\": \"a\", \"a");
	for (int i = 0; i < 300; i++)
		buf_puts(&b, "\xe2\x82\xac");
	buf_puts(&b, "\": 1}");
	cr_assert_neq(submit(API_JOBS, b.p, &s, NULL, &p), 0);
	json_t *text = json_string(p.why), *param = json_string(p.param);
	cr_assert(text && param);
	json_decref(text);
	json_decref(param);
	buf_fini(&b);
}

/* --- the prompt --- */

Test(api, exactly_one_of_prompt_tokens_and_messages)
{
	refused(API_JOBS, "{}", E_BAD_REQUEST, "exactly one");
	refused(API_JOBS, "{\"prompt\": \"a\", \"tokens\": [1]}", E_BAD_REQUEST, "exactly one");
}

Test(api, prompts_that_are_empty_or_of_the_wrong_kind)
{
	refused(API_JOBS, "{\"prompt\": \"\"}", E_BAD_REQUEST, "no tokens");
	refused(API_JOBS, "{\"tokens\": []}", E_BAD_REQUEST, "no tokens");
	refused(API_JOBS, "{\"prompt\": 5}", E_BAD_REQUEST, "prompt must be a string");
	refused(API_JOBS, "{\"prompt\": [\"a\"]}", E_BAD_REQUEST, "prompt must be a string");
	refused(API_JOBS, "{\"tokens\": [5, 1664]}", E_BAD_REQUEST, "tokens[1] is 1664");
	refused(API_JOBS, "{\"tokens\": [-1]}", E_BAD_REQUEST, "tokens[0] is -1");
	refused(API_JOBS, "{\"tokens\": [1.5]}", E_BAD_REQUEST, "tokens[0]");
	refused(API_JOBS, "{\"tokens\": \"a\"}", E_BAD_REQUEST, "tokens must be an array");
	refused(API_JOBS, "[]", E_BAD_REQUEST, "map");
}

Test(api, special_tokens_are_recognized_in_prompts_and_not_in_messages)
{
	struct submit *s;
	struct api_problem p;
	cr_assert_eq(submit(API_JOBS, "{\"prompt\": \"<|im_end|>\"}", &s, NULL, &p), 0, "%s", p.why);
	cr_expect_eq(s->n_tokens, 1);
	cr_expect_eq(s->tokens[0], 1663);
	submit_free(s);
	cr_assert_eq(submit(API_JOBS, "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}]}",
			    &s, NULL, &p),
		     0, "%s", p.why);
	int ends = 0;
	for (uint32_t i = 0; i < s->n_tokens; i++)
		ends += s->tokens[i] == 1663;
	cr_expect_eq(ends, 1, "the message's own end only");
	submit_free(s);
}

Test(api, wrong_messages_are_named)
{
	refused(API_JOBS, "{\"messages\": []}", E_BAD_REQUEST, "messages");
	refused(API_JOBS, "{\"messages\": [5]}", E_BAD_REQUEST, "messages[0]");
	refused(API_JOBS, "{\"messages\": [{\"role\": \"user\"}]}", E_BAD_REQUEST, "messages[0].content");
	refused(API_JOBS, "{\"messages\": [{\"role\": \"wizard\", \"content\": \"a\"}]}", E_BAD_REQUEST,
		"wizard");
	refused(API_JOBS,
		"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
		"\"a\"}]}]}",
		E_BAD_REQUEST, "content must be a string");
	refused(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
		E_BAD_REQUEST, "messages[0].content[0]");
	refused(API_CHAT,
		"{\"messages\": [{\"role\": \"assistant\", \"function_call\": {\"name\": \"f\", "
		"\"arguments\": \"{}\"}}]}",
		E_BAD_REQUEST, "messages[0].function_call is not taken");
	refused(API_CHAT, "{\"messages\": [{\"role\": \"assistant\", \"refusal\": \"no\"}]}", E_BAD_REQUEST,
		"messages[0].refusal is not taken");
	refused(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"id\": \"1\"}]}", E_BAD_REQUEST,
		"messages[0].content");
	refused(API_JOBS, "{\"messages\": [{\"role\": \"assistant\"}]}", E_BAD_REQUEST,
		"messages[0].content");
	refused(API_JOBS, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"id\": 1}]}",
		E_BAD_REQUEST, "messages[0].id is not taken");
	refused(API_JOBS, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"Bob\"}]}",
		E_BAD_REQUEST, "name");
	refused(API_CHAT,
		"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": "
		"[{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}]}",
		E_BAD_REQUEST, "takes no tool_calls");
	demo.svc.chat = NULL;
	strcpy(demo.svc.chat_why.text, "no template here");
	refused(API_JOBS, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", E_BAD_REQUEST,
		"no template here");
}

Test(api, a_prompt_as_long_as_the_context_is_too_long)
{
	struct buf b = {0};
	struct submit *s;
	struct api_problem p;
	buf_puts(&b, "{\"tokens\": [5");
	for (int i = 1; i < 2047; i++)
		buf_puts(&b, ",5");
	struct buf c = {0};
	buf_puts(&c, b.p);
	buf_puts(&b, "]}");
	cr_assert_eq(submit(API_JOBS, b.p, &s, NULL, &p), 0, "%s", p.why);
	cr_expect_eq(s->params.max_tokens, 1);
	submit_free(s);
	buf_puts(&c, ",5]}");
	refused(API_JOBS, c.p, E_TOO_LONG, "2048");
	buf_fini(&b);
	buf_fini(&c);
}

Test(api, a_prompt_of_more_bytes_than_the_context_can_hold_is_not_tokenized)
{
	size_t n = 2048 * tokenizer_max_piece(demo.tokenizer) + 20;
	struct buf b = {0};
	buf_puts(&b, "{\"prompt\": \"");
	for (size_t i = 0; i < n; i++)
		buf_putc(&b, 'a');
	buf_puts(&b, "\"}");
	refused(API_JOBS, b.p, E_TOO_LONG, "context of 2048 tokens");
	buf_fini(&b);
}

Test(api, an_explicit_max_tokens_must_fit_the_context)
{
	refused(API_JOBS, "{\"tokens\": [1, 2, 3], \"params\": {\"max_tokens\": 2046}}", E_TOO_LONG,
		"3 tokens and max_tokens is 2046, the context holds 2048");
	refused(API_CHAT,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_completion_tokens\": 2048}",
		E_TOO_LONG, "max_completion_tokens");
}

Test(api, submit_has_its_own_fields)
{
	struct submit *s;
	struct api_problem p;
	int64_t now = clock_us();
	cr_assert_eq(submit(API_JOBS,
			    "{\"prompt\": \"a\", \"stream\": true, \"deadline_ms\": 1000, \"user\": \"u\", "
			    "\"key\": \"k\", "
			    "\"cache_salt\": \"s\", \"on_disconnect\": \"keep\", \"durable\": false, "
			    "\"priority\": 0}",
			    &s, NULL, &p),
		     0, "%s", p.why);
	cr_expect(s->stream && s->keep);
	cr_expect_geq(s->deadline_us, now + 1000000);
	cr_expect_str_eq(s->user, "u");
	cr_expect_str_eq(s->key, "k");
	cr_expect_str_eq(s->cache_salt, "s");
	submit_free(s);
	refused(API_JOBS, "{\"prompt\": \"a\", \"on_disconnect\": \"explode\"}", E_BAD_REQUEST,
		"on_disconnect");
	refused(API_JOBS, "{\"prompt\": \"a\", \"deadline_ms\": 0}", E_BAD_REQUEST, "deadline_ms");
	refused(API_JOBS, "{\"prompt\": \"a\", \"key\": \"\"}", E_BAD_REQUEST, "key");
	refused(API_JOBS, "{\"prompt\": \"a\", \"user\": \"a\\u0000\"}", E_BAD_REQUEST, "user");
	refused(API_JOBS, "{\"prompt\": \"a\", \"params\": []}", E_BAD_REQUEST, "params must be a map");
}

/* --- OpenAI's dialects --- */

Test(api, completion_defaults_to_16_tokens)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(submit(API_COMPLETIONS, "{\"model\": \"demo\", \"prompt\": \"Once\"}", &s, &reply, &p),
		     0, "%s", p.why);
	cr_expect_eq(s->params.max_tokens, 16);
	submit_free(s);
}

Test(api, chat_takes_parts_and_newer_names)
{
	struct submit *s, *t;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(
		submit(API_CHAT,
		       "{\"messages\": [{\"role\": \"developer\", \"content\": \"Be kind.\"}, {\"role\": "
		       "\"user\", "
		       "\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": "
		       "\"b\"}]}, "
		       "{\"role\": \"assistant\", \"content\": \"c\", \"refusal\": null, \"tool_calls\": "
		       "[]}, "
		       "{\"role\": \"user\", \"content\": \"d\"}], \"max_completion_tokens\": 9, "
		       "\"logprobs\": true, "
		       "\"top_logprobs\": 3, \"stream\": true, \"stream_options\": {\"include_usage\": "
		       "true}, "
		       "\"tools\": [], \"tool_choice\": \"none\", \"made_up\": 1, \"metadata\": {\"a\": 1}}",
		       &s, &reply, &p),
		0, "%s", p.why);
	cr_expect_eq(s->params.max_tokens, 9);
	cr_expect_eq(s->params.logprobs, 3);
	cr_expect(reply.stream && reply.include_usage);
	cr_expect(strstr(reply.ignored, "made_up") && strstr(reply.ignored, "metadata"), "%s", reply.ignored);
	cr_assert_eq(submit(API_JOBS,
			    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": "
			    "\"user\", "
			    "\"content\": \"a\\nb\"}, {\"role\": \"assistant\", \"content\": \"c\"}, "
			    "{\"role\": \"user\", "
			    "\"content\": \"d\"}]}",
			    &t, NULL, &p),
		     0, "%s", p.why);
	cr_assert_eq(s->n_tokens, t->n_tokens);
	cr_assert_eq(memcmp(s->tokens, t->tokens, s->n_tokens * sizeof *s->tokens), 0);
	submit_free(s);
	submit_free(t);
}

Test(api, openai_fields_that_would_change_the_answer_are_refused_by_name)
{
	static const char *const fields[] = {
		"\"verbosity\": \"high\"",
		"\"moderation\": {\"a\": 1}",
		"\"functions\": [{\"name\": \"f\"}]",
		"\"modalities\": [\"audio\"]",
		"\"top_a\": 0.5",
		"\"tfs_z\": 0.9",
		"\"dynatemp_range\": 1",
		"\"mirostat_target\": 5",
		"\"do_sample\": false",
		"\"num_beams\": 2",
		"\"stop_regex\": \"a\"",
		"\"n_probs\": 3",
		"\"grammar_triggers\": [{}]",
		"\"options\": {\"temperature\": 0}",
		"\"sampling_params\": {\"top_k\": 1}",
		"\"parameters\": {\"grammar\": {}}",
		"\"extra_body\": {\"guided_json\": {}}",
		"\"logits_processors\": [\"x\"]",
	};
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
		char text[512];
		snprintf(text, sizeof text, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], %s}",
			 fields[i]);
		refused(API_CHAT, text, E_BAD_REQUEST, "not supported");
	}
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"suffix\": \"b\"}", E_BAD_REQUEST,
		"suffix is not supported: write the model's own");
	refused(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 2}",
		E_BAD_REQUEST, "top_logprobs");
	refused(API_CHAT,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"stream_options\": "
		"{\"include_usage\": true}}",
		E_BAD_REQUEST, "stream_options");
}

Test(api, strict_refuses_unknown_fields)
{
	demo.svc.strict = true;
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"made_up\": 1}", E_BAD_REQUEST, "made_up");
}

Test(api, ignored_names_cannot_forge_a_header)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(
		submit(API_COMPLETIONS, "{\"prompt\": \"a\", \"x\\r\\nSet-Cookie: a\": 1}", &s, &reply, &p),
		0);
	cr_expect_str_eq(reply.ignored, "x??Set-Cookie??a");
	submit_free(s);
}

Test(api, completion_may_have_many_prompts)
{
	json_t *r = parsed("{\"prompt\": [\"Once\", \"Once upon\", [5, 6, 7]]}"),
	       *one = parsed("{\"prompt\": [5, 6]}");
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(api_n_prompts(r), 3);
	cr_assert_eq(api_submit(&demo.svc, 2048, r, API_COMPLETIONS, 2, &s, &reply, &p), 0, "%s", p.why);
	cr_expect_eq(s->n_tokens, 3);
	cr_expect_eq(s->tokens[2], 7);
	submit_free(s);
	cr_assert_eq(api_n_prompts(one), 1);
	cr_assert_eq(api_submit(&demo.svc, 2048, one, API_COMPLETIONS, 0, &s, &reply, &p), 0, "%s", p.why);
	cr_expect_eq(s->n_tokens, 2);
	submit_free(s);
	json_decref(r);
	json_decref(one);
}

/* Later changes of the request have no effect: all prompts share the fields that were read. */
Test(api, fields_are_read_once_for_all_prompts)
{
	json_t *r =
		parsed("{\"prompt\": [\"Once\", \"Once upon\"], \"temperature\": 0.5, \"stop\": [\"a\", "
		       "\"b\"], \"user\": \"x\", \"bad_words\": [\"cat\"], \"allowed_token_ids\": [5, 6]}");
	struct api_request *all;
	struct submit *s[2];
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(api_request_read(&demo.svc, 2048, r, API_COMPLETIONS, &all, &p), 0, "%s", p.why);
	json_object_set_new(r, "temperature", json_string("hot"));
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(api_request_prompt(all, i, &s[i], &reply, &p), 0, "%s", p.why);
	api_request_free(all);
	json_decref(r);
	cr_expect_neq(s[0]->params.seed, s[1]->params.seed, "each job draws its own");
	for (size_t i = 0; i < 2; i++) {
		cr_expect_float_eq(s[i]->params.temperature, 0.5f, 1e-6f);
		cr_expect_eq(s[i]->n_stop, 2);
		cr_expect_str_eq(s[i]->stop[1], "b");
		cr_expect_str_eq(s[i]->user, "x");
		cr_expect(s[i]->params.n_bad >= 1);
		cr_expect_eq(s[i]->params.n_allowed, 2);
		submit_free(s[i]);
	}
}

static int64_t cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Return the CPU time of a request with this many prompts and unknown fields. */
static int64_t cost(int n_prompts, int n_unknown)
{
	json_t *r = json_object(), *prompts = json_array();
	struct api_request *all;
	struct api_problem p;
	for (int i = 0; i < n_prompts; i++)
		json_array_append_new(prompts, json_string("a"));
	json_object_set_new(r, "prompt", prompts);
	for (int i = 0; i < n_unknown; i++) {
		char name[16];
		snprintf(name, sizeof name, "k%d", i);
		json_object_set_new(r, name, json_integer(1));
	}
	int64_t from = cpu_us();
	cr_assert_eq(api_request_read(&demo.svc, 2048, r, API_COMPLETIONS, &all, &p), 0, "%s", p.why);
	for (int i = 0; i < n_prompts; i++) {
		struct submit *s;
		struct api_reply reply;
		cr_assert_eq(api_request_prompt(all, (size_t)i, &s, &reply, &p), 0, "%s", p.why);
		submit_free(s);
	}
	api_request_free(all);
	int64_t took = cpu_us() - from;
	json_decref(r);
	return took;
}

/* Reading the fields for each prompt would cost a hundred times as much. */
Test(api, unknown_fields_cost_nothing_per_prompt)
{
	cost(10, 10);
	int64_t prompts = cost(2000, 0), fields = cost(1, 1000), both = cost(2000, 1000);
	cr_expect(both < 5 * (prompts + fields) + 10000, "%lld us; the prompts alone %lld, the fields %lld",
		  (long long)both, (long long)prompts, (long long)fields);
}

Test(api, variables_of_a_template_are_bounded)
{
	struct buf b = {0};
	for (int n = 50; n <= 5000; n *= 100) {
		struct submit *s = NULL;
		struct api_reply reply;
		struct api_problem p;
		buf_clear(&b);
		buf_puts(&b, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], "
			     "\"chat_template_kwargs\": {\"k0\": 1");
		for (int i = 1; i < n; i++)
			buf_printf(&b, ", \"k%d\": 1", i);
		buf_puts(&b, "}}");
		cr_expect_eq(submit(API_CHAT, b.p, &s, &reply, &p), n > 64 ? -EINVAL : 0, "%d: %s", n, p.why);
		cr_expect(n == 50 || strstr(p.why, "at most 64"), "%s", p.why);
		submit_free(s);
	}
	buf_fini(&b);
}

Test(api, echo_with_logprobs_requests_those_of_the_prompt)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(submit(API_COMPLETIONS, "{\"prompt\": \"a\", \"echo\": true, \"logprobs\": 2}", &s,
			    &reply, &p),
		     0);
	cr_expect(reply.echo);
	cr_expect_eq(s->params.prompt_logprobs, 2);
	submit_free(s);
}
