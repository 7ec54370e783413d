/* response_items.h - items of inputs and conversations as OpenAI lists them.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSE_ITEMS_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSE_ITEMS_H

#include <jansson.h>

/* A copy of an item that was found good, as it is listed: with its type and status, and a message's text as
 * parts.  id: of an item that has none, or NULL. */
json_t *response_item_listed(const json_t *item, const char *id);
/* Copies of all, with ids of their own in place of those that they have. */
json_t *response_items_named(const json_t *items);

#endif
