#include "controller/apis/openai/responses_runs.h"

#include "base/alloc.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/http/api_keys.h"
#include "controller/message/service.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
	struct responses *responses;
	char id[RESPONSE_ID_SIZE];
	struct exchange *x;
	struct responses_answer *answer; /* the exchange's: lives as long */
	struct run *next, **prev;
};

struct responses {
	struct exchange_host *host;
	struct responses_store *store;
	pthread_mutex_t lock; /* guards the fields below */
	struct run *runs;
	bool stopping;
};

struct responses *responses_start(struct exchange_host *host, struct journal *j)
{
	struct responses *rs = xcalloc(1, sizeof *rs);
	rs->host = host;
	rs->store = responses_store_open(j, host->svc->keep_durable_us / 1000000);
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

/* A listener to the response's job, which is made again if it is gone: from the same request it has the same
 * tokens. */
static void attach(struct exchange *x, const struct response_row *row, struct responses_answer *a)
{
	struct generation_line line = {.owner = row->owner, .terms = API_KEY_NO_TERMS};
	json_t *request = response_json(row->request);
	snprintf(line.key, sizeof line.key, "%s", row->id);
	snprintf(a->row.id, sizeof a->row.id, "%s", row->id);
	a->row.created_at = row->created_at;
	a->repeated = response_json(row->repeated);
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
	if (request) {
		json_object_set_new(request, "stream", json_true());
		generation_start(x, request, &g);
	} else {
		exchange_fail(x, E_INTERNAL, NULL, "the journal's row of the response is damaged");
		responses_writer.free(a);
	}
	json_decref(request);
}

/* Under the lock. */
static struct run *find(struct responses *rs, const char *id)
{
	struct run *r = rs->runs;
	while (r && strcmp(r->id, id) != 0)
		r = r->next;
	return r;
}

static struct run *add(struct responses *rs, const char *id, struct exchange *x)
{
	struct run *r = xcalloc(1, sizeof *r);
	r->responses = rs;
	r->x = x;
	r->answer = xcalloc(1, sizeof *r->answer);
	r->answer->mode = RESPONSES_RUN;
	r->answer->store = rs->store;
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

void responses_run(struct responses *rs, const struct response_row *row, struct api_key *key,
		   uint32_t key_jobs, bool cancel)
{
	struct exchange *x = exchange_new(rs->host, NULL);
	struct responses_begun begun = {0};
	pthread_mutex_lock(&rs->lock);
	struct run *r = find(rs, row->id), *fresh = NULL;
	if (!r && x && !rs->stopping)
		r = fresh = add(rs, row->id, x);
	if (r && cancel) {
		atomic_store(&r->answer->cancelled, true);
		if (!fresh)
			completion_cancel_jobs(r->x);
	}
	pthread_mutex_unlock(&rs->lock);
	if (fresh) {
		x->key = key;
		fresh->answer->begun = &begun;
		fresh->answer->key_jobs = key_jobs;
		attach(x, row, fresh->answer);
	}
	for (uint32_t i = 0; key && !begun.yes && i < key_jobs; i++)
		api_key_end(key);
	if (x)
		exchange_unref(x);
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
