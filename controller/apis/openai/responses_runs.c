#include "controller/apis/openai/responses_runs.h"

#include "base/alloc.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/openai/conversations_store.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/http/api_keys.h"
#include "controller/message/service.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ROWS = 10000, ALL_ROWS = 100000 };

struct run {
	struct responses *responses;
	char id[RESPONSE_ID_SIZE];
	struct exchange *x;
	atomic_bool cancelled;
	struct run *next, **prev;
};

struct responses {
	struct exchange_host *host;
	struct responses_store *store;
	pthread_mutex_t lock; /* guards the fields below */
	struct run *runs;
	bool stopping;
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
	return rs;
}

void responses_quiesce(struct responses *rs)
{
	if (!rs)
		return;
	pthread_mutex_lock(&rs->lock);
	rs->stopping = true;
	pthread_mutex_unlock(&rs->lock);
}

void responses_stop(struct responses *rs)
{
	if (!rs)
		return;
	responses_store_close(rs->store);
	pthread_mutex_destroy(&rs->lock);
	free(rs);
}

struct responses_store *responses_store_of(struct responses *rs)
{
	return rs->store;
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
	free(r);
}

/* The response has failed before its job could be made again: it is stored so. */
static void fail_row(struct responses *rs, const struct response_row *row, const char *why)
{
	json_t *o = response_json(row->body);
	if (!json_is_object(o)) {
		json_decref(o);
		o = json_pack("{s:s, s:s, s:I, s:[]}", "id", row->id, "object", "response", "created_at",
			      (json_int_t)row->created_at, "output");
	}
	json_object_set_new(o, "status", json_string("failed"));
	json_object_set_new(o, "error", json_pack("{s:s, s:s}", "code", "server_error", "message", why));
	char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
	responses_store_finish(rs->store, row->id, text, "", NULL);
	free(text);
	json_decref(o);
}

/* The message of the error that x has as its reply. */
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

/* A listener to the response's job, which is made again if it is gone: from the same request it has the same
 * tokens.  Takes a.  False: x has an error as its reply. */
static bool attach(struct exchange *x, const struct response_row *row, struct responses_answer *a)
{
	struct generation_line line = {.owner = row->owner, .terms = API_KEY_NO_TERMS, .existing = a->fresh};
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

/* Under the lock. */
static struct run *find(struct responses *rs, const char *id)
{
	struct run *r = rs->runs;
	while (r && strcmp(r->id, id) != 0)
		r = r->next;
	return r;
}

/* Under the lock. */
static struct run *add(struct responses *rs, const char *id, struct exchange *x)
{
	struct run *r = xcalloc(1, sizeof *r);
	r->responses = rs;
	r->x = x;
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

/* Only by the thread that has added r; then r may be gone. */
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
	a->key_jobs = key_jobs;
	a->own_items = row->conversation[0] ? responses_items_from(row->context, row->n_before) : NULL;
	x->key = key;
	if (!attach(x, row, a)) {
		error_of(x, why, sizeof why, &for_now);
		if (!for_now)
			fail_row(rs, row, why);
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

void responses_run(struct responses *rs, const struct response_row *row, bool cancel)
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
	pthread_mutex_unlock(&rs->lock);
	if (fresh)
		run_begin(fresh, row, false, NULL, 0);
	else if (x)
		exchange_unref(x);
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
