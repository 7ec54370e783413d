#include "controller/endpoints/openai_batch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/apis/completion.h"
#include "controller/endpoints/openai_batch_impl.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/http/http_error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	TICK_MS = 200, /* interval of checks for expired batches and lines to retry */
	RETRY_US = 200 * 1000,
	/* Submit lines only while fewer jobs than this are queued.  Lines should wait here, not in the
	 * scheduler's queue, where long waiting earns a share of the turns. */
	QUEUED_MAX = 32,
	RUNNING_MAX = 512, /* limit of lines in flight, all batches together */
	SWEEP_US = 60 * 1000 * 1000,
	READ = FILE_PART,
};

/* --- lines in flight --- */

static void on_line_stored(void *user, int rc, const char *why)
{
	struct line_run *r = user;
	struct batches *bs = r->bs;
	(void)why;
	pthread_mutex_lock(&bs->lock);
	struct openai_batch *b = r->batch;
	b->n_running--;
	bs->n_running--;
	/* This fails only if the service stops: the line runs again after the restart. */
	b->lines[r->line].state = rc ? LINE_PENDING : LINE_DONE;
	if (!rc) {
		b->n_done++;
		b->n_failed += r->failed;
	}
	bs->wake = true;
	pthread_cond_broadcast(&bs->more);
	pthread_mutex_unlock(&bs->lock);
	free(r->custom_id);
	free(r);
}

/* Make a line pending again; its batch submits it later unless the batch is ending.  Under the lock. */
static void put_back(struct line_run *r, bool later)
{
	struct batches *bs = r->bs;
	r->batch->n_running--;
	bs->n_running--;
	r->batch->lines[r->line].state = LINE_PENDING;
	if (r->line < r->batch->next)
		r->batch->next = r->line;
	if (later)
		bs->retry_us = clock_us() + RETRY_US;
	bs->wake = true;
	pthread_cond_broadcast(&bs->more);
}

/* Store the line's reply as its result, or retry the line, when the last reference to its exchange is
 * released.  Any thread. */
static void on_line_gone(struct exchange *x, void *user)
{
	struct line_run *r = user;
	struct batches *bs = r->bs;
	pthread_mutex_lock(&bs->lock);
	*r->prev = r->next;
	if (r->next)
		r->next->prev = r->prev;
	r->x = NULL;
	const struct completion *c = completion_of(x);
	size_t n_jobs = c ? c->n_subs : 0;
	/* When its batch ends, a complete line counts, a cut line does not. */
	bool cut = x->status != 200 || (c && c->finishes & 1u << FINISH_ABORT);
	bool ending = bs->stopping || (r->batch->ending && cut);
	const bool later = line_exchange_later(x);
	if (later || ending) {
		put_back(r, later);
		pthread_mutex_unlock(&bs->lock);
		free(r->custom_id);
		free(r);
		return;
	}
	pthread_mutex_unlock(&bs->lock);
	struct buf data = {0};
	r->failed = x->status != 200;
	batch_line_result(&data, r->custom_id, x->status, x->id, x->out.p ? x->out.p : "null",
			  x->out.len ? x->out.len : 4);
	openai_batch_store_line(bs, r->batch, r->line, r->failed, &data, n_jobs, on_line_stored, r);
}

/* Read the text of a line, which the caller owns.  -EIO: the disk fails; -ENOENT: the line is lost. */
static int read_line(struct batches *bs, const struct openai_batch *b, uint32_t line, char **text, size_t *n)
{
	const struct batch_line *l = &b->lines[line];
	*text = NULL;
	*n = l->n;
	if (!l->n) /* the line's input is lost */
		return -ENOENT;
	char *p = xmalloc((size_t)l->n + 1);
	ptrdiff_t got = file_store_read(bs->files, b->input_file, l->at, p, l->n);
	if (got == (ptrdiff_t)l->n) {
		p[l->n] = 0;
		*text = p;
		return 0;
	}
	free(p);
	return got < 0 ? -EIO : -ENOENT;
}

/* Submit a line later that cannot be read now. */
static void line_later(struct batches *bs, struct openai_batch *b, uint32_t line)
{
	pthread_mutex_lock(&bs->lock);
	if (line < b->next)
		b->next = line;
	bs->retry_us = clock_us() + RETRY_US;
	pthread_mutex_unlock(&bs->lock);
}

