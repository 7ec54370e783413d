#include "controller/apis/openai/responses_events.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_write.h"
#include "controller/apis/pieces.h"
#include "controller/chat/chat_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum item { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

/* Differences between the kinds of text items. */
static const struct text_item {
	const char *prefix, *type, *part, *delta, *done;
} text_items[] = {
	[ITEM_REASONING] = {"rs", "reasoning", "reasoning_text", "response.reasoning_text.delta",
			    "response.reasoning_text.done"},
	[ITEM_MESSAGE] = {"msg", "message", "output_text", "response.output_text.delta",
			  "response.output_text.done"},
};

struct responses_events {
	struct responses_about about;
	char *repeated; /* owned: the repeated members, ,"name":value,... */
	uint64_t n;     /* events so far, written or not */

	struct pieces pieces;
	struct chat_stream chat;
	enum item open;
	uint32_t call;      /* ITEM_CALL: number of the call in the chat */
	uint32_t n_items;   /* including the open item */
	struct buf item_id; /* JSON, id of the open item */
	struct buf content; /* text or arguments of the open item */
	struct buf name;
	struct buf items; /* JSON of the ended items, "{...},{...}" */
	uint64_t n_reasoning;
	enum finish finish;
	char *error; /* owned: why it failed */
	int64_t ended_at;
};

struct responses_events *responses_events_new(const struct responses_about *about)
{
	struct responses_events *r = xcalloc(1, sizeof *r);
	r->about = *about;
	r->ended_at = about->ended_at;
	char *text = json_text(about->repeated, JSON_COMPACT | JSON_REAL_PRECISION(9));
	const size_t n = text ? strlen(text) : 0;
	if (n > 2) { /* drop the braces */
		text[n - 1] = '\0';
		text[0] = ',';
		r->repeated = text;
	} else {
		free(text);
		r->repeated = xstrdup("");
	}
	pieces_init(&r->pieces, about->tokenizer, about->skip_special);
	chat_stream_init(&r->chat, about->rules);
	return r;
}

void responses_events_free(struct responses_events *r)
{
	if (!r)
		return;
	free(r->repeated);
	free(r->error);
	pieces_fini(&r->pieces);
	chat_stream_fini(&r->chat);
	buf_fini(&r->item_id);
	buf_fini(&r->content);
	buf_fini(&r->name);
	buf_fini(&r->items);
	free(r);
}

/* --- writing events --- */

/* Write an event: open it, append its members, close it.  If the event is not to be written, closing removes
 * it. */
static size_t event_open(struct responses_events *r, struct buf *out, const char *type)
{
	const size_t mark = out->len;
	buf_puts(out, "event: ");
	buf_puts(out, type);
	buf_puts(out, "\ndata: {\"type\":\"");
	buf_puts(out, type);
	buf_puts(out, "\",\"sequence_number\":");
	json_write_uint(out, r->n++);
	return mark;
}

static void event_close(struct responses_events *r, struct buf *out, size_t mark)
{
	buf_puts(out, "}\n\n");
	if ((int64_t)r->n - 1 > r->about.after)
		return;
	out->len = mark;
	out->p[mark] = '\0';
}

static const char *status_of(const struct responses_events *r)
{
	if (r->error)
		return "failed";
	switch (r->finish) {
	case FINISH_NONE:
		return "in_progress";
	case FINISH_LENGTH:
		return "incomplete";
	case FINISH_ABORT:
		return "cancelled";
	case FINISH_ERROR:
		return "failed";
	case FINISH_STOP:
		break;
	}
	return "completed";
}

static void put_usage(const struct responses_events *r, const struct answer_usage *u, struct buf *out)
{
	buf_printf(out,
		   ",\"usage\":{\"input_tokens\":%" PRIu64
		   ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64
		   ",\"cache_write_tokens\":0},\"output_tokens\":%" PRIu64
		   ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "},\"total_tokens\":%" PRIu64
		   "}",
		   u->prompt_tokens, u->cached_tokens, u->completion_tokens, r->n_reasoning,
		   u->prompt_tokens + u->completion_tokens);
}

