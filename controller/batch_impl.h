/* batch_impl.h - what batch.c (feeding, the end) and batch_store.c (the journal, the API's calls)
 * share.  For these two only. */
#ifndef QUERN_CONTROLLER_BATCH_IMPL_H
#define QUERN_CONTROLLER_BATCH_IMPL_H

#include "controller/batch.h"
#include "controller/batch_lines.h"

#include <pthread.h>

enum batch_phase { BATCH_VALIDATING, BATCH_RUNNING, BATCH_FINALIZING, BATCH_OVER };
enum { LINE_PENDING, LINE_RUNNING, LINE_DONE };

struct batch;

/* A line under way. */
struct line_run {
	struct batches *bs;
	struct batch *batch;
	uint32_t line;
	bool failed;
	char *custom_id; /* owned */
	struct exchange_line how;
	struct exchange *x; /* while it lives; in batch->runs then */
	struct line_run *next, **prev;
};

/* A live batch.  Fields from `lines` on are under the lock of all. */
struct batch {
	int64_t n; /* the journal's number */
	char id[FILE_ID_SIZE], input_file[FILE_ID_SIZE], owner[FILE_OWNER_SIZE];
	char output_file[FILE_ID_SIZE], error_file[FILE_ID_SIZE]; /* names that they will have */
	char endpoint[64];
	uint32_t share;
	int64_t expires_at, output_keep_s;
	int64_t validate_us, finalize_us; /* the thread's: not before */
	struct batch *later;

	struct batch_line *lines; /* owned; NULL before it is validated */
	uint32_t n_lines, next;   /* next: no line before it is pending */
	uint32_t n_running;       /* handed over, and not in the journal */
	uint32_t n_done, n_failed;
	uint32_t n_saving; /* operations that point here */
	enum batch_phase phase;
	bool ending, cancelled, expired;
	json_t *object; /* as OpenAI shows it */
	struct line_run *runs;
};

struct batches {
	struct exchange_host *host;
	struct filestore *files;
	pthread_t thread;
	pthread_mutex_t lock; /* what follows, and the batches */
	pthread_cond_t more;
	struct journal_db *reader;
	struct batch *first; /* oldest first; changed by the thread only */
	struct batch *fresh; /* created, to be taken by the thread */
	uint32_t n_live;
	uint32_t n_running;
	int64_t last_n;
	int64_t retry_us; /* nothing is handed over before */
	bool wake, stopping;
};

/* batch_store.c */
int batch_load(struct batches *bs, char *why, size_t why_n);
void batches_free(struct batches *bs);
void batch_forget(struct batch *b);
void batch_take_new(struct batches *bs);
void batch_set_counts(struct batch *b); /* under the lock */
/* The object to the journal; over: it has ended, its lines are forgotten. */
void batch_save(struct batches *bs, struct batch *b, bool over);
/* Which lines are done already; -EIO. */
int batch_load_lines(struct batches *bs, struct batch *b);
/* Calls job for each of its lines' jobs that the journal has as unfinished. */
void batch_each_unfinished(struct batches *bs, const struct batch *b,
			   void (*job)(struct batches *bs, const char *id));
/* A result; takes data.  The line's jobs are forgotten: n_legs of them. */
void batch_store_line(struct batches *bs, struct batch *b, uint32_t line, bool failed, struct buf *data,
		      size_t n_legs, void (*done)(void *user, int rc, const char *why), void *user);
/* Results in the order of the lines. */
int batch_each_line(struct batches *bs, struct batch *b, bool failed,
		    int (*put)(void *user, const char *p, size_t n), void *user, uint32_t *n);
/* These wait for it. */
int batch_commit_file(struct batches *bs, struct file_writer **w);
int batch_delete_file(struct batches *bs, const char *id);

#endif
