/* chat.h - renders messages to a prompt with the model's own chat template (jinja.h).
 * The prompt is text with spans of plain text that come from the request. The tokenizer recognizes no
 * special tokens in these spans, so no content can forge one.
 * Immutable once loaded: threads may render concurrently. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_H
#define QUERN_CONTROLLER_CHAT_CHAT_H

#include "base/buf.h"
#include "base/err.h"
#include "controller/chat/tools_format.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat;

/* A request as in OpenAI's API.  All borrowed; NULL: not given. */
struct chat_input {
	/* [{role, content, ...}]: content is a string, null, or [{"type": "text", "text"}]. All other keys
	 * are passed to the template: tool_calls (arguments as JSON text or an object), tool_call_id, name,
	 * reasoning_content (also accepted as thinking or reasoning), ... */
	const json_t *messages;
	const json_t *tools;         /* array; empty: none */
	const json_t *documents;     /* array */
	const json_t *kwargs;        /* chat_template_kwargs: an object of additional variables */
	enum tools_style calls;      /* format of past calls if the template shows none */
	bool add_generation_prompt;  /* end the prompt with the beginning of the assistant's reply */
	bool continue_final_message; /* end the prompt within the last message, which the reply continues */
};

struct chat_prompt {
	struct buf text;
	struct text_span *plain; /* owned */
	size_t n_plain;
};
void chat_prompt_fini(struct chat_prompt *p);

/* Load the template of dir: chat_template.jinja, else tokenizer_config.json's chat_template (a string, or a
 * list of {name, template}), else chat_template.json. -ENOTSUP if there is none; -EINVAL if it is invalid:
 * why names the line. */
int chat_load(const char *dir, struct chat **out, struct why *why);
void chat_free(struct chat *c); /* NULL is fine */

/* Render the prompt as transformers' apply_chat_template(tokenize=False) does, if the template accepts the
 * order of the messages and shows them all; otherwise first reorder the messages (message_turns_fit()).
 * Encode the result without adding BOS. -EINVAL with the reason: an error in the request (an unknown role,
 * an invalid content) or in the template (raise_exception, an error); -E2BIG: a limit is exceeded. */
int chat_render_json(const struct chat *c, const struct chat_input *rq, struct chat_prompt *out,
		     struct why *why);

struct template_facts;
/* Return the template's facts for requests without or with tools (template_probe.h); borrowed. */
const struct template_facts *chat_facts(const struct chat *c, bool tools);

/* Return true if the template contains this word, e.g. the marker of a tool call format. */
bool chat_mentions(const struct chat *c, const char *word);

#endif