/* Return the body of a line, which points into text and has *n bytes; or NULL, and *error is the reply. */
static const char *line_body(const struct batches *bs, const struct openai_batch *b, const char *text,
			     size_t *n, char **custom_id, struct buf *error)
{
	static const char bad[] = "invalid_request_error";
	const uint32_t most = bs->host->svc->max_request_bytes;
	struct batch_line_request request = {.custom_id = ""};
	struct batch_line_problem problem;
	char why[128];
	int rc = batch_line_parse(text, *n, b->endpoint, &request, &problem);
	*custom_id = xstrdup(request.custom_id);
	if (rc)
		http_error_json(error, bad, NULL, NULL, problem.why.text);
	json_decref(request.tree);
	*n = request.body_text_n;
	if (rc || *n <= most)
		return rc ? NULL : request.body_text;
	snprintf(why, sizeof why, "the line's body is larger than %u bytes", most);
	http_error_json(error, bad, NULL, "request_too_large", why);
	return NULL;
}

static struct line_run *line_run_new(struct batches *bs, struct openai_batch *b, uint32_t line)
{
	struct line_run *r = xcalloc(1, sizeof *r);
	r->bs = bs;
	r->batch = b;
	r->line = line;
	r->jobs = (struct generation_line){
		.priority = OPENAI_BATCH_PRIORITY, .owner = b->owner, .terms = b->terms, .durable = true};
	snprintf(r->jobs.key, sizeof r->jobs.key, "%s/%u", b->id, line);
	return r;
}

static void line_run_free(struct line_run *r)
{
	free(r->custom_id);
	free(r);
}

/* Read the line and make its exchange, r->x.  Without one, *error is the reply; an empty one means that the
 * service stops.  -EIO: the line cannot be read now. */
static int open_line(struct line_run *r, const struct http_route *route, struct buf *error)
{
	struct batches *bs = r->bs;
	struct openai_batch *b = r->batch;
	const char *body = NULL;
	char *text;
	size_t n;
	const int rc = read_line(bs, b, r->line, &text, &n);
	if (rc == -EIO)
		return rc;
	if (rc)
		http_error_json(error, "invalid_request_error", NULL, NULL,
				"the batch's input file no longer exists");
	else if (!route)
		http_error_json(error, "invalid_request_error", "endpoint", NULL,
				"the batch's endpoint is not served");
	else
		body = line_body(bs, b, text, &n, &r->custom_id, error);
	if (!r->custom_id)
		r->custom_id = xstrdup("");
	if (body)
		r->x = line_exchange_new(bs->host, route, &r->jobs, body, n);
	free(text);
	return 0;
}

/* Count the line as running, and list its exchange.  false: the service or the batch ends. */
static bool begin_line(struct line_run *r)
{
	struct batches *bs = r->bs;
	struct openai_batch *b = r->batch;
	pthread_mutex_lock(&bs->lock);
	const bool go = !bs->stopping && !b->ending;
	if (go) {
		b->lines[r->line].state = LINE_RUNNING;
		b->n_running++;
		bs->n_running++;
	}
	if (go && r->x) {
		r->next = b->runs;
		r->prev = &b->runs;
		if (r->next)
			r->next->prev = &r->next;
		b->runs = r;
		r->x->released = on_line_gone;
		r->x->released_user = r;
	}
	pthread_mutex_unlock(&bs->lock);
	return go;
}

/* Run a line: call its route, or store the reply to a line that cannot run.  A line that cannot be read now
 * runs later. */
static void run_line(struct batches *bs, struct openai_batch *b, uint32_t line)
{
	const struct http_route *route = line_exchange_route(bs->host, b->endpoint);
	struct line_run *r = line_run_new(bs, b, line);
	struct buf error = {0}, data = {0};
	if (open_line(r, route, &error)) {
		line_run_free(r);
		line_later(bs, b, line);
		return;
	}
	struct exchange *x = r->x; /* r belongs to the exchange once its route is called */
	if ((!x && !error.len) || !begin_line(r)) {
		if (x)
			exchange_unref(x);
		line_run_free(r);
	} else if (x) {
		route->call(x, "");
		exchange_unref(x);
	} else {
		r->failed = true;
		batch_line_result(&data, r->custom_id, 400, "", error.p, error.len);
		openai_batch_store_line(bs, b, line, true, &data, 0, on_line_stored, r);
	}
	buf_fini(&error);
}

