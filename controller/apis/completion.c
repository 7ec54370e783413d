#include "controller/apis/completion.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/json_write.h"
#include "controller/apis/apis.h"
#include "controller/apis/resume.h"
#include "controller/jobs/mailbox.h"
#include "controller/http/api_keys.h"
#include "controller/http/http_error.h"
#include "controller/http/prep.h"
#include "controller/message/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_SHOWN = 16 /* limit of jobs in a line of the access log; n_jobs counts all */ };
/* For a client that resumes a stream: SKIP_AT_ONCE turns (tokens, turns.h) that it already has are made again
 * under the lock, in about a millisecond.  A pool thread makes SKIP_SLICES such slices before other clients
 * get their turn. */
enum { SKIP_AT_ONCE = 256, SKIP_SLICES = 16 };

/* Settle a subrequest with the API key when its job has ended or will not exist: charge its tokens and
 * release its slot in the job limit.  Under the lock, and before the client can have the whole reply: after
 * it the client may send the next request at once. */
static void settle_key(struct subrequest *s)
{
	const struct completion *c = s->completion;
	if (!c->key_jobs || s->slot_released)
		return;
	s->slot_released = true;
	if (s->n_generated)
		api_key_charge(c->x->key, s->n_generated, clock_us());
	api_key_end(c->x->key);
}

/* --- events: on the front end's thread, under the lock --- */

/* Number the events that the writer has appended since mark. */
static void number(struct completion *c, size_t mark)
{
	if (c->resume)
		event_ids_put(&c->resume->ids, &c->x->out, mark);
}

/* Begin the reply when all jobs are accepted, in the order of the prompts, so that it is the same each
 * time. */
static void begin_in_order(struct completion *c)
{
	const size_t mark = c->x->out.len;
	for (size_t i = 0; c->writer->accepted && i < c->n_subs; i++) {
		struct subrequest *s = &c->subs[i];
		c->writer->accepted(s, &(struct job_event){.kind = JOB_ACCEPTED,
							   .job = s->job,
							   .prompt_tokens = s->n_prompt});
	}
	number(c, mark);
}

static void pump(struct completion *c);

static void on_accepted(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	struct exchange *x = c->x;
	c->usage.prompt_tokens += e->prompt_tokens;
	c->n_accepted++;
	snprintf(s->job, sizeof s->job, "%s", e->job);
	if (!c->stream)
		return;
	const bool all = c->n_accepted == c->n_subs;
	if (c->resume && s == &c->subs[0]) {
		c->created_us = e->accepted_unix_us;
		c->created = c->created_us / 1000000;
	}
	if (c->resume && all)
		begin_in_order(c);
	else if (!c->resume && c->writer->accepted)
		c->writer->accepted(s, e);
	if (all && !x->over) { /* the writer may have replied */
		x->phase = EXCHANGE_STREAM;
		x->type = c->writer->stream_type;
		x->status = MHD_HTTP_OK;
	}
	pump(c);
}

static void stream_delta(struct subrequest *s, const struct output_view *d)
{
	struct completion *c = s->completion;
	c->streamed_tokens += d->n_tokens;
	struct chat_stream *chat = s->chat ? &s->chat[d->index] : NULL;
	if (chat && d->text_n)
		chat_stream_push(chat, d->text, d->text_n);
	if (chat && d->finish != FINISH_NONE)
		chat_stream_end(chat);
	/* Held-back text is no news, unless its tokens are to be shown. */
	bool news = chat ? chat_stream_has_delta(chat) : d->text_n > 0;
	if (!news && d->finish == FINISH_NONE && !c->every_delta && !c->writer->raw)
		return;
	c->writer->delta(s, d, chat);
	if (chat)
		chat_stream_take_delta(chat);
}

/* Phases of storing the data that the reply promises to keep. */
enum { KEEPING = 1 /* keep() has not returned yet */, KEEP_WAITS, KEPT };

static void stream_end(struct completion *c)
{
	const size_t mark = c->x->out.len;
	c->writer->end(c);
	number(c, mark);
	if (c->resume && c->resume->ids.after > c->resume->ids.n)
		exchange_error_locked(c->x, MHD_HTTP_BAD_REQUEST, "invalid_request_error", NULL,
				      "Last-Event-ID: the stream has fewer events");
	c->x->over = true;
}

