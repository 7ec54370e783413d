#include "controller/apis/anthropic/anthropic.h"

#include "base/alloc.h"
#include "base/json_write.h"
#include "controller/apis/anthropic/anthropic_json.h"
#include "controller/apis/anthropic/anthropic_read.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/resume.h"
#include "controller/chat/chat.h"
#include "controller/http/http_error.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- errors --- */

static const char *error_type(unsigned status)
{
	static const struct {
		unsigned status;
		const char *type;
	} types[] = {
		{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
		{413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
		{504, "timeout_error"},
	};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].status == status)
			return types[i].type;
	return status >= 500 ? "api_error" : "invalid_request_error";
}

void anthropic_error(struct buf *b, const struct http_failure *f)
{
	buf_printf(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(f->status));
	json_write_str(b, f->message);
	buf_puts(b, "},\"request_id\":");
	json_write_str(b, f->request_id && f->request_id[0] ? f->request_id : NULL);
	buf_putc(b, '}');
}

/* --- the writer --- */

struct answer {
	struct anthropic_shape shape;
	struct anthropic_stream stream;
	const char *reason; /* static: why the output ended */
	char *sequence;     /* owned: the stop sequence that ended it, or NULL */
};

static void begin(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct answer *a = c->writer_data;
	(void)request;
	(void)reply;
	a->shape = (struct anthropic_shape){.id = c->id, .model = c->model};
	a->reason = "end_turn";
}

static void accepted(struct subrequest *s, const struct job_event *e)
{
	struct answer *a = s->completion->writer_data;
	anthropic_put_start(&s->completion->x->out, &a->shape, e->prompt_tokens);
}

static void delta(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat)
{
	struct answer *a = s->completion->writer_data;
	anthropic_put_delta(&s->completion->x->out, &a->stream, &a->shape, d, chat);
	if (d->finish == FINISH_NONE)
		return;
	a->reason = anthropic_stop_reason(d, chat);
	a->sequence = d->stop_string ? xstrdup(d->stop_string) : NULL;
}

static void end(struct completion *c)
{
	struct answer *a = c->writer_data;
	anthropic_put_end(&c->x->out, &a->stream, &a->shape, a->reason, a->sequence, &c->usage);
}

static void output(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		   const struct job_event *e)
{
	const struct answer *a = s->completion->writer_data;
	(void)e;
	if (v->index == 0)
		anthropic_put_message(&s->part, &a->shape, v, chat, &s->completion->usage);
}

static void body(struct completion *c, struct buf *b)
{
	buf_put(b, c->subs[0].part.p, c->subs[0].part.len);
}

static void error(struct completion *c, const struct http_failure *f)
{
	buf_puts(&c->x->out, "event: error\ndata: ");
	anthropic_error(&c->x->out, f);
	buf_puts(&c->x->out, "\n\n");
}

static void answer_free(void *data)
{
	struct answer *a = data;
	free(a->sequence);
	free(a);
}

static const struct answer_writer writer = {
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

/* Translate the body to a request of the chat dialect, which the caller owns; NULL: x has its reply. */
static json_t *read_body(struct exchange *x, bool count, struct resume_request *resume)
{
	const struct service *svc = x->host->svc;
	json_t *client = common_body_object(x), *request = NULL;
	if (!client)
		return NULL;
	if (resume && !resume_read(x, client, resume)) {
		json_decref(client);
		return NULL;
	}
	struct api_problem p = {.code = E_INTERNAL};
	const struct anthropic_reading how = {.count = count,
					      .strict = svc->strict,
					      .thinks = svc->chat &&
							chat_mentions(svc->chat, "enable_thinking")};
	if (anthropic_read(client, &how, &request, x->ignored, &p))
		exchange_fail(x, p.code, p.param, p.why);
	json_decref(client);
	return request;
}

void anthropic_call_messages(struct exchange *x, const char *rest)
{
	(void)rest;
	struct resume_request resume;
	json_t *request = read_body(x, false, &resume);
	if (!request)
		return;
	const struct generation g = {
		.dialect = API_CHAT,
		.writer = &writer,
		.writer_data = xcalloc(1, sizeof(struct answer)),
		.id_prefix = "msg_",
		.names = anthropic_names,
		.resume = &resume,
	};
	generation_start(x, request, &g);
	json_decref(request);
}

void anthropic_call_count(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = read_body(x, true, NULL);
	if (!request)
		return;
	struct api_problem p = {.code = E_INTERNAL};
	struct token_ids ids = {0};
	struct buf b = {0};
	if (!common_check_model(x, request))
		goto done;
	if (api_tokenize_messages(x->host->svc, mailbox_max_context(apis_of(x)->mailbox), request, &ids,
				  x->ignored, sizeof x->ignored, &p)) {
		generation_rename(anthropic_names, &p);
		exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	buf_puts(&b, "{\"input_tokens\":");
	json_write_uint(&b, ids.n);
	buf_putc(&b, '}');
	exchange_reply(x, MHD_HTTP_OK, &b);
done:
	token_ids_fini(&ids);
	json_decref(request);
}

/* --- models --- */

bool anthropic_client(const struct exchange *x)
{
	return x->conn && MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, "anthropic-version");
}

void anthropic_put_model(struct buf *b, const struct exchange *x, const char *name)
{
	const struct service *svc = x->host->svc;
	const uint32_t context = mailbox_max_context(apis_of(x)->mailbox);
	const time_t at = (time_t)svc->started_unix;
	struct tm tm;
	char text[32];
	gmtime_r(&at, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
	buf_puts(b, "{\"type\":\"model\",\"id\":");
	json_write_str(b, name);
	buf_puts(b, ",\"display_name\":");
	json_write_str(b, name);
	buf_printf(
		b,
		",\"created_at\":\"%s\",\"lifecycle\":\"active\",\"max_input_tokens\":%u,\"max_tokens\":%u}",
		text, context, context);
}

void anthropic_put_models(struct buf *b, const struct exchange *x)
{
	const struct service *svc = x->host->svc;
	const char *last = svc->model_name;
	char name[sizeof svc->other_names];
	buf_puts(b, "{\"data\":[");
	anthropic_put_model(b, x, svc->model_name);
	for (const char *other = svc->other_names; *other;) {
		const size_t k = strcspn(other, ",");
		memcpy(name, other, k);
		name[k] = 0;
		if (k) {
			buf_putc(b, ',');
			anthropic_put_model(b, x, name);
			last = name;
		}
		other += k + (other[k] == ',');
	}
	buf_puts(b, "],\"has_more\":false,\"first_id\":");
	json_write_str(b, svc->model_name);
	buf_puts(b, ",\"last_id\":");
	json_write_str(b, last);
	buf_putc(b, '}');
}
