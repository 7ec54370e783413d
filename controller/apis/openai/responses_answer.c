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

enum { PART = 128 /* tokens that become events at once, of a stream that is read again */ };

/* A float as people write it: 0.7, not 0.699999988. */
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
	if (items) { /* without its brackets */
		const size_t end = strlen(items) - 1;
		memmove(items, items + 1, end);
		items[end - 1] = '\0';
	}
	json_decref(some);
	json_decref(all);
	return items;
}

/* A response in the background is stored before its job is: it is on the disk when the job is accepted.  Its
 * run deletes it again if the job is refused. */
static void hand_over(struct completion *c, struct responses_answer *a)
{
	struct response_row row;
	response_row_copy(&row, &a->row);
	free(row.repeated);
	free(row.body);
	row.repeated = json_dumps(a->repeated, JSON_COMPACT | JSON_REAL_PRECISION(9));
	row.body = take_whole(a->events, NULL);
	response_row_copy(&a->begun->row, &row);
	responses_store_put(a->store, &row, NULL);
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
	if (a->mode == RESPONSES_RUN && atomic_load(a->cancelled))
		mailbox_cancel(c->mailbox, e->job, NULL, NULL, NULL);
	if (a->mode != RESPONSES_BEGIN) {
		responses_events_begin(a->events, &c->x->out);
		return;
	}
	responses_events_whole(a->events, NULL, &body);
	exchange_reply_locked(c->x, MHD_HTTP_OK, &body);
}

/* Some of what is held back becomes events.  Under the exchange's lock. */
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

/* The text of the tokens is cut where they end, so that it may be told before them. */
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
	/* Those that the client has already are not written. */
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

/* What its conversation gets, an array's text, the caller's; NULL: nothing. */
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

/* The response is done: it is kept, where it is to be. */
static void keep(struct responses_answer *a, const struct answer_usage *usage)
{
	const bool whole = a->mode == RESPONSES_CREATE && !a->row.background;
	char *items = a->mode == RESPONSES_RUN || whole ? items_to_add(a) : NULL;
	char *body = take_whole(a->events, usage);
	if (a->mode == RESPONSES_RUN) {
		responses_store_finish(a->store, a->row.id, body, a->row.conversation, items);
	} else if (whole && a->store) {
		struct response_row row;
		response_row_copy(&row, &a->row);
		row.done = true;
		free(row.body);
		row.body = body;
		body = NULL;
		responses_store_put(a->store, &row, items);
	} else if (items && a->conversations) {
		conversations_append(a->conversations, a->row.owner, a->row.conversation, items);
	}
	free(items);
	free(body);
}

static void end(struct completion *c)
{
	struct responses_answer *a = c->writer_data;
	a->held.ended = holds(a);
	if (a->held.ended)
		return;
	responses_events_end(a->events, &c->usage, &c->x->out);
	keep(a, &c->usage);
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
	keep(a, &c->usage);
}

static bool is_ending(const struct http_failure *f)
{
	return f->code && (strcmp(f->code, "service_stopping") == 0 || strcmp(f->code, "not_ready") == 0);
}

/* What ends with the service goes on with the next one, in the background: its stream ends without an event,
 * and can be read again from there. */
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
		keep(a, NULL);
}

/* The job of a run.  The client of a new response knows that there is none; of one that exists, what is not
 * refused only for now has failed. */
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
	.end = end,
	.output = output,
	.body = body,
	.refused = refused,
	.error = error,
	.free = answer_free,
};