/* Send the whole reply, or the end of the stream.  Under the lock. */
static void conclude(struct completion *c)
{
	struct buf b = {0};
	if (c->kept.rc) {
		char why[640];
		snprintf(why, sizeof why, "the answer could not be stored: %s", c->kept.why);
		c->finishes |= 1u << FINISH_ERROR;
		exchange_error_locked(c->x, MHD_HTTP_INSUFFICIENT_STORAGE, "server_error",
				      "insufficient_storage", why);
	} else if (c->stream) {
		stream_end(c);
	} else {
		c->writer->body(c, &b);
		exchange_reply_locked(c->x, MHD_HTTP_OK, &b);
	}
}

/* Finish when all jobs have ended; first store what the reply promises to keep.  Under the lock. */
static void finish(struct completion *c)
{
	if (atomic_load(&c->kept.phase))
		return; /* already waiting for the disk */
	atomic_store(&c->kept.phase, KEEPING);
	exchange_ref(c->x);
	const bool waits = c->writer->keep && c->writer->keep(c);
	if (waits && atomic_exchange(&c->kept.phase, KEEP_WAITS) == KEEPING)
		return;       /* completion_kept() continues, and owns the reference */
	exchange_unref(c->x); /* never the last reference: the caller has another */
	conclude(c);
}

void completion_kept(void *user, int rc, const char *why)
{
	struct completion *c = user;
	struct exchange *x = c->x;
	c->kept.rc = rc;
	snprintf(c->kept.why, sizeof c->kept.why, "%s", rc && why ? why : "");
	if (atomic_exchange(&c->kept.phase, KEPT) == KEEPING)
		return; /* finish() continues, and may hold the lock */
	pthread_mutex_lock(&x->lock);
	if (!x->over) {
		const size_t unread_before = x->counted;
		conclude(c);
		exchange_written_locked(x, unread_before);
	}
	pthread_mutex_unlock(&x->lock);
	exchange_unref(x);
}

/* Write the next token of a resumable stream.  false: it has not arrived yet. */
static bool write_turn(struct completion *c)
{
	struct output_view one;
	const size_t mark = c->x->out.len;
	if (!turns_next(c->resume->turns, &one))
		return false;
	struct subrequest *s = &c->subs[one.index / c->subs[0].n_outputs];
	one.index -= s->first;
	stream_delta(s, &one);
	number(c, mark);
	return true;
}

/* Make again at most n turns that the client already has.  true: there may be more. */
static bool skip(struct completion *c, unsigned n)
{
	const struct event_ids *ids = &c->resume->ids;
	const struct exchange *x = c->x;
	bool more = true;
	for (; n && more; n--)
		more = !x->over && !x->dead && ids->n < ids->after && write_turn(c);
	return more;
}

/* Work for the pool: make again the rest of what the client already has, in the client's turns. */
struct catching_up {
	struct work work; /* must be the first member */
	struct completion *c;
};

static int put_catching_up(struct catching_up *t, struct why *why)
{
	char client[WORK_CLIENT_SIZE];
	prep_client(t->c->x, client);
	return work_pool_put(t->c->x->host->svc->pool, client, &t->work, why);
}

static void refuse_catching_up(struct completion *c, int rc, const char *why)
{
	const bool own = rc == -EAGAIN;
	exchange_error_locked(c->x, own ? MHD_HTTP_TOO_MANY_REQUESTS : MHD_HTTP_SERVICE_UNAVAILABLE,
			      own ? "rate_limit_error" : "server_error",
			      own ? "too_many_preparing" : "overloaded", why);
}

static void cancel(struct completion *c);

static void catch_up(struct work *w)
{
	struct catching_up *t = (struct catching_up *)w;
	struct completion *c = t->c;
	struct exchange *x = c->x;
	bool more = true;
	struct why why;
	for (int i = 0; i < SKIP_SLICES && more; i++) {
		pthread_mutex_lock(&x->lock);
		more = skip(c, SKIP_AT_ONCE);
		pthread_mutex_unlock(&x->lock);
	}
	pthread_mutex_lock(&x->lock);
	const int rc = more ? put_catching_up(t, &why) : 0;
	if (more && !rc) { /* if the task already runs, it waits for the lock */
		pthread_mutex_unlock(&x->lock);
		return;
	}
	const bool was_over = x->over;
	const size_t unread_before = x->counted;
	c->resume->catching_up = false;
	if (rc)
		refuse_catching_up(c, rc, why.text);
	else
		pump(c);
	if (!was_over)
		exchange_written_locked(x, unread_before);
	const bool now = x->over && !was_over;
	pthread_mutex_unlock(&x->lock);
	if (now)
		cancel(c);
	exchange_unref(x);
	free(t);
}

