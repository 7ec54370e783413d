#include "controller/apis/openai/openai.h"

#include "base/alloc.h"
#include "base/json.h"
#include "controller/apis/common.h"
#include "controller/apis/completion.h"
#include "controller/apis/generation.h"
#include "controller/apis/openai/openai_json.h"
#include "controller/apis/resume.h"
#include "controller/message/service.h"

#include <stdlib.h>
#include <string.h>

/* Prompt data that the reply shows. */
struct shown {
	char *echo; /* owned: the prompt's text, or NULL */
	size_t echo_n;
	uint32_t *tokens; /* owned: a copy of the prompt's tokens if the reply shows them */
	uint64_t *offset; /* [n_outputs] characters sent so far, owned */
};

struct openai_answer {
	struct openai_shape shape;
	bool continuous_usage, echo_logprobs, return_timing;
	struct shown *prompts; /* [n], owned: one per subrequest */
	size_t n;
	struct buf prompt_logprobs; /* the reply's field; chat, not streamed */
};

/* --- before the jobs --- */

/* Set the text that echo shows: the prompt as given, or the text of its ids. */
static void set_echo(struct shown *out, const struct subrequest *s, const json_t *request, size_t i)
{
	const struct service *svc = s->completion->x->host->svc;
	const json_t *p = json_get(request, "prompt");
	const json_t *one = json_is_array(p) ? json_array_get(p, i) : p;
	if (json_is_string(one)) {
		out->echo_n = json_string_length(one);
		out->echo = xmalloc(out->echo_n + 1);
		memcpy(out->echo, json_string_value(one), out->echo_n + 1);
		return;
	}
	struct buf text = {0};
	tokenizer_decode(svc->tokenizer, s->submit->tokens, s->submit->n_tokens, s->submit->skip_special,
			 &text);
	out->echo_n = text.len;
	out->echo = buf_take(&text);
}

static void set_shape(struct openai_shape *sh, const struct completion *c, const json_t *request,
		      const struct api_reply *reply)
{
	const struct submit *s = c->subs[0].submit;
	memcpy(sh->id, c->id, sizeof sh->id);
	sh->tokenizer = c->x->host->svc->tokenizer;
	sh->model = c->model;
	sh->created = c->created;
	sh->stream = reply->stream;
	sh->usage_null = reply->include_usage;
	sh->skip_special = s->skip_special;
	sh->tokens_as_ids = reply->tokens_as_ids;
	sh->return_token_ids = reply->return_token_ids;
	sh->logprobs = s->params.logprobs >= 0;
	sh->prompt_logprobs = json_get(request, "prompt_logprobs") != NULL;
}

static void begin(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct openai_answer *a = c->writer_data;
	const struct params *first = &c->subs[0].submit->params;
	set_shape(&a->shape, c, request, reply);
	a->return_timing = reply->return_timing;
	a->continuous_usage = reply->include_usage && reply->continuous_usage;
	a->echo_logprobs = reply->echo && first->logprobs >= 0 && first->prompt_logprobs >= 0;
	c->every_delta = a->shape.logprobs || a->shape.return_token_ids;
	a->n = c->n_subs;
	a->prompts = xcalloc(a->n, sizeof *a->prompts);
	for (size_t i = 0; i < a->n; i++) {
		const struct subrequest *s = &c->subs[i];
		struct shown *p = &a->prompts[i];
		p->offset = xcalloc(s->n_outputs, sizeof *p->offset);
		if (reply->echo)
			set_echo(p, s, request, i);
		if (s->submit->params.prompt_logprobs >= 0 || reply->return_token_ids)
			p->tokens = xmemdup(s->submit->tokens, s->n_prompt * sizeof *p->tokens);
	}
}

static struct shown *shown_of(const struct subrequest *s)
{
	const struct openai_answer *a = s->completion->writer_data;
	return &a->prompts[s - s->completion->subs];
}

static struct openai_prompt prompt_of(const struct subrequest *s, const struct job_event *e)
{
	const struct openai_answer *a = s->completion->writer_data;
	const struct shown *p = shown_of(s);
	return (struct openai_prompt){
		.echo = p->echo,
		.echo_n = p->echo_n,
		.tokens = p->tokens,
		.n_tokens = s->n_prompt,
		.logprobs = e->prompt_logprobs,
		.echo_logprobs = a->echo_logprobs && p->tokens,
	};
}

/* --- a stream --- */

static void chunk_begin(struct completion *c)
{
	buf_puts(&c->x->out, "data: ");
}

