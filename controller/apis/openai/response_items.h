/* response_items.h - items of inputs and conversations in the shape in which OpenAI lists them.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSE_ITEMS_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSE_ITEMS_H

#include <jansson.h>

/* Return a copy of a valid item in its listed shape: with type and status, and a message's text as parts.
 * id: used if the item has none, or NULL. */
json_t *response_item_listed(const json_t *item, const char *id);
/* Return copies of all items, with new ids instead of their own. */
json_t *response_items_named(const json_t *items);

#endif
