#include "controller/apis/openai/responses_runs.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/openai/conversations_store.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/http/api_keys.h"
#include "controller/message/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ROWS = 10000, ALL_ROWS = 100000 };

/* A request that waits until the end of a run is on disk. */
struct waiter {
	const struct run *run;
	responses_done *done;
	void *user;
	struct waiter *next;
};

struct run {
	struct responses *responses;
	char id[RESPONSE_ID_SIZE];
	struct exchange *x;
	atomic_bool cancelled;
	struct run *next, **prev;
	atomic_uint refs;    /* references of x, and of the operation that stores the end */
	atomic_bool storing; /* that operation exists */
	bool finished;       /* guarded by `waiting`: the end has its result, rc and why */
	int rc;
	char why[256];
};

struct responses {
	struct exchange_host *host;
	struct responses_store *store;
	pthread_mutex_t lock; /* guards the fields below */
	struct run *runs;
	bool stopping;
	pthread_mutex_t waiting; /* guards the waiters; no other lock is taken while it is held */
	struct waiter *waiters;
	bool ending; /* nothing waits any more */
};

struct responses_limits responses_limits_of(const struct service *svc, bool keys)
{
	const int64_t bytes = svc->journal_bytes ? svc->journal_bytes / 4 : INT64_MAX;
	return (struct responses_limits){.keep_s = svc->keep_durable_us / 1000000,
					 .owner_rows = keys ? KEY_ROWS : ALL_ROWS,
					 .owner_bytes = keys ? bytes / 2 : bytes,
					 .rows = ALL_ROWS,
					 .bytes = bytes,
					 .conversation_items = CONVERSATION_ITEMS_MAX,
					 .conversation_bytes = svc->max_request_bytes};
}

struct responses *responses_start(struct exchange_host *host, struct journal *j,
				  const struct responses_limits *limits)
{
	struct responses *rs = xcalloc(1, sizeof *rs);
	rs->host = host;
	rs->store = responses_store_open(j, limits);
	pthread_mutex_init(&rs->lock, NULL);
	pthread_mutex_init(&rs->waiting, NULL);
	return rs;
}

void responses_stop(struct responses *rs)
{
	if (!rs)
		return;
	responses_store_close(rs->store);
	pthread_mutex_destroy(&rs->waiting);
	pthread_mutex_destroy(&rs->lock);
	free(rs);
}

struct responses_store *responses_store_of(struct responses *rs)
{
	return rs->store;
}

static void run_unref(struct run *r)
{
	if (atomic_fetch_sub(&r->refs, 1) == 1)
		free(r);
}

/* Set the result of a run's end and call its waiters.  r NULL: call all waiters, and accept no more. */
static void finish(struct responses *rs, struct run *r, int rc, const char *why)
{
	struct waiter *out = NULL;
	pthread_mutex_lock(&rs->waiting);
	for (struct waiter **at = &rs->waiters, *w; (w = *at);) {
		if (r && w->run != r) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = out;
		out = w;
	}
	rs->ending = rs->ending || !r;
	if (r && !r->finished) {
		r->finished = true;
		r->rc = rc;
		snprintf(r->why, sizeof r->why, "%s", rc && why ? why : "");
	}
	pthread_mutex_unlock(&rs->waiting);
	for (struct waiter *w = out, *next; w; w = next) {
		next = w->next;
		w->done(w->user, rc, why);
		free(w);
	}
}

/* Call done when the end of r has its result; at once if it has. */
static void await_end(struct responses *rs, struct run *r, responses_done *done, void *user)
{
	pthread_mutex_lock(&rs->waiting);
	const bool finished = r->finished, ending = rs->ending;
	if (!finished && !ending) {
		struct waiter *w = xcalloc(1, sizeof *w);
		*w = (struct waiter){r, done, user, rs->waiters};
		rs->waiters = w;
	}
	pthread_mutex_unlock(&rs->waiting);
	if (finished)
		done(user, r->rc, r->why);
	else if (ending)
		done(user, -EAGAIN, SERVICE_ENDING);
}

void responses_quiesce(struct responses *rs)
{
	if (!rs)
		return;
	pthread_mutex_lock(&rs->lock);
	rs->stopping = true;
	pthread_mutex_unlock(&rs->lock);
	/* Waiters could wait for ever on a disk without room. */
	finish(rs, NULL, -EAGAIN, SERVICE_ENDING);
}

