/* conversations.h - OpenAI's conversations: the routes (http.h).  A conversation holds items; a response that
 * names it has them before its input, and adds its input and output to them (responses.h). */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_CONVERSATIONS_H
#define QUERN_CONTROLLER_APIS_OPENAI_CONVERSATIONS_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* /v1/conversations: creates one. */
void conversations_call(struct exchange *x, const char *rest);
/* /v1/conversations/ID, .../items, .../items/ITEM */
void conversations_call_one(struct exchange *x, const char *rest);

/* The fields of their requests: all of them, of a change, of new items. */
extern const struct field_table conversations_fields, conversations_change_fields, conversations_items_fields;

#endif
