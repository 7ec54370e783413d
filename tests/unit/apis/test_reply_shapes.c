/* Shapes of replies of the OpenAI, Ollama and llama.cpp APIs: finish reasons, log-probabilities and calls. */
#include "base/alloc.h"
#include "controller/apis/llamacpp/llamacpp_json.h"
#include "controller/apis/ollama/ollama_json.h"
#include "controller/apis/openai/openai_json.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct tokenizer *tokenizer;
static struct buf out;
static struct openai_shape shape;

static void make(void)
{
	tokenizer = help_golden("demo");
	shape = (struct openai_shape){.tokenizer = tokenizer, .id = "id", .model = "m"};
}

static void drop(void)
{
	buf_fini(&out);
	tokenizer_free(tokenizer);
}

TestSuite(reply_shapes, .init = make, .fini = drop, .timeout = 60);

/* Return the token with exactly these bytes. */
static uint32_t id_of(const char *bytes, size_t n)
{
	struct buf piece = {0};
	uint32_t found = UINT32_MAX;
	for (uint32_t id = 0; id < tokenizer_n_vocab(tokenizer) && found == UINT32_MAX; id++) {
		buf_clear(&piece);
		tokenizer_piece(tokenizer, id, &piece);
		if (piece.len == n && memcmp(piece.p, bytes, n) == 0 && !tokenizer_is_special(tokenizer, id))
			found = id;
	}
	buf_fini(&piece);
	cr_assert_neq(found, UINT32_MAX, "no token is %.*s", (int)n, bytes);
	return found;
}

#define has(text)     cr_expect(strstr(out.p, text), "%s\nis not in %s", text, out.p)
#define has_not(text) cr_expect_not(strstr(out.p, text), "%s\nis in %s", text, out.p)

static void fill(struct buf *b, const char *text)
{
	buf_clear(b);
	buf_puts(b, text);
}

/* --- OpenAI --- */

static void choice(const struct output_view *v, const struct chat_stream *chat, const struct openai_prompt *p)
{
	static const struct openai_prompt none;
	buf_clear(&out);
	openai_choice(&out, &shape, 0, v, chat, p ? p : &none);
}

Test(reply_shapes, openai_why_a_choice_ended)
{
	const struct chat_stream_rules rules = {.reasoning = false}, forced = {.forced = "f"};
	struct chat_stream chat = {.rules = &rules};
	struct output_view v = {.finish = FINISH_STOP, .stop_token = -1};
	shape.chat = true;
	choice(&v, &chat, NULL);
	has("\"finish_reason\":\"stop\",\"stop_reason\":null");
	chat.called = true;
	choice(&v, &chat, NULL);
	has("\"finish_reason\":\"tool_calls\"");
	chat.rules = &forced;
	choice(&v, &chat, NULL);
	has("\"finish_reason\":\"stop\"");
	chat.rules = &rules;
	v.finish = FINISH_LENGTH;
	choice(&v, &chat, NULL);
	has("\"finish_reason\":\"length\"");
	v = (struct output_view){.finish = FINISH_STOP, .stop_token = tokenizer_eos(tokenizer)};
	choice(&v, NULL, NULL);
	has("\"stop_reason\":null");
	v.stop_token = tokenizer_eos(tokenizer) + 1;
	choice(&v, NULL, NULL);
	char want[64];
	snprintf(want, sizeof want, "\"stop_reason\":%lld", (long long)v.stop_token);
	has(want);
	v.stop_string = "END";
	choice(&v, NULL, NULL);
	has("\"stop_reason\":\"END\"");
}

Test(reply_shapes, openai_a_message_without_text_is_null_beside_calls)
{
	const struct chat_stream_rules rules = {.reasoning = false};
	struct chat_stream_call call = {.index = 0, .id = "call_1"};
	struct chat_stream chat = {.rules = &rules, .calls = &call};
	const struct output_view v = {.finish = FINISH_STOP, .stop_token = -1};
	shape.chat = true;
	fill(&call.name, "f");
	fill(&call.arguments, "{}");
	choice(&v, &chat, NULL);
	has("\"content\":\"\",\"refusal\":null}");
	chat.n_calls = 1;
	choice(&v, &chat, NULL);
	has("\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\","
	    "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]");
	fill(&chat.content, "so");
	choice(&v, &chat, NULL);
	has("\"content\":\"so\"");
	buf_fini(&call.name);
	buf_fini(&call.arguments);
	buf_fini(&chat.content);
}