void responses_events_whole(struct responses_events *r, const struct answer_usage *usage, struct buf *out)
{
	const bool over = r->finish != FINISH_NONE || r->error;
	const char *status = status_of(r);
	if (over && !r->ended_at)
		r->ended_at = clock_unix();
	buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64 ",\"status\":\"%s\"",
		   r->about.id, r->about.created_at, status);
	if (strcmp(status, "completed") == 0)
		buf_printf(out, ",\"completed_at\":%" PRId64, r->ended_at);
	else
		buf_puts(out, ",\"completed_at\":null");
	buf_puts(out, ",\"error\":");
	if (r->error || r->finish == FINISH_ERROR) {
		buf_puts(out, "{\"code\":\"server_error\",\"message\":");
		json_write_str(out, r->error ? r->error : "the job failed");
		buf_putc(out, '}');
	} else {
		buf_puts(out, "null");
	}
	buf_printf(out, ",\"incomplete_details\":%s",
		   !r->error && r->finish == FINISH_LENGTH ? "{\"reason\":\"max_output_tokens\"}" : "null");
	buf_puts(out, r->repeated);
	buf_puts(out, ",\"output\":[");
	buf_put(out, r->items.p ? r->items.p : "", r->items.len);
	buf_putc(out, ']');
	if (over && usage)
		put_usage(r, usage, out);
	buf_putc(out, '}');
}

void responses_events_items(const struct responses_events *r, struct buf *out)
{
	buf_put(out, r->items.p ? r->items.p : "", r->items.len);
}

bool responses_events_last(const struct responses_events *r)
{
	return !r->error && (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH);
}

static void put_response_event(struct responses_events *r, const char *type, const struct answer_usage *usage,
			       struct buf *out)
{
	const size_t mark = event_open(r, out, type);
	buf_puts(out, ",\"response\":");
	responses_events_whole(r, usage, out);
	event_close(r, out, mark);
}

void responses_events_begin(struct responses_events *r, struct buf *out)
{
	put_response_event(r, "response.created", NULL, out);
	put_response_event(r, "response.in_progress", NULL, out);
}

/* --- items --- */

/* Append an id derived from the response's id, so that events made again have the same ids. */
static void put_id(const struct responses_events *r, const char *prefix, struct buf *out)
{
	const char *hex = strchr(r->about.id, '_');
	buf_printf(out, "\"%s_%s%02x\"", prefix, hex ? hex + 1 : r->about.id, r->n_items - 1);
}

static void put_item_id(const struct responses_events *r, struct buf *out)
{
	buf_put(out, r->item_id.p, r->item_id.len);
}

static void put_part(const struct responses_events *r, struct buf *out)
{
	buf_printf(out, "{\"type\":\"%s\",\"text\":", text_items[r->open].part);
	json_write_string(out, r->content.p ? r->content.p : "", r->content.len);
	buf_puts(out, r->open == ITEM_MESSAGE ? ",\"annotations\":[],\"logprobs\":[]}" : "}");
}

/* Append the open item; with status "in_progress", without its content. */
static void put_item(const struct responses_events *r, const char *status, struct buf *out)
{
	const bool begun = strcmp(status, "in_progress") == 0;
	buf_puts(out, "{\"id\":");
	put_item_id(r, out);
	if (r->open == ITEM_CALL) {
		buf_puts(out, ",\"type\":\"function_call\",\"call_id\":");
		put_id(r, "call", out);
		buf_puts(out, ",\"name\":");
		json_write_string(out, r->name.p ? r->name.p : "", r->name.len);
		buf_puts(out, ",\"arguments\":");
		json_write_string(out, r->content.p ? r->content.p : "", begun ? 0 : r->content.len);
	} else {
		buf_printf(out, ",\"type\":\"%s\",%s,\"content\":[", text_items[r->open].type,
			   r->open == ITEM_MESSAGE ? "\"role\":\"assistant\"" : "\"summary\":[]");
		if (!begun)
			put_part(r, out);
		buf_putc(out, ']');
	}
	buf_printf(out, ",\"status\":\"%s\"}", status);
}

/* Begin an event of the open item, up to its own members. */
static size_t item_event_open(struct responses_events *r, struct buf *out, const char *type)
{
	const size_t mark = event_open(r, out, type);
	buf_puts(out, ",\"item_id\":");
	put_item_id(r, out);
	buf_puts(out, ",\"output_index\":");
	json_write_uint(out, r->n_items - 1);
	if (r->open != ITEM_CALL)
		buf_puts(out, ",\"content_index\":0");
	return mark;
}

static void put_string_event(struct responses_events *r, struct buf *out, const char *type,
			     const char *member, const char *p, size_t n)
{
	const size_t mark = item_event_open(r, out, type);
	buf_puts(out, ",\"");
	buf_puts(out, member);
	buf_puts(out, "\":");
	json_write_string(out, p ? p : "", n);
	if (r->open == ITEM_MESSAGE)
		buf_puts(out, ",\"logprobs\":[]");
	if (r->open == ITEM_CALL && strcmp(member, "arguments") == 0) {
		buf_puts(out, ",\"name\":");
		json_write_string(out, r->name.p ? r->name.p : "", r->name.len);
	}
	event_close(r, out, mark);
}