static void begin_catching_up(struct completion *c)
{
	struct catching_up *t = xcalloc(1, sizeof *t);
	struct why why;
	*t = (struct catching_up){.work = {.run = catch_up, .costly = true}, .c = c};
	const int rc = put_catching_up(t, &why);
	if (rc) {
		refuse_catching_up(c, rc, why.text);
		free(t);
		return;
	}
	c->resume->catching_up = true;
	exchange_ref(c->x); /* under the lock, for which the task waits */
}

/* For a resumable stream: write the tokens that have arrived, in order, until RESUME_AHEAD bytes are
 * unread. */
static void pump(struct completion *c)
{
	struct exchange *x = c->x;
	if (!c->resume || c->n_accepted < c->n_subs || c->resume->catching_up)
		return;
	if (skip(c, SKIP_AT_ONCE)) {
		begin_catching_up(c);
		return;
	}
	while (!x->over && x->out.len - x->out_head < RESUME_AHEAD && write_turn(c))
		;
	if (!x->over && c->n_done == c->n_subs && turns_over(c->resume->turns))
		finish(c);
}

static void on_delta(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	if (!c->stream || e->delta.index >= s->n_outputs)
		return;
	if (!c->resume) {
		stream_delta(s, &e->delta);
		return;
	}
	turns_put(c->resume->turns, s->first + e->delta.index, &e->delta);
	pump(c);
}