/* --- one batch --- */

static bool over(const struct openai_batch *b)
{
	return b->phase == OPENAI_BATCH_OVER;
}

static void stamp(struct openai_batch *b, const char *name)
{
	json_object_set_new(b->object, name, json_integer(clock_unix()));
}

/* Set the batch's phase and status.  Under the lock. */
static void set_status(struct openai_batch *b, enum openai_batch_phase phase, const char *status,
		       const char *when)
{
	b->phase = phase;
	json_object_set_new(b->object, "status", json_string(status));
	stamp(b, when);
}

static int read_input(struct batches *bs, struct openai_batch *b, struct batch_scan *s)
{
	char *part = xmalloc(READ);
	int64_t at = 0;
	ptrdiff_t n;
	while ((n = file_store_read(bs->files, b->input_file, at, part, READ)) > 0) {
		batch_scan_put(s, part, (size_t)n);
		at += n;
	}
	batch_scan_end(s);
	free(part);
	return n < 0 ? -EIO : 0;
}

/* Keep the counts of a batch that ran before, if its input has changed since: its results still count, and
 * lines that can no longer be read fail.  Under the lock. */
static void keep_counted(struct openai_batch *b, struct batch_scan *s)
{
	if (!json_array_size(s->errors) && (!b->n_lines || s->n_lines == b->n_lines))
		return;
	log_error("batch", "batch input lost batch=%s file=%s lines=%u found=%u", b->id, b->input_file,
		  b->n_lines, s->n_lines);
	free(s->lines);
	s->lines = xcalloc(b->n_lines ? b->n_lines : 1, sizeof *s->lines);
	s->n_lines = b->n_lines;
}

static void validate(struct batches *bs, struct openai_batch *b)
{
	struct batch_scan s;
	batch_scan_init(&s, b->endpoint, OPENAI_BATCH_LINES_MAX, OPENAI_BATCH_LINE_BYTES_MAX);
	int rc = read_input(bs, b, &s);
	pthread_mutex_lock(&bs->lock);
	bool bad = b->phase == OPENAI_BATCH_VALIDATING && json_array_size(s.errors) > 0;
	if (!rc && !bad && b->phase != OPENAI_BATCH_VALIDATING)
		keep_counted(b, &s);
	if (rc) {
		/* The disk fails: read the input again later. */
	} else if (bad) {
		json_object_set_new(b->object, "errors",
				    json_pack("{s:s, s:O}", "object", "list", "data", s.errors));
		set_status(b, OPENAI_BATCH_OVER, "failed", "failed_at");
	} else {
		b->lines = s.lines;
		b->n_lines = s.n_lines;
		s.lines = NULL;
		if (b->phase == OPENAI_BATCH_VALIDATING && !b->ending)
			set_status(b, OPENAI_BATCH_RUNNING, "in_progress", "in_progress_at");
		else if (b->phase == OPENAI_BATCH_VALIDATING)
			b->phase = OPENAI_BATCH_RUNNING;
	}
	pthread_mutex_unlock(&bs->lock);
	batch_scan_fini(&s);
	if (!rc && !bad && (rc = openai_batch_load_lines(bs, b))) {
		pthread_mutex_lock(&bs->lock);
		free(b->lines);
		b->lines = NULL;
		pthread_mutex_unlock(&bs->lock);
	}
	if (rc)
		b->validate_us = clock_us() + 5 * RETRY_US;
	else
		openai_batch_save(bs, b, bad);
}

/* Return the next line that may be submitted; -1: none. */
static int64_t next_line(struct openai_batch *b)
{
	while (b->next < b->n_lines && b->lines[b->next].state != LINE_PENDING)
		b->next++;
	return b->next < b->n_lines ? (int64_t)b->next : -1;
}

/* Cancel running jobs of a batch that ends before its lines.  Called repeatedly, because a job may not have
 * its id yet. */
static void cancel_runs(struct batches *bs, struct openai_batch *b)
{
	pthread_mutex_lock(&bs->lock);
	for (struct line_run *r = b->runs; r; r = r->next)
		completion_cancel_jobs(r->x);
	pthread_mutex_unlock(&bs->lock);
}