Test(reply_shapes, openai_probabilities_are_finite_and_keys_differ)
{
	const uint32_t a = id_of("a", 1), half = id_of("\xc3", 1);
	const struct logprob_top top[] = {{a, -0.5f}, {a, -0.75f}, {half, -INFINITY}};
	const struct token_logprob lp[] = {{half, -INFINITY, 3, 3, top}, {a, NAN, 1, 0, NULL}};
	const uint32_t ids[] = {half, a};
	const struct output_view v = {.text = "x",
				      .text_n = 1,
				      .tokens = ids,
				      .n_tokens = 2,
				      .logprobs = lp,
				      .finish = FINISH_STOP,
				      .stop_token = -1};
	shape.logprobs = true;
	choice(&v, NULL, NULL);
	has("\"tokens\":[\"bytes:\\\\xc3\",\"a\"],\"token_logprobs\":[-9999,-9999],"
	    "\"top_logprobs\":[{\"a\":-0.5,\"bytes:\\\\xc3\":-9999},{\"a\":-9999}]");
	shape.chat = true;
	choice(&v, NULL, NULL);
	has("\"logprob\":-9999,\"bytes\":[195],\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":"
	    "[97]}");
	shape.tokens_as_ids = true;
	choice(&v, NULL, NULL);
	char want[64];
	snprintf(want, sizeof want, "\"token\":\"token_id:%u\"", half);
	has(want);
}

Test(reply_shapes, openai_offsets_are_in_characters)
{
	const uint32_t half = id_of("\xc3", 1), other = id_of("\xa4", 1), a = id_of("a", 1),
		       special = (uint32_t)tokenizer_eos(tokenizer);
	const struct token_logprob lp[] = {{half, -1, 1, 0, NULL},
					   {other, -1, 1, 0, NULL},
					   {special, -1, 1, 0, NULL},
					   {a, -1, 1, 0, NULL}};
	const uint32_t ids[] = {half, other, special, a};
	const struct output_view v = {
		.tokens = ids, .n_tokens = 4, .logprobs = lp, .finish = FINISH_STOP, .stop_token = -1};
	const struct openai_prompt echo = {.echo = "\xc3\xa4\xc3\xa4", .echo_n = 4};
	shape.logprobs = shape.skip_special = true;
	choice(&v, NULL, &echo);
	has("\"text\":\"\xc3\xa4\xc3\xa4\"");
	has("\"text_offset\":[2,3,3,3]");
	shape.skip_special = false;
	choice(&v, NULL, NULL);
	has_not("\"text_offset\":[0,1,1,1]");
}

Test(reply_shapes, openai_the_prompts_tokens_have_their_ranks)
{
	const uint32_t a = id_of("a", 1), b = id_of("b", 1), ids[] = {a, b, a};
	const struct logprob_top top[] = {{a, -0.5f}, {b, -1}};
	const struct token_logprob lp[] = {{b, -1, 2, 2, top}, {a, -3, 9, 1, &top[1]}};
	const struct openai_prompt p = {.tokens = ids, .n_tokens = 3, .logprobs = lp};
	char want[400];
	openai_prompt_logprobs(&out, &shape, &p);
	snprintf(want, sizeof want,
		 "[null,{\"%u\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"a\"},\"%u\":{\"logprob\":-1,"
		 "\"rank\":"
		 "2,\"decoded_token\":\"b\"}},{\"%u\":{\"logprob\":-1,\"rank\":1,\"decoded_token\":\"b\"},\"%"
		 "u\":{"
		 "\"logprob\":-3,\"rank\":9,\"decoded_token\":\"a\"}}]",
		 a, b, b, a);
	cr_expect_str_eq(out.p, want);
}

Test(reply_shapes, openai_usage_counts_all_and_names_a_changed_class)
{
	const struct answer_usage u = {.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 2},
				  changed = {.class_changed = true};
	openai_usage(&out, &u);
	cr_expect_str_eq(out.p, "{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10,"
				"\"prompt_tokens_details\":{\"cached_tokens\":2}}");
	openai_usage(&out, &changed);
	has("\"class_changed\":true}");
	buf_clear(&out);
	shape.usage_null = true;
	openai_end_chunk(&out, &shape, NULL);
	cr_expect_str_eq(out.p, ",\"usage\":null}");
}

