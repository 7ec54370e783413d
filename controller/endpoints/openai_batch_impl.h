/* openai_batch_impl.h - what openai_batch.c (feeding, the end) and openai_batch_store.c (the journal, the
 * API's calls) share.  For these two only. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_IMPL_H
#define QUERN_CONTROLLER_ENDPOINTS_OPENAI_BATCH_IMPL_H

#include "controller/apis/openai/completions.h"
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

#define OPENAI_BATCH_CHAT "/v1/chat/completions" /* endpoint; else completions */

struct openai_batch;

/* A line under way. */
struct line_run {
	struct batches *bs;
	struct openai_batch *batch;
	uint32_t line;
	bool failed;
	char *custom_id; /* owned */
	struct generation_line jobs;
	struct exchange *x; /* while it lives; the line is in batch->runs then */
	struct line_run *next, **prev;
};

/* A key with live batches, under the lock. */
struct batch_owner {
	char name[FILE_OWNER_SIZE];
	uint32_t n_live;
	uint32_t n_running; /* lines; the thread's, while it chooses the next */
	struct batch_owner *next;
};

/* A live batch.  Fields from `lines` on are under the lock of all. */
struct openai_batch {
	int64_t n; /* key in the journal */
	char id[FILE_ID_SIZE], input_file[FILE_ID_SIZE], owner[FILE_OWNER_SIZE];
	char output_file[FILE_ID_SIZE], error_file[FILE_ID_SIZE]; /* ids of files to be written */
	char endpoint[64];
	struct api_key_terms terms; /* of the owner, when it was created */
	int64_t expires_at, output_keep_s;
	int64_t validate_us, finalize_us; /* the thread's: when it may try again */
	bool waits_for_room;              /* the thread's: its output, for the disk */
	struct openai_batch *later;       /* created after this one */

	struct batch_line *lines; /* owned; NULL before it is validated */
	uint32_t n_lines, next;   /* next: no line before it is pending */
	uint32_t n_running;       /* submitted, the result not in the journal yet */
	uint32_t n_done, n_failed;
	uint32_t n_saving; /* journal operations that point here */
	enum openai_batch_phase phase;
	bool ending, cancelled, expired;
	json_t *object; /* as OpenAI shows it */
	struct line_run *runs;
};

struct batches {
	struct exchange_host *host;
	struct mailbox *mailbox;
	struct file_store *files;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the fields below, and the batches */
	pthread_cond_t more;
	atomic_bool loaded; /* the journal's batches are known */
	struct journal_db *reader;
	struct openai_batch *first; /* oldest first; changed by the thread only */
	struct openai_batch *fresh; /* created, to be taken by the thread */
	struct batch_owner *owners; /* with live batches */
	uint32_t n_live;
	uint32_t n_running;
	int64_t last_n;
	int64_t retry_us; /* no line is submitted before */
	bool wake, stopping;
};

/* openai_batch.c */

/* The next line to be submitted, and its batch: of the key with the fewest lines under way (by share).  NULL:
 * none.  Under the lock. */
struct openai_batch *openai_batch_next(struct batches *bs, uint32_t *line);

/* openai_batch_store.c */

/* -EAGAIN: the journal cannot be opened yet. */
int openai_batch_load(struct batches *bs, char *why, size_t why_n);
void batches_free(struct batches *bs);
void openai_batch_free(struct openai_batch *b);
/* Under the lock: one more live batch of an owner, or one fewer. */
struct batch_owner *openai_batch_owner(struct batches *bs, const char *name); /* NULL: none live */
void openai_batch_begin(struct batches *bs, const char *owner);
void openai_batch_end(struct batches *bs, const char *owner);
void openai_batch_take_new(struct batches *bs);
void openai_batch_set_counts(struct openai_batch *b); /* under the lock */
/* Writes the object to the journal; over: the batch has ended, its lines are deleted. */
void openai_batch_save(struct batches *bs, struct openai_batch *b, bool over);
/* Marks the lines with a result in the journal; -EIO. */
int openai_batch_load_lines(struct batches *bs, struct openai_batch *b);
/* Calls job for each job of its lines that is unfinished in the journal. */
void openai_batch_each_unfinished(struct batches *bs, const struct openai_batch *b,
				  void (*job)(void *user, const char *id), void *user);
/* Stores a result; takes data.  The line's n_jobs jobs are deleted. */
void openai_batch_store_line(struct batches *bs, struct openai_batch *b, uint32_t line, bool failed,
			     struct buf *data, size_t n_jobs,
			     void (*done)(void *user, int rc, const char *why), void *user);
/* Of all results, in the journal. */
int64_t openai_batch_result_bytes(struct batches *bs, const struct openai_batch *b);
/* Calls put for each result, in the order of the lines. */
int openai_batch_each_line(struct batches *bs, struct openai_batch *b, bool failed,
			   int (*put)(void *user, const char *p, size_t n), void *user, uint32_t *n);
/* These wait for the journal. */
int openai_batch_commit_file(struct batches *bs, struct file_writer **w);
int openai_batch_delete_file(struct batches *bs, const char *id);

#endif
