/* A model's output, in pieces: thoughts and calls of tools.  Never a crash, and what comes out does
 * not depend on the pieces; without calls and thoughts it is the text.
 *
 * The first byte chooses the style and whether a thought is open, the second where the text is cut;
 * the rest is the text, where bytes from 0x80 on stand for what such outputs are made of.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_said CORPUS */
#include "controller/said.h"

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
				    "; "};

/* All that was said, calls as [index name(arguments)]. */
static void gather(struct said *a, struct buf *out, struct buf *thought, uint32_t *open)
{
	buf_put(thought, a->thought.p, a->thought.len);
	buf_put(out, a->text.p, a->text.len);
	for (uint32_t i = 0; i < a->n_calls; i++) {
		const struct said_call *c = &a->calls[i];
		if (c->id[0]) {
			assert(c->index == *open && c->name.len);
			++*open;
		}
		assert(c->index < *open);
	}
	said_told(a);
}

static void run(const struct said_rules *rules, const struct buf *text, size_t step, struct buf *out,
		struct buf *thought, struct buf *arguments)
{
	struct said a;
	uint32_t open = 0;
	said_init(&a, rules);
	for (size_t at = 0; at < text->len;) {
		size_t k = step ? step : text->len;
		if (k > text->len - at)
			k = text->len - at;
		char *piece = malloc(k); /* of its exact size */
		memcpy(piece, text->p + at, k);
		said_push(&a, piece, k);
		free(piece);
		at += k;
		for (uint32_t i = 0; i < a.n_calls; i++)
			buf_put(arguments, a.calls[i].arguments.p, a.calls[i].arguments.len);
		gather(&a, out, thought, &open);
	}
	said_end(&a);
	for (uint32_t i = 0; i < a.n_calls; i++)
		buf_put(arguments, a.calls[i].arguments.p, a.calls[i].arguments.len);
	gather(&a, out, thought, &open);
	assert(open <= TOOLS_CALLS_MAX && a.called == (open > 0));
	if (!rules->thoughts && !open)
		assert(out->len == text->len && (!text->len || !memcmp(out->p, text->p, text->len)));
	said_fini(&a);
}

static int same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf text = {0}, out[2] = {{0}}, thought[2] = {{0}}, arguments[2] = {{0}};
	if (n < 2)
		return 0;
	struct said_rules rules = {.tools = (enum tools_style)(data[0] % 3),
				   .thoughts = data[0] & 4,
				   .thought_open = data[0] & 8 && data[0] & 4,
				   .show_thoughts = true};
	for (size_t i = 2; i < n; i++)
		if (data[i] < 0x80)
			buf_putc(&text, (char)data[i]);
		else
			buf_puts(&text, words[data[i] % (sizeof words / sizeof *words)]);
	run(&rules, &text, 0, &out[0], &thought[0], &arguments[0]);
	run(&rules, &text, 1 + data[1] % 16, &out[1], &thought[1], &arguments[1]);
	assert(same(&out[0], &out[1]) && same(&thought[0], &thought[1]) &&
	       same(&arguments[0], &arguments[1]));
	buf_fini(&text);
	for (int i = 0; i < 2; i++) {
		buf_fini(&out[i]);
		buf_fini(&thought[i]);
		buf_fini(&arguments[i]);
	}
	return 0;
}
