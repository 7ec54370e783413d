/* responses_store_impl.h - shared by responses_store.c and conversations_store.c.  Private to them. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_IMPL_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_IMPL_H

#include "controller/apis/openai/responses_store.h"

#include <pthread.h>

enum { ROW_BYTES = 256, ITEM_BYTES = 64 /* counted for a row in addition to its texts */ };

typedef void store_done(void *user, int rc, const char *why);

struct store_op {
	struct journal_op op;
	struct responses_store *store;
	unsigned refs;           /* under the lock: references of the journal and of readers */
	struct response_row row; /* put: all of it; finish: id and body; a conversation: id, owner, metadata
				  * as body, number of items as n_before */
	char *items;             /* an array's text: added to row.conversation; NULL: none */
	char item[RESPONSE_ID_SIZE];
	int64_t now;
	int rc; /* 0, or -errno: the operation's own reason to fail */
	char why[160];
	struct store_op *next, **prev; /* list of operations that can be read before they are written */
	store_done *done;
	void *user;
};

struct responses_store {
	struct journal *journal;
	struct responses_limits limits;
	pthread_mutex_t lock;     /* guards waiting; never held during disk access */
	struct store_op *waiting; /* newest first */
	pthread_mutex_t reading;  /* guards the reader; taken only by callers that wait for the disk */
	struct journal_db *reader;
};

struct store_op *store_op_new(struct responses_store *s,
			      int (*run)(struct journal_op *, struct journal_db *));
void store_op_unref(struct store_op *o);
/* Pass the operation to the journal.  waiting: it can be read from now on. */
void store_op_put(struct store_op *o, bool waiting);

/* Lock the reader and return it; NULL: the journal is not open. */
struct journal_db *store_read_begin(struct responses_store *s);
void store_read_end(struct responses_store *s);

/* --- within operations: SQLITE_OK, or a code --- */

/* Make room for more rows and bytes of the owner: delete expired rows, then the oldest until there is room.
 * The owner's only row stays, as does the conversation `keep`. */
int store_make_room(const struct store_op *o, struct journal_db *db, const char *owner, const char *keep,
		    int64_t more_rows, int64_t more_bytes);
/* Read the first column of a statement that gives one row; `otherwise` if there is no row. */
int store_int(struct journal_db *db, const char *sql, const struct journal_value *values, size_t n,
	      int64_t otherwise, int64_t *out);

#endif
