#include "controller/apis/openai/responses_answer.h"

#include "base/alloc.h"
#include "controller/apis/completion.h"
#include "controller/apis/openai/conversations_store.h"
#include "controller/http/http_error.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 128 /* tokens that become events at a time, in a stream that is read again */ };

/* Set a number with the digits of a float: 0.7, not 0.699999988. */
static void set_number(json_t *o, const char *name, float v)
{
	char text[32];
	snprintf(text, sizeof text, "%.7g", (double)v);
	json_object_set_new(o, name, json_real(strtod(text, NULL)));
}

static bool is_new(const struct responses_answer *a)
{
	return a->mode == RESPONSES_CREATE || a->mode == RESPONSES_BEGIN;
}

static char *take_whole(struct responses_events *r, const struct answer_usage *usage)
{
	struct buf b = {0};
	responses_events_whole(r, usage, &b);
	return buf_take(&b);
}

char *responses_items_from(const char *text, int64_t n)
{
	json_t *all = response_json(text), *some = json_array();
	for (size_t i = (size_t)n; i < json_array_size(all); i++)
		json_array_append(some, json_array_get(all, i));
	char *items = json_array_size(some) ? json_dumps(some, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	if (items) { /* drop the brackets */
		const size_t end = strlen(items) - 1;
		memmove(items, items + 1, end);
		items[end - 1] = '\0';
	}
	json_decref(some);
	json_decref(all);
	return items;
}

/* Result of storing the row of a background response; shared with the journal's thread. */
struct responses_written {
	atomic_uint refs;
	atomic_int rc;
	char why[256]; /* set before rc */
};

static void written_unref(struct responses_written *w)
{
	if (w && atomic_fetch_sub(&w->refs, 1) == 1)
		free(w);
}

static void on_written(void *user, int rc, const char *why)
{
	struct responses_written *w = user;
	if (rc)
		snprintf(w->why, sizeof w->why, "%s", why);
	atomic_store(&w->rc, rc);
	written_unref(w);
}

/* Store a background response before its job is submitted, so that it is on disk when the job is accepted.
 * Its run deletes it if the job is refused. */
static void hand_over(struct completion *c, struct responses_answer *a)
{
	struct response_row row;
	response_row_copy(&row, &a->row);
	free(row.repeated);
	free(row.body);
	row.repeated = json_dumps(a->repeated, JSON_COMPACT | JSON_REAL_PRECISION(9));
	row.body = take_whole(a->events, NULL);
	response_row_copy(&a->begun->row, &row);
	a->written = xcalloc(1, sizeof *a->written);
	atomic_init(&a->written->refs, 2);
	responses_store_put(a->store, &row, NULL, on_written, a->written);
	a->begun->key_jobs = c->key_jobs;
	c->key_jobs = 0;
}

static void begin(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct responses_answer *a = c->writer_data;
	const struct submit *s = c->subs[0].submit;
	(void)request;
	(void)reply;
	if (is_new(a)) {
		snprintf(a->row.id, sizeof a->row.id, "%s", c->id);
		a->row.created_at = c->created;
		json_object_set_new(a->repeated, "model", json_string(c->model));
		set_number(a->repeated, "temperature", s->params.temperature);
		set_number(a->repeated, "top_p", s->params.top_p);
		json_object_set_new(a->repeated, "store", json_boolean(a->store != NULL));
		json_object_set_new(a->repeated, "background", json_boolean(a->row.background));
	}
	const struct responses_about about = {
		.id = a->row.id,
		.created_at = a->row.created_at,
		.ended_at = a->ended_at,
		.repeated = a->repeated,
		.tokenizer = c->x->host->svc->tokenizer,
		.skip_special = s->skip_special,
		.rules = &c->rules,
		.after = a->mode == RESPONSES_READ  ? a->after
			 : a->mode == RESPONSES_RUN ? INT64_MAX
						    : -1,
	};
	a->events = responses_events_new(&about);
	if (is_new(a) && a->row.background)
		hand_over(c, a);
	if (a->mode == RESPONSES_RUN)
		c->key_jobs = a->key_jobs;
	if (a->begun)
		a->begun->yes = true;
	a->begun = NULL;
}

static void accepted(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	struct responses_answer *a = c->writer_data;
	struct buf body = {0};
	/* The journal keeps the order of operations, so the row's result is known before the job's. */
	if (a->written && atomic_load(&a->written->rc)) {
		mailbox_cancel(c->mailbox, e->job, NULL, NULL, NULL);
		exchange_error_locked(c->x, MHD_HTTP_INSUFFICIENT_STORAGE, "server_error",
				      "insufficient_storage", a->written->why);
		return;
	}
	if (a->mode == RESPONSES_RUN && atomic_load(a->cancelled))
		mailbox_cancel(c->mailbox, e->job, NULL, NULL, NULL);
	if (a->mode != RESPONSES_BEGIN) {
		responses_events_begin(a->events, &c->x->out);
		return;
	}
	responses_events_whole(a->events, NULL, &body);
	exchange_reply_locked(c->x, MHD_HTTP_OK, &body);
}

/* Turn some of the held tokens into events.  Under the exchange's lock. */
static bool more(struct completion *c)
{
	struct responses_answer *a = c->writer_data;
	const size_t left = a->held.n - a->held.at, n = left < PART ? left : PART;
	const struct output_view v = {.text = "",
				      .tokens = a->held.tokens + a->held.at,
				      .n_tokens = (uint32_t)n,
				      .finish = n == left ? a->held.finish : FINISH_NONE};
	if (!left)
		return false;
	responses_events_push(a->events, &v, &c->x->out);
	a->held.at += n;
	if (n == left && a->held.error)
		responses_events_fail(a->events, a->held.error);
	if (n == left && a->held.ended)
		responses_events_end(a->events, a->held.error ? NULL : &c->usage, &c->x->out);
	return true;
}

/* Hold the tokens.  Their text may be pushed before them, because it is cut where tokens end. */
static void hold(struct completion *c, struct responses_answer *a, const struct output_view *d)
{
	const struct output_view text = {.text = d->text, .text_n = d->text_n};
	responses_events_push(a->events, &text, &c->x->out);
	if (a->held.at == a->held.n)
		a->held.at = a->held.n = 0;
	array_grow(a->held.tokens, a->held.cap, a->held.n + d->n_tokens);
	if (d->n_tokens)
		memcpy(a->held.tokens + a->held.n, d->tokens, d->n_tokens * sizeof *d->tokens);
	a->held.n += d->n_tokens;
	a->held.finish = d->finish;
	/* Events that the client already has are not written. */
	while (c->x->out.len == c->x->out_head && more(c))
		;
}

static bool holds(const struct responses_answer *a)
{
	return a->held.at < a->held.n;
}

static void delta(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat)
{
	struct completion *c = s->completion;
	struct responses_answer *a = c->writer_data;
	(void)chat;
	if (holds(a) || (a->mode == RESPONSES_READ && d->n_tokens > PART))
		hold(c, a, d);
	else
		responses_events_push(a->events, d, a->mode == RESPONSES_RUN ? NULL : &c->x->out);
}

/* Return the items for the conversation, as an array's text that the caller owns; NULL: none. */
static char *items_to_add(const struct responses_answer *a)
{
	struct buf b = {0};
	if (!a->row.conversation[0] || !responses_events_last(a->events))
		return NULL;
	buf_putc(&b, '[');
	buf_puts(&b, a->own_items ? a->own_items : "");
	const size_t mark = b.len;
	responses_events_items(a->events, &b);
	if (a->own_items && b.len > mark) {
		b.len = mark;
		buf_putc(&b, ',');
		responses_events_items(a->events, &b);
	}
	buf_putc(&b, ']');
	return buf_take(&b);
}

/* Store the result of a background response's run. */
static void keep_run(struct responses_answer *a, const struct answer_usage *usage)
{
	char *items = items_to_add(a), *body = take_whole(a->events, usage);
	if (a->storing)
		a->storing(a->run);
	responses_store_finish(a->store, a->row.id, body, a->row.conversation, items, a->stored, a->run);
	free(items);
	free(body);
}

/* Store the data that the reply of a foreground response promises to keep. */
static bool keep(struct completion *c)
{
	struct responses_answer *a = c->writer_data;
	if (a->mode != RESPONSES_CREATE || a->row.background)
		return false;
	responses_events_close(a->events, c->stream ? &c->x->out : NULL);
	char *items = items_to_add(a);
	const bool stores = a->store || (items && a->conversations);
	if (a->store) {
		struct response_row row;
		response_row_copy(&row, &a->row);
		row.done = true;
		free(row.body);
		row.body = take_whole(a->events, &c->usage);
		responses_store_put(a->store, &row, items, completion_kept, c);
	} else if (stores) {
		conversations_append(a->conversations, a->row.owner, a->row.conversation, items,
				     completion_kept, c);
	}
	free(items);
	return stores;
}

static void end(struct completion *c)
{
	struct responses_answer *a = c->writer_data;
	a->held.ended = holds(a);
	if (a->held.ended)
		return;
	responses_events_end(a->events, &c->usage, &c->x->out);
	if (a->mode == RESPONSES_RUN)
		keep_run(a, &c->usage);
}

static void output(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		   const struct job_event *e)
{
	const struct responses_answer *a = s->completion->writer_data;
	(void)chat;
	(void)e;
	responses_events_push(a->events, v, NULL);
}

static void body(struct completion *c, struct buf *b)
{
	struct responses_answer *a = c->writer_data;
	responses_events_whole(a->events, &c->usage, b);
}

static bool is_ending(const struct http_failure *f)
{
	return f->code && (strcmp(f->code, "service_stopping") == 0 || strcmp(f->code, "not_ready") == 0);
}

/* Handle an error.  A background response that the service cuts by stopping continues after the restart: its
 * stream ends without an event, and can be read again from there. */
static void error(struct completion *c, const struct http_failure *f)
{
	struct responses_answer *a = c->writer_data;
	const bool background = a->mode == RESPONSES_READ || a->mode == RESPONSES_RUN || a->row.background;
	if (background && is_ending(f))
		return;
	a->held.ended = holds(a);
	if (a->held.ended) {
		a->held.error = xstrdup(f->message);
		return;
	}
	responses_events_fail(a->events, f->message);
	responses_events_end(a->events, NULL, &c->x->out);
	if (a->mode == RESPONSES_RUN)
		keep_run(a, NULL);
}

/* Handle the refusal of a run's job.  A new response is deleted, because its client gets the refusal.  An
 * existing response fails, unless the refusal is temporary. */
static void refused(struct completion *c, const struct http_failure *f)
{
	struct responses_answer *a = c->writer_data;
	if (a->mode != RESPONSES_RUN)
		return;
	if (a->fresh)
		responses_store_delete(a->store, a->row.id, NULL, NULL);
	else if (f->status != MHD_HTTP_TOO_MANY_REQUESTS && f->status != MHD_HTTP_SERVICE_UNAVAILABLE)
		error(c, f);
}

static void answer_free(void *data)
{
	struct responses_answer *a = data;
	responses_events_free(a->events);
	written_unref(a->written);
	json_decref(a->repeated);
	response_row_fini(&a->row);
	free(a->own_items);
	free(a->held.tokens);
	free(a->held.error);
	free(a);
}

const struct answer_writer responses_writer = {
	.raw = true,
	.begin = begin,
	.accepted = accepted,
	.delta = delta,
	.more = more,
	.keep = keep,
	.end = end,
	.output = output,
	.body = body,
	.refused = refused,
	.error = error,
	.free = answer_free,
};