/* --- Ollama --- */

static const struct ollama_shape *ollama(void)
{
	static struct ollama_shape s;
	s = (struct ollama_shape){.tokenizer = tokenizer, .model = "m", .at_us = 1700000000000042};
	return &s;
}

Test(reply_shapes, ollama_a_call_is_one_line_when_it_is_complete)
{
	struct ollama_call open = {0};
	struct chat_stream_call call = {.index = 0, .id = "call_1"};
	struct chat_stream chat = {.calls = &call, .n_calls = 1};
	struct output_view v = {.stop_token = -1};
	fill(&call.name, "f");
	fill(&call.arguments, "{\"a\"");
	buf_puts(&out, "");
	ollama_put_delta(&out, ollama(), &open, &v, &chat);
	cr_expect_str_eq(out.p, "");
	call.id[0] = 0;
	fill(&call.arguments, ":1}");
	v.finish = FINISH_STOP;
	ollama_put_delta(&out, ollama(), &open, &v, &chat);
	cr_expect_str_eq(
		out.p,
		"{\"model\":\"m\",\"created_at\":\"2023-11-14T22:13:20.000042Z\",\"message\":{"
		"\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
		"\"arguments\":{\"a\":1}}}]},\"done\":false}\n");
	ollama_call_fini(&open);
	buf_fini(&call.name);
	buf_fini(&call.arguments);
}

Test(reply_shapes, ollama_a_second_call_ends_the_first)
{
	struct ollama_call open = {0};
	struct chat_stream_call call[2] = {{.index = 0, .id = "call_1"}, {.index = 1, .id = "call_2"}};
	struct chat_stream chat = {.calls = call, .n_calls = 2};
	const struct output_view v = {.stop_token = -1};
	for (int i = 0; i < 2; i++) {
		fill(&call[i].name, i ? "g" : "f");
		fill(&call[i].arguments, i ? "[1" : "{}");
	}
	ollama_put_delta(&out, ollama(), &open, &v, &chat);
	has("{\"function\":{\"name\":\"f\",\"arguments\":{}}}");
	has_not("\"g\"");
	/* incomplete arguments are shown as text */
	buf_clear(&out);
	ollama_put_whole(&out, ollama(), &v, &chat);
	has("\"content\":\"g [1\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]");
	ollama_call_fini(&open);
	for (int i = 0; i < 2; i++) {
		buf_fini(&call[i].name);
		buf_fini(&call[i].arguments);
	}
}

Test(reply_shapes, ollama_times_are_in_nanoseconds_and_never_negative)
{
	const struct answer_usage u = {.prompt_tokens = 7, .completion_tokens = 3};
	struct answer_timing t = {.queued_us = 10, .first_token_us = 30, .total_us = 100};
	const struct output_view length = {.finish = FINISH_LENGTH}, stop = {.finish = FINISH_STOP};
	ollama_put_done(&out, ollama_reason(&length), &u, &t);
	cr_expect_str_eq(
		out.p,
		",\"done\":true,\"done_reason\":\"length\",\"total_duration\":100000,\"load_duration\":0,"
		"\"prompt_eval_count\":7,\"prompt_eval_duration\":20000,\"eval_count\":3,"
		"\"eval_duration\":70000}");
	buf_clear(&out);
	t.first_token_us = 0; /* the output ended before its first token */
	ollama_put_done(&out, ollama_reason(&stop), &u, &t);
	has("\"done_reason\":\"stop\"");
	has("\"prompt_eval_duration\":0,");
}

Test(reply_shapes, ollama_a_generated_text_is_the_response)
{
	const uint32_t half = id_of("\xc3", 1);
	const struct token_logprob lp = {half, -INFINITY, 1, 0, NULL};
	const struct output_view v = {
		.text = "x", .text_n = 1, .tokens = &half, .n_tokens = 1, .logprobs = &lp, .stop_token = -1};
	struct ollama_shape s = *ollama();
	s.generate = s.logprobs = true;
	ollama_put_whole(&out, &s, &v, NULL);
	has(",\"response\":\"x\",\"logprobs\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999,\"bytes\":[195]}"
	    "]");
	has_not("message");
	buf_clear(&out);
	s.logprobs = false;
	ollama_put_whole(&out, &s, &v, NULL);
	has_not("logprobs");
}