/* --- the end --- */

struct output {
	struct batches *bs;
	struct openai_batch *batch;
	struct file_writer *w;
	int rc;
};

static int put_line(void *user, const char *p, size_t n)
{
	struct output *o = user;
	pthread_mutex_lock(&o->bs->lock);
	bool stopping = o->bs->stopping;
	pthread_mutex_unlock(&o->bs->lock);
	/* Wait: results are read faster than the disk can write them. */
	int rc = stopping ? -ECANCELED : file_writer_wait(o->w);
	if (!rc)
		rc = file_writer_put(o->w, p, n);
	return rc ? rc : file_writer_put(o->w, "\n", 1);
}

/* Write the result of a line that never ran because its batch expired. */
static int put_expired(struct output *o, uint32_t line)
{
	struct batch_line_request request = {.custom_id = ""};
	struct batch_line_problem problem;
	struct buf data = {0};
	char *text;
	size_t n;
	if (read_line(o->bs, o->batch, line, &text, &n) == -EIO)
		return -EIO;
	if (text)
		batch_line_parse(text, n, o->batch->endpoint, &request, &problem);
	batch_line_error(&data, request.custom_id, "batch_expired",
			 "This request could not be executed before the completion window expired.");
	int rc = put_line(o, data.p, data.len);
	buf_fini(&data);
	json_decref(request.tree);
	free(text);
	return rc;
}

/* Write the output or the error file; also returns 0 if the file has no lines. */
static int write_file(struct batches *bs, struct openai_batch *b, bool failed, uint32_t *n_lines)
{
	const char *kind = failed ? "error" : "output";
	struct file_info info = {.created_at = clock_unix()};
	struct output o = {.bs = bs, .batch = b};
	char key[32];
	snprintf(key, sizeof key, "%s_file_id", kind);
	snprintf(info.id, sizeof info.id, "%s", failed ? b->error_file : b->output_file);
	snprintf(info.owner, sizeof info.owner, "%s", b->owner);
	snprintf(info.name, sizeof info.name, "%s_%s.jsonl", b->id, kind);
	snprintf(info.purpose, sizeof info.purpose, "batch_output");
	info.expires_at = b->output_keep_s ? info.created_at + b->output_keep_s : 0;
	/* Delete a file written before a restart. */
	int rc = openai_batch_delete_file(bs, info.id);
	if (rc)
		return rc;
	o.w = file_writer_new(bs->files, &info, NULL);
	rc = openai_batch_each_line(bs, b, failed, put_line, &o, n_lines);
	for (uint32_t i = 0; !rc && failed && b->expired && i < b->n_lines; i++)
		if (b->lines[i].state != LINE_DONE) {
			rc = put_expired(&o, i);
			(*n_lines)++;
		}
	if (rc || !*n_lines) {
		file_writer_abort(&o.w);
		return rc;
	}
	rc = openai_batch_commit_file(bs, &o.w);
	if (rc)
		return rc;
	pthread_mutex_lock(&bs->lock);
	json_object_set_new(b->object, key, json_string(info.id));
	pthread_mutex_unlock(&bs->lock);
	return 0;
}

/* Return true if the output files must wait for room on the disk, like other files. */
static bool waits_for_room(struct batches *bs, struct openai_batch *b)
{
	struct why why;
	int64_t bytes = openai_batch_result_bytes(bs, b);
	bool waits = journal_room(file_store_journal(bs->files), JOURNAL_FILE, bytes, &why) != 0;
	if (waits && !b->waits_for_room)
		log_warn("batch", "batch output waits for the disk batch=%s bytes=%" PRId64 " reason=\"%s\"",
			 b->id, bytes, why.text);
	b->waits_for_room = waits;
	if (waits)
		b->finalize_us = clock_us() + 5 * RETRY_US;
	return waits;
}

