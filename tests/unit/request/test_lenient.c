/* What OpenAI's servers take beside their description, and clients therefore send. */
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

/* Their tokens, and what was ignored. */
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
	/* Each is named once, and empty ones are not. */
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
