#include "controller/jobsock/job_reply.h"

#include "base/clock.h"
#include "base/version.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"
#include "proto/counts.h"
#include "proto/mp.h"

#include <string.h>

static void begin(struct buf *out, uint32_t n_keys, const char *op, const struct buf *id)
{
	mp_put_map(out, n_keys + 2);
	mp_put_cstr(out, "op");
	mp_put_cstr(out, op);
	mp_put_cstr(out, "id");
	if (id->len)
		buf_put(out, id->p, id->len);
	else
		mp_put_nil(out);
}

static void key_uint(struct buf *out, const char *key, uint64_t v)
{
	mp_put_cstr(out, key);
	mp_put_uint(out, v);
}

static void key_int(struct buf *out, const char *key, int64_t v)
{
	mp_put_cstr(out, key);
	mp_put_int(out, v);
}

static void key_str(struct buf *out, const char *key, const char *s, size_t n)
{
	mp_put_cstr(out, key);
	mp_put_str(out, s, n);
}

static void key_cstr(struct buf *out, const char *key, const char *s)
{
	mp_put_cstr(out, key);
	mp_put_cstr(out, s);
}

static void put_tokens(struct buf *out, const uint32_t *tokens, size_t n)
{
	mp_put_cstr(out, "tokens");
	mp_put_array(out, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		mp_put_uint(out, tokens[i]);
}

static void put_logprob(struct buf *out, const struct token_logprob *t)
{
	mp_put_map(out, 4);
	key_uint(out, "token", t->token);
	mp_put_cstr(out, "logprob");
	mp_put_float(out, t->logprob);
	key_uint(out, "rank", t->rank);
	mp_put_cstr(out, "top");
	mp_put_array(out, t->n_top);
	for (uint32_t i = 0; i < t->n_top; i++) {
		mp_put_map(out, 2);
		key_uint(out, "token", t->top[i].token);
		mp_put_cstr(out, "logprob");
		mp_put_float(out, t->top[i].logprob);
	}
}

static void put_logprobs(struct buf *out, const struct token_logprob *t, uint32_t n)
{
	mp_put_cstr(out, "logprobs");
	mp_put_array(out, n);
	for (uint32_t i = 0; i < n; i++)
		put_logprob(out, &t[i]);
}

static void put_delta(struct buf *out, const struct buf *id, const struct job_event *e)
{
	const struct output_view *o = &e->delta;
	begin(out, 5 + !!o->logprobs, "delta", id);
	key_cstr(out, "job", e->job);
	key_uint(out, "index", o->index);
	key_uint(out, "offset", e->offset);
	key_str(out, "text", o->text, o->text_n);
	put_tokens(out, o->tokens, o->n_tokens);
	if (o->logprobs)
		put_logprobs(out, o->logprobs, o->n_tokens);
}

static void put_output(struct buf *out, const struct output_view *o)
{
	mp_put_map(out, 6 + !!o->logprobs);
	key_uint(out, "index", o->index);
	key_str(out, "text", o->text, o->text_n);
	put_tokens(out, o->tokens, o->n_tokens);
	key_cstr(out, "finish_reason", finish_name(o->finish));
	mp_put_cstr(out, "stop_reason"); /* the stop string or token that matched */
	if (o->stop_string)
		mp_put_cstr(out, o->stop_string);
	else if (o->stop_token >= 0)
		mp_put_uint(out, (uint64_t)o->stop_token);
	else
		mp_put_nil(out);
	mp_put_cstr(out, "cumulative_logprob");
	mp_put_double(out, o->cumulative_logprob);
	if (o->logprobs)
		put_logprobs(out, o->logprobs, o->n_tokens);
}

static void put_done(struct buf *out, const struct buf *id, const struct job_event *e)
{
	begin(out, 4 + !!e->prompt_logprobs + e->class_changed + e->service_ended, "done", id);
	key_cstr(out, "job", e->job);
	mp_put_cstr(out, "outputs");
	mp_put_array(out, e->n_outputs);
	for (uint32_t i = 0; i < e->n_outputs; i++)
		put_output(out, &e->outputs[i]);
	mp_put_cstr(out, "usage");
	mp_put_map(out, 3);
	key_uint(out, "prompt_tokens", e->prompt_tokens);
	key_uint(out, "completion_tokens", e->completion_tokens);
	key_uint(out, "cached_tokens", e->cached_tokens);
	mp_put_cstr(out, "timing");
	mp_put_map(out, 3);
	key_int(out, "queued_us", e->queued_us);
	key_int(out, "first_token_us", e->first_token_us);
	key_int(out, "total_us", e->total_us);
	if (e->class_changed) {
		mp_put_cstr(out, "class_changed");
		mp_put_bool(out, true);
	}
	if (e->service_ended) {
		mp_put_cstr(out, "service_ended");
		mp_put_bool(out, true);
	}
	if (!e->prompt_logprobs)
		return;
	/* One entry per token of the prompt; the first has no logprob. */
	mp_put_cstr(out, "prompt_logprobs");
	mp_put_array(out, e->prompt_tokens);
	mp_put_nil(out);
	for (uint32_t i = 0; i + 1 < e->prompt_tokens; i++)
		put_logprob(out, &e->prompt_logprobs[i]);
}

void job_reply_event(struct buf *out, const struct buf *id, const struct job_event *e)
{
	switch (e->kind) {
	case JOB_ACCEPTED:
		begin(out, 2, "accepted", id);
		key_cstr(out, "job", e->job);
		key_uint(out, "prompt_tokens", e->prompt_tokens);
		break;
	case JOB_DELTA:
		put_delta(out, id, e);
		break;
	case JOB_DONE:
		put_done(out, id, e);
		break;
	case JOB_ERROR:
		begin(out, 2 + !!e->job, "error", id);
		key_cstr(out, "code", code_name(e->code));
		key_cstr(out, "message", e->why);
		if (e->job)
			key_cstr(out, "job", e->job);
		break;
	}
}

void job_reply_error(struct buf *out, const struct buf *id, enum code code, const char *field,
		     const char *why)
{
	begin(out, 2 + !!field[0], "error", id);
	key_cstr(out, "code", code_name(code));
	key_cstr(out, "message", why);
	if (field[0])
		key_cstr(out, "field", field);
}

void job_reply_ok(struct buf *out, const struct buf *id, const json_t *keys)
{
	json_t *m = (json_t *)keys, *v;
	const char *name;
	begin(out, keys ? (uint32_t)json_object_size(keys) : 0, "ok", id);
	json_object_foreach(m, name, v)
	{
		mp_put_cstr(out, name);
		mp_encode(out, v);
	}
}

void job_reply_ok_tokens(struct buf *out, const struct buf *id, const uint32_t *tokens, size_t n)
{
	begin(out, 1, "ok", id);
	put_tokens(out, tokens, n);
}

void job_reply_ok_text(struct buf *out, const struct buf *id, const char *text, size_t n,
		       const json_t *pieces)
{
	begin(out, 1 + !!pieces, "ok", id);
	key_str(out, "text", text, n);
	if (!pieces)
		return;
	mp_put_cstr(out, "pieces");
	mp_encode(out, pieces);
}

void job_reply_line(struct buf *out, const struct buf *id, const struct line_reply *reply)
{
	begin(out, 3, "ok", id);
	key_uint(out, "status_code", reply->status);
	key_cstr(out, "request_id", reply->id);
	key_str(out, "body", reply->body.p ? reply->body.p : "", reply->body.len);
}

/* --- tables --- */

static void set_int(json_t *m, const char *key, int64_t v)
{
	json_object_set_new(m, key, json_integer(v));
}

json_t *job_reply_workers(const struct engine_status *s)
{
	json_t *rows = json_array();
	for (uint32_t i = 0; i < s->n_workers; i++) {
		const struct engine_worker *w = &s->workers[i];
		json_t *m = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "host", w->host, "device", w->device,
				      "device_name", w->device_name, "isa", w->isa, "state", w->state,
				      "doing", w->doing);
		if (!m)
			continue; /* a peer sent text that is not UTF-8 */
		set_int(m, "worker", (int64_t)w->id);
		json_object_set_new(m, "replica",
				    w->replica ? json_integer((json_int_t)w->replica) : json_null());
		set_int(m, "rank", w->rank);
		set_int(m, "pid", w->pid);
		json_object_set_new(m, "progress", json_real(w->progress / 1000.0));
		set_int(m, "blocks", w->n_blocks);
		set_int(m, "host_blocks", w->n_host_blocks);
		set_int(m, "weights_bytes", (int64_t)w->weights_bytes);
		set_int(m, "kv_bytes", (int64_t)w->kv_bytes);
		set_int(m, "stored_bytes", (int64_t)w->stored_bytes);
		set_int(m, "scratch_bytes", (int64_t)w->scratch_bytes);
		set_int(m, "host_bytes", (int64_t)w->host_bytes);
		set_int(m, "host_weights_bytes", (int64_t)w->host_weights_bytes);
		set_int(m, "grammar_bytes", (int64_t)w->grammar_bytes);
		set_int(m, "device_used", (int64_t)w->device_used);
		set_int(m, "device_bytes", (int64_t)w->device_bytes);
		set_int(m, "steps", (int64_t)w->steps);
		set_int(m, "step_us", w->step_us);
		set_int(m, "threads", w->n_threads);
		json_array_append_new(rows, m);
	}
	return rows;
}

