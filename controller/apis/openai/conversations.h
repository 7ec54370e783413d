/* conversations.h - OpenAI's conversations: the routes (http.h).  A conversation holds items.  A response in
 * a conversation gets these items before its input, and adds its input and output to them (responses.h). */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_CONVERSATIONS_H
#define QUERN_CONTROLLER_APIS_OPENAI_CONVERSATIONS_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* /v1/conversations: create a conversation. */
void conversations_call(struct exchange *x, const char *rest);
/* /v1/conversations/ID, .../items, .../items/ITEM */
void conversations_call_one(struct exchange *x, const char *rest);

/* Fields of the requests that create a conversation, change it, or add items. */
extern const struct field_table conversations_fields, conversations_change_fields, conversations_items_fields;

#endif
