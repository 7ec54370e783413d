#include "controller/apis/ollama/ollama.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_write.h"
#include "controller/apis/common.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/ollama/ollama_json.h"
#include "controller/apis/ollama/ollama_read.h"
#include "controller/apis/resume.h"
#include "controller/chat/chat.h"
#include "controller/http/http_error.h"
#include "controller/message/service.h"

#include <stdlib.h>
#include <string.h>

void ollama_error(struct buf *b, const struct http_failure *f)
{
	buf_puts(b, "{\"error\":");
	json_write_str(b, f->message);
	buf_putc(b, '}');
}

/* --- the writer --- */

struct answer {
	struct ollama_shape shape;
	struct ollama_call call;
	const char *reason; /* static: why the output ended */
};

static void begin(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct answer *a = c->writer_data;
	(void)request;
	(void)reply;
	a->shape.tokenizer = c->x->host->svc->tokenizer;
	a->shape.model = c->model;
	a->shape.logprobs = c->subs[0].submit->params.logprobs >= 0;
	a->reason = "stop";
	c->every_delta = a->shape.logprobs;
}

static void accepted(struct subrequest *s, const struct job_event *e)
{
	struct answer *a = s->completion->writer_data;
	(void)e;
	/* Lines that are made again must have the same times. */
	a->shape.at_us = s->completion->resume ? s->completion->created_us : 0;
}

static void delta(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat)
{
	struct answer *a = s->completion->writer_data;
	ollama_put_delta(&s->completion->x->out, &a->shape, &a->call, d, chat);
	if (d->finish != FINISH_NONE)
		a->reason = ollama_reason(d);
}

static void end(struct completion *c)
{
	const struct answer *a = c->writer_data;
	ollama_put_end(&c->x->out, &a->shape, a->reason, &c->usage, &c->timing);
}

static void output(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		   const struct job_event *e)
{
	struct answer *a = s->completion->writer_data;
	(void)e;
	if (v->index)
		return;
	ollama_put_whole(&s->part, &a->shape, v, chat);
	a->reason = ollama_reason(v);
}

static void body(struct completion *c, struct buf *b)
{
	const struct answer *a = c->writer_data;
	buf_put(b, c->subs[0].part.p, c->subs[0].part.len);
	ollama_put_done(b, a->reason, &c->usage, &c->timing);
}

static void error(struct completion *c, const struct http_failure *f)
{
	ollama_error(&c->x->out, f);
	buf_putc(&c->x->out, '\n');
}

static void answer_free(void *data)
{
	struct answer *a = data;
	ollama_call_fini(&a->call);
	free(a);
}

static const struct answer_writer writer = {
	.stream_type = "application/x-ndjson",
	.lines = true,
	.begin = begin,
	.accepted = accepted,
	.delta = delta,
	.end = end,
	.output = output,
	.body = body,
	.error = error,
	.free = answer_free,
};

/* --- the routes --- */

/* Reply to a client that loads or unloads the model, which is always loaded. */
static void answer_nothing(struct exchange *x, const struct ollama_request *r, bool generate)
{
	struct ollama_shape shape = {.generate = generate,
				     .model = json_string_value(json_get(r->request, "model"))};
	struct buf b = {0};
	if (!common_check_model(x, r->request))
		return;
	ollama_put_nothing(&b, &shape, r->unload ? "unload" : "load");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

static void start(struct exchange *x, bool generate)
{
	const struct service *svc = x->host->svc;
	json_t *client = common_body_object(x);
	if (!client)
		return;
	struct ollama_request r;
	struct resume_request resume;
	if (!resume_read(x, client, &resume)) {
		json_decref(client);
		return;
	}
	struct api_problem p = {.code = E_INTERNAL};
	const struct ollama_reading how = {.generate = generate,
					   .strict = svc->strict,
					   .chats = svc->chat != NULL,
					   .thinks = svc->chat && chat_mentions(svc->chat, "enable_thinking"),
					   .call_ids = svc->chat && chat_mentions(svc->chat, "tool_call_id")};
	const int rc = ollama_read(client, &how, &r, &p);
	memcpy(x->ignored, r.ignored, sizeof r.ignored);
	if (rc) {
		exchange_fail(x, p.code, p.param, p.why);
	} else if (r.load) {
		answer_nothing(x, &r, generate);
	} else {
		struct answer *a = xcalloc(1, sizeof *a);
		a->shape.generate = generate;
		const struct generation g = {.dialect = r.dialect,
					     .writer = &writer,
					     .writer_data = a,
					     .id_prefix = "ollama-",
					     .to_context = true,
					     .names = ollama_names,
					     .resume = &resume};
		generation_start(x, r.request, &g);
	}
	json_decref(r.request);
	json_decref(client);
}

void ollama_call_chat(struct exchange *x, const char *rest)
{
	(void)rest;
	start(x, false);
}

void ollama_call_generate(struct exchange *x, const char *rest)
{
	(void)rest;
	start(x, true);
}

void ollama_call_refused(struct exchange *x, const char *rest)
{
	(void)rest;
	exchange_error(
		x, MHD_HTTP_NOT_IMPLEMENTED, "invalid_request_error", NULL, "not_implemented",
		"%s is not served: this service has one model, which it is started with (quern pull fetches "
		"others)",
		x->path);
}