static void chunk_end(struct completion *c)
{
	const struct openai_answer *a = c->writer_data;
	struct answer_usage so_far = c->usage;
	so_far.completion_tokens = c->streamed_tokens;
	openai_end_chunk(&c->x->out, &a->shape, a->continuous_usage ? &so_far : NULL);
	buf_puts(&c->x->out, "\n\n");
}

static void accepted(struct subrequest *s, const struct job_event *e)
{
	struct completion *c = s->completion;
	struct openai_answer *a = c->writer_data;
	struct buf *out = &c->x->out;
	struct openai_prompt p = prompt_of(s, e);
	a->shape.created = c->created;
	for (uint32_t i = 0; i < s->n_outputs; i++) {
		if (!a->shape.chat && !p.echo)
			break;
		chunk_begin(c);
		if (a->shape.chat)
			openai_chunk_role(out, &a->shape, s->first + i);
		else
			openai_chunk_echo(out, &a->shape, s->first + i, &p, &shown_of(s)->offset[i]);
		chunk_end(c);
	}
}

static void delta(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat)
{
	struct completion *c = s->completion;
	const struct openai_answer *a = c->writer_data;
	chunk_begin(c);
	openai_chunk_delta(&c->x->out, &a->shape, s->first + d->index, d, chat,
			   &shown_of(s)->offset[d->index]);
	chunk_end(c);
}

static void end(struct completion *c)
{
	const struct openai_answer *a = c->writer_data;
	struct buf *out = &c->x->out;
	if (a->shape.usage_null || a->return_timing) {
		chunk_begin(c);
		openai_chunk_usage(out, &a->shape, a->shape.usage_null ? &c->usage : NULL,
				   a->return_timing ? &c->timing : NULL);
		buf_puts(out, "\n\n");
	}
	buf_puts(out, "data: [DONE]\n\n");
}

/* --- a whole reply --- */

static const char *done(struct subrequest *s, const struct job_event *e)
{
	struct openai_answer *a = s->completion->writer_data;
	struct openai_prompt p = prompt_of(s, e);
	if (a->shape.chat && a->shape.prompt_logprobs && p.logprobs)
		openai_prompt_logprobs(&a->prompt_logprobs, &a->shape, &p);
	return NULL;
}

static void output(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		   const struct job_event *e)
{
	const struct openai_answer *a = s->completion->writer_data;
	struct openai_prompt p = prompt_of(s, e);
	if (s->part.len)
		buf_putc(&s->part, ',');
	openai_choice(&s->part, &a->shape, s->first + v->index, v, chat, &p);
}

static void body(struct completion *c, struct buf *b)
{
	const struct openai_answer *a = c->writer_data;
	openai_begin(b, &a->shape);
	buf_puts(b, "\"choices\":[");
	for (size_t i = 0; i < c->n_subs; i++) {
		if (i)
			buf_putc(b, ',');
		buf_put(b, c->subs[i].part.p, c->subs[i].part.len);
		buf_fini(&c->subs[i].part);
	}
	buf_puts(b, "],\"usage\":");
	openai_usage(b, &c->usage);
	if (a->prompt_logprobs.len) {
		buf_puts(b, ",\"prompt_logprobs\":");
		buf_put(b, a->prompt_logprobs.p, a->prompt_logprobs.len);
	}
	if (a->return_timing)
		openai_put_timing(b, &c->timing);
	buf_putc(b, '}');
}

static void answer_free(void *data)
{
	struct openai_answer *a = data;
	for (size_t i = 0; i < a->n; i++) {
		free(a->prompts[i].echo);
		free(a->prompts[i].tokens);
		free(a->prompts[i].offset);
	}
	free(a->prompts);
	buf_fini(&a->prompt_logprobs);
	free(a);
}

static const struct answer_writer writer = {
	.begin = begin,
	.accepted = accepted,
	.delta = delta,
	.end = end,
	.done = done,
	.output = output,
	.body = body,
	.free = answer_free,
};

/* --- the routes --- */

static void call(struct exchange *x, bool chat)
{
	json_t *request = common_body_object(x);
	struct resume_request resume;
	if (!request)
		return;
	if (!resume_read(x, request, &resume)) {
		json_decref(request);
		return;
	}
	struct openai_answer *a = xcalloc(1, sizeof *a);
	a->shape.chat = chat;
	const struct generation g = {
		.dialect = chat ? API_CHAT : API_COMPLETIONS,
		.writer = &writer,
		.writer_data = a,
		.id_prefix = chat ? "chatcmpl-" : "cmpl-",
		.resume = &resume,
	};
	generation_start(x, request, &g);
	json_decref(request);
}

void completions_call_text(struct exchange *x, const char *rest)
{
	(void)rest;
	call(x, false);
}

void completions_call_chat(struct exchange *x, const char *rest)
{
	(void)rest;
	call(x, true);
}
