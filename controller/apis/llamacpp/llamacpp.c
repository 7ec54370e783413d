#include "controller/apis/llamacpp/llamacpp.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_write.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/llamacpp/llamacpp_json.h"
#include "controller/apis/llamacpp/llamacpp_read.h"
#include "controller/apis/resume.h"
#include "controller/http/http_error.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"

#include <stdlib.h>
#include <string.h>

static const char *error_type(unsigned status)
{
	static const struct {
		unsigned status;
		const char *type;
	} types[] = {
		{401, "authentication_error"}, {403, "permission_error"},    {404, "not_found_error"},
		{429, "rate_limit_error"},     {501, "not_supported_error"}, {503, "unavailable_error"},
	};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].status == status)
			return types[i].type;
	return status >= 500 ? "server_error" : "invalid_request_error";
}

void llamacpp_error(struct buf *b, const struct http_failure *f)
{
	buf_printf(b, "{\"error\":{\"code\":%u,\"message\":", f->status);
	json_write_str(b, f->message);
	buf_printf(b, ",\"type\":\"%s\"}}", error_type(f->status));
}

/* --- the writer --- */

/* A prompt, and how its output ended. */
struct shown {
	struct buf prompt, settings; /* JSON, per prompt because each has its own seed */
	struct llamacpp_end end;
	char *word; /* owned: end.word */
	uint64_t n_predicted;
};

struct answer {
	const struct tokenizer *tokenizer;
	bool return_tokens, many;
	struct shown *prompts; /* [n], owned */
	size_t n;
};

static void put_prompt(struct buf *b, const struct tokenizer *t, const struct submit *s,
		       const json_t *request, size_t i)
{
	const json_t *p = json_get(request, "prompt"), *one = json_is_string(p) ? p : json_array_get(p, i);
	struct buf text = {0};
	if (json_is_string(one))
		buf_put(&text, json_string_value(one), json_string_length(one));
	else
		tokenizer_decode(t, s->tokens, s->n_tokens, false, &text);
	json_write_string(b, text.p ? text.p : "", text.len);
	buf_fini(&text);
}

static void begin(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct answer *a = c->writer_data;
	const json_t *first = json_array_get(json_get(request, "prompt"), 0);
	(void)reply;
	a->tokenizer = c->x->host->svc->tokenizer;
	a->many = json_is_string(first) || json_is_array(first);
	c->every_delta = true; /* a stream shows the tokens */
	a->n = c->n_subs;
	a->prompts = xcalloc(a->n, sizeof *a->prompts);
	for (size_t i = 0; i < a->n; i++) {
		struct shown *p = &a->prompts[i];
		put_prompt(&p->prompt, a->tokenizer, c->subs[i].submit, request, i);
		llamacpp_put_settings(&p->settings, c->subs[i].submit, c->stream);
		p->end = (struct llamacpp_end){.stop_type = "none",
					       .word = "",
					       .model = c->model,
					       .settings = &p->settings,
					       .prompt = &p->prompt};
	}
}

static struct shown *shown_of(const struct subrequest *s)
{
	const struct answer *a = s->completion->writer_data;
	return &a->prompts[s - s->completion->subs];
}

static void take_end(struct shown *p, const struct output_view *v)
{
	p->end.has_new_line = p->end.has_new_line || (v->text_n && memchr(v->text, '\n', v->text_n));
	if (v->finish == FINISH_NONE)
		return;
	p->end.stop_type = llamacpp_stop_type(v);
	free(p->word);
	p->word = xstrdup(v->stop_string ? v->stop_string : "");
	p->end.word = p->word;
}

static void delta(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat)
{
	const struct answer *a = s->completion->writer_data;
	struct shown *p = shown_of(s);
	struct buf *out = &s->completion->x->out;
	(void)chat;
	take_end(p, d);
	p->n_predicted += d->n_tokens;
	if (!d->n_tokens && !d->text_n)
		return;
	buf_puts(out, "data: ");
	llamacpp_put_delta(out, a->tokenizer, d, p->n_predicted, s->n_prompt);
	buf_puts(out, "\n\n");
}

static void end(struct completion *c)
{
	const struct answer *a = c->writer_data;
	struct llamacpp_end e = a->prompts[0].end;
	e.n_prompt = c->usage.prompt_tokens;
	e.n_cached = c->usage.cached_tokens;
	e.n_predicted = c->usage.completion_tokens;
	e.timing = c->timing;
	buf_puts(&c->x->out, "data: ");
	llamacpp_put_end(&c->x->out, a->tokenizer, 0, NULL, false, &e);
	buf_puts(&c->x->out, "\n\n");
}