static void on_storing(void *run)
{
	struct run *r = run;
	atomic_fetch_add(&r->refs, 1);
	atomic_store(&r->storing, true);
}

static void on_stored(void *run, int rc, const char *why)
{
	struct run *r = run;
	if (rc)
		log_warn("responses", "response not stored response=%s reason=\"%s\"", r->id, why);
	finish(r->responses, r, rc, why);
	run_unref(r);
}

static void on_run_gone(struct exchange *x, void *user)
{
	struct run *r = user;
	(void)x;
	pthread_mutex_lock(&r->responses->lock);
	*r->prev = r->next;
	if (r->next)
		r->next->prev = r->prev;
	pthread_mutex_unlock(&r->responses->lock);
	if (!atomic_load(&r->storing))
		finish(r->responses, r, -EAGAIN, "the response has not ended: try again");
	run_unref(r);
}

/* Store that the response has failed before its job could be made again. */
static void fail_row(struct run *r, const struct response_row *row, const char *why)
{
	json_t *o = response_json(row->body);
	if (!json_is_object(o)) {
		json_decref(o);
		o = json_pack("{s:s, s:s, s:I, s:[]}", "id", row->id, "object", "response", "created_at",
			      (json_int_t)row->created_at, "output");
	}
	json_object_set_new(o, "status", json_string("failed"));
	json_object_set_new(o, "error", json_pack("{s:s, s:s}", "code", "server_error", "message", why));
	char *text = json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
	on_storing(r);
	responses_store_finish(r->responses->store, row->id, text, "", NULL, on_stored, r);
	free(text);
	json_decref(o);
}

/* Write the message of the error reply of x.  *for_now: the error is temporary. */
static void error_of(struct exchange *x, char *out, size_t n, bool *for_now)
{
	pthread_mutex_lock(&x->lock);
	json_t *o = json_loadb(x->out.p ? x->out.p : "", x->out.len, 0, NULL);
	*for_now = x->status == MHD_HTTP_SERVICE_UNAVAILABLE || x->status == MHD_HTTP_TOO_MANY_REQUESTS ||
		   x->status == 0;
	pthread_mutex_unlock(&x->lock);
	const char *message = json_string_value(json_object_get(json_object_get(o, "error"), "message"));
	snprintf(out, n, "%s", message ? message : "the job could not be made again");
	json_decref(o);
}

/* Listen to the response's job.  If the job is gone, it is made again: the same request gives the same
 * tokens.  Takes a.  false: x has an error as its reply. */
static bool attach(struct exchange *x, const struct response_row *row, struct responses_answer *a)
{
	struct generation_line line = {
		.owner = row->owner, .terms = API_KEY_NO_TERMS, .existing = a->fresh, .durable = true};
	struct responses_begun begun = {0};
	json_t *request = response_json(row->request);
	snprintf(line.key, sizeof line.key, "%s", row->id);
	snprintf(a->row.id, sizeof a->row.id, "%s", row->id);
	snprintf(a->row.conversation, sizeof a->row.conversation, "%s", row->conversation);
	a->row.created_at = row->created_at;
	a->repeated = response_json(row->repeated);
	a->begun = &begun;
	const struct generation g = {
		.dialect = API_CHAT,
		.writer = &responses_writer,
		.writer_data = a,
		.id_prefix = "resp_",
		.names = responses_names,
		.line = &line,
		.id = row->id,
		.attach = true,
	};
	if (json_is_object(request) && json_is_object(a->repeated)) {
		json_object_set_new(request, "stream", json_true());
		generation_start(x, request, &g);
	} else {
		exchange_fail(x, E_INTERNAL, NULL, "the journal's row of the response is damaged");
		responses_writer.free(a);
	}
	json_decref(request);
	return begun.yes;
}

/* Find a run.  Under the lock. */
static struct run *find(struct responses *rs, const char *id)
{
	struct run *r = rs->runs;
	while (r && strcmp(r->id, id) != 0)
		r = r->next;
	return r;
}

/* Add a run.  Under the lock. */
static struct run *add(struct responses *rs, const char *id, struct exchange *x)
{
	struct run *r = xcalloc(1, sizeof *r);
	r->responses = rs;
	r->x = x;
	atomic_init(&r->refs, 1);
	snprintf(r->id, sizeof r->id, "%s", id);
	r->next = rs->runs;
	r->prev = &rs->runs;
	if (r->next)
		r->next->prev = &r->next;
	rs->runs = r;
	x->released = on_run_gone;
	x->released_user = r;
	return r;
}

