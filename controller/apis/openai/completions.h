/* completions.h - OpenAI's /v1/chat/completions and /v1/completions: the routes (http.h) and the writer of
 * both.  Requests are already in the dialect; the writer (answer.h) combines the shapes of openai_json.h. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_COMPLETIONS_H
#define QUERN_CONTROLLER_APIS_OPENAI_COMPLETIONS_H

#include "controller/http/exchange.h"

void completions_call_text(struct exchange *x, const char *rest);
void completions_call_chat(struct exchange *x, const char *rest);

#endif