static void output(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		   const struct job_event *e)
{
	const struct answer *a = s->completion->writer_data;
	struct shown *p = shown_of(s);
	(void)chat;
	take_end(p, v);
	p->end.n_prompt = s->n_prompt;
	p->end.n_cached = e->cached_tokens;
	p->end.n_predicted = e->completion_tokens;
	p->end.timing = (struct answer_timing){e->queued_us, e->first_token_us, e->total_us};
	llamacpp_put_end(&s->part, a->tokenizer, s->first + v->index, v, a->return_tokens, &p->end);
}

static void body(struct completion *c, struct buf *b)
{
	const struct answer *a = c->writer_data;
	buf_puts(b, a->many ? "[" : "");
	for (size_t i = 0; i < c->n_subs; i++) {
		buf_puts(b, i ? "," : "");
		buf_put(b, c->subs[i].part.p, c->subs[i].part.len);
		buf_fini(&c->subs[i].part);
	}
	buf_puts(b, a->many ? "]" : "");
}

static void error(struct completion *c, const struct http_failure *f)
{
	buf_puts(&c->x->out, "error: ");
	llamacpp_error(&c->x->out, f);
	buf_puts(&c->x->out, "\n\n");
}

static void answer_free(void *data)
{
	struct answer *a = data;
	for (size_t i = 0; i < a->n; i++) {
		buf_fini(&a->prompts[i].prompt);
		buf_fini(&a->prompts[i].settings);
		free(a->prompts[i].word);
	}
	free(a->prompts);
	free(a);
}

static const struct answer_writer writer = {
	.begin = begin,
	.delta = delta,
	.end = end,
	.output = output,
	.body = body,
	.error = error,
	.free = answer_free,
};

/* --- the routes --- */

struct gap {
	const json_t *client;
	json_t *request;
};

static int fill_gap(const struct exchange *x, const void *user, struct api_problem *p)
{
	const struct gap *g = user;
	const struct llamacpp_gap gap = {x->host->svc, mailbox_max_context(apis_of(x)->mailbox)};
	return llamacpp_read_infill(g->client, &gap, g->request, p);
}

static void start(struct exchange *x, bool infill)
{
	const struct service *svc = x->host->svc;
	json_t *client = common_body_object(x);
	if (!client)
		return;
	struct llamacpp_request r;
	struct resume_request resume;
	if (!resume_read(x, client, &resume)) {
		json_decref(client);
		return;
	}
	struct api_problem p = {.code = E_INTERNAL};
	int rc = llamacpp_read(client, infill, svc->strict, &r, &p);
	memcpy(x->ignored, r.ignored, sizeof r.ignored);
	if (rc) {
		exchange_fail(x, p.code, p.param, p.why);
	} else {
		struct answer *a = xcalloc(1, sizeof *a);
		a->return_tokens = r.return_tokens;
		const struct gap gap = {client, r.request};
		const struct generation g = {.dialect = API_COMPLETIONS,
					     .writer = &writer,
					     .writer_data = a,
					     .id_prefix = "llamacpp-",
					     .to_context = true,
					     .names = llamacpp_names,
					     .prepare = infill ? fill_gap : NULL,
					     .prepare_user = &gap,
					     .resume = &resume};
		generation_start(x, r.request, &g);
	}
	json_decref(r.request);
	json_decref(client);
}

void llamacpp_call_completion(struct exchange *x, const char *rest)
{
	(void)rest;
	start(x, false);
}

void llamacpp_call_infill(struct exchange *x, const char *rest)
{
	(void)rest;
	start(x, true);
}

void llamacpp_call_template(struct exchange *x, const char *rest)
{
	(void)rest;
	struct api_problem p = {.code = E_INTERNAL};
	struct buf text = {0}, b = {0};
	json_t *request = common_body_object(x);
	if (!request)
		return;
	if (!common_check_model(x, request))
		goto done;
	if (api_render_messages(x->host->svc, mailbox_max_context(apis_of(x)->mailbox), request, &text,
				x->ignored, sizeof x->ignored, &p)) {
		exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	buf_puts(&b, "{\"prompt\":");
	json_write_string(&b, text.p ? text.p : "", text.len);
	buf_putc(&b, '}');
	exchange_reply(x, MHD_HTTP_OK, &b);
done:
	buf_fini(&text);
	json_decref(request);
}
