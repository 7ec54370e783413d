/* responses_store_impl.h - what responses_store.c and conversations_store.c share.  For these only. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_IMPL_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_IMPL_H

#include "controller/apis/openai/responses_store.h"

#include <pthread.h>

enum { ROW_BYTES = 256, ITEM_BYTES = 64 /* counted for a row beside its texts */ };

typedef void store_done(void *user, int rc, const char *why);

struct store_op {
	struct journal_op op;
	struct responses_store *store;
	unsigned refs;           /* under the lock: the journal's, and those of readers */
	struct response_row row; /* put: all of it; finish: id and body; of a conversation: id, owner,
				  * metadata as body, number of items as n_before */
	char *items;             /* an array's text: added to row.conversation; NULL: none */
	char item[RESPONSE_ID_SIZE];
	int64_t now;
	int rc; /* the operation's own reason to fail: -errno, */
	char why[160];
	struct store_op *next, **prev; /* of those that may be read before they are written */
	store_done *done;
	void *user;
};

struct responses_store {
	struct journal *journal;
	struct responses_limits limits;
	pthread_mutex_t lock;     /* guards waiting; never held while the disk is */
	struct store_op *waiting; /* youngest first */
	pthread_mutex_t reading;  /* guards the reader's use; taken by those that wait for the disk only */
	struct journal_db *reader;
};

struct store_op *store_op_new(struct responses_store *s,
			      int (*run)(struct journal_op *, struct journal_db *));
void store_op_unref(struct store_op *o);
/* Hands it to the journal; waiting: readable from here on. */
void store_op_put(struct store_op *o, bool waiting);

/* The reader, locked; NULL: the journal is not open. */
struct journal_db *store_read_begin(struct responses_store *s);
void store_read_end(struct responses_store *s);

/* --- within operations: SQLITE_OK, or a code --- */

/* Room for more rows and bytes of the owner: what expired goes, and as many of the oldest as it takes; a row
 * that is alone stays, as does the conversation `keep`. */
int store_make_room(const struct store_op *o, struct journal_db *db, const char *owner, const char *keep,
		    int64_t more_rows, int64_t more_bytes);
/* The first column of a statement of one row; `otherwise` without a row. */
int store_int(struct journal_db *db, const char *sql, const struct journal_value *values, size_t n,
	      int64_t otherwise, int64_t *out);

#endif