/* --- llama.cpp --- */

static void llamacpp_end(const struct output_view *v, bool tokens, struct llamacpp_end e)
{
	struct buf settings = {0}, prompt = {0};
	fill(&settings, "{}");
	fill(&prompt, "\"p\"");
	e.settings = &settings;
	e.prompt = &prompt;
	e.model = "m";
	buf_clear(&out);
	llamacpp_put_end(&out, tokenizer, 2, v, tokens, &e);
	buf_fini(&settings);
	buf_fini(&prompt);
}

Test(reply_shapes, llamacpp_why_an_output_ended)
{
	struct output_view v = {.finish = FINISH_STOP};
	cr_expect_str_eq(llamacpp_stop_type(&v), "eos");
	v.stop_string = "x";
	cr_expect_str_eq(llamacpp_stop_type(&v), "word");
	v.finish = FINISH_LENGTH;
	v.stop_string = NULL;
	cr_expect_str_eq(llamacpp_stop_type(&v), "limit");
	v.finish = FINISH_ABORT;
	cr_expect_str_eq(llamacpp_stop_type(&v), "none");
}

Test(reply_shapes, llamacpp_the_end_has_rates_and_the_tokens_that_are_asked_for)
{
	const uint32_t a = id_of("a", 1);
	const struct token_logprob lp = {a, -INFINITY, 1, 0, NULL};
	const struct output_view v = {
		.text = "a", .text_n = 1, .tokens = &a, .n_tokens = 1, .logprobs = &lp, .stop_token = -1};
	struct llamacpp_end e = {.stop_type = "eos",
				 .word = "",
				 .n_prompt = 7,
				 .n_cached = 2,
				 .n_predicted = 4,
				 .timing = {.queued_us = 1000, .first_token_us = 3000, .total_us = 5000}};
	char want[64];
	llamacpp_end(&v, true, e);
	snprintf(want, sizeof want, "{\"index\":2,\"content\":\"a\",\"tokens\":[%u]", a);
	has(want);
	has("\"tokens_cached\":11,\"timings\":{\"cache_n\":2,\"prompt_n\":5,\"prompt_ms\":2.000,\"prompt_per_"
	    "token_ms\":"
	    "0.400,\"prompt_per_second\":2500.000,\"predicted_n\":4,\"predicted_ms\":2.000,\"predicted_per_"
	    "token_ms\":"
	    "0.500,\"predicted_per_second\":2000.000}");
	has("\"logprob\":-9999");
	llamacpp_end(&v, false, e);
	has("\"tokens\":[]");
	e.n_cached = 7;
	e.n_predicted = 0;
	e.timing = (struct answer_timing){.queued_us = 1000};
	llamacpp_end(NULL, true, e);
	has("\"content\":\"\",\"tokens\":[]");
	has("\"prompt_n\":0,\"prompt_ms\":0.000,\"prompt_per_token_ms\":0.000,\"prompt_per_second\":0.000,"
	    "\"predicted_n\":0,\"predicted_ms\":0.000,\"predicted_per_token_ms\":0.000,\"predicted_per_"
	    "second\":0.000");
	has_not("completion_probabilities");
}

Test(reply_shapes, llamacpp_settings_without_a_bound_are_minus_one)
{
	char *stop[] = {"a\"b"};
	struct submit s = {.stop = stop, .n_stop = 1};
	s.params.logprobs = -1;
	llamacpp_put_settings(&out, &s, true);
	has("{\"n_predict\":-1,\"max_tokens\":-1,");
	has("\"n_probs\":0,");
	has("\"stop\":[\"a\\\"b\"],\"ignore_eos\":false,\"stream\":true}");
	buf_clear(&out);
	s.params.max_tokens = 9;
	s.params.ignore_eos = true;
	llamacpp_put_settings(&out, &s, false);
	has("{\"n_predict\":9,\"max_tokens\":9,");
	has("\"ignore_eos\":true,\"stream\":false}");
}