static json_t *finite(double v)
{
	json_t *x = json_real(v);
	return x ? x : json_null();
}

/* Add the counters in the order of their table, where the fields of a map are adjacent. */
static void set_counts(json_t *m, const struct counts *c)
{
	const char *map = NULL;
	json_t *in = m;
	for (const struct count_row *r = counts_rows; r < counts_rows + n_counts_rows; r++) {
		if (!r->map)
			in = m;
		else if (!map || strcmp(map, r->map) != 0)
			json_object_set_new(m, r->map, in = json_object());
		map = r->map;
		json_object_set_new(in, r->key,
				    r->type == COUNT_double ? finite(count_number(r, c))
							    : json_integer((json_int_t)count_uint(r, c)));
	}
}

static json_t *replicas(const struct engine_status *s)
{
	json_t *rows = json_array();
	for (uint32_t i = 0; i < s->n_replicas; i++) {
		const struct engine_replica *r = &s->replicas[i];
		json_t *workers = json_array();
		for (uint32_t k = 0; k < r->n_workers; k++)
			json_array_append_new(workers, json_integer((json_int_t)r->workers[k]));
		json_t *m = json_pack("{s:I, s:s, s:I, s:s, s:o}", "id", (json_int_t)r->id, "state", r->state,
				      "tp", (json_int_t)r->tp, "numerics", r->numerics, "workers", workers);
		if (!m)
			continue; /* a peer sent text that is not UTF-8 */
		set_int(m, "max_context", r->max_context);
		set_counts(m, &r->counts);
		json_array_append_new(rows, m);
	}
	return rows;
}

