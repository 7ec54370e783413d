#include "controller/jobs/journal_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	OPS_MAX = 65536, /* waiting */
	RETRY_MS = 1000,
	VACUUM_PAGES = 256,       /* given back after a transaction, at most */
	VACUUM_SPARE_PAGES = 256, /* free pages that stay for what comes next */
};
#define BYTES_MAX ((size_t)256 << 20) /* waiting */

struct queue {
	struct journal_op *first, **last;
};

struct journal {
	struct journal_file file; /* its connection is the thread's, once that runs */
	bool lost;                /* the thread's: a required operation was given up */
	pthread_t thread;
	pthread_mutex_t lock; /* of the fields below */
	pthread_cond_t more;  /* for the thread */
	pthread_cond_t idle;  /* for journal_end() */
	struct queue ops;
	size_t n_ops, n_bytes; /* put and not done */
	uint64_t n_put;        /* ever */
	bool ending;           /* journal_end(): nothing is tried again */
	bool quit;
	bool failing;
	char why[256];
	struct journal_stats stats;
};

/* --- the thread --- */

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

static void queue_push(struct queue *q, struct journal_op *op)
{
	op->next = NULL;
	*q->last = op;
	q->last = &op->next;
}

static struct journal_op *queue_pop(struct queue *q)
{
	struct journal_op *op = q->first;
	if (op && !(q->first = op->next))
		q->last = &q->first;
	return op;
}

static void confirm(struct journal *j, struct journal_op *op, int rc, const char *why)
{
	size_t bytes = op->bytes;
	op->done(op, rc, why);
	pthread_mutex_lock(&j->lock);
	j->n_ops--;
	j->n_bytes -= bytes;
	pthread_mutex_unlock(&j->lock);
}

static void set_failing(struct journal *j, const char *why)
{
	pthread_mutex_lock(&j->lock);
	bool was = j->failing;
	j->failing = why != NULL;
	if (why)
		snprintf(j->why, sizeof j->why, "%s", why);
	pthread_mutex_unlock(&j->lock);
	if (why && !was)
		log_error("journal", "durable jobs are refused: %s", why);
	else if (!why && was)
		log_info("journal", "durable jobs are accepted again");
}

static int run_one(struct journal *j, struct journal_op *op)
{
	int rc = journal_exec(j->file.db, "SAVEPOINT op");
	if (rc)
		return rc;
	rc = op->run(op, j->file.db);
	if (rc) {
		if (!journal_is_disk_error(rc)) {
			int rc2 = journal_exec(j->file.db, "ROLLBACK TO op");
			if (rc2)
				return rc2;
		} else {
			return rc;
		}
	}
	int rc2 = journal_exec(j->file.db, "RELEASE op");
	return rc2 ? rc2 : rc;
}

/* codes: [n] of the operations, in order.  Not SQLITE_OK: the whole transaction failed. */
static int transaction(struct journal *j, struct queue *q, int *codes)
{
	int rc = journal_exec(j->file.db, "BEGIN IMMEDIATE");
	size_t i = 0;
	for (struct journal_op *op = q->first; !rc && op; op = op->next, i++) {
		codes[i] = run_one(j, op);
		if (codes[i] && journal_is_disk_error(codes[i]))
			rc = codes[i];
	}
	/* With nothing to write, a probe detects that the disk still fails, or has recovered. */
	if (!rc && !q->first)
		rc = journal_exec(j->file.db, "REPLACE INTO meta VALUES('probe', randomblob(8))");
	if (!rc)
		rc = journal_exec(j->file.db, "COMMIT");
	return rc;
}

/* After a lost required operation nothing may be written: the next life would resume from a state with a gap.
 */
static void refuse_all(struct journal *j, struct queue *q)
{
	struct journal_op *op;
	while ((op = queue_pop(q)))
		confirm(j, op, -EIO, j->why);
}

/* One transaction of all operations in q; those to be tried again stay there. */
static void commit(struct journal *j, struct queue *q, size_t n, bool last)
{
	int *codes = xcalloc(n ? n : 1, sizeof *codes);
	struct queue again;
	char why[256] = "";
	errno = 0;
	int err = 0, rc = transaction(j, q, codes);
	if (rc) {
		err = journal_why(j->file.path, j->file.db, rc, why, sizeof why);
		if (journal_in_transaction(j->file.db))
			journal_exec(j->file.db, "ROLLBACK");
	}
	set_failing(j, rc ? why : NULL);
	queue_init(&again);
	struct journal_op *op;
	for (size_t i = 0; (op = queue_pop(q)); i++) {
		if (rc && op->required && !last) {
			if (op->held)
				op->held(op, err, why);
			op->held = NULL;
			queue_push(&again, op);
		} else if (rc) {
			j->lost = j->lost || op->required;
			confirm(j, op, err, why);
		} else if (codes[i]) {
			log_error("journal", "an operation failed: %s", sqlite3_errstr(codes[i]));
			confirm(j, op, -EIO, sqlite3_errstr(codes[i]));
		} else {
			confirm(j, op, 0, "");
		}
	}
	pthread_mutex_lock(&j->lock);
	j->stats.n_commits += !rc;
	j->stats.n_ops += rc ? 0 : n;
	pthread_mutex_unlock(&j->lock);
	free(codes);
	*q = again;
	if (!q->first)
		q->last = &q->first;
}

/* Free pages go back to the file system, a bounded number at a time. */
static void vacuum(struct journal *j)
{
	int rc;
	int64_t n = journal_get_int(j->file.db, "PRAGMA freelist_count", &rc);
	char text[64];
	if (rc || n <= VACUUM_SPARE_PAGES)
		return;
	n -= VACUUM_SPARE_PAGES;
	snprintf(text, sizeof text, "PRAGMA incremental_vacuum(%d)",
		 n < VACUUM_PAGES ? (int)n : VACUUM_PAGES);
	journal_exec(j->file.db, text);
}

