/* Streams that a client can resume: the same tokens give the same numbered events, however they are
 * grouped. */
#include "base/alloc.h"
#include "controller/apis/event_ids.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/apis/resume.h"
#include "controller/apis/turns.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(streams, .timeout = 60);

enum { OUTPUTS = 3, TOKENS = 9 };

/* For each output: tokens with texts of 0 to 3 bytes, some top log-probabilities, and the text added at its
 * end. */
static const char *const texts[OUTPUTS][TOKENS + 1] = {
	{"a", "", "bcd", "e", "", "f", "g", "hi", "j", "?"},
	{"K", "LM", NULL},
	{NULL},
};
static const uint32_t n_tokens[OUTPUTS] = {TOKENS, 2, 0};

static void put(struct turns *t, uint32_t output, uint32_t from, uint32_t to, bool end)
{
	struct buf text = {0};
	uint32_t tokens[TOKENS], starts[TOKENS];
	struct token_logprob lp[TOKENS];
	struct logprob_top tops[TOKENS];
	char stop[] = "stop";
	buf_puts(&text, "");
	for (uint32_t i = from; i < to; i++) {
		tokens[i - from] = 100 * output + i;
		starts[i - from] = 1000 + (uint32_t)text.len;
		tops[i - from] = (struct logprob_top){7 + i, -1};
		lp[i - from] = (struct token_logprob){100 * output + i, -0.5f, 1, i % 2, tops + (i - from)};
		buf_puts(&text, texts[output][i]);
	}
	const char *tail = end ? texts[output][n_tokens[output]] : NULL;
	if (tail)
		buf_puts(&text, tail);
	struct output_view v = {.text = text.p,
				.text_n = text.len,
				.tokens = tokens,
				.n_tokens = to - from,
				.starts = starts,
				.tail = tail ? strlen(tail) : 0,
				.logprobs = lp,
				.finish = end ? FINISH_STOP : FINISH_NONE,
				.stop_token = -1,
				.stop_string = end ? stop : NULL};
	turns_put(t, output, &v);
	/* Overwrite the view, as nothing of it may be read later. */
	memset(tokens, 0xff, sizeof tokens);
	memset(lp, 0xff, sizeof lp);
	memset(tops, 0xff, sizeof tops);
	memset(stop, 'x', sizeof stop - 1);
	buf_fini(&text);
}

static void take(struct turns *t, struct buf *out)
{
	struct output_view one;
	while (turns_next(t, &one)) {
		cr_assert_eq(one.n_tokens + (one.finish != FINISH_NONE), 1);
		buf_printf(out, "%u:%.*s", one.index, (int)one.text_n, one.text);
		if (one.n_tokens)
			buf_printf(out, "#%u/%u", one.tokens[0],
				   one.logprobs->n_top ? one.logprobs->top->token : 0);
		else
			buf_printf(out, ".%s", one.stop_string);
		buf_putc(out, ' ');
	}
}

Test(streams, tokens_have_one_order_however_they_come)
{
	static const char expect[] =
		"0:a#0/0 1:K#100/0 2:.stop 0:#1/8 1:LM#101/8 0:bcd#2/0 1:.stop 0:e#3/10 0:#4/0 "
		"0:f#5/12 0:g#6/0 0:hi#7/14 0:j#8/0 0:?.stop ";
	srand(5);
	for (int round = 0; round < 500; round++) {
		struct turns *t = turns_new(OUTPUTS);
		struct buf out = {0};
		uint32_t at[OUTPUTS] = {0};
		bool ended[OUTPUTS] = {0};
		for (int left = OUTPUTS; left;) {
			const uint32_t i = (uint32_t)rand() % OUTPUTS;
			const uint32_t to = at[i] + (uint32_t)rand() % (n_tokens[i] - at[i] + 1);
			if (ended[i])
				continue;
			ended[i] = to == n_tokens[i] && rand() % 2;
			put(t, i, at[i], to, ended[i]);
			at[i] = to;
			left -= ended[i];
			if (rand() % 2)
				take(t, &out);
		}
		take(t, &out);
		cr_assert(turns_over(t));
		cr_assert_str_eq(out.p, expect);
		buf_fini(&out);
		turns_free(t);
	}
}

/* Puts events in groups of this size, as a client sees them that already has the first `after` events. */
static void numbered(bool lines, uint64_t after, int group, struct buf *out)
{
	static const char *const sse[] = {"data: 1\n\n", "event: a\ndata: 2\n\n", "data: {}\n\n",
					  "data: [DONE]\n\n"};
	static const char *const json[] = {"{}\n", "{\"a\":1}\n", "{\"b\":2}\n", "{\"done\":true}\n"};
	struct event_ids e = {.lines = lines, .after = after};
	buf_puts(out, "before");
	for (int i = 0; i < 4; i += group) {
		const size_t mark = out->len;
		for (int k = i; k < i + group && k < 4; k++)
			buf_puts(out, (lines ? json : sse)[k]);
		event_ids_put(&e, out, mark);
		event_ids_put(&e, out, out->len); /* nothing new */
	}
	cr_assert_eq(e.n, 4);
}