static json_t *journal_status(struct journal *j)
{
	struct journal_stats st;
	struct why why = {""};
	bool writes = journal_health(j, &why);
	journal_stats(j, &st);
	json_t *m = json_pack("{s:s, s:b, s:I, s:I, s:I}", "path", journal_path(j), "writes", writes, "bytes",
			      (json_int_t)st.file_bytes, "free_bytes", (json_int_t)st.free_bytes, "waiting",
			      (json_int_t)st.n_waiting);
	if (m && !writes)
		json_object_set_new(m, "error", json_string(why.text));
	else if (m && journal_room(j, JOURNAL_FILE, FILE_PART, &why))
		json_object_set_new(m, "low", json_string(why.text));
	if (m && st.disk_free >= 0)
		json_object_set_new(m, "disk_free", json_integer(st.disk_free));
	return m ? m : json_null(); /* a path that is not UTF-8 */
}

json_t *job_reply_status(const struct service *svc, const struct engine_status *s)
{
	json_t *m = json_pack("{s:s, s:s, s:b}", "version", QUERN_VERSION, "model", svc->model_name, "ready",
			      s->ready);
	if (!m)
		m = json_object();
	if (svc->journal)
		json_object_set_new(m, "journal", journal_status(svc->journal));
	set_int(m, "uptime_s", clock_unix() - svc->started_unix);
	set_int(m, "max_context", s->max_context);
	set_int(m, "model_context", svc->model_context);
	set_counts(m, &s->counts);
	set_int(json_object_get(m, "blocks"), "size", s->block_size);
	if (s->note[0])
		json_object_set_new(m, "note", json_string(s->note));
	json_object_set_new(m, "replicas", replicas(s));
	json_object_set_new(m, "workers", job_reply_workers(s));
	return m;
}
