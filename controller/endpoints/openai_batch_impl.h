/* openai_batch_impl.h - shared by openai_batch.c (feeding, the end) and openai_batch_store.c (the journal,
 * the API's calls).  Private to them. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_IMPL_H
#define QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_IMPL_H

#include "base/err.h"
#include "controller/endpoints/line_exchange.h"
#include "controller/endpoints/openai_batch.h"
#include "formats/batch_lines.h"

#include <pthread.h>
#include <stdatomic.h>

enum openai_batch_phase {
	OPENAI_BATCH_VALIDATING,
	OPENAI_BATCH_RUNNING,
	OPENAI_BATCH_FINALIZING,
	OPENAI_BATCH_OVER
};
enum { LINE_PENDING, LINE_RUNNING, LINE_DONE };

struct openai_batch;

/* A line in flight. */
struct line_run {
	struct batches *bs;
	struct openai_batch *batch;
	uint32_t line;
	bool failed;
	char *custom_id; /* owned */
	struct generation_line jobs;
	struct exchange *x; /* NULL once the exchange is gone; until then the line is in batch->runs */
	struct line_run *next, **prev;
};

/* A key with live batches, under the lock. */
struct batch_owner {
	char name[FILE_OWNER_SIZE];
	uint32_t n_live;
	uint32_t n_running; /* lines; used by the thread while it chooses the next line */
	struct batch_owner *next;
};

/* A live batch.  batches.lock guards the fields from `lines` on. */
struct openai_batch {
	int64_t n; /* key in the journal */
	char id[FILE_ID_SIZE], input_file[FILE_ID_SIZE], owner[FILE_OWNER_SIZE];
	char output_file[FILE_ID_SIZE], error_file[FILE_ID_SIZE]; /* ids of the files to be written */
	char endpoint[64];
	struct api_key_terms terms; /* the owner's, when the batch was created */
	int64_t expires_at, output_keep_s;
	int64_t validate_us, finalize_us; /* used by the thread: earliest time of the next try */
	bool waits_for_room;              /* used by the thread: the output waits for room on the disk */
	struct openai_batch *later;       /* the next newer batch */

	struct batch_line *lines; /* owned; NULL before validation */
	uint32_t n_lines, next;   /* next: no earlier line is pending */
	uint32_t n_running;       /* submitted lines without a result in the journal */
	uint32_t n_done, n_failed;
	uint32_t n_saving; /* journal operations that refer to this batch */
	enum openai_batch_phase phase;
	bool ending, cancelled, expired;
	json_t *object; /* the batch in OpenAI's shape */
	struct line_run *runs;
};

struct batches {
	struct exchange_host *host;
	struct mailbox *mailbox;
	struct file_store *files;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the fields below, and the batches */
	pthread_cond_t more;
	atomic_bool loaded; /* the journal's batches have been read */
	struct journal_db *reader;
	struct openai_batch *first; /* oldest first; only the thread changes it */
	struct openai_batch *fresh; /* new batches, not yet taken by the thread */
	struct batch_owner *owners; /* owners with live batches */
	uint32_t n_live;
	uint32_t n_running;
	int64_t last_n;
	int64_t retry_us; /* earliest time of the next submission */
	bool wake, stopping;
};

/* openai_batch.c */

/* Return the next line to submit and its batch: from the key with the fewest lines in flight relative to its
 * share.  NULL: none.  Under the lock. */
struct openai_batch *openai_batch_next(struct batches *bs, uint32_t *line);

/* openai_batch_store.c */

/* Load the live batches.  -EAGAIN: the journal cannot be opened yet. */
int openai_batch_load(struct batches *bs, struct why *why);
void batches_free(struct batches *bs);
void openai_batch_free(struct openai_batch *b);
/* Under the lock: find an owner; add or remove one of its live batches. */
struct batch_owner *openai_batch_owner(struct batches *bs, const char *name); /* NULL: no live batch */
void openai_batch_begin(struct batches *bs, const char *owner);
void openai_batch_end(struct batches *bs, const char *owner);
void openai_batch_take_new(struct batches *bs);
void openai_batch_set_counts(struct openai_batch *b); /* under the lock */
/* Write the object to the journal.  over: the batch has ended, and its lines are deleted. */
void openai_batch_save(struct batches *bs, struct openai_batch *b, bool over);
/* Mark the lines that have a result in the journal; -EIO. */
int openai_batch_load_lines(struct batches *bs, struct openai_batch *b);
/* Call job for each of the batch's jobs that is unfinished in the journal. */
void openai_batch_each_unfinished(struct batches *bs, const struct openai_batch *b,
				  void (*job)(void *user, const char *id), void *user);
/* Store a result; takes data.  Deletes the line's n_jobs jobs. */
void openai_batch_store_line(struct batches *bs, struct openai_batch *b, uint32_t line, bool failed,
			     struct buf *data, size_t n_jobs,
			     void (*done)(void *user, int rc, const char *why), void *user);
/* Return the bytes of all of the batch's results in the journal. */
int64_t openai_batch_result_bytes(struct batches *bs, const struct openai_batch *b);
/* Call put for each result, in the order of the lines. */
int openai_batch_each_line(struct batches *bs, struct openai_batch *b, bool failed,
			   int (*put)(void *user, const char *p, size_t n), void *user, uint32_t *n);
/* These functions wait for the journal. */
int openai_batch_commit_file(struct batches *bs, struct file_writer **w);
int openai_batch_delete_file(struct batches *bs, const char *id);

#endif
