/* completions.h - OpenAI's /v1/chat/completions and /v1/completions: the routes (http.h) and the writer of
 * both. A request is in the dialect already, and the writer (answer.h) puts the shapes of openai_json.h
 * together. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_COMPLETIONS_H
#define QUERN_CONTROLLER_APIS_OPENAI_COMPLETIONS_H

#include "controller/apis/generation.h"
#include "controller/http/exchange.h"

#include <stdbool.h>

void completions_call_text(struct exchange *x, const char *rest);
void completions_call_chat(struct exchange *x, const char *rest);

/* The same as the routes, for a line in x->body of an exchange without a connection. */
void completions_call_line(struct exchange *x, bool chat, const struct generation_line *line);

#endif
