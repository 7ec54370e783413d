#include "controller/apis/openai/responses.h"

#include "base/alloc.h"
#include "base/json.h"
#include "controller/apis/common.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/openai/responses_events.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/http/http_error.h"
#include "controller/message/service.h"

#include <stdio.h>
#include <stdlib.h>

struct responses_answer {
	json_t *repeated;                /* owned */
	struct responses_events *events; /* owned; NULL before the request was found good */
};

/* --- the writer --- */

/* A float as people write it: 0.7, not 0.699999988. */
static void set_number(json_t *o, const char *name, float v)
{
	char text[32];
	snprintf(text, sizeof text, "%.7g", (double)v);
	json_object_set_new(o, name, json_real(strtod(text, NULL)));
}

static void begin(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct responses_answer *a = c->writer_data;
	const struct submit *s = c->subs[0].submit;
	(void)request;
	(void)reply;
	json_object_set_new(a->repeated, "model", json_string(c->model));
	set_number(a->repeated, "temperature", s->params.temperature);
	set_number(a->repeated, "top_p", s->params.top_p);
	json_object_set_new(a->repeated, "store", json_false());
	json_object_set_new(a->repeated, "background", json_false());
	const struct responses_about about = {
		.id = c->id,
		.created_at = c->created,
		.repeated = a->repeated,
		.tokenizer = c->x->host->svc->tokenizer,
		.skip_special = s->skip_special,
		.rules = &c->rules,
		.after = -1,
	};
	a->events = responses_events_new(&about);
}

static struct responses_events *events_of(const struct completion *c)
{
	const struct responses_answer *a = c->writer_data;
	return a->events;
}

static void accepted(struct subrequest *s, const struct job_event *e)
{
	(void)e;
	responses_events_begin(events_of(s->completion), &s->completion->x->out);
}

static void delta(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat)
{
	(void)chat;
	responses_events_push(events_of(s->completion), d, &s->completion->x->out);
}

static void end(struct completion *c)
{
	responses_events_end(events_of(c), &c->usage, NULL, &c->x->out);
}

static void output(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		   const struct job_event *e)
{
	(void)chat;
	(void)e;
	responses_events_push(events_of(s->completion), v, NULL);
}

static void body(struct completion *c, struct buf *b)
{
	responses_events_whole(events_of(c), &c->usage, b);
}

static void error(struct completion *c, const struct http_failure *f)
{
	responses_events_end(events_of(c), NULL, f->message, &c->x->out);
}

static void answer_free(void *data)
{
	struct responses_answer *a = data;
	responses_events_free(a->events);
	json_decref(a->repeated);
	free(a);
}

static const struct answer_writer writer = {
	.raw = true,
	.begin = begin,
	.accepted = accepted,
	.delta = delta,
	.end = end,
	.output = output,
	.body = body,
	.error = error,
	.free = answer_free,
};

/* --- the route --- */

static int read_request(struct exchange *x, const json_t *client, json_t **request, struct api_problem *p)
{
	json_t *items = NULL;
	int rc = field_table_check(&responses_fields, client, x->host->svc->strict, x->ignored,
				   sizeof x->ignored, p);
	if (!rc)
		rc = responses_read(client, NULL, request, &items, p);
	json_decref(items);
	return rc;
}

void responses_call(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *client = common_body_object(x), *request = NULL;
	struct api_problem p;
	if (!client)
		return;
	if (read_request(x, client, &request, &p)) {
		exchange_fail(x, p.code, p.param, p.why);
		json_decref(client);
		return;
	}
	struct responses_answer *a = xcalloc(1, sizeof *a);
	a->repeated = responses_repeat(client);
	const struct generation g = {
		.dialect = API_CHAT,
		.writer = &writer,
		.writer_data = a,
		.id_prefix = "resp_",
		.names = responses_names,
	};
	generation_start(x, request, &g);
	json_decref(request);
	json_decref(client);
}
