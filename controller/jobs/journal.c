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
	OPS_MAX = 65536, /* limit of queued operations */
	RETRY_MS = 1000,
	VACUUM_BYTES = 1 << 20, /* most bytes released at once: each page may be written twice to release
				 * it */
};
#define BYTES_MAX ((size_t)256 << 20) /* limit of queued bytes */

struct queue {
	struct journal_op *first, **last;
};

struct journal {
	char *path, *model;
	struct journal_config cfg; /* its path and model point to the copies above */
	struct journal_file file;  /* only the thread uses its connection once the thread runs */
	atomic_bool opened;        /* the file is open, and its disk and sizes are known; set once */
	bool tidy_later;           /* thread only: free pages could not be released now */
	int64_t given_back;        /* thread only: bytes of pages released since the last checkpoint() */
	bool lost;                 /* thread only: a required operation was given up */
	pthread_t thread;
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t more;  /* wakes the thread */
	pthread_cond_t idle;  /* wakes journal_end() */
	struct queue ops;
	size_t n_ops, n_bytes; /* operations put and not done */
	uint64_t n_put;        /* operations put since the start */
	bool ending;           /* journal_end() was called: nothing is retried */
	bool quit;
	bool failing;
	bool urgent; /* an operation that frees was put while the disk fails: retry at once */
	char why[256];
	bool low; /* durable jobs are refused for lack of room */
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
		log_error("journal", "durable jobs refused file=%s reason=\"%s\"", j->file.path, why);
	else if (!why && was)
		log_info("journal", "durable jobs accepted again file=%s", j->file.path);
}

static void measure(struct journal *j)
{
	int rc;
	int64_t page = journal_get_int(j->file.db, "PRAGMA page_size", &rc);
	int64_t n = journal_get_int(j->file.db, "PRAGMA page_count", &rc);
	int64_t n_free = journal_get_int(j->file.db, "PRAGMA freelist_count", &rc);
	int64_t disk_free = journal_disk_free(&j->file.disk);
	pthread_mutex_lock(&j->lock);
	j->low = disk_free < journal_disk_keeps(&j->file.disk, JOURNAL_JOB);
	j->stats.file_bytes = page * n;
	j->stats.free_bytes = page * n_free;
	pthread_mutex_unlock(&j->lock);
}

