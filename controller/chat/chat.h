/* chat.h - messages to a prompt, by the chat template that came with the model (jinja.h).
 * The prompt is text with spans of plain text, the request's own: the tokenizer recognizes no special
 * tokens in them, so that no content can forge one.
 * Immutable once loaded: any number of threads may render at once. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_H
#define QUERN_CONTROLLER_CHAT_CHAT_H

#include "base/buf.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat;

/* A request in the form of OpenAI's API.  All borrowed; NULL: not given. */
struct chat_input {
	/* [{role, content, ...}]: content is a string, null, or [{"type": "text", "text"}].  Every other
	 * key is passed to the template: tool_calls (arguments as JSON text or an object), tool_call_id,
	 * name, reasoning_content (also as thinking or reasoning), ... */
	const json_t *messages;
	const json_t *tools;         /* array; empty: none */
	const json_t *documents;     /* array */
	const json_t *kwargs;        /* chat_template_kwargs: an object of more variables */
	bool add_generation_prompt;  /* end with the beginning of the assistant's reply */
	bool continue_final_message; /* end within the last message, which the reply continues */
};

struct chat_prompt {
	struct buf text;
	struct text_span *plain; /* owned */
	size_t n_plain;
};
void chat_prompt_fini(struct chat_prompt *p);

/* The template of dir: chat_template.jinja, else tokenizer_config.json's chat_template (a string, or a
 * list of {name, template}), else chat_template.json.  -ENOTSUP: there is none; -EINVAL: it is
 * invalid, why names the line. */
int chat_load(const char *dir, struct chat **out, char *why, size_t why_n);
void chat_free(struct chat *c); /* NULL is fine */

/* The same text as transformers' apply_chat_template(tokenize=False); to be encoded without adding BOS.
 * -EINVAL with the reason: of the request (an unknown role, an invalid content) or of the template
 * (raise_exception, an error); -E2BIG: the template exceeds a limit. */
int chat_render_json(const struct chat *c, const struct chat_input *rq, struct chat_prompt *out, char *why,
		     size_t why_n);

/* Whether the template contains this word, e.g. the marker of a format of tool calls. */
bool chat_mentions(const struct chat *c, const char *word);

#endif
