/* Values that OpenAI's servers accept beyond their documentation, and that clients therefore send. */
#include "tests/unit/request/api_rig.h"

#include <stdlib.h>

TestSuite(lenient, .init = open_demo, .fini = close_demo, .timeout = 60);

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

Test(lenient, integers_may_be_reals_without_a_fraction)
{
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(submit(API_COMPLETIONS,
			    "{\"prompt\": [5.0, 6], \"max_tokens\": 5.0, \"n\": 2.0, \"seed\": -7.0, "
			    "\"top_k\": 3e0, "
			    "\"stop_token_ids\": [9.0], \"priority\": -0.0}",
			    &s, &reply, &p),
		     0, "%s", p.why);
	cr_expect(s->n_tokens == 2 && s->tokens[0] == 5 && s->tokens[1] == 6);
	cr_expect_eq(s->params.max_tokens, 5);
	cr_expect_eq(s->params.n, 2);
	cr_expect_eq((int64_t)s->params.seed, -7);
	cr_expect_eq(s->params.top_k, 3);
	cr_expect_eq(s->priority, 0);
	submit_free(s);
	refused(API_COMPLETIONS, "{\"prompt\": [5.5]}", E_BAD_REQUEST, "prompt[0] must be an integer");
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"max_tokens\": 5.01}", E_BAD_REQUEST, "max_tokens");
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"seed\": 9007199254740994.0}", E_BAD_REQUEST, "seed");
}

Test(lenient, an_empty_user_is_none)
{
	static const struct {
		enum api_dialect dialect;
		const char *text;
	} all[] = {
		{API_COMPLETIONS, "{\"prompt\": \"a\", \"user\": \"\"}"},
		{API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"user\": \"\"}"},
		{API_JOBS, "{\"prompt\": \"a\", \"user\": \"\"}"},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct submit *s;
		struct api_reply reply;
		struct api_problem p;
		cr_assert_eq(submit(all[i].dialect, all[i].text, &s, &reply, &p), 0, "%s", p.why);
		cr_expect_null(s->user);
		submit_free(s);
	}
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"user\": 5}", E_BAD_REQUEST, "user must be a string");
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"cache_salt\": \"\"}", E_BAD_REQUEST, "cache_salt");
}

/* Return the submit of these messages; reply receives the ignored fields. */
static struct submit *chat_of(const char *messages, struct api_reply *reply)
{
	char text[2048];
	struct submit *s;
	struct api_problem p;
	snprintf(text, sizeof text, "{\"messages\": [%s]}", messages);
	cr_assert_eq(submit(API_CHAT, text, &s, reply, &p), 0, "%s: %s", messages, p.why);
	return s;
}

static void expect_same_prompt(const char *messages, const char *as, const char *ignored)
{
	struct api_reply reply, plain;
	struct submit *a = chat_of(messages, &reply), *b = chat_of(as, &plain);
	cr_expect(a->n_tokens == b->n_tokens &&
			  !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens),
		  "%s", messages);
	cr_expect_str_eq(reply.ignored, ignored);
	submit_free(a);
	submit_free(b);
}

Test(lenient, unknown_fields_of_a_message_are_ignored)
{
#define USER  "{\"role\": \"user\", \"content\": \"a\""
#define REPLY "{\"role\": \"assistant\", \"content\": \"\"}"
	expect_same_prompt(USER ", \"id\": \"msg_1\"}", USER "}", "messages.id");
	/* Each ignored field is named once; empty ones are not named. */
	expect_same_prompt(USER ", \"id\": 1, \"weight\": 1}, " USER
				", \"id\": 2, \"annotations\": [], \"audio\": null}",
			   USER "}, " USER "}", "messages.id, messages.weight");
	expect_same_prompt(USER "}, {\"role\": \"assistant\"}, " USER "}", USER "}, " REPLY ", " USER "}",
			   "");
	expect_same_prompt(USER "}, {\"role\": \"assistant\", \"content\": null}, " USER "}",
			   USER "}, " REPLY ", " USER "}", "");
	demo.svc.strict = true;
	refused(API_CHAT, "{\"messages\": [" USER ", \"id\": 1}]}", E_BAD_REQUEST,
		"messages[0].id is not taken");
}

/* Names that other servers use. */
Test(lenient, other_names_of_parameters)
{
	static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], ",
			  text[] = "{\"prompt\": \"a\", ";
	static const char *const same[] = {
		"\"n_predict\": 7, \"repeat_penalty\": 1.5, \"min_new_tokens\": 3, \"random_seed\": 5, "
		"\"stop_words\": "
		"[\"x\"], \"no_stop_trim\": true, \"typ_p\": 0.5}",
		"\"max_new_tokens\": 7, \"max_tokens\": 7.0, \"repeat_penalty\": 1.5, "
		"\"repetition_penalty\": 1.5, "
		"\"min_tokens\": 3, \"seed\": 5, \"stop_sequences\": [\"x\"], \"stop\": [\"x\"], "
		"\"include_stop_str_in_output\": true, \"typical_p\": 0.5}"};
	for (int i = 0; i < 4; i++) {
		struct submit *s;
		struct api_reply reply;
		struct api_problem p;
		char whole[400];
		snprintf(whole, sizeof whole, "%s%s", i % 2 ? chat : text, same[i / 2]);
		cr_assert_eq(submit(i % 2 ? API_CHAT : API_COMPLETIONS, whole, &s, &reply, &p), 0, "%s: %s",
			     whole, p.why);
		cr_expect_eq(s->params.max_tokens, 7);
		cr_expect_eq(s->params.min_tokens, 3);
		cr_expect_float_eq(s->params.repetition, 1.5, 1e-6);
		cr_expect_float_eq(s->params.typical_p, 0.5, 1e-6);
		cr_expect_eq(s->params.seed, 5);
		cr_expect(s->include_stop && s->n_stop == 1 && !strcmp(s->stop[0], "x"));
		cr_expect_str_eq(reply.ignored, "");
		submit_free(s);
	}
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"n_predict\": 7, \"max_tokens\": 8}", E_BAD_REQUEST,
		"n_predict and max_tokens are two names of one field, with different values");
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"n_predict\": 7, \"max_new_tokens\": 8}",
		E_BAD_REQUEST, "max_new_tokens and n_predict are two names");
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"n_predict\": 0}", E_BAD_REQUEST, "n_predict is 0");
	refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"repeat_penalty\": \"1\"}", E_BAD_REQUEST,
		"repeat_penalty must be a number");
	struct submit *s;
	struct api_reply reply;
	struct api_problem p;
	cr_assert_eq(submit(API_CHAT,
			    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"n_predict\": -1}",
			    &s, &reply, &p),
		     0);
	cr_expect(s->params.max_tokens > 100);
	submit_free(s);
}
