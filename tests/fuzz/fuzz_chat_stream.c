/* fuzz_chat_stream.c - reasoning and tool calls in a model's output that arrives in chunks: the result does
 * not depend on the chunks, and without calls and reasoning it is the text.
 *
 * The first byte chooses the style and whether the prompt opens the reasoning.  The second byte chooses the
 * size of the chunks, whether the call is forced and whether its types are declared.  The rest is the text,
 * in which a byte from 0x80 on stands for one of the words below or of the style's own.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_chat_stream CORPUS */
#include "controller/chat/chat_stream.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const words[] = {"<think>",
				    "</think>",
				    "<tool_call>",
				    "</tool_call>",
				    "<|python_tag|>",
				    "{\"name\": \"f\"",
				    "\"arguments\": ",
				    "\"parameters\":",
				    "{\"a\": [1, \"}\"]}",
				    "\\\"",
				    "null",
				    ", ",
				    "}",
				    "{",
				    "\n",
				    "; ",
				    "<|channel|>analysis<|message|>",
				    "<|channel|>final<|message|>",
				    "<|start|>assistant",
				    "<|channel|>",
				    "<|message|>",
				    " to=functions.f",
				    "<|end|>",
				    "<|call|>"};

/* A tool with a string parameter and a string-or-null parameter; others are undeclared. */
static const char tools[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
	"{\"a\": {\"type\": \"string\"}, \"b\": {\"type\": [\"string\", \"null\"]}}}}}]";

/* Append the delta to the outputs.  open: calls that have begun. */
static void gather(struct chat_stream *s, struct buf *content, struct buf *reasoning, uint32_t *open)
{
	buf_put(reasoning, s->reasoning.p, s->reasoning.len);
	buf_put(content, s->content.p, s->content.len);
	for (uint32_t i = 0; i < s->n_calls; i++) {
		const struct chat_stream_call *c = &s->calls[i];
		if (c->id[0]) {
			assert(c->index == *open && c->name.len);
			++*open;
		}
		assert(c->index < *open);
	}
	chat_stream_take_delta(s);
}

static void run(const struct chat_stream_rules *rules, const struct buf *text, size_t step,
		struct buf *content, struct buf *reasoning, struct buf *arguments)
{
	struct chat_stream s;
	uint32_t open = 0;
	chat_stream_init(&s, rules);
	for (size_t at = 0; at < text->len;) {
		size_t k = step ? step : text->len;
		if (k > text->len - at)
			k = text->len - at;
		char *piece = malloc(k); /* exact size, so that a read beyond the end is detected */
		memcpy(piece, text->p + at, k);
		chat_stream_push(&s, piece, k);
		free(piece);
		at += k;
		for (uint32_t i = 0; i < s.n_calls; i++)
			buf_put(arguments, s.calls[i].arguments.p, s.calls[i].arguments.len);
		gather(&s, content, reasoning, &open);
	}
	chat_stream_end(&s);
	for (uint32_t i = 0; i < s.n_calls; i++)
		buf_put(arguments, s.calls[i].arguments.p, s.calls[i].arguments.len);
	gather(&s, content, reasoning, &open);
	assert(open <= TOOLS_CALLS_MAX && s.called == (open > 0));
	if (!rules->reasoning && !open && !(rules->marks && rules->marks->channels))
		assert(content->len == text->len && (!text->len || !memcmp(content->p, text->p, text->len)));
	chat_stream_fini(&s);
}

/* Return the k-th word, where the format's texts follow the words above. */
static const char *word(unsigned k, const struct tools_format *f)
{
	const char *all[64];
	size_t n = 0;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		all[n++] = words[i];
	for (int i = 0; f && i < TOOLS_MARKS_MAX; i++)
		all[n++] = f->marks[i].text;
	for (int i = 0; f && i < TOOLS_STEPS_MAX; i++)
		all[n++] = f->steps[i].text;
	for (int i = 0; f && i < TOOLS_THEN_MAX; i++)
		all[n++] = f->then[i].text;
	if (f && f->tags.key_open) {
		all[n++] = f->tags.key_open;
		all[n++] = f->tags.key_close;
		all[n++] = f->tags.value_open;
		all[n++] = f->tags.value_close;
	}
	return all[k % n] ? all[k % n] : "'";
}

static int same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf text = {0}, content[2] = {{0}}, reasoning[2] = {{0}}, arguments[2] = {{0}};
	if (n < 2)
		return 0;
	struct chat_stream_rules rules = {.tools = (enum tools_style)(data[0] / 4 % TOOLS_N_STYLES),
					  .reasoning = data[0] & 1,
					  .reasoning_open = data[0] & 2 && data[0] & 1,
					  .show_reasoning = true};
	if (rules.tools == TOOLS_HARMONY || (data[0] / 4 % TOOLS_N_STYLES == TOOLS_NONE && data[1] & 64))
		rules.marks = reasoning_marks_named("harmony"), rules.continued = data[1] & 128;
	if (rules.tools && data[1] & 16)
		rules.forced = "f";
	json_t *declared = data[1] & 32 ? json_loads(tools, 0, NULL) : NULL;
	rules.declared = declared;
	for (size_t i = 2; i < n; i++)
		if (data[i] < 0x80)
			buf_putc(&text, (char)data[i]);
		else
			buf_puts(&text, word(data[i], tools_format(rules.tools)));
	run(&rules, &text, 0, &content[0], &reasoning[0], &arguments[0]);
	run(&rules, &text, 1 + data[1] % 16, &content[1], &reasoning[1], &arguments[1]);
	assert(same(&content[0], &content[1]) && same(&reasoning[0], &reasoning[1]) &&
	       same(&arguments[0], &arguments[1]));
	json_decref(declared);
	buf_fini(&text);
	for (int i = 0; i < 2; i++) {
		buf_fini(&content[i]);
		buf_fini(&reasoning[i]);
		buf_fini(&arguments[i]);
	}
	return 0;
}
