/* chat_template.h - the chat templates of a model, and the special tokens they refer to: of a directory in
 * Hugging Face's layout, of the metadata of a GGUF file, or a file of a template. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_TEMPLATE_H
#define QUERN_CONTROLLER_CHAT_CHAT_TEMPLATE_H

#include "controller/jinja/jinja.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat_template {
	struct jinja *main;     /* the default template */
	struct jinja *tool_use; /* for requests with tools; NULL: main */
	char tool_use_why[256]; /* the error in the tool_use template; "" */
	char *text;             /* source of both */
	json_t *tokens;         /* {"bos_token": "<s>", ...} */
};

/* path: a model's directory or file (without a template in it, what lies beside it), or a template,
 * NAME.jinja, with the special tokens of its directory. -ENOTSUP: there is none; -EINVAL, -EFBIG, ...: why
 * names the file or the template's line. */
int chat_template_load(const char *path, struct chat_template *t, char *why, size_t why_n);
void chat_template_fini(struct chat_template *t);

/* The template for a request.  -EINVAL: it is tool_use, which is invalid. */
int chat_template_choose(const struct chat_template *t, bool tools, const struct jinja **out, char *why,
			 size_t why_n);

#endif
