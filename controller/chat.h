/* chat.h - messages to a prompt, in one of the built-in styles, recognized from the model's
 * chat template: ChatML (Qwen), Llama 3, Llama 2, Mistral.  The prompt is text with spans:
 * within a span (a message's content) nothing is a special token, so that no content can
 * forge one. */
#ifndef QUERN_CONTROLLER_CHAT_H
#define QUERN_CONTROLLER_CHAT_H

#include "base/buf.h"
#include "controller/tokenizer.h"

#include <stddef.h>

struct chat;

struct chat_message {
	const char *role;           /* "system", "user", "assistant" */
	const char *content;
	size_t content_n;
};

struct chat_prompt {
	struct buf text;
	struct tokenizer_span *plain;   /* owned */
	size_t n_plain;
};
void chat_prompt_fini(struct chat_prompt *p);

/* From tokenizer_config.json (chat_template: string or list of {name, template}) or
 * chat_template.jinja in dir.  -ENOTSUP: a template of no known style, or none: why says so. */
int chat_load(const char *dir, struct chat **out, char *why, size_t why_n);
void chat_free(struct chat *c);     /* NULL is fine */
const char *chat_style(const struct chat *c);       /* "chatml", "llama3", "llama2", "mistral" */

/* What transformers' apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
 * gives for the style's reference templates.  -EINVAL with the reason (roles that must
 * alternate, an unknown role, no message). */
int chat_render(const struct chat *c, const struct chat_message *m, size_t n, struct chat_prompt *out,
		char *why, size_t why_n);

#endif