static void put_part_event(struct responses_events *r, struct buf *out, const char *type)
{
	const size_t mark = item_event_open(r, out, type);
	buf_puts(out, ",\"part\":");
	put_part(r, out);
	event_close(r, out, mark);
}

static void put_item_event(struct responses_events *r, struct buf *out, const char *type, const char *status)
{
	const size_t mark = event_open(r, out, type);
	buf_printf(out, ",\"output_index\":%u,\"item\":", r->n_items - 1);
	put_item(r, status, out);
	event_close(r, out, mark);
}

static void open_item(struct responses_events *r, enum item what, struct buf *out)
{
	r->open = what;
	r->n_items++;
	buf_clear(&r->item_id);
	put_id(r, what == ITEM_CALL ? "fc" : text_items[what].prefix, &r->item_id);
	buf_clear(&r->content);
	if (!out)
		return;
	put_item_event(r, out, "response.output_item.added", "in_progress");
	if (what != ITEM_CALL)
		put_part_event(r, out, "response.content_part.added");
}

static void close_item(struct responses_events *r, struct buf *out)
{
	/* An item cut by the output's end is incomplete. */
	const bool cut = r->error || (r->finish != FINISH_NONE && r->finish != FINISH_STOP);
	const char *status = cut ? "incomplete" : "completed";
	if (r->open == ITEM_NONE)
		return;
	if (out && r->open == ITEM_CALL) {
		put_string_event(r, out, "response.function_call_arguments.done", "arguments", r->content.p,
				 r->content.len);
	} else if (out) {
		put_string_event(r, out, text_items[r->open].done, "text", r->content.p, r->content.len);
		put_part_event(r, out, "response.content_part.done");
	}
	if (out)
		put_item_event(r, out, "response.output_item.done", status);
	if (r->items.len)
		buf_putc(&r->items, ',');
	put_item(r, status, &r->items);
	r->open = ITEM_NONE;
}

static void add_text(struct responses_events *r, enum item what, const char *p, size_t n, struct buf *out)
{
	if (n == 0)
		return;
	if (r->open != what) {
		close_item(r, out);
		open_item(r, what, out);
	}
	buf_put(&r->content, p, n);
	if (out)
		put_string_event(r, out, text_items[what].delta, "delta", p, n);
}

static void add_call(struct responses_events *r, const struct chat_stream_call *c, struct buf *out)
{
	if (r->open != ITEM_CALL || r->call != c->index) {
		close_item(r, out);
		r->call = c->index;
		buf_clear(&r->name);
		buf_put(&r->name, c->name.p ? c->name.p : "", c->name.len);
		open_item(r, ITEM_CALL, out);
	}
	if (c->arguments.len == 0)
		return;
	buf_put(&r->content, c->arguments.p, c->arguments.len);
	if (out)
		put_string_event(r, out, "response.function_call_arguments.delta", "delta", c->arguments.p,
				 c->arguments.len);
}

/* --- chunks of text --- */

static void take_news(struct responses_events *r, struct buf *out)
{
	struct chat_stream *s = &r->chat;
	r->n_reasoning += s->reasoning.len > 0;
	add_text(r, ITEM_REASONING, s->reasoning.p, s->reasoning.len, out);
	add_text(r, ITEM_MESSAGE, s->content.p, s->content.len, out);
	for (uint32_t i = 0; i < s->n_calls; i++)
		add_call(r, &s->calls[i], out);
	chat_stream_take_delta(s);
}

struct taker {
	struct responses_events *events;
	struct buf *out;
};

static void take_piece(void *user, const char *p, size_t n)
{
	const struct taker *t = user;
	chat_stream_push(&t->events->chat, p, n);
	take_news(t->events, t->out);
}

void responses_events_push(struct responses_events *r, const struct output_view *v, struct buf *out)
{
	struct taker t = {r, out};
	pieces_push(&r->pieces, v, take_piece, &t);
	if (v->finish == FINISH_NONE)
		return;
	chat_stream_end(&r->chat);
	take_news(r, out);
	r->finish = v->finish;
	close_item(r, out);
}

void responses_events_fail(struct responses_events *r, const char *message)
{
	free(r->error);
	r->error = xstrdup(message);
}

void responses_events_close(struct responses_events *r, struct buf *out)
{
	close_item(r, out);
}

void responses_events_end(struct responses_events *r, const struct answer_usage *usage, struct buf *out)
{
	const bool failed = r->error || r->finish == FINISH_ERROR;
	close_item(r, out);
	put_response_event(r,
			   failed                     ? "response.failed"
			   : r->finish == FINISH_STOP ? "response.completed"
						      : "response.incomplete",
			   usage, out);
}
