/* responses_store.h - responses in the journal, each with its owner, until they expire.
 * Owns: the table `responses`, and the rows on their way to it, which can be read as soon as they are put.
 * Any thread. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_STORE_H

#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RESPONSE_ID_SIZE = 64,
	RESPONSES_MAX = 100000, /* rows; beyond them the oldest that are done are deleted */
};

/* All texts are JSON and owned; "" where there is none. */
struct response_row {
	char id[RESPONSE_ID_SIZE], owner[FILE_OWNER_SIZE];
	bool background, done;
	int64_t created_at; /* seconds since 1970 */
	int64_t n_before;   /* items of context that precede the input */
	char *request;  /* background: of the chat dialect, with its seed; the job is made again from it */
	char *repeated; /* responses_about.repeated */
	char *context;  /* items: those before, and the input */
	char *body;     /* the response; while not done, as it began */
};
void response_row_fini(struct response_row *r);
/* The tree of one of its texts, the caller's; strings may hold NUL.  NULL: "", or damaged. */
json_t *response_json(const char *text);

struct responses_store;

/* keep_s: seconds from a response's creation to its expiry.  Borrows the journal. */
struct responses_store *responses_store_open(struct journal *j, int64_t keep_s);
void responses_store_close(struct responses_store *s); /* NULL is fine; all operations are done */

/* A new row; takes its texts.  What the disk does not take is logged, and lost. */
void responses_store_put(struct responses_store *s, struct response_row *row);
/* The response is done: its last body. */
void responses_store_finish(struct responses_store *s, const char *id, const char *body);
/* *out is the caller's.  -ENOENT: no such response of this owner; -EIO. */
int responses_store_get(struct responses_store *s, const char *owner, const char *id,
			struct response_row *out);
/* done: on the journal's thread, or at once. */
void responses_store_delete(struct responses_store *s, const char *id,
			    void (*done)(void *user, int rc, const char *why), void *user);

#endif
