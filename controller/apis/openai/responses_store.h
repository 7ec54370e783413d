/* responses_store.h - responses and conversations in the journal, each with its owner, until they expire or
 * the bounds are reached: the oldest go first.
 * Owns: the tables below, and the rows on their way to them, which can be read as soon as they are put.
 * Any thread.  Reading waits for the disk; putting, finishing and deleting do not, and are never held up by
 * those that read: they are for the front end's thread, too.
 *
 *   responses(id)             stored_use(owner): rows and bytes of both, kept by triggers
 *   conversations(id) --< conversation_items(conversation, n)
 *
 * A response that belongs to a conversation adds its items to it in the transaction that makes it done: once,
 * however often its end is reported. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_H

#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESPONSE_ID_SIZE = 64 };

extern const char responses_schema[];  /* of the journal */
extern const char responses_upgrade[]; /* before it, in a journal of format 1 */

struct responses_limits {
	int64_t keep_s;                  /* seconds from the last change to the expiry */
	int64_t owner_rows, owner_bytes; /* of one owner, responses and conversations together */
	int64_t rows, bytes;             /* of all; beyond them, the owner with the most loses its oldest */
	int64_t conversation_items, conversation_bytes; /* of one; a client can then add no more */
};

/* All texts are JSON and owned; "" where there is none. */
struct response_row {
	char id[RESPONSE_ID_SIZE], owner[FILE_OWNER_SIZE];
	char conversation[RESPONSE_ID_SIZE]; /* "": none */
	bool background, done;
	int64_t created_at; /* seconds since 1970 */
	int64_t n_before;   /* items of context that precede the input */
	char *request;  /* background: of the chat dialect, with its seed; the job is made again from it */
	char *repeated; /* responses_about.repeated */
	char *context;  /* items: those before, and the input */
	char *body;     /* the response; while not done, as it began */
};
void response_row_fini(struct response_row *r);
void response_row_copy(struct response_row *out, const struct response_row *r);
/* The tree of one of its texts, the caller's; strings may hold NUL.  NULL: "", or damaged. */
json_t *response_json(const char *text);

struct responses_store;

/* Borrows the journal. */
struct responses_store *responses_store_open(struct journal *j, const struct responses_limits *limits);
void responses_store_close(struct responses_store *s); /* NULL is fine; all operations are done */

/* A new row; takes its texts.  items: an array's text, added to row->conversation; NULL: none.  What the disk
 * does not take is logged, and lost. */
void responses_store_put(struct responses_store *s, struct response_row *row, const char *items);
/* The response is done: its last body.  items, conversation: as above. */
void responses_store_finish(struct responses_store *s, const char *id, const char *body,
			    const char *conversation, const char *items);
/* *out is the caller's.  -ENOENT: no such response of this owner; -EIO. */
int responses_store_get(struct responses_store *s, const char *owner, const char *id,
			struct response_row *out);
/* done (may be NULL): on the journal's thread, or at once. */
void responses_store_delete(struct responses_store *s, const char *id,
			    void (*done)(void *user, int rc, const char *why), void *user);

#endif