static void finalize(struct batches *bs, struct openai_batch *b)
{
	uint32_t n_good = 0, n_bad = 0;
	if (waits_for_room(bs, b))
		return;
	int rc = write_file(bs, b, false, &n_good);
	if (!rc)
		rc = write_file(bs, b, true, &n_bad);
	if (rc) {
		/* The disk fails: try again later. */
		b->finalize_us = clock_us() + 5 * RETRY_US;
		return;
	}
	pthread_mutex_lock(&bs->lock);
	b->n_failed = n_bad;
	b->n_done = n_good + n_bad;
	if (b->cancelled)
		set_status(b, OPENAI_BATCH_OVER, "cancelled", "cancelled_at");
	else if (b->expired)
		set_status(b, OPENAI_BATCH_OVER, "expired", "expired_at");
	else
		set_status(b, OPENAI_BATCH_OVER, "completed", "completed_at");
	openai_batch_set_counts(b);
	pthread_mutex_unlock(&bs->lock);
	openai_batch_save(bs, b, true);
	log_info("batch", "batch ended batch=%s status=%s lines=%u failed=%u", b->id,
		 json_string_value(json_object_get(b->object, "status")), b->n_lines, n_bad);
}

static void cancel_left(void *user, const char *job)
{
	struct batches *bs = user;
	mailbox_cancel(bs->mailbox, job, NULL, NULL, NULL);
}

/* Advance a batch as far as possible now, without submitting lines. */
static void step(struct batches *bs, struct openai_batch *b)
{
	if (!b->lines && !over(b) && clock_us() >= b->validate_us)
		validate(bs, b);
	if (over(b) || !b->lines)
		return;
	pthread_mutex_lock(&bs->lock);
	if (!b->ending && clock_unix() >= b->expires_at && b->n_done < b->n_lines)
		b->ending = b->expired = true;
	bool ending = b->ending;
	uint32_t n_running = b->n_running;
	bool last = !n_running && (ending || b->n_done == b->n_lines);
	bool begin = last && b->phase == OPENAI_BATCH_RUNNING;
	if (begin) {
		b->phase = OPENAI_BATCH_FINALIZING;
		if (!b->cancelled)
			set_status(b, OPENAI_BATCH_FINALIZING, "finalizing", "finalizing_at");
	}
	pthread_mutex_unlock(&bs->lock);
	if (begin) {
		openai_batch_save(bs, b, false);
		/* Jobs from before a restart; their lines were not submitted again. */
		openai_batch_each_unfinished(bs, b, cancel_left, bs);
	}
	if (ending && n_running)
		cancel_runs(bs, b);
	if (last && clock_us() >= b->finalize_us)
		finalize(bs, b);
}

/* --- the thread --- */

/* Return how many lines may be submitted now. */
static uint32_t room(struct batches *bs)
{
	const struct service *svc = bs->host->svc;
	uint32_t queued = svc->load ? atomic_load_explicit(&svc->load->n_queued, memory_order_relaxed) : 0;
	uint32_t most = svc->max_queued_jobs && svc->max_queued_jobs < 2 * QUEUED_MAX
				? svc->max_queued_jobs / 2
				: QUEUED_MAX;
	if (!most)
		most = 1;
	pthread_mutex_lock(&bs->lock);
	uint32_t running = bs->n_running;
	bool wait = clock_us() < bs->retry_us || bs->stopping || atomic_load(&bs->host->draining);
	pthread_mutex_unlock(&bs->lock);
	uint32_t by_queue = queued < most ? most - queued : 0;
	uint32_t by_window = running < RUNNING_MAX ? RUNNING_MAX - running : 0;
	return wait ? 0 : by_queue < by_window ? by_queue : by_window;
}

/* Return true if a's next line goes before b's: its owner has fewer running lines relative to its share; or,
 * with equal owners, the batch has fewer. */
static bool goes_before(const struct batches *bs, const struct openai_batch *a, const struct openai_batch *b)
{
	uint64_t of_a = openai_batch_owner((struct batches *)bs, a->owner)->n_running;
	uint64_t of_b = openai_batch_owner((struct batches *)bs, b->owner)->n_running;
	of_a *= b->terms.share;
	of_b *= a->terms.share;
	return of_a != of_b ? of_a < of_b : a->n_running < b->n_running;
}

struct openai_batch *openai_batch_next(struct batches *bs, uint32_t *line)
{
	struct openai_batch *best = NULL;
	for (struct batch_owner *o = bs->owners; o; o = o->next)
		o->n_running = 0;
	for (struct openai_batch *b = bs->first; b; b = b->later)
		openai_batch_owner(bs, b->owner)->n_running += b->n_running;
	for (struct openai_batch *b = bs->first; b; b = b->later) {
		bool runs = b->lines && b->phase == OPENAI_BATCH_RUNNING && !b->ending;
		if (!runs || (best && !goes_before(bs, b, best)))
			continue;
		int64_t next = next_line(b);
		if (next < 0)
			continue;
		best = b;
		*line = (uint32_t)next;
	}
	return best;
}

