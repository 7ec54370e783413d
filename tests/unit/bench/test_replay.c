/* Requests read from a file: batch lines and conversations. */
#include "bench/replay.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(replay, .timeout = 60);

static int read_text(const char *text, size_t most, struct replay *out, struct why *why)
{
	char path[] = "/tmp/quern-replay-XXXXXX";
	FILE *f = fdopen(mkstemp(path), "w");
	fputs(text, f);
	fclose(f);
	const int rc = replay_read(path, most, out, why);
	unlink(path);
	return rc;
}

static struct replay replay_of(const char *text, size_t most)
{
	struct replay r;
	struct why why = {""};
	cr_assert_eq(read_text(text, most, &r, &why), 0, "%s", why.text);
	return r;
}

/* Expects these request bodies; `f` in `follows` marks a request that continues the previous one. */
static void expect(struct replay *r, const char *follows, const char *const *bodies)
{
	json_t *common = json_pack("{s:s, s:b}", "model", "m", "stream", 1);
	cr_assert_eq(r->n, strlen(follows));
	for (size_t i = 0; i < r->n; i++) {
		struct buf b = {0};
		cr_expect_eq(r->v[i].follows, follows[i] == 'f', "request %zu", i);
		replay_put(&r->v[i], common, 9, 20, &b);
		json_t *got = json_loads(b.p, 0, NULL), *want = json_loads(bodies[i], 0, NULL);
		cr_expect(want && json_equal(got, want), "%s instead of %s", b.p, bodies[i]);
		json_decref(got);
		json_decref(want);
		buf_fini(&b);
	}
	json_decref(common);
	replay_fini(r);
}

#define U(text)    "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)    "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define S          "{\"role\": \"system\", \"content\": \"s\"}"
#define SENT(list) "{\"model\": \"m\", \"stream\": true, \"max_tokens\": 9, \"messages\": [" list "]}"
#define LINE(url, body)                                                                                      \
	"{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/" url "\", \"body\": " body "}\n"

Test(replay, lines_of_a_batch_are_sent_with_the_servers_model)
{
	struct replay r = replay_of(
		"\xef\xbb\xbf" LINE(
			"completions",
			"{\"model\": \"x\", \"prompt\": \"a\", \"seed\": "
			"18446744073709551616}") "\n \n" LINE("completions",
							      "{\"prompt\": [1], \"max_tokens\": 30}")
			LINE("completions",
			     "{\"prompt\": \"b\", \"max_completion_tokens\": 3, \"stream\": false}"),
		0);
	static const char *const want[] = {
		"{\"model\": \"m\", \"stream\": true, \"prompt\": \"a\", \"max_tokens\": 20}",
		"{\"model\": \"m\", \"stream\": true, \"prompt\": [1], \"max_tokens\": 20}",
		"{\"model\": \"m\", \"stream\": true, \"prompt\": \"b\", \"max_completion_tokens\": 3}"};
	struct buf b = {0};
	json_t *empty = json_object();
	replay_put(&r.v[0], empty, 0, 0, &b);
	cr_expect(strstr(b.p, "18446744073709551616"), "%s", b.p);
	json_decref(empty);
	buf_fini(&b);
	json_object_del((json_t *)r.v[0].body, "seed");
	cr_expect(r.batch && !r.chat);
	expect(&r, "...", want);
	r = replay_of(
		LINE("chat/completions", "{\"messages\": []}") LINE("chat/completions", "{}") "nonsense", 2);
	cr_expect(r.chat && r.n == 2);
	replay_fini(&r);
}

Test(replay, a_conversation_is_a_request_for_each_reply)
{
	static const char *const want[] = {SENT(S ", " U("a")), SENT(S ", " U("a") ", " A("b") ", " U("c")),
					   SENT(U("x") ", " U("y"))};
	struct replay r = replay_of("{\"messages\": [" S ", " U("a") ", " A("b") ", " U(
					    "c") "]}\n"
						 "{\"messages\": [" U("x") ", " U("y") ", " A("z") "]}\n",
				    0);
	cr_expect(r.chat && !r.batch);
	expect(&r, ".f.", want);
	r = replay_of("[{\"messages\": [" S ", " U("a") ", " A("b") ", " U(
			      "c") "]}, {\"messages\": [" S "]},\n"
				   "{\"messages\": [" U("x") ", " U("y") ", " A("z") "]}, 7]",
		      3);
	expect(&r, ".f.", want);
}

Test(replay, conversations_of_agents_keep_their_tools)
{
	static const char *const want[] = {
		"{\"model\": \"m\", \"stream\": true, \"max_tokens\": 9, \"tools\": [1], \"messages\": [" U(
			"a") "]}",
		"{\"model\": \"m\", \"stream\": true, \"max_tokens\": 9, \"tools\": [1], \"messages\": [" U(
			"a") ", " A("") ", "
					"{\"role\": \"tool\", \"content\": \"t\"}]}"};
	struct replay r = replay_of("{\"tools\": [1], \"messages\": [" U("a") ", " A(
					    "") ", "
						"{\"role\": \"tool\", \"content\": \"t\"}, " A("b") "]}",
				    0);
	expect(&r, ".f", want);
}

Test(replay, conversations_as_sharegpt_has_them)
{
	static const char *const want[] = {SENT(S ", " U("a")), SENT(S ", " U("a") ", " A("b") ", " U("c"))};
	struct replay r =
		replay_of("[{\"id\": \"1\", \"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, "
			  "{\"from\": \"gpt\", \"value\": \"0\"}, {\"from\": \"human\", \"value\": \"a\"}, "
			  "{\"from\": \"gpt\", \"value\": \"b\"}, {\"from\": \"human\", \"value\": \"c\"}, "
			  "{\"from\": \"gpt\", \"value\": \"d\"}]}, {\"id\": \"2\", \"conversations\": []}]",
			  0);
	expect(&r, ".f", want);
}

Test(replay, a_file_that_is_none_is_refused_with_its_place)
{
	static const char *const all[][2] = {
		{"", "there is no request in it"},
		{"[]", "there is no request in it"},
		{"[{\"messages\": [" S "]}]", "there is no request in it"},
		{"[{\"messages\": []}, {\"a\": 1}]", "conversation 2: it has neither"},
		{"[{\"conversations\": [{\"from\": \"x\", \"value\": \"a\"}]}]",
		 "conversation 1: turn 1: from \"x\" is not known"},
		{"{\"messages\": [" U("a") "]}\n\n{\"a\": 1}", "line 3: it has neither"},
		{"{\"messages\": [" U("a") "]}\n{", "line 2: "},
		{LINE("embeddings", "{}"), "line 1: url \"/v1/embeddings\" is neither"},
		{LINE("completions", "{}") LINE("chat/completions", "{}"),
		 "line 2: url \"/v1/chat/completions\" is not that"},
		{LINE("completions", "7"), "line 1: body must be an object"},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct replay r;
		struct why why = {""};
		cr_expect_neq(read_text(all[i][0], 0, &r, &why), 0, "%s", all[i][0]);
		cr_expect(strstr(why.text, "/tmp/quern-replay-") && strstr(why.text, all[i][1]), "%s",
			  why.text);
		replay_fini(&r);
	}
}
