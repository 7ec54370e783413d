/* responses_read.h - translate a request of OpenAI's Responses API to the chat dialect (api.h).  Pure.
 *
 *   instructions           --> the first message, with role system
 *   input: text or items   --> messages: reasoning, text and calls of one turn become one message
 *   text.format            --> response_format
 *   tools, tool_choice     --> tools, tool_choice of chat, which nests a function's fields
 *   reasoning.effort       --> reasoning_effort */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_READ_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_READ_H

#include "controller/apis/generation.h"
#include "controller/request/api_error.h"
#include "controller/request/field_table.h"

#include <jansson.h>

/* Every field of the API: honoured, ignored or refused. */
extern const struct field_table responses_fields;
/* The chat's fields and their names in this API. */
extern const struct generation_name responses_names[];

/* Translate client; responses_fields has checked its fields.  history: items before its input, or NULL.  The
 * caller owns *request and *items (the input as items, without ids).  -EINVAL with *p, which names the
 * client's field. */
int responses_read(const json_t *client, const json_t *history, json_t **request, json_t **items,
		   struct api_problem *p);

/* Return the id of the conversation that a request names, as a string or as {"id"}; NULL: none. */
const char *responses_conversation(const json_t *client);

/* Check that items may be used as an input.  field: their name in the request.  -EINVAL with *p. */
int responses_check_items(const json_t *items, const char *field, struct api_problem *p);

/* Return all request fields that a response repeats, as OpenAI describes them.  The caller owns them. */
json_t *responses_repeat(const json_t *client);

/* Return a copy of a valid item of an input or a conversation in the shape in which OpenAI lists it: with
 * type and status, and a message's text as parts. id: used if the item has none, or NULL. */
json_t *response_item_listed(const json_t *item, const char *id);
/* Return copies of all items, with new ids instead of their own. */
json_t *response_items_named(const json_t *items);

#endif