/* Start a run; only on the thread that added r.  Afterwards r may be freed. */
static void run_begin(struct run *r, const struct response_row *row, bool fresh, struct api_key *key,
		      uint32_t key_jobs)
{
	struct responses *rs = r->responses;
	struct exchange *x = r->x;
	struct responses_answer *a = xcalloc(1, sizeof *a);
	char why[512];
	bool for_now;
	a->mode = RESPONSES_RUN;
	a->store = rs->store;
	a->fresh = fresh;
	a->cancelled = &r->cancelled;
	a->storing = on_storing;
	a->stored = on_stored;
	a->run = r;
	a->key_jobs = key_jobs;
	a->own_items = row->conversation[0] ? responses_items_from(row->context, row->n_before) : NULL;
	x->key = key;
	if (!attach(x, row, a)) {
		error_of(x, why, sizeof why, &for_now);
		if (!for_now)
			fail_row(r, row, why);
		for (uint32_t i = 0; key && i < key_jobs; i++)
			api_key_end(key);
	}
	exchange_unref(x);
}

struct run *responses_run_reserve(struct responses *rs, const char *id)
{
	struct exchange *x = exchange_new(rs->host, NULL);
	if (!x)
		return NULL;
	pthread_mutex_lock(&rs->lock);
	struct run *r = rs->stopping ? NULL : add(rs, id, x);
	pthread_mutex_unlock(&rs->lock);
	if (!r)
		exchange_unref(x);
	return r;
}

void responses_run_begin(struct run *r, const struct responses_begun *begun, struct api_key *key)
{
	if (begun->yes)
		run_begin(r, &begun->row, true, key, begun->key_jobs);
	else
		exchange_unref(r->x);
}

/* Run a response.  done NULL: nothing waits for its end. */
static void run(struct responses *rs, const struct response_row *row, bool cancel, responses_done *done,
		void *user)
{
	struct exchange *x = exchange_new(rs->host, NULL);
	pthread_mutex_lock(&rs->lock);
	struct run *r = find(rs, row->id), *fresh = NULL;
	if (!r && x && !rs->stopping)
		r = fresh = add(rs, row->id, x);
	if (r && cancel) {
		atomic_store(&r->cancelled, true);
		if (!fresh)
			completion_cancel_jobs(r->x);
	}
	if (r && done)
		atomic_fetch_add(&r->refs, 1);
	pthread_mutex_unlock(&rs->lock);
	if (fresh)
		run_begin(fresh, row, false, NULL, 0);
	else if (x)
		exchange_unref(x);
	if (!done)
		return;
	if (!r) {
		done(user, -EAGAIN, SERVICE_ENDING);
		return;
	}
	await_end(rs, r, done, user);
	run_unref(r);
}

void responses_run(struct responses *rs, const struct response_row *row, bool cancel)
{
	run(rs, row, cancel, NULL, NULL);
}

void responses_cancel(struct responses *rs, const struct response_row *row, responses_done *done, void *user)
{
	run(rs, row, true, done, user);
}

void responses_run_pending(struct responses *rs, const char *owner, const char *conversation)
{
	enum { MAX = 16 };
	char ids[MAX][RESPONSE_ID_SIZE];
	const int n = conversations_pending(rs->store, conversation, ids, MAX);
	for (int i = 0; i < n; i++) {
		struct response_row row;
		pthread_mutex_lock(&rs->lock);
		const bool runs = find(rs, ids[i]) != NULL;
		pthread_mutex_unlock(&rs->lock);
		if (runs || responses_store_get(rs->store, owner, ids[i], &row))
			continue;
		if (!row.done)
			responses_run(rs, &row, false);
		response_row_fini(&row);
	}
}

void responses_read_again(struct exchange *x, const struct response_row *row, int64_t after)
{
	struct responses_answer *a = xcalloc(1, sizeof *a);
	json_t *body = response_json(row->body);
	a->mode = RESPONSES_READ;
	a->ended_at = json_integer_value(json_object_get(body, "completed_at"));
	json_decref(body);
	a->after = after;
	attach(x, row, a);
}
