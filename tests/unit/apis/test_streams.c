/* Streams that can be gone on with: the same tokens have the same events, however they come; each has its
 * number. */
#include "base/alloc.h"
#include "controller/apis/event_ids.h"
#include "controller/apis/turns.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(streams, .timeout = 60);

enum { OUTPUTS = 3, TOKENS = 9 };

/* Of each output: tokens with texts of 0 to 3 bytes, some tops, and what its end adds. */
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
	/* Nothing of the view is looked at later. */
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

/* Events that come in groups of so many, as someone sees them that has `after` of them. */
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
