/* chat.h - messages to a prompt, by the chat template that came with the model (jinja.h).
 * The prompt is text with spans: within a span (what the request says) nothing is a special
 * token, so that no content can forge one.
 * Immutable when loaded: any number of threads may render at once. */
#ifndef QUERN_CONTROLLER_CHAT_H
#define QUERN_CONTROLLER_CHAT_H

#include "base/buf.h"
#include "controller/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat;

/* What a request says, as OpenAI's API has it.  All borrowed; what is NULL was not given. */
struct chat_request {
	/* [{role, content, ...}]: content is a string, null, or [{"type": "text", "text"}].  Every other
	 * key reaches the template: tool_calls (arguments as JSON text or an object), tool_call_id, name,
	 * reasoning_content (also as thinking or reasoning), ... */
	const json_t *messages;
	const json_t *tools;        /* array; an empty one counts as none */
	const json_t *documents;    /* array */
	const json_t *kwargs;       /* chat_template_kwargs: an object of more variables */
	bool add_generation_prompt; /* end where the assistant's reply begins */
	bool continue_final_message;        /* end within the last message, which the reply goes on with */
};

struct chat_prompt {
	struct buf text;
	struct tokenizer_span *plain;   /* owned */
	size_t n_plain;
};
void chat_prompt_fini(struct chat_prompt *p);

/* The template of dir: chat_template.jinja, else tokenizer_config.json's chat_template (a string, or a
 * list of {name, template}), else chat_template.json.  -ENOTSUP: there is none; -EINVAL: it is in
 * error, why says where. */
int chat_load(const char *dir, struct chat **out, char *why, size_t why_n);
void chat_free(struct chat *c);     /* NULL is fine */

/* What transformers' apply_chat_template(tokenize=False) gives; to be encoded without adding BOS.
 * -EINVAL with the reason: the request's (an unknown role, a content that is none), or the template's
 * (raise_exception, a mistake in it); -E2BIG: the template takes more than its limits. */
int chat_render_json(const struct chat *c, const struct chat_request *rq, struct chat_prompt *out, char *why,
		     size_t why_n);

/* Does the template itself say this word?  (E.g. which of its formats tool calls have.) */
bool chat_mentions(const struct chat *c, const char *word);

#endif