/* Submit one line after another, so that a key with many batches does not delay other keys. */
static void feed(struct batches *bs)
{
	for (uint32_t n = room(bs), line; n; n--) {
		pthread_mutex_lock(&bs->lock);
		struct openai_batch *b = openai_batch_next(bs, &line);
		if (b)
			b->next++;
		pthread_mutex_unlock(&bs->lock);
		if (!b)
			return;
		run_line(bs, b, line);
	}
}

/* Free the batches that have ended. */
static void drop_ended(struct batches *bs)
{
	pthread_mutex_lock(&bs->lock);
	for (struct openai_batch **at = &bs->first; *at;) {
		struct openai_batch *b = *at;
		if (!over(b) || b->n_running || b->n_saving) {
			at = &b->later;
			continue;
		}
		*at = b->later;
		openai_batch_end(bs, b->owner);
		openai_batch_free(b);
	}
	pthread_mutex_unlock(&bs->lock);
}

/* Load the batches if the journal could not be opened when the service started. */
static bool load_late(struct batches *bs)
{
	struct why why;
	int rc = bs->loaded ? 0 : openai_batch_load(bs, &why);
	if (rc && rc != -EAGAIN)
		log_error("batch", "batches not loaded reason=\"%s\"", why.text);
	bs->loaded = !rc;
	return !rc;
}

static void *batches_thread(void *arg)
{
	struct batches *bs = arg;
	int64_t sweep_us = 0;
	for (;;) {
		pthread_mutex_lock(&bs->lock);
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += (bs->first ? TICK_MS : 5 * TICK_MS - 1) * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		while (!bs->wake && !bs->stopping)
			if (pthread_cond_timedwait(&bs->more, &bs->lock, &until))
				break;
		bs->wake = false;
		bool stop = bs->stopping;
		pthread_mutex_unlock(&bs->lock);
		if (stop)
			return NULL;
		if (!load_late(bs))
			continue;
		/* New batches are appended only here, where the list is not being read. */
		openai_batch_take_new(bs);
		for (struct openai_batch *b = bs->first; b; b = b->later)
			step(bs, b);
		feed(bs);
		drop_ended(bs);
		if (clock_us() >= sweep_us) {
			file_store_sweep(bs->files);
			sweep_us = clock_us() + SWEEP_US;
		}
	}
}

/* --- lifecycle --- */

int batches_start(struct exchange_host *host, struct mailbox *mailbox, struct file_store *files,
		  struct batches **out, struct why *why)
{
	struct batches *bs = xcalloc(1, sizeof *bs);
	pthread_condattr_t monotonic;
	bs->host = host;
	bs->mailbox = mailbox;
	bs->files = files;
	bs->wake = true;
	pthread_mutex_init(&bs->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&bs->more, &monotonic);
	pthread_condattr_destroy(&monotonic);
	int rc = openai_batch_load(bs, why);
	bs->loaded = !rc;
	rc = rc == -EAGAIN ? 0 : rc;
	if (!rc && pthread_create(&bs->thread, NULL, batches_thread, bs))
		rc = err_why(why, -EAGAIN, "batches: cannot start their thread");
	if (rc) {
		batches_free(bs);
		return rc;
	}
	*out = bs;
	return 0;
}

bool batches_ready(const struct batches *bs)
{
	return bs->loaded;
}

void batches_quiesce(struct batches *bs)
{
	pthread_mutex_lock(&bs->lock);
	bs->stopping = true;
	pthread_cond_broadcast(&bs->more);
	pthread_mutex_unlock(&bs->lock);
	pthread_join(bs->thread, NULL);
	/* The jobs lose their listeners, but are durable. */
	pthread_mutex_lock(&bs->lock);
	for (struct openai_batch *b = bs->first; b; b = b->later)
		for (struct line_run *r = b->runs; r; r = r->next)
			exchange_abort(r->x);
	pthread_mutex_unlock(&bs->lock);
}

void batches_stop(struct batches *bs)
{
	if (bs)
		batches_free(bs);
}
