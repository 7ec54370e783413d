/* Anthropic's events: each block is opened once and closed before the next. */
#include "controller/apis/anthropic/anthropic_json.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(anthropic_json, .timeout = 60);

static const struct anthropic_shape shape = {.id = "msg_1", .model = "m"};

static void fill(struct buf *b, const char *text)
{
	buf_clear(b);
	buf_puts(b, text);
}

/* Lists the event types with their block indices: "start0 delta0 stop0 ". */
static void events(const struct buf *b, struct buf *out)
{
	for (const char *p = b->p; p && (p = strstr(p, "\"type\":\"")); p++) {
		const char *name = p + 8;
		if (p[-1] != '{' || p[-2] != ' ')
			continue;
		const char *index = strstr(p, "\"index\":");
		const bool block = strncmp(name, "content_block_", 14) == 0;
		buf_put(out, name, strcspn(name, "\""));
		if (block)
			buf_putc(out, index[8]);
		buf_putc(out, ' ');
	}
}

Test(anthropic_json, blocks_follow_each_other)
{
	struct anthropic_stream st = {0};
	struct chat_stream_call call = {.index = 0, .id = "call_0"};
	struct chat_stream chat = {.calls = &call};
	const struct output_view v = {.stop_token = -1};
	const struct answer_usage u = {.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 2};
	struct buf b = {0}, got = {0};
	anthropic_put_start(&b, &shape, 7);
	fill(&chat.reasoning, "hm");
	anthropic_put_delta(&b, &st, &shape, &v, &chat);
	fill(&chat.content, "so");
	anthropic_put_delta(&b, &st, &shape, &v, &chat); /* more thought, then text */
	buf_clear(&chat.reasoning);
	buf_clear(&chat.content);
	fill(&call.name, "f");
	fill(&call.arguments, "{");
	chat.n_calls = 1;
	anthropic_put_delta(&b, &st, &shape, &v, &chat);
	call.id[0] = 0;
	fill(&call.arguments, "}");
	fill(&chat.content, "behind");
	anthropic_put_delta(&b, &st, &shape, &v, &chat); /* the rest of the call, then text */
	anthropic_put_end(&b, &st, &shape, "tool_use", NULL, &u);
	events(&b, &got);
	cr_expect_str_eq(
		got.p, "message_start ping "
		       "content_block_start0 content_block_delta0 content_block_delta0 content_block_delta0 "
		       "content_block_stop0 "
		       "content_block_start1 content_block_delta1 content_block_stop1 "
		       "content_block_start2 content_block_delta2 content_block_delta2 content_block_stop2 "
		       "content_block_start3 content_block_delta3 content_block_stop3 "
		       "message_delta message_stop ");
	cr_expect(strstr(b.p, "\"type\":\"signature_delta\",\"signature\":\"msg_1\""));
	cr_expect(strstr(b.p, "\"stop_reason\":\"tool_use\",\"stop_sequence\":null"));
	cr_expect(strstr(b.p,
			 "\"input_tokens\":5,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":2,"
			 "\"output_tokens\":3"),
		  "%s", b.p);
	buf_fini(&chat.reasoning);
	buf_fini(&chat.content);
	buf_fini(&call.name);
	buf_fini(&call.arguments);
	buf_fini(&b);
	buf_fini(&got);
}

Test(anthropic_json, a_thought_behind_a_call_lets_it_end_first)
{
	struct anthropic_stream st = {0};
	struct chat_stream_call call = {.index = 0, .id = "call_0"};
	struct chat_stream chat = {.calls = &call, .n_calls = 1};
	const struct output_view v = {.stop_token = -1};
	struct buf b = {0}, got = {0};
	fill(&call.name, "f");
	fill(&call.arguments, "{");
	anthropic_put_delta(&b, &st, &shape, &v, &chat);
	call.id[0] = 0;
	fill(&call.arguments, "}");
	fill(&chat.reasoning, "hm");
	anthropic_put_delta(&b, &st, &shape, &v, &chat);
	events(&b, &got);
	cr_expect_str_eq(got.p,
			 "content_block_start0 content_block_delta0 content_block_delta0 content_block_stop0 "
			 "content_block_start1 content_block_delta1 ");
	buf_fini(&chat.reasoning);
	buf_fini(&call.name);
	buf_fini(&call.arguments);
	buf_fini(&b);
	buf_fini(&got);
}

Test(anthropic_json, a_call_that_was_cut_is_text)
{
	struct chat_stream_call call = {.index = 0, .id = "call_0"};
	struct chat_stream chat = {.calls = &call, .n_calls = 1, .called = true};
	const struct output_view v = {.stop_token = -1, .finish = FINISH_LENGTH};
	const struct answer_usage u = {0};
	static const struct {
		const char *arguments, *block;
	} cut[] = {{"{\"a\": ", "{\"type\":\"text\",\"text\":\"f {\\\"a\\\": \"}"},
		   {"", "\"name\":\"f\",\"input\":{}}"},
		   {"[1]", "{\"type\":\"text\",\"text\":\"f [1]\"}"},
		   {"null", "{\"type\":\"text\",\"text\":\"f null\"}"}};
	fill(&call.name, "f");
	for (size_t i = 0; i < 4; i++) {
		struct buf b = {0};
		fill(&call.arguments, cut[i].arguments);
		anthropic_put_message(&b, &shape, &v, &chat, &u);
		cr_expect(strstr(b.p, cut[i].block), "%s", b.p);
		cr_expect(strstr(b.p, "\"stop_reason\":\"max_tokens\""), "%s", b.p);
		buf_fini(&b);
	}
	buf_fini(&call.name);
	buf_fini(&call.arguments);
}

Test(anthropic_json, why_an_output_ended)
{
	const struct chat_stream called = {.called = true};
	const struct output_view stop = {.finish = FINISH_STOP}, length = {.finish = FINISH_LENGTH},
				 word = {.finish = FINISH_STOP, .stop_string = "x"};
	cr_expect_str_eq(anthropic_stop_reason(&stop, NULL), "end_turn");
	cr_expect_str_eq(anthropic_stop_reason(&stop, &called), "tool_use");
	cr_expect_str_eq(anthropic_stop_reason(&length, &called), "max_tokens");
	cr_expect_str_eq(anthropic_stop_reason(&word, NULL), "stop_sequence");
}
