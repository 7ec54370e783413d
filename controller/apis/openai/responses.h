/* responses.h - OpenAI's Responses API: the routes (http.h).
 *
 *   body --responses_read.h--> chat --generation.h--> job --responses_answer.h--> events, or the response
 *                                                      |
 *              responses_store.h <--responses_runs.h---'  in the background */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_H

#include "controller/http/exchange.h"

/* /v1/responses: create a response. */
void responses_call(struct exchange *x, const char *rest);
/* /v1/responses/ID, .../cancel, .../input_items */
void responses_call_one(struct exchange *x, const char *rest);

#endif
