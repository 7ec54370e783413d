#include "controller/apis/ollama/ollama_json.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/json_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void ollama_call_fini(struct ollama_call *c)
{
	buf_fini(&c->name);
	buf_fini(&c->arguments);
}

void ollama_put_time(struct buf *b, int64_t unix_us)
{
	const time_t at = (time_t)(unix_us / 1000000);
	struct tm tm;
	char text[32];
	gmtime_r(&at, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(b, "\"%s.%06dZ\"", text, (int)(unix_us % 1000000));
}

const char *ollama_reason(const struct output_view *v)
{
	return v->finish == FINISH_LENGTH ? "length" : "stop";
}

static void put_head(struct buf *b, const struct ollama_shape *s)
{
	buf_puts(b, "{\"model\":");
	json_write_str(b, s->model);
	buf_puts(b, ",\"created_at\":");
	ollama_put_time(b, s->at_us ? s->at_us : clock_unix_us());
}

static void put_string(struct buf *b, const char *name, const char *p, size_t n)
{
	buf_printf(b, ",\"%s\":", name);
	json_write_string(b, p ? p : "", n);
}

/* Append {"function":{"name","arguments":{...}}} to b.  A call with arguments that were cut or are not an
 * object is appended to text instead, because a tool that runs without its arguments may do anything. */
static void put_call(struct buf *b, struct buf *text, const struct buf *name, const struct buf *arguments)
{
	if (arguments->len && !json_is_object_text(arguments->p, arguments->len)) {
		buf_put(text, name->p ? name->p : "", name->len);
		buf_putc(text, ' ');
		buf_put(text, arguments->p, arguments->len);
		return;
	}
	buf_puts(b, b->len ? ",{\"function\":{\"name\":" : "{\"function\":{\"name\":");
	json_write_string(b, name->p ? name->p : "", name->len);
	buf_puts(b, ",\"arguments\":");
	buf_put(b, arguments->len ? arguments->p : "{}", arguments->len ? arguments->len : 2);
	buf_puts(b, "}}");
}

/* --- logprobs --- */

static void put_token(struct buf *b, const struct ollama_shape *s, uint32_t token, float logprob,
		      struct buf *piece)
{
	buf_clear(piece);
	tokenizer_piece(s->tokenizer, token, piece);
	buf_puts(b, "\"token\":");
	json_write_string(b, piece->p ? piece->p : "", piece->len);
	buf_puts(b, ",\"logprob\":");
	json_write_float(b, logprob >= -9999.0f ? logprob : -9999.0f); /* JSON has no infinity */
	buf_puts(b, ",\"bytes\":[");
	for (size_t i = 0; i < piece->len; i++)
		buf_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)piece->p[i]);
	buf_putc(b, ']');
}

static void put_logprobs(struct buf *b, const struct ollama_shape *s, const struct output_view *v)
{
	struct buf piece = {0};
	if (!s->logprobs || !v->logprobs || !v->n_tokens)
		return;
	buf_puts(b, ",\"logprobs\":[");
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		const struct token_logprob *l = &v->logprobs[i];
		buf_puts(b, i ? ",{" : "{");
		put_token(b, s, l->token, l->logprob, &piece);
		for (uint32_t k = 0; k < l->n_top; k++) {
			buf_puts(b, k ? ",{" : ",\"top_logprobs\":[{");
			put_token(b, s, l->top[k].token, l->top[k].logprob, &piece);
			buf_putc(b, '}');
		}
		buf_puts(b, l->n_top ? "]}" : "}");
	}
	buf_putc(b, ']');
	buf_fini(&piece);
}

/* --- lines --- */

/* Append the message: the output's text followed by `more`, and the reasoning.  calls: JSON of the calls.
 * calls and more may be NULL. */
static void put_message(struct buf *b, const struct ollama_shape *s, const struct output_view *v,
			const struct chat_stream *chat, const struct buf *calls, const struct buf *more)
{
	static const struct output_view none;
	const struct answer_text text = answer_text(v ? v : &none, chat);
	struct buf whole = {0};
	if (text.n)
		buf_put(&whole, text.p, text.n);
	if (more && more->len)
		buf_put(&whole, more->p, more->len);
	if (!s->generate)
		buf_puts(b, ",\"message\":{\"role\":\"assistant\"");
	put_string(b, s->generate ? "response" : "content", whole.p, whole.len);
	buf_fini(&whole);
	if (chat && chat->reasoning.len)
		put_string(b, "thinking", chat->reasoning.p, chat->reasoning.len);
	if (calls && calls->len) {
		buf_puts(b, ",\"tool_calls\":[");
		buf_put(b, calls->p, calls->len);
		buf_putc(b, ']');
	}
	if (!s->generate)
		buf_putc(b, '}');
}