static void measure(struct journal *j)
{
	int rc;
	int64_t page = journal_get_int(j->file.db, "PRAGMA page_size", &rc);
	int64_t n = journal_get_int(j->file.db, "PRAGMA page_count", &rc);
	int64_t n_free = journal_get_int(j->file.db, "PRAGMA freelist_count", &rc);
	pthread_mutex_lock(&j->lock);
	j->stats.file_bytes = page * n;
	j->stats.free_bytes = page * n_free;
	pthread_mutex_unlock(&j->lock);
}

static size_t count(const struct queue *q)
{
	size_t n = 0;
	for (const struct journal_op *op = q->first; op; op = op->next)
		n++;
	return n;
}

/* Appends the queue to hand (operations to be tried again).  Waits for something to do; false: the end. */
static bool take(struct journal *j, struct queue *hand)
{
	struct timespec until;
	pthread_mutex_lock(&j->lock);
	pthread_cond_broadcast(&j->idle);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += RETRY_MS / 1000;
	/* While the disk fails, new operations wait for the next attempt, too. */
	while (!j->quit && !(j->ending && (hand->first || j->ops.first)) && (j->failing || !j->ops.first)) {
		if (!j->failing)
			pthread_cond_wait(&j->more, &j->lock);
		else if (pthread_cond_timedwait(&j->more, &j->lock, &until))
			break;
	}
	for (struct journal_op *op; (op = queue_pop(&j->ops));)
		queue_push(hand, op);
	bool quit = j->quit;
	pthread_mutex_unlock(&j->lock);
	return !quit || hand->first;
}

static void *journal_thread(void *arg)
{
	struct journal *j = arg;
	struct queue hand;
	queue_init(&hand);
	while (take(j, &hand)) {
		pthread_mutex_lock(&j->lock);
		bool last = j->ending || j->quit;
		pthread_mutex_unlock(&j->lock);
		if (j->lost) {
			refuse_all(j, &hand);
			continue;
		}
		commit(j, &hand, count(&hand), last);
		vacuum(j);
		measure(j);
	}
	return NULL;
}

/* --- any thread --- */

void journal_put(struct journal *j, struct journal_op *op)
{
	char why[256] = "the journal has too much to write";
	pthread_mutex_lock(&j->lock);
	bool full = j->n_ops >= OPS_MAX || j->n_bytes + op->bytes > BYTES_MAX;
	if (j->failing)
		snprintf(why, sizeof why, "%s", j->why);
	bool refused = !op->required && (full || j->failing || j->quit);
	if (!refused) {
		j->n_ops++;
		j->n_put++;
		j->n_bytes += op->bytes;
		queue_push(&j->ops, op);
		pthread_cond_signal(&j->more);
	}
	pthread_mutex_unlock(&j->lock);
	if (refused)
		op->done(op, -EAGAIN, why);
}

bool journal_takes(struct journal *j)
{
	pthread_mutex_lock(&j->lock);
	bool takes = !j->failing && j->n_ops < OPS_MAX / 2 && j->n_bytes < BYTES_MAX / 2;
	pthread_mutex_unlock(&j->lock);
	return takes;
}

bool journal_health(struct journal *j, char *why, size_t why_n)
{
	pthread_mutex_lock(&j->lock);
	bool ok = !j->failing;
	if (!ok)
		snprintf(why, why_n, "%s", j->why);
	pthread_mutex_unlock(&j->lock);
	return ok;
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
	pthread_mutex_lock(&j->lock);
	*out = j->stats;
	out->n_waiting = j->n_ops;
	pthread_mutex_unlock(&j->lock);
}

const char *journal_path(const struct journal *j)
{
	return j->file.path;
}

void journal_end(struct journal *j)
{
	pthread_mutex_lock(&j->lock);
	uint64_t n = j->n_put;
	j->ending = true;
	pthread_cond_signal(&j->more);
	/* Without retries, operations are done in the order in which they were put. */
	while (j->n_put - j->n_ops < n)
		pthread_cond_wait(&j->idle, &j->lock);
	pthread_mutex_unlock(&j->lock);
}

int journal_reader(struct journal *j, struct journal_db **out, char *why, size_t why_n)
{
	return journal_db_open(j->file.path, SQLITE_OPEN_READONLY, out, why, why_n);
}

void journal_reader_close(struct journal_db *db)
{
	journal_db_close(db);
}

/* --- lifecycle --- */

static void journal_free(struct journal *j)
{
	pthread_cond_destroy(&j->idle);
	pthread_cond_destroy(&j->more);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

int journal_open(const struct journal_config *cfg, struct journal **out, char *why, size_t why_n)
{
	struct journal *j = xcalloc(1, sizeof *j);
	pthread_condattr_t monotonic;
	queue_init(&j->ops);
	pthread_mutex_init(&j->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&j->more, &monotonic);
	pthread_cond_init(&j->idle, NULL);
	pthread_condattr_destroy(&monotonic);
	int rc = journal_file_open(&j->file, cfg, why, why_n);
	if (!rc) {
		measure(j);
		int e = pthread_create(&j->thread, NULL, journal_thread, j);
		if (e)
			rc = err_why(why, why_n, -e, "journal: cannot start its thread");
	}
	if (rc) {
		journal_file_close(&j->file, true);
		journal_free(j);
		return rc;
	}
	*out = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	pthread_mutex_lock(&j->lock);
	j->quit = true;
	pthread_cond_signal(&j->more);
	pthread_mutex_unlock(&j->lock);
	pthread_join(j->thread, NULL);
	assert(j->n_ops == 0);
	journal_file_close(&j->file, false);
	journal_free(j);
}