Test(streams, events_are_numbered_and_those_that_came_are_left_out)
{
	static const char *const expect[2][6] = {
		{"beforeid: 1\ndata: 1\n\nid: 2\nevent: a\ndata: 2\n\nid: 3\ndata: {}\n\nid: 4\ndata: "
		 "[DONE]\n\n",
		 "beforeid: 2\nevent: a\ndata: 2\n\nid: 3\ndata: {}\n\nid: 4\ndata: [DONE]\n\n",
		 "beforeid: 3\ndata: {}\n\nid: 4\ndata: [DONE]\n\n", "beforeid: 4\ndata: [DONE]\n\n",
		 "before", "before"},
		{"before{}\n{\"a\":1}\n{\"b\":2}\n{\"done\":true}\n",
		 "before{\"a\":1}\n{\"b\":2}\n{\"done\":true}\n", "before{\"b\":2}\n{\"done\":true}\n",
		 "before{\"done\":true}\n", "before", "before"}};
	for (int lines = 0; lines < 2; lines++)
		for (uint64_t after = 0; after < 6; after++)
			for (int group = 1; group < 6; group++) {
				struct buf out = {0};
				numbered(lines, after, group, &out);
				cr_expect_str_eq(out.p, expect[lines][after]);
				buf_fini(&out);
			}
}

/* Returns all numbers and names that a stream's replies depend on, in one text. */
static char *drawn(const char *owner, const char *key, size_t i, size_t n, uint32_t choice, bool seeded)
{
	struct resume_request r = {.on = true};
	char owned[32], id[80];
	struct submit s = {.owner = owner ? strcpy(owned, owner) : NULL, .params.seed = 5};
	snprintf(r.key, sizeof r.key, "%s", key);
	resume_own(&r, &s, i, n, false, seeded);
	resume_id(&r, &s, "id-", id, sizeof id);
	cr_expect(s.keep && !s.durable && !s.existing);
	cr_expect_eq(resume_calls(&r, &s, choice) & 1, 1, "0 means random");
	char *out = xasprintf("%s %llu %s %llu", s.key, (unsigned long long)s.params.seed, id,
			      (unsigned long long)resume_calls(&r, &s, choice));
	free(s.key);
	return out;
}

Test(streams, what_a_key_draws_is_its_owners_and_the_same_each_time)
{
	char *first = drawn("a", "k", 0, 1, 0, false), *again = drawn("a", "k", 0, 1, 0, false);
	static const struct {
		const char *owner, *key;
		size_t i, n;
		uint32_t choice;
		bool seeded, seed, id, calls; /* true: differs from the first request */
	} of[] = {
		{"b", "k", 0, 1, 0, false, true, true, true},
		{"a", "l", 0, 1, 0, false, true, true, true},
		{NULL, "k", 0, 1, 0, false, true, true, true},
		{"a", "k", 1, 2, 0, false, true, false, false},
		{"a", "k", 0, 1, 1, false, false, false, true},
		{"a", "k", 0, 1, 0, true, true, false, false},
	};
	cr_expect_str_eq(first, again);
	cr_expect_eq(strncmp(first, "stream/k ", 9), 0, "%s", first);
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char *other = drawn(of[i].owner, of[i].key, of[i].i, of[i].n, of[i].choice, of[i].seeded);
		char a[4][80], b[4][80];
		cr_assert_eq(sscanf(first, "%79s %79s %79s %79s", a[0], a[1], a[2], a[3]), 4);
		cr_assert_eq(sscanf(other, "%79s %79s %79s %79s", b[0], b[1], b[2], b[3]), 4);
		cr_expect_eq(strcmp(a[1], b[1]) != 0, of[i].seed, "%zu: %s", i, other);
		cr_expect_eq(strcmp(a[2], b[2]) != 0, of[i].id, "%zu: %s", i, other);
		cr_expect_eq(strcmp(a[3], b[3]) != 0, of[i].calls, "%zu: %s", i, other);
		if (of[i].seeded)
			cr_expect_str_eq(b[1], "5");
		if (of[i].n > 1)
			cr_expect_str_eq(b[0], "stream/k/1");
		free(other);
	}
	free(first);
	free(again);
}

static void listed(const char *item, const char *id, const char *want)
{
	json_t *v = json_loads(item, 0, NULL), *w = json_loads(want, 0, NULL),
	       *got = response_item_listed(v, id);
	char *text = json_dumps(got, JSON_COMPACT);
	cr_expect(w && json_equal(got, w), "%s became %s", item, text);
	free(text);
	json_decref(v);
	json_decref(w);
	json_decref(got);
}

Test(streams, items_are_listed_with_all_that_openai_shows)
{
	listed("{\"role\":\"user\",\"content\":\"a\"}", "x",
	       "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}"
	       "],"
	       "\"status\":\"completed\",\"id\":\"x\"}");
	listed("{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"a\",\"id\":\"own\",\"status\":"
	       "\"incomplete\"}",
	       "x",
	       "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
	       "\"a\","
	       "\"annotations\":[],\"logprobs\":[]}],\"status\":\"incomplete\",\"id\":\"own\"}");
	listed("{\"type\":\"reasoning\",\"content\":\"a\"}", NULL,
	       "{\"type\":\"reasoning\",\"content\":\"a\",\"summary\":[],\"status\":\"completed\"}");
	listed("{\"type\":\"function_call_output\",\"output\":\"1\"}", NULL,
	       "{\"type\":\"function_call_output\",\"output\":\"1\",\"status\":\"completed\"}");
}

Test(streams, items_are_named_by_what_they_are)
{
	json_t *items = json_loads(
		       "[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\"},{\"type\":"
		       "\"function_call_output\"},{\"type\":\"reasoning\"}]",
		       0, NULL),
	       *named = response_items_named(items);
	static const char *const prefixes[] = {"msg_", "fc_", "fco_", "rs_"};
	for (size_t i = 0; i < 4; i++) {
		const char *id = json_string_value(json_object_get(json_array_get(named, i), "id"));
		cr_expect(id && strncmp(id, prefixes[i], strlen(prefixes[i])) == 0, "%s", id);
		cr_expect_null(json_object_get(json_array_get(items, i), "id"), "the client's own stay");
	}
	json_decref(items);
	json_decref(named);
}
