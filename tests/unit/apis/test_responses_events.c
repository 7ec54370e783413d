/* Events of the Responses API depend only on the tokens, not on how they are grouped. */
#include "controller/apis/openai/responses_events.h"

#include "controller/apis/openai/responses_read.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define SAYS                                                                                                 \
	"<think>\nhm, \xe2\x82\xac so\n</think>\n\nLook \xf0\x9f\x98\x80 here:\n<tool_call>\n{\"name\": "    \
	"\"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

static struct tokenizer *tokenizer;
static struct token_ids ids;
static struct buf text;
static json_t *repeated;
static const struct chat_stream_rules rules = {
	.reasoning = true, .show_reasoning = true, .tools = TOOLS_HERMES};

static void setup(void)
{
	tokenizer = help_golden("demo");
	ids = help_encode(tokenizer, SAYS, strlen(SAYS), 0);
	tokenizer_decode(tokenizer, ids.ids, ids.n, false, &text);
	repeated = json_pack("{s:s}", "model", "m");
}

static void teardown(void)
{
	token_ids_fini(&ids);
	buf_fini(&text);
	json_decref(repeated);
	tokenizer_free(tokenizer);
}
TestSuite(responses_events, .init = setup, .fini = teardown, .timeout = 60);

/* Return all events after `after`. The tokens come in random groups, and some text is held back as for stop
 * strings. */
static char *play(unsigned seed, int64_t after, enum finish finish)
{
	const struct responses_about about = {.id = "resp_00",
					      .repeated = repeated,
					      .tokenizer = tokenizer,
					      .rules = &rules,
					      .after = after};
	const struct answer_usage usage = {3, ids.n, 0, false};
	struct responses_events *r = responses_events_new(&about);
	struct buf out = {0};
	responses_events_begin(r, &out);
	size_t at = 0, shown = 0;
	while (at < ids.n) {
		size_t n = seed ? 1 + (size_t)rand_r(&seed) % 5 : 1;
		n = n < ids.n - at ? n : ids.n - at;
		const bool last = at + n == ids.n;
		struct buf so_far = {0};
		/* Decoded text of an incomplete character is not final yet. */
		tokenizer_decode(tokenizer, ids.ids, at + n, false, &so_far);
		size_t end = so_far.len < text.len ? so_far.len : text.len;
		while (end && memcmp(so_far.p, text.p, end) != 0)
			end--;
		const size_t held = seed ? (size_t)rand_r(&seed) % 4 : 0;
		end = last ? text.len : end > shown + held ? end - held : shown;
		const struct output_view v = {.text = text.p + shown,
					      .text_n = end - shown,
					      .tokens = ids.ids + at,
					      .n_tokens = (uint32_t)n,
					      .finish = last ? finish : FINISH_NONE};
		responses_events_push(r, &v, &out);
		buf_fini(&so_far);
		at += n;
		shown = end;
	}
	responses_events_end(r, &usage, &out);
	responses_events_free(r);
	return buf_take(&out);
}

/* Replace the completion time by zeros. */
static void forget_time(char *events)
{
	for (char *p = events; (p = strstr(p, "\"completed_at\":")); p++)
		for (char *q = p + 15; *q >= '0' && *q <= '9'; q++)
			*q = '0';
}

Test(responses_events, the_same_tokens_give_the_same_events)
{
	char *one = play(0, -1, FINISH_STOP);
	forget_time(one);
	cr_expect(strstr(one, "response.reasoning_text.delta") && strstr(one, "response.output_text.delta") &&
		  strstr(one, "function_call_arguments.delta") && strstr(one, "response.completed"));
	for (unsigned seed = 1; seed <= 50; seed++) {
		char *other = play(seed, -1, FINISH_STOP);
		forget_time(other);
		cr_assert_str_eq(one, other, "seed %u", seed);
		free(other);
	}
	free(one);
}

Test(responses_events, a_stream_that_goes_on_has_what_was_not_read)
{
	char *all = play(0, -1, FINISH_STOP), *rest = all;
	forget_time(all);
	for (int64_t after = 0; *rest; after++) {
		rest = strstr(rest, "\n\n") + 2;
		char *more = play((unsigned)after, after, FINISH_STOP);
		forget_time(more);
		cr_assert_str_eq(more, rest, "after %d", (int)after);
		free(more);
	}
	free(all);
}

Test(responses_events, what_the_end_cuts_is_incomplete)
{
	char *cut = play(0, -1, FINISH_LENGTH);
	cr_expect(strstr(cut, "event: response.incomplete"));
	cr_expect(strstr(cut, "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"));
	free(cut);
}
