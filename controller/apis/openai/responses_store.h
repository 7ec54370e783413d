/* responses_store.h - responses and conversations in the journal, each with its owner.  They are kept until
 * they expire or a limit is reached; the oldest are deleted first.
 * Owns: the tables below, and the rows being written to them, which can be read as soon as they are put.  Any
 * thread.  Reading waits for the disk.  Putting, finishing and deleting do not wait for the disk or for
 * readers, so the front end's thread may use them.
 *
 *   responses(id)             stored_use(owner): rows and bytes of both, kept by triggers
 *   conversations(id) --< conversation_items(conversation, n)
 *
 * A response in a conversation adds its items to the conversation in the transaction that makes it done.  So
 * they are added once, however often its end is reported. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_H

#include "base/err.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESPONSE_ID_SIZE = 64 };

extern const char responses_schema[];  /* SQL of the tables in the journal */
extern const char responses_upgrade[]; /* SQL to run before responses_schema in a journal of format 1 */

struct responses_limits {
	int64_t keep_s;                  /* seconds from the last change to the expiry */
	int64_t owner_rows, owner_bytes; /* limits of one owner, responses and conversations together */
	int64_t rows, bytes;             /* limits of all owners; above them, the owner with the most loses
					  * its oldest */
	int64_t conversation_items, conversation_bytes; /* limits of one conversation; a client can then add
							 * no more */
};

/* All texts are JSON and owned; "" if there is none. */
struct response_row {
	char id[RESPONSE_ID_SIZE], owner[FILE_OWNER_SIZE];
	char conversation[RESPONSE_ID_SIZE]; /* "": none */
	bool background, done;
	int64_t created_at; /* seconds since 1970 */
	int64_t n_before;   /* items of context that precede the input */
	char *request;      /* background: in the chat dialect, with its seed; the job can be made again from
			 * it */
	char *repeated;     /* responses_about.repeated */
	char *context;      /* items: the earlier ones, and the input */
	char *body;         /* the response; while not done, its state at the beginning */
};
void response_row_fini(struct response_row *r);
void response_row_copy(struct response_row *out, const struct response_row *r);
/* Parse one of the row's texts; the caller owns the tree.  Strings may contain NUL.  NULL: "", or damaged. */
json_t *response_json(const char *text);

struct responses_store;

/* Open the store; borrows the journal. */
struct responses_store *responses_store_open(struct journal *j, const struct responses_limits *limits);
void responses_store_close(struct responses_store *s); /* NULL is fine; all operations must be done */

typedef void responses_done(void *user, int rc, const char *why);

/* Return 0 if a response can be stored now; -errno: the disk is full or fails, with the reason and the
 * remedy. */
int responses_store_room(struct responses_store *s, struct why *why);
/* Add a row; takes its texts.  items: an array's text, added to row->conversation; NULL: none.  done is
 * called on the journal's thread when the row is on disk or the disk has refused it, or at once. */
void responses_store_put(struct responses_store *s, struct response_row *row, const char *items,
			 responses_done *done, void *user);
/* Make a response done, with its last body.  items, conversation, done (may be NULL): as above. */
void responses_store_finish(struct responses_store *s, const char *id, const char *body,
			    const char *conversation, const char *items, responses_done *done, void *user);
/* Read a response.  The caller owns *out.  -ENOENT: the owner has no such response; -EIO. */
int responses_store_get(struct responses_store *s, const char *owner, const char *id,
			struct response_row *out);
/* Delete a response.  done (may be NULL): as above. */
void responses_store_delete(struct responses_store *s, const char *id, responses_done *done, void *user);

#endif
