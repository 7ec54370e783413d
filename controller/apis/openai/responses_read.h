/* responses_read.h - a request of OpenAI's Responses API to one of the chat dialect (api.h).  Pure.
 *
 *   instructions           --> the first message, of the system
 *   input: text or items   --> messages: reasoning, text and calls of one turn become one message
 *   text.format            --> response_format
 *   tools, tool_choice     --> the same of chat, which nests a function's fields
 *   reasoning.effort       --> reasoning_effort */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_READ_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_READ_H

#include "controller/apis/generation.h"
#include "controller/request/api_error.h"
#include "controller/request/field_table.h"

#include <jansson.h>

/* Every field of the API: honoured, ignored, refused. */
extern const struct field_table responses_fields;
/* The chat's fields and what this API calls them. */
extern const struct generation_name responses_names[];

/* client: fields as responses_fields has checked them.  history: items before its input, or NULL.  *request
 * and *items (the input as items, without ids) are the caller's.  -EINVAL with *p, which names the client's
 * field. */
int responses_read(const json_t *client, const json_t *history, json_t **request, json_t **items,
		   struct api_problem *p);

/* The id of the conversation that a request names, by itself or as {"id"}; NULL: none. */
const char *responses_conversation(const json_t *client);

/* Whether they are items as an input may have them.  field: their name in the request.  -EINVAL with *p. */
int responses_check_items(const json_t *items, const char *field, struct api_problem *p);

/* The fields that a response repeats of its request, all of them, as OpenAI describes them; the caller's. */
json_t *responses_repeat(const json_t *client);

#endif
