/* chat_template.h - the chat templates of a model's directory, and the special tokens they know. */
#ifndef QUERN_CONTROLLER_CHAT_TEMPLATE_H
#define QUERN_CONTROLLER_CHAT_TEMPLATE_H

#include "controller/jinja.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat_template {
	struct jinja *main;     /* the default one */
	struct jinja *tool_use; /* used where a request has tools; NULL: main */
	char tool_use_why[256]; /* why there is one and it cannot be used; "" */
	char *text;             /* of both, as they were written */
	json_t *tokens;         /* {"bos_token": "<s>", ...} */
};

/* -ENOTSUP: dir has none; -EINVAL, -EFBIG, ...: why names the file or the template's line. */
int chat_template_load(const char *dir, struct chat_template *t, char *why, size_t why_n);
void chat_template_fini(struct chat_template *t);

/* The one for a request.  -EINVAL: it is the tool_use one, which is in error. */
int chat_template_choose(const struct chat_template *t, bool tools, const struct jinja **out, char *why,
			 size_t why_n);

#endif
