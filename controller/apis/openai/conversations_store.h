/* conversations_store.h - conversations and their items, in the tables of responses_store.h.
 * Changes run on the journal's thread, in order.  Each calls done once, there or at once: 0 when it is on
 * disk; -ENOENT: the conversation or the item is gone; -EINVAL with the reason: it would have too many items
 * or bytes; other errors: the disk. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_CONVERSATIONS_STORE_H
#define QUERN_CONTROLLER_APIS_OPENAI_CONVERSATIONS_STORE_H

#include "controller/apis/openai/responses_store.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { CONVERSATION_ITEMS_MAX = 10000 };

struct stored_conversation {
	char id[RESPONSE_ID_SIZE], owner[FILE_OWNER_SIZE];
	int64_t created_at;
	char *metadata; /* owned: an object */
};
void stored_conversation_fini(struct stored_conversation *c);

/* Items, oldest first.  Texts are owned; each is an object with an id. */
struct conversation_item {
	char id[RESPONSE_ID_SIZE];
	char *text;
};
struct conversation_items {
	struct conversation_item *items; /* [n] */
	size_t n, cap;
	size_t bytes; /* total bytes of the texts */
};
void conversation_items_fini(struct conversation_items *all);

typedef void conversations_done(void *user, int rc, const char *why);

/* items: an array with ids; NULL: none. */
void conversations_create(struct responses_store *s, const struct stored_conversation *c, const json_t *items,
			  conversations_done *done, void *user);
void conversations_update(struct responses_store *s, const char *owner, const char *id, const char *metadata,
			  conversations_done *done, void *user);
void conversations_delete(struct responses_store *s, const char *owner, const char *id,
			  conversations_done *done, void *user);
void conversations_add(struct responses_store *s, const char *owner, const char *id, const json_t *items,
		       conversations_done *done, void *user);
void conversations_remove(struct responses_store *s, const char *owner, const char *id, const char *item,
			  conversations_done *done, void *user);

struct store_op;
/* Within an operation: append o->items to o->row.conversation of this owner, if it still exists.  SQLITE_OK,
 * or an SQLite code. */
int conversations_add_items(const struct store_op *o, struct journal_db *db, const char *owner);

/* Append the items of a response that is not stored.  items: an array's text. */
void conversations_append(struct responses_store *s, const char *owner, const char *id, const char *items,
			  conversations_done *done, void *user);

/* Read a conversation.  The caller owns *out.  -ENOENT: the owner has no such conversation; -EIO. */
int conversations_get(struct responses_store *s, const char *owner, const char *id,
		      struct stored_conversation *out);
/* Read all items of a conversation, including those of responses still being written to disk.  The caller
 * owns *out.  Errors as above. */
int conversations_read(struct responses_store *s, const char *owner, const char *id,
		       struct conversation_items *out);
/* List the ids of the conversation's background responses that are not done, at most max.  Returns their
 * number, or -EIO. */
int conversations_pending(struct responses_store *s, const char *id, char (*out)[RESPONSE_ID_SIZE], int max);

#endif