static int64_t longer(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Pass the outputs of a job that is not streamed to the writer. */
static void put_outputs(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	for (uint32_t i = 0; i < e->n_outputs; i++) {
		struct output_view shown = e->outputs[i];
		if (c->no_output) {
			shown.text_n = shown.n_tokens = 0;
			shown.finish = FINISH_LENGTH;
		}
		struct chat_stream *chat = s->chat ? &s->chat[shown.index] : NULL;
		if (chat) {
			chat_stream_push(chat, shown.text, shown.text_n);
			chat_stream_end(chat);
		}
		c->writer->output(s, &shown, chat, e);
	}
}

/* Pass the end of a job to the writer.  false: the request has failed. */
static bool take_done(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	const char *why = !c->stream && c->writer->done ? c->writer->done(s, e) : NULL;
	if (!why)
		return true;
	c->finishes |= 1u << FINISH_ERROR;
	exchange_error_locked(c->x, MHD_HTTP_INTERNAL_SERVER_ERROR, "server_error", "internal_error", why);
	return false;
}

static void on_done(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	if (!take_done(s, e))
		return;
	struct answer_timing *t = &c->timing;
	t->queued_us = longer(t->queued_us, e->queued_us);
	t->first_token_us = longer(t->first_token_us, e->first_token_us);
	t->total_us = longer(t->total_us, e->total_us);
	for (uint32_t i = 0; i < e->n_outputs; i++)
		c->finishes |= 1u << e->outputs[i].finish;
	c->usage.completion_tokens += c->no_output ? 0 : e->completion_tokens;
	c->usage.cached_tokens += e->cached_tokens;
	c->usage.class_changed = c->usage.class_changed || e->class_changed;
	if (!c->stream && c->writer->output)
		put_outputs(s, e);
	if (++c->n_done < c->n_subs)
		return;
	if (c->stream && c->resume)
		pump(c);
	else
		finish(c);
}

static void on_error(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	struct http_error error = http_error_of(e->code);
	const char *why = e->why;
	c->finishes |= 1u << FINISH_ERROR;
	if (c->resume && e->other_request) {
		error = (struct http_error){MHD_HTTP_UNPROCESSABLE_CONTENT, "invalid_request_error",
					    "idempotency_key_reused"};
		why = "Idempotency-Key: another request was sent with this key: use another one, or send the "
		      "same request";
	} else if (c->resume && e->code == E_NO_SUCH_JOB && c->resume->limit[0]) {
		error = (struct http_error){MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error",
					    "rate_limit_exceeded"};
		why = c->resume->limit;
	} else if (c->resume && e->code == E_NO_SUCH_JOB) {
		why = "Last-Event-ID: no stream of this Idempotency-Key is known: begin it without this "
		      "header";
	}
	if (c->n_accepted == 0 && c->writer->refused)
		c->writer->refused(
			c, &(struct http_failure){error.status, error.type, NULL, error.code, why, c->id});
	exchange_error_locked(c->x, error.status, error.type, error.code, why);
}

static void on_event(void *user, const struct job_event *e)
{
	struct subrequest *s = user;
	const struct completion *c = s->completion;
	struct exchange *x = c->x;
	pthread_mutex_lock(&x->lock);
	if (e->kind == JOB_DELTA)
		s->n_generated += e->delta.n_tokens;
	if (e->kind == JOB_DONE)
		s->n_generated = e->completion_tokens;
	if (e->kind == JOB_DONE || e->kind == JOB_ERROR) {
		s->finished = true;
		settle_key(s);
	}
	if (e->kind == JOB_ACCEPTED && e->again && c->resume)
		settle_key(s); /* the slot belongs to the request that came first */
	bool was_over = x->over;
	if (!was_over) {
		size_t unread_before = x->counted;
		switch (e->kind) {
		case JOB_ACCEPTED:
			on_accepted(s, e);
			break;
		case JOB_DELTA:
			on_delta(s, e);
			break;
		case JOB_DONE:
			on_done(s, e);
			break;
		case JOB_ERROR:
			on_error(s, e);
			break;
		}
		exchange_written_locked(x, unread_before);
	}
	bool now = x->over && !was_over;
	pthread_mutex_unlock(&x->lock);
	if (now)
		cancel(s->completion);
}

static void on_listener_gone(void *user)
{
	struct subrequest *s = user;
	struct exchange *x = s->completion->x;
	pthread_mutex_lock(&x->lock);
	settle_key(s);
	pthread_mutex_unlock(&x->lock);
	exchange_unref(x);
}

/* --- the exchange's work --- */

/* Remove the listeners of jobs that still run.  Not under the lock, because this calls the front end. */
static void cancel(struct completion *c)
{
	struct exchange *x = c->x;
	pthread_mutex_lock(&x->lock);
	bool handed_over = c->handed_over; /* false: the subrequests may still be under construction */
	pthread_mutex_unlock(&x->lock);
	if (!handed_over)
		return;
	for (size_t i = 0; i < c->n_subs; i++) {
		struct subrequest *s = &c->subs[i];
		pthread_mutex_lock(&x->lock);
		/* A job that continues without its client keeps its slot in the key's limit until it ends. */
		bool holds =
			c->resume && c->key_jobs && !s->slot_released && !atomic_load(&x->host->draining);
		bool now = s->submitted && !s->finished && !s->unlistened && !holds;
		if (now)
			s->unlistened = true;
		pthread_mutex_unlock(&x->lock);
		if (now)
			mailbox_unlisten(c->mailbox, s->listener);
	}
}

static void work_cancel(struct exchange *x)
{
	cancel(x->work_data);
}

static void work_more(struct exchange *x)
{
	struct completion *c = x->work_data;
	pump(c);
	/* Events that the client already has are not written. */
	while (c->writer->more && x->out.len == x->out_head && c->writer->more(c))
		;
}

static void work_log(const struct exchange *x, struct buf *b, char finish[EXCHANGE_FINISH_SIZE])
{
	const struct completion *c = x->work_data;
	size_t n = 0;
	if (!c->handed_over)
		return;
	buf_puts(b, ",\"jobs\":[");
	for (size_t i = 0; i < c->n_subs && n < JOBS_SHOWN; i++)
		if (c->subs[i].job[0]) {
			buf_puts(b, n++ ? "," : "");
			json_write_str(b, c->subs[i].job);
		}
	buf_printf(b, "],\"n_jobs\":%zu,\"prompt_tokens\":%llu,\"cached_tokens\":%llu", c->n_accepted,
		   (unsigned long long)c->usage.prompt_tokens, (unsigned long long)c->usage.cached_tokens);
	/* For a job that did not end, only its streamed tokens are known. */
	uint64_t got = c->usage.completion_tokens ? c->usage.completion_tokens : c->streamed_tokens;
	buf_printf(b, ",\"completion_tokens\":%llu", (unsigned long long)got);
	if (c->n_done)
		buf_printf(b, ",\"queued_ms\":%.3f,\"ttft_ms\":%.3f", (double)c->timing.queued_us / 1000,
			   (double)c->timing.first_token_us / 1000);
	for (int f = FINISH_STOP; f <= FINISH_ERROR; f++)
		if (c->finishes & 1u << f)
			snprintf(finish + strlen(finish), EXCHANGE_FINISH_SIZE - strlen(finish), "%s%s",
				 finish[0] ? "," : "", finish_name((enum finish)f));
}

static void work_free(struct exchange *x)
{
	struct completion *c = x->work_data;
	for (size_t i = 0; i < c->n_subs; i++) {
		struct subrequest *s = &c->subs[i];
		settle_key(s); /* for subrequests never submitted */
		submit_free(s->submit);
		for (uint32_t k = 0; s->chat && k < s->n_outputs; k++)
			chat_stream_fini(&s->chat[k]);
		free(s->chat);
		buf_fini(&s->part);
	}
	if (c->writer->free)
		c->writer->free(c->writer_data);
	resume_free(c->resume);
	free(c->subs);
	free(c->model);
	free(c->forced);
	json_decref(c->declared);
	free(c);
}

static bool work_error(struct exchange *x, const struct http_failure *f)
{
	struct completion *c = x->work_data;
	if (c->writer->error)
		c->writer->error(c, f);
	return c->writer->error != NULL;
}

static const struct exchange_work completion_work = {
	.cancel = work_cancel, .log = work_log, .error = work_error, .more = work_more, .free = work_free};

struct completion *completion_new(struct exchange *x, size_t n, const struct answer_writer *writer,
				  void *data)
{
	struct completion *c = xcalloc(1, sizeof *c);
	c->x = x;
	c->mailbox = apis_of(x)->mailbox;
	c->writer = writer;
	c->writer_data = data;
	c->subs = xcalloc(n, sizeof *c->subs);
	c->n_subs = n;
	for (size_t i = 0; i < n; i++)
		c->subs[i].completion = c;
	exchange_set_work(x, &completion_work, c);
	return c;
}

struct completion *completion_of(const struct exchange *x)
{
	return x->work == &completion_work ? x->work_data : NULL;
}

void completion_set_id(struct completion *c, const char *prefix, const char *id)
{
	if (id)
		snprintf(c->id, sizeof c->id, "%s", id);
	else
		snprintf(c->id, sizeof c->id, "%s%016" PRIx64 "%016" PRIx64, prefix, entropy_u64(),
			 entropy_u64());
	pthread_mutex_lock(&c->x->lock);
	snprintf(c->x->id, sizeof c->x->id, "%s", c->id);
	pthread_mutex_unlock(&c->x->lock);
}

bool completion_begin_key(struct completion *c, char limit[COMPLETION_LIMIT_SIZE])
{
	struct exchange *x = c->x;
	struct why why;
	if (!x->key)
		return true;
	if (api_key_begin(x->key, (uint32_t)c->n_subs, false, clock_us(), &x->retry_s, &why)) {
		if (limit) {
			snprintf(limit, COMPLETION_LIMIT_SIZE, "%.*s", COMPLETION_LIMIT_SIZE - 1, why.text);
			return true;
		}
		exchange_error(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error", NULL, "rate_limit_exceeded",
			       "%s", why.text);
		return false;
	}
	c->key_jobs = (uint32_t)c->n_subs;
	return true;
}

void completion_submit(struct completion *c)
{
	struct exchange *x = c->x;
	exchange_park(x);
	pthread_mutex_lock(&x->lock);
	c->handed_over = true;
	pthread_mutex_unlock(&x->lock);
	for (size_t i = 0; i < c->n_subs; i++) {
		struct subrequest *s = &c->subs[i];
		pthread_mutex_lock(&x->lock);
		bool over = x->over;
		s->listener = mailbox_listener_id(c->mailbox);
		pthread_mutex_unlock(&x->lock);
		if (over)
			break; /* an earlier subrequest was refused */
		exchange_ref(x);
		struct listener on = {on_event, on_listener_gone, s, s->listener};
		s->submit->received_us = x->started_us;
		s->submit->of_http = x->trace.set;
		exchange_trace_job(x, &s->submit->trace);
		mailbox_submit(c->mailbox, &s->submit, &on);
		/* Set this last: mailbox_unlisten() has no effect on a listener that was not submitted
		 * yet. */
		pthread_mutex_lock(&x->lock);
		s->submitted = true;
		pthread_mutex_unlock(&x->lock);
	}
	pthread_mutex_lock(&x->lock);
	bool over = x->over;
	pthread_mutex_unlock(&x->lock);
	if (over)
		cancel(c);
}

void completion_give_up(struct completion *c)
{
	pthread_mutex_lock(&c->x->lock);
	for (size_t i = 0; i < c->n_subs; i++)
		settle_key(&c->subs[i]);
	pthread_mutex_unlock(&c->x->lock);
}

void completion_cancel_jobs(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	const struct completion *c = completion_of(x);
	for (size_t i = 0; c && c->handed_over && i < c->n_subs; i++)
		if (c->subs[i].job[0] && !c->subs[i].finished)
			mailbox_cancel(c->mailbox, c->subs[i].job, NULL, NULL, NULL);
	pthread_mutex_unlock(&x->lock);
}
