/* openai.h - OpenAI's API: the routes (http.h). */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_OPENAI_H
#define QUERN_CONTROLLER_APIS_OPENAI_OPENAI_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* /v1/chat/completions and /v1/completions.  Requests are already in the dialect; the writer (answer.h)
 * combines the shapes of openai_json.h. */
void completions_call_text(struct exchange *x, const char *rest);
void completions_call_chat(struct exchange *x, const char *rest);

/* A conversation holds items.  A response in a conversation gets these items before its input, and adds its
 * input and output to them.  /v1/conversations creates a conversation. */
void conversations_call(struct exchange *x, const char *rest);
/* /v1/conversations/ID, .../items, .../items/ITEM */
void conversations_call_one(struct exchange *x, const char *rest);

/* Fields of the requests that create a conversation, change it, or add items. */
extern const struct field_table conversations_fields, conversations_change_fields, conversations_items_fields;

/* The Responses API.
 *
 *   body --responses_read.h--> chat --generation.h--> job --responses_answer.h--> events, or the response
 *                                                      |
 *              responses_store.h <--responses_runs.h---'  in the background */

/* /v1/responses: create a response. */
void responses_call(struct exchange *x, const char *rest);
/* /v1/responses/ID, .../cancel, .../input_items */
void responses_call_one(struct exchange *x, const char *rest);

#endif
