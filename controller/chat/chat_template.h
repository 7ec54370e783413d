/* chat_template.h - loads a model's chat templates and the special tokens they refer to, from a directory in
 * Hugging Face's layout, from a GGUF file's metadata, or from a template file. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_TEMPLATE_H
#define QUERN_CONTROLLER_CHAT_CHAT_TEMPLATE_H

#include "base/err.h"
#include "controller/chat/chat.h"
#include "controller/jinja/jinja.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat_template {
	struct jinja *main;      /* the default template */
	struct jinja *tool_use;  /* for requests with tools; NULL: use main */
	struct why tool_use_why; /* the error in the tool_use template, or "" */
	char *text;              /* source of both templates */
	json_t *tokens;          /* {"bos_token": "<s>", ...} */
};

/* Load from path: a model's directory or file (if it holds no template, the files next to it), or a template
 * file NAME.jinja with the special tokens of its directory. -ENOTSUP: no template; -EINVAL, -EFBIG, ...: why
 * names the file or the template's line. */
int chat_template_load(const char *path, struct chat_template *t, struct why *why);
void chat_template_fini(struct chat_template *t);

/* Render messages, which replace rq->messages, with the other variables of rq. limits: NULL for the
 * defaults. Errors as jinja_render(); also -EINVAL for too many or reserved chat_template_kwargs. */
int chat_template_render(const struct chat_template *t, const struct chat_input *rq, const json_t *messages,
			 const struct jinja_limits *limits, struct jinja_result *out, struct why *why);

#endif