/* Open the file if it could not be opened at first because the disk was full or read-only. */
static bool open_late(struct journal *j)
{
	struct why why;
	int rc = j->opened ? 0 : journal_file_open(&j->file, &j->cfg, &why);
	if (rc) {
		journal_file_close(&j->file, false);
		set_failing(j, why.text);
		return false;
	}
	if (!j->opened) {
		measure(j);
		j->opened = true;
		set_failing(j, NULL);
	}
	return true;
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

/* Result of an operation within its transaction. */
struct outcome {
	int code;     /* SQLite code */
	bool refused; /* not run: the disk has too little room for its need */
};

/* Bytes that may be written to the disk, and bytes of free pages in the file. */
struct room {
	int64_t disk, pages;
};

static bool has_room(const struct journal *j, const struct room *r, enum journal_need need, int64_t bytes)
{
	/* Bytes are written to the -wal file, which is truncated after each transaction, and then to the
	 * file, which grows if its free pages are too few. */
	int64_t more = bytes > r->pages ? bytes - r->pages : 0, wal = 2 * j->file.disk.transaction_bytes;
	return r->disk - (bytes < wal ? bytes : wal) - more >= journal_disk_keeps(&j->file.disk, need);
}

static void take_room(struct room *r, int64_t bytes)
{
	int64_t more = bytes > r->pages ? bytes - r->pages : 0;
	r->disk -= bytes + more;
	r->pages -= bytes - more;
}

static struct room room_now(struct journal *j)
{
	pthread_mutex_lock(&j->lock);
	struct room r = {.pages = j->stats.free_bytes};
	pthread_mutex_unlock(&j->lock);
	r.disk = journal_disk_free(&j->file.disk);
	return r;
}

/* Run the operations in one transaction.  outcomes: [n], in order.  Other than SQLITE_OK: the whole
 * transaction failed. */
static int transaction(struct journal *j, struct queue *q, struct outcome *outcomes)
{
	struct room room = room_now(j);
	int rc = journal_exec(j->file.db, "BEGIN IMMEDIATE");
	size_t i = 0;
	for (struct journal_op *op = q->first; !rc && op; op = op->next, i++) {
		/* While there is a ballast, ends are always tried. */
		bool free_pass = op->frees || (op->need == JOURNAL_END && j->file.disk.has_ballast);
		outcomes[i] = (struct outcome){.refused = !free_pass &&
							  !has_room(j, &room, op->need, (int64_t)op->bytes)};
		if (outcomes[i].refused && op->required)
			rc = SQLITE_FULL;
		if (outcomes[i].refused)
			continue;
		take_room(&room, (int64_t)op->bytes);
		outcomes[i].code = run_one(j, op);
		if (outcomes[i].code && journal_is_disk_error(outcomes[i].code))
			rc = outcomes[i].code;
	}
	/* Probe whether the disk still fails or has recovered, because the operations may write nothing. */
	if (!rc && j->failing)
		rc = journal_exec(j->file.db, "REPLACE INTO meta VALUES('probe', randomblob(8))");
	if (!rc)
		rc = journal_exec(j->file.db, "COMMIT");
	return rc;
}

/* Try a transaction.  0, or -errno with the reason; then nothing is written. */
static int attempt(struct journal *j, struct queue *q, struct outcome *outcomes, struct why *why)
{
	errno = 0;
	int rc = transaction(j, q, outcomes);
	if (!rc)
		return 0;
	rc = journal_why(j->file.path, j->file.db, rc, why);
	if (journal_in_transaction(j->file.db))
		journal_exec(j->file.db, "ROLLBACK");
	return rc;
}

/* Checkpoint: copy the -wal file into the file and release its room on the disk.  Skipped while a reader
 * needs it. */
static void checkpoint(struct journal *j)
{
	journal_db_patience(j->file.db, false);
	journal_exec(j->file.db, "PRAGMA wal_checkpoint(RESTART)");
	journal_db_patience(j->file.db, true);
}

/* Fail all operations after a required one was lost: the next run must not resume from a state with a gap. */
static void refuse_all(struct journal *j, struct queue *q)
{
	struct journal_op *op;
	while ((op = queue_pop(q)))
		confirm(j, op, -EIO, j->why);
}

/* Commit all operations in q in one transaction; those to be retried stay in q. */
static void commit(struct journal *j, struct queue *q, size_t n, bool last)
{
	struct outcome *outcomes = xcalloc(n ? n : 1, sizeof *outcomes);
	struct queue again;
	struct why why = {""};
	struct why refusal;
	int err = attempt(j, q, outcomes, &why);
	/* The room of the ballast is for ends and deletes. */
	if (err == -ENOSPC && journal_disk_drop_ballast(&j->file.disk)) {
		checkpoint(j);
		err = attempt(j, q, outcomes, &why);
	}
	set_failing(j, err ? why.text : NULL);
	queue_init(&again);
	struct journal_op *op;
	for (size_t i = 0; (op = queue_pop(q)); i++) {
		if (err && op->required && !last) {
			if (op->held)
				op->held(op, err, why.text);
			op->held = NULL;
			queue_push(&again, op);
		} else if (err) {
			j->lost = j->lost || op->required;
			confirm(j, op, err, why.text);
		} else if (outcomes[i].refused) {
			confirm(j, op, journal_disk_refuse(&j->file.disk, op->need, j->file.path, &refusal),
				refusal.text);
		} else if (outcomes[i].code) {
			/* SQLITE_ABORT: the operation gave up for a known reason. */
			log_line(outcomes[i].code == SQLITE_ABORT ? LOG_DEBUG : LOG_ERROR, "journal",
				 "operation failed reason=\"%s\"", sqlite3_errstr(outcomes[i].code));
			confirm(j, op, -EIO, sqlite3_errstr(outcomes[i].code));
		} else {
			confirm(j, op, 0, "");
		}
	}
	pthread_mutex_lock(&j->lock);
	j->stats.n_commits += !err;
	j->stats.n_ops += err ? 0 : n;
	pthread_mutex_unlock(&j->lock);
	free(outcomes);
	*q = again;
	if (!q->first)
		q->last = &q->first;
}

/* Release a bounded number of free pages to the file system.  true: there are more. */
static bool vacuum(struct journal *j)
{
	int rc, rc2;
	int64_t page = journal_get_int(j->file.db, "PRAGMA page_size", &rc);
	int64_t n = journal_get_int(j->file.db, "PRAGMA freelist_count", &rc2);
	char text[64];
	j->tidy_later = false;
	if (rc || rc2 || n * page <= j->file.disk.spare_bytes)
		return false;
	n -= j->file.disk.spare_bytes / page;
	/* Use small steps on a nearly full disk: each moved page is written to the -wal file. */
	int64_t most = journal_disk_free(&j->file.disk) / 4;
	most = most > VACUUM_BYTES ? VACUUM_BYTES : most < 16 * page ? 16 * page : most;
	bool more = n > most / page;
	snprintf(text, sizeof text, "PRAGMA incremental_vacuum(%lld)", (long long)(more ? most / page : n));
	j->tidy_later = journal_exec(j->file.db, text) != SQLITE_OK;
	j->given_back += j->tidy_later ? 0 : more ? most : n * page;
	return more && !j->tidy_later;
}

/* Tidy up after a transaction; true: call again. */
static bool tidy(struct journal *j)
{
	struct journal_disk *d = &j->file.disk;
	bool more = vacuum(j);
	bool low = journal_disk_free(d) < journal_disk_keeps(d, JOURNAL_FILE) + d->transaction_bytes;
	/* Only a checkpoint truncates the file. */
	if (low || !d->has_ballast || (!more && j->given_back >= d->spare_bytes)) {
		checkpoint(j);
		j->given_back = 0;
	}
	journal_disk_make_ballast(d);
	return more;
}

/* Append the queue to hand; waits until there is something to do.  false: quit. */
static bool take(struct journal *j, struct queue *hand, bool more)
{
	struct timespec until;
	pthread_mutex_lock(&j->lock);
	pthread_cond_broadcast(&j->idle);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += RETRY_MS / 1000;
	/* While the disk fails, new operations also wait for the next attempt. */
	while (!j->quit && !more && !j->urgent && !(j->ending && (hand->first || j->ops.first)) &&
	       (j->failing || !(hand->first || j->ops.first))) {
		if (!j->failing && j->file.disk.has_ballast && !j->tidy_later)
			pthread_cond_wait(&j->more, &j->lock);
		else if (pthread_cond_timedwait(&j->more, &j->lock, &until))
			break;
	}
	j->urgent = false;
	for (struct journal_op *op; (op = queue_pop(&j->ops));)
		queue_push(hand, op);
	bool quit = j->quit;
	pthread_mutex_unlock(&j->lock);
	return !quit || hand->first;
}

/* Move the first operations of hand to part, as many as fit one transaction.  Returns their number. */
static size_t take_part(const struct journal *j, struct queue *hand, struct queue *part)
{
	int64_t bytes = 0;
	size_t n = 0;
	while (hand->first && (!n || bytes + (int64_t)hand->first->bytes <= j->file.disk.transaction_bytes)) {
		bytes += (int64_t)hand->first->bytes;
		queue_push(part, queue_pop(hand));
		n++;
	}
	return n;
}

/* While the disk fails: move the operations that free space to part, since they make room for the rest. */
static size_t take_frees(struct journal *j, struct queue *hand, struct queue *part)
{
	struct queue rest;
	struct journal_op *op;
	size_t n = 0;
	queue_init(&rest);
	while ((op = queue_pop(hand))) {
		if (op->frees)
			queue_push(part, op), n++;
		else if (op->required)
			queue_push(&rest, op);
		else /* put before the failure was known: refused like later ones */
			confirm(j, op, -EAGAIN, j->why);
	}
	while ((op = queue_pop(&rest)))
		queue_push(hand, op);
	return n;
}

/* Move the rest of part to the front of hand. */
static void put_back(struct queue *hand, struct queue *part)
{
	struct journal_op *op;
	while ((op = queue_pop(hand)))
		queue_push(part, op);
	while ((op = queue_pop(part)))
		queue_push(hand, op);
}

static void *journal_thread(void *arg)
{
	struct journal *j = arg;
	struct queue hand, part;
	bool more = false;
	queue_init(&hand);
	queue_init(&part);
	while (take(j, &hand, more)) {
		pthread_mutex_lock(&j->lock);
		bool last = j->ending || j->quit, failing = j->failing;
		pthread_mutex_unlock(&j->lock);
		/* Operations waiting for a file that was never opened are lost, like those waiting for a
		 * failing disk. */
		if (!open_late(j) && last)
			j->lost = true;
		if (j->lost) {
			refuse_all(j, &hand);
			continue;
		}
		if (!j->opened)
			continue;
		size_t n = failing && !last ? take_frees(j, &hand, &part) : 0;
		if (!n)
			n = take_part(j, &hand, &part);
		if (n || failing)
			commit(j, &part, n, last);
		put_back(&hand, &part);
		more = tidy(j);
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
	bool refused = !op->required && (full || (j->failing && !(op->frees && j->opened)) || j->quit);
	if (!refused) {
		j->n_ops++;
		j->n_put++;
		j->n_bytes += op->bytes;
		j->urgent = j->urgent || (j->failing && op->frees);
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
	bool takes = !j->failing && !j->low && j->n_ops < OPS_MAX / 2 && j->n_bytes < BYTES_MAX / 2;
	pthread_mutex_unlock(&j->lock);
	return takes;
}

bool journal_health(struct journal *j, struct why *why)
{
	pthread_mutex_lock(&j->lock);
	bool ok = !j->failing;
	if (!ok)
		err_why(why, 0, "%s", j->why);
	pthread_mutex_unlock(&j->lock);
	return ok;
}

int journal_room(struct journal *j, enum journal_need need, int64_t bytes, struct why *why)
{
	if (!j->opened) {
		journal_health(j, why);
		return -EAGAIN;
	}
	pthread_mutex_lock(&j->lock);
	struct room r = {.disk = journal_disk_free(&j->file.disk), .pages = j->stats.free_bytes};
	bool fits = has_room(j, &r, need, bytes);
	pthread_mutex_unlock(&j->lock);
	return fits ? 0 : journal_disk_refuse(&j->file.disk, need, j->file.path, why);
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
	pthread_mutex_lock(&j->lock);
	*out = j->stats;
	out->n_waiting = j->n_ops;
	pthread_mutex_unlock(&j->lock);
	int64_t n = j->opened ? journal_disk_free(&j->file.disk) : INT64_MAX;
	out->disk_free = n == INT64_MAX ? -1 : n;
}

const char *journal_path(const struct journal *j)
{
	return j->path;
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

int journal_reader(struct journal *j, struct journal_db **out, struct why *why)
{
	struct why reason = {""};
	if (!j->opened) {
		journal_health(j, &reason);
		return err_why(why, -EAGAIN, "%s", reason.text);
	}
	return journal_db_open(j->path, SQLITE_OPEN_READONLY, out, why);
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
	free(j->path);
	free(j->model);
	free(j);
}

int journal_open(const struct journal_config *cfg, struct journal **out, struct why *why)
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
	j->cfg = *cfg;
	j->cfg.path = j->path = xstrdup(cfg->path);
	j->cfg.model = j->model = xstrdup(cfg->model);
	int rc = journal_file_open(&j->file, &j->cfg, why);
	if (!rc) {
		measure(j);
		j->opened = true;
	} else if (journal_file_may_open_later(rc)) {
		journal_file_close(&j->file, false);
		set_failing(j, why->text);
		rc = 0;
	}
	if (!rc) {
		int e = pthread_create(&j->thread, NULL, journal_thread, j);
		if (e)
			rc = err_why(why, -e, "journal: cannot start its thread");
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