static void put_call_line(struct buf *b, const struct ollama_shape *s, struct ollama_call *call)
{
	struct buf calls = {0}, text = {0};
	if (!call->open)
		return;
	put_call(&calls, &text, &call->name, &call->arguments);
	put_head(b, s);
	put_message(b, s, NULL, NULL, &calls, &text);
	buf_puts(b, ",\"done\":false}\n");
	buf_fini(&calls);
	buf_fini(&text);
	call->open = false;
}

static void take_calls(struct buf *b, const struct ollama_shape *s, struct ollama_call *call,
		       const struct chat_stream *chat)
{
	for (uint32_t i = 0; chat && i < chat->n_calls; i++) {
		const struct chat_stream_call *c = &chat->calls[i];
		if (c->id[0]) {
			put_call_line(b, s, call);
			buf_clear(&call->name);
			buf_clear(&call->arguments);
			buf_put(&call->name, c->name.p, c->name.len);
			call->open = true;
		}
		buf_put(&call->arguments, c->arguments.p, c->arguments.len);
	}
}

void ollama_put_delta(struct buf *b, const struct ollama_shape *s, struct ollama_call *call,
		      const struct output_view *v, const struct chat_stream *chat)
{
	const bool shows =
		(s->logprobs && v->n_tokens) || answer_text(v, chat).n || (chat && chat->reasoning.len);
	if (shows) {
		put_head(b, s);
		put_message(b, s, v, chat, NULL, NULL);
		put_logprobs(b, s, v);
		buf_puts(b, ",\"done\":false}\n");
	}
	take_calls(b, s, call, chat);
	if (v->finish != FINISH_NONE)
		put_call_line(b, s, call);
}

static void put_ns(struct buf *b, const char *name, int64_t us)
{
	buf_printf(b, ",\"%s\":%lld", name, (long long)(us > 0 ? us * 1000 : 0));
}

void ollama_put_done(struct buf *b, const char *reason, const struct answer_usage *u,
		     const struct answer_timing *t)
{
	buf_printf(b, ",\"done\":true,\"done_reason\":\"%s\"", reason);
	if (u && t) {
		put_ns(b, "total_duration", t->total_us);
		put_ns(b, "load_duration", 0);
		buf_printf(b, ",\"prompt_eval_count\":%llu", (unsigned long long)u->prompt_tokens);
		put_ns(b, "prompt_eval_duration", t->first_token_us - t->queued_us);
		buf_printf(b, ",\"eval_count\":%llu", (unsigned long long)u->completion_tokens);
		put_ns(b, "eval_duration", t->total_us - t->first_token_us);
	}
	buf_putc(b, '}');
}

void ollama_put_end(struct buf *b, const struct ollama_shape *s, const char *reason,
		    const struct answer_usage *u, const struct answer_timing *t)
{
	put_head(b, s);
	put_message(b, s, NULL, NULL, NULL, NULL);
	ollama_put_done(b, reason, u, t);
	buf_putc(b, '\n');
}

void ollama_put_whole(struct buf *b, const struct ollama_shape *s, const struct output_view *v,
		      const struct chat_stream *chat)
{
	struct buf calls = {0}, text = {0};
	for (uint32_t i = 0; chat && i < chat->n_calls; i++)
		put_call(&calls, &text, &chat->calls[i].name, &chat->calls[i].arguments);
	put_head(b, s);
	put_message(b, s, v, chat, &calls, &text);
	put_logprobs(b, s, v);
	buf_fini(&calls);
	buf_fini(&text);
}

void ollama_put_nothing(struct buf *b, const struct ollama_shape *s, const char *reason)
{
	put_head(b, s);
	put_message(b, s, NULL, NULL, NULL, NULL);
	ollama_put_done(b, reason, NULL, NULL);
}
