#include "controller/apis/anthropic/anthropic_json.h"

#include "base/json.h"
#include "base/json_write.h"

#include <string.h>

static void begin_event(struct buf *b, const char *name)
{
	buf_printf(b, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void end_event(struct buf *b)
{
	buf_puts(b, "}\n\n");
}

/* Append "usage":{...}.  As in Anthropic's API, input_tokens counts only tokens that were not cached. */
static void put_usage(struct buf *b, const struct answer_usage *u)
{
	buf_puts(b, "\"usage\":{\"input_tokens\":");
	json_write_uint(b, u->prompt_tokens - u->cached_tokens);
	buf_puts(b, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
	json_write_uint(b, u->cached_tokens);
	buf_puts(b, ",\"output_tokens\":");
	json_write_uint(b, u->completion_tokens);
	buf_putc(b, '}');
}

static void put_head(struct buf *b, const struct anthropic_shape *s)
{
	buf_puts(b, "{\"id\":");
	json_write_str(b, s->id);
	buf_puts(b, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
	json_write_str(b, s->model);
	buf_puts(b, ",\"content\":[");
}

const char *anthropic_stop_reason(const struct output_view *v, const struct chat_stream *chat)
{
	return v->finish == FINISH_LENGTH ? "max_tokens"
	       : v->stop_string           ? "stop_sequence"
	       : chat && chat->called     ? "tool_use"
					  : "end_turn";
}

/* Append "stop_reason":...,"stop_sequence":... */
static void put_stop(struct buf *b, const char *reason, const char *sequence)
{
	buf_puts(b, "\"stop_reason\":");
	json_write_str(b, reason);
	buf_puts(b, ",\"stop_sequence\":");
	json_write_str(b, strcmp(reason, "stop_sequence") == 0 ? sequence : NULL);
}

/* Append a placeholder signature: clients discard reasoning without one.  Reasoning that a client
 * sends back needs none. */
static void put_signature(struct buf *b, const struct anthropic_shape *s)
{
	json_write_str(b, s->id);
}

/* --- a stream --- */

void anthropic_put_start(struct buf *b, const struct anthropic_shape *s, uint64_t prompt_tokens)
{
	const struct answer_usage u = {.prompt_tokens = prompt_tokens};
	begin_event(b, "message_start");
	buf_puts(b, ",\"message\":");
	put_head(b, s);
	buf_puts(b, "],\"stop_reason\":null,\"stop_sequence\":null,");
	put_usage(b, &u);
	buf_putc(b, '}');
	end_event(b);
	begin_event(b, "ping");
	end_event(b);
}

static void begin_delta(struct buf *b, const struct anthropic_stream *st, const char *type, const char *field)
{
	begin_event(b, "content_block_delta");
	buf_puts(b, ",\"index\":");
	json_write_uint(b, st->n_blocks - 1);
	buf_printf(b, ",\"delta\":{\"type\":\"%s\",\"%s\":", type, field);
}

static void end_delta(struct buf *b)
{
	buf_putc(b, '}');
	end_event(b);
}

static void put_delta(struct buf *b, const struct anthropic_stream *st, const char *type, const char *field,
		      const char *p, size_t n)
{
	begin_delta(b, st, type, field);
	json_write_string(b, p ? p : "", n);
	end_delta(b);
}

static void close_block(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s)
{
	if (st->open == ANTHROPIC_NONE)
		return;
	if (st->open == ANTHROPIC_THINKING) {
		begin_delta(b, st, "signature_delta", "signature");
		put_signature(b, s);
		end_delta(b);
	}
	begin_event(b, "content_block_stop");
	buf_puts(b, ",\"index\":");
	json_write_uint(b, st->n_blocks - 1);
	end_event(b);
	st->open = ANTHROPIC_NONE;
}

/* Open a block unless it is open already.  call: the call, for a tool_use block; otherwise NULL. */
static void open_block(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
		       enum anthropic_block what, const struct chat_stream_call *call)
{
	if (st->open == what && (!call || call->index == st->call))
		return;
	close_block(b, st, s);
	begin_event(b, "content_block_start");
	buf_puts(b, ",\"index\":");
	json_write_uint(b, st->n_blocks++);
	buf_puts(b, ",\"content_block\":");
	if (what == ANTHROPIC_THINKING) {
		buf_puts(b, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
	} else if (what == ANTHROPIC_TEXT) {
		buf_puts(b, "{\"type\":\"text\",\"text\":\"\"}");
	} else {
		buf_puts(b, "{\"type\":\"tool_use\",\"id\":");
		json_write_str(b, call->id);
		buf_puts(b, ",\"name\":");
		json_write_string(b, call->name.p ? call->name.p : "", call->name.len);
		buf_puts(b, ",\"input\":{}}");
		st->call = call->index;
	}
	end_event(b);
	st->open = what;
}

static void put_text_delta(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
			   const char *p, size_t n)
{
	if (!n)
		return;
	open_block(b, st, s, ANTHROPIC_TEXT, NULL);
	put_delta(b, st, "text_delta", "text", p, n);
}

static void put_call_delta(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
			   const struct chat_stream_call *call)
{
	open_block(b, st, s, ANTHROPIC_TOOL, call);
	if (call->arguments.len)
		put_delta(b, st, "input_json_delta", "partial_json", call->arguments.p, call->arguments.len);
}

void anthropic_put_delta(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
			 const struct output_view *v, const struct chat_stream *chat)
{
	uint32_t i = 0;
	if (!chat) {
		put_text_delta(b, st, s, v->text, v->text_n);
		return;
	}
	/* The rest of the open call precedes the reasoning or text that follows it. */
	if (chat->n_calls && !chat->calls[0].id[0])
		put_call_delta(b, st, s, &chat->calls[i++]);
	if (chat->reasoning.len) {
		open_block(b, st, s, ANTHROPIC_THINKING, NULL);
		put_delta(b, st, "thinking_delta", "thinking", chat->reasoning.p, chat->reasoning.len);
	}
	put_text_delta(b, st, s, chat->content.p, chat->content.len);
	for (; i < chat->n_calls; i++)
		put_call_delta(b, st, s, &chat->calls[i]);
}

void anthropic_put_end(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
		       const char *reason, const char *sequence, const struct answer_usage *u)
{
	close_block(b, st, s);
	begin_event(b, "message_delta");
	buf_puts(b, ",\"delta\":{");
	put_stop(b, reason, sequence);
	buf_puts(b, "},");
	put_usage(b, u);
	end_event(b);
	begin_event(b, "message_stop");
	end_event(b);
}

/* --- a whole reply --- */

/* Return true if a call may be shown as a call.  If its arguments were cut or are not an object, it is shown
 * as text, because a tool that runs without its arguments may do anything. */
static bool is_whole(const struct chat_stream_call *call)
{
	return !call->arguments.len || json_is_object_text(call->arguments.p, call->arguments.len);
}

static void put_call(struct buf *b, const struct chat_stream_call *call)
{
	if (!is_whole(call)) {
		struct buf text = {0};
		buf_put(&text, call->name.p ? call->name.p : "", call->name.len);
		buf_putc(&text, ' ');
		buf_put(&text, call->arguments.p, call->arguments.len);
		buf_puts(b, "{\"type\":\"text\",\"text\":");
		json_write_string(b, text.p, text.len);
		buf_putc(b, '}');
		buf_fini(&text);
		return;
	}
	buf_puts(b, "{\"type\":\"tool_use\",\"id\":");
	json_write_str(b, call->id);
	buf_puts(b, ",\"name\":");
	json_write_string(b, call->name.p ? call->name.p : "", call->name.len);
	buf_puts(b, ",\"input\":");
	if (call->arguments.len)
		buf_put(b, call->arguments.p, call->arguments.len);
	else
		buf_puts(b, "{}");
	buf_putc(b, '}');
}

void anthropic_put_message(struct buf *b, const struct anthropic_shape *s, const struct output_view *v,
			   const struct chat_stream *chat, const struct answer_usage *u)
{
	const char *text = chat ? chat->content.p : v->text, *comma = "";
	const size_t n = chat ? chat->content.len : v->text_n;
	bool calls = false;
	for (uint32_t i = 0; chat && i < chat->n_calls; i++)
		calls = calls || is_whole(&chat->calls[i]);
	put_head(b, s);
	if (chat && chat->reasoning.len) {
		buf_puts(b, "{\"type\":\"thinking\",\"thinking\":");
		json_write_string(b, chat->reasoning.p, chat->reasoning.len);
		buf_puts(b, ",\"signature\":");
		put_signature(b, s);
		buf_putc(b, '}');
		comma = ",";
	}
	if (n) {
		buf_printf(b, "%s{\"type\":\"text\",\"text\":", comma);
		json_write_string(b, text, n);
		buf_putc(b, '}');
		comma = ",";
	}
	for (uint32_t i = 0; chat && i < chat->n_calls; i++) {
		buf_puts(b, comma);
		put_call(b, &chat->calls[i]);
		comma = ",";
	}
	buf_puts(b, "],");
	put_stop(b, anthropic_stop_reason(v, calls ? chat : NULL), v->stop_string);
	buf_putc(b, ',');
	put_usage(b, u);
	buf_putc(b, '}');
}
