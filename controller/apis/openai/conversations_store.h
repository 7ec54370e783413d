/* conversations_store.h - conversations and their items, in the tables of responses_store.h.
 * Changes are done on the journal's thread, in order; each calls done once, there or at once: 0 when it is on
 * the disk; -ENOENT: the conversation or the item is gone; -EINVAL with the reason: it would have too many
 * items or bytes; others: the disk. */
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

/* Oldest first.  Texts are owned, each an object with an id. */
struct conversation_item {
	char id[RESPONSE_ID_SIZE];
	char *text;
};
struct conversation_items {
	struct conversation_item *items; /* [n] */
	size_t n, cap;
	size_t bytes; /* of the texts */
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
/* Within an operation: o->items join o->row.conversation of this owner, if it is still there.  SQLITE_OK, or
 * a code. */
int conversations_add_items(const struct store_op *o, struct journal_db *db, const char *owner);

/* What a response that is not stored adds: an array's text.  What the disk does not take is logged, and lost.
 */
void conversations_append(struct responses_store *s, const char *owner, const char *id, const char *items);

/* *out is the caller's.  -ENOENT: no such conversation of this owner; -EIO. */
int conversations_get(struct responses_store *s, const char *owner, const char *id,
		      struct stored_conversation *out);
/* All of its items, those of responses that are on their way to the disk as well; *out is the caller's.
 * Returned as above. */
int conversations_read(struct responses_store *s, const char *owner, const char *id,
		       struct conversation_items *out);
/* Ids of its responses in the background that are not done, at most max.  Their number, or -EIO. */
int conversations_pending(struct responses_store *s, const char *id, char (*out)[RESPONSE_ID_SIZE], int max);

#endif
