/* responses.h - OpenAI's Responses API: the routes (http.h) and the writer (answer.h).
 *
 *   body --responses_read.h--> chat --generation.h--> job --> responses_events.h --> events, or the response
 */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_H

#include "controller/http/exchange.h"

/* /v1/responses: creates one. */
void responses_call(struct exchange *x, const char *rest);

#endif
