#include "controller/apis/openai/openai_json.h"

#include "base/json_write.h"
#include "base/utf8.h"
#include "base/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* OpenAI's value for a very unlikely token; JSON has no infinity. */
#define LOGPROB_LEAST (-9999.0f)

void openai_begin(struct buf *b, const struct openai_shape *s)
{
	const char *object = !s->chat    ? "text_completion"
			     : s->stream ? "chat.completion.chunk"
					 : "chat.completion";
	buf_puts(b, "{\"id\":\"");
	buf_puts(b, s->id);
	buf_puts(b, "\",\"object\":\"");
	buf_puts(b, object);
	buf_puts(b, "\",\"created\":");
	json_write_int(b, s->created);
	buf_puts(b, ",\"model\":");
	json_write_str(b, s->model);
	buf_puts(b, ",\"system_fingerprint\":\"quern-" QUERN_VERSION "\",");
}

/* Return a logprob as it is shown. */

static float logprob_shown(float x)
{
	return x >= LOGPROB_LEAST ? x : LOGPROB_LEAST; /* also replaces NaN */
}

enum { METADATA_MAX = 16, METADATA_KEY = 64, METADATA_VALUE = 512 };

const char *openai_check_metadata(const json_t *m)
{
	const char *key;
	json_t *v;
	bool fits = true;
	if (!m)
		return NULL;
	if (!json_is_object(m) || json_object_size(m) > METADATA_MAX)
		return "metadata must be an object of at most 16 keys";
	json_object_foreach((json_t *)m, key, v)
	{
		fits = fits && utf8_chars(key, strlen(key)) <= METADATA_KEY && json_is_string(v) &&
		       utf8_chars(json_string_value(v), json_string_length(v)) <= METADATA_VALUE;
	}
	return fits ? NULL : "metadata has keys of at most 64 characters and texts of at most 512";
}

/* Append the token as a JSON string.  In completions, bytes that are not whole characters are shown in
 * OpenAI's format ("bytes:\xe2\x80"), because the keys of top_logprobs must differ; a chat has `bytes`. */
static void put_token(struct buf *b, const struct openai_shape *s, uint32_t token, const struct buf *piece)
{
	if (s->tokens_as_ids) {
		buf_printf(b, "\"token_id:%u\"", token);
	} else if (s->chat || !piece->len || utf8_valid(piece->p, piece->len) == piece->len) {
		json_write_string(b, piece->p, piece->len);
	} else {
		buf_puts(b, "\"bytes:");
		for (size_t i = 0; i < piece->len; i++)
			buf_printf(b, "\\\\x%02x", (unsigned char)piece->p[i]);
		buf_putc(b, '"');
	}
}

/* Append a token.  piece: scratch, which then has the token's bytes. */
static void put_token_of(struct buf *b, const struct openai_shape *s, uint32_t token, struct buf *piece)
{
	buf_clear(piece);
	tokenizer_piece(s->tokenizer, token, piece);
	put_token(b, s, token, piece);
}

/* Append "token":..,"logprob":..,"bytes":[..] */
static void put_chat_entry(struct buf *b, const struct openai_shape *s, uint32_t token, float logprob,
			   struct buf *piece)
{
	buf_puts(b, "\"token\":");
	put_token_of(b, s, token, piece);
	buf_puts(b, ",\"logprob\":");
	json_write_float(b, logprob_shown(logprob));
	buf_puts(b, ",\"bytes\":[");
	for (size_t i = 0; i < piece->len; i++) {
		if (i)
			buf_putc(b, ',');
		json_write_uint(b, (unsigned char)piece->p[i]);
	}
	buf_putc(b, ']');
}

static void put_chat_logprobs(struct buf *b, const struct openai_shape *s, const struct output_view *v)
{
	struct buf piece = {0};
	buf_puts(b, "{\"content\":[");
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		const struct token_logprob *l = &v->logprobs[i];
		buf_puts(b, i ? ",{" : "{");
		put_chat_entry(b, s, l->token, l->logprob, &piece);
		buf_puts(b, ",\"top_logprobs\":[");
		for (uint32_t k = 0; k < l->n_top; k++) {
			buf_puts(b, k ? ",{" : "{");
			put_chat_entry(b, s, l->top[k].token, l->top[k].logprob, &piece);
			buf_putc(b, '}');
		}
		buf_puts(b, "]}");
	}
	buf_puts(b, "],\"refusal\":null}");
	buf_fini(&piece);
}

/* A run of tokens for the parallel arrays of completions: first the prompt's, then the output's. */
struct token_run {
	const uint32_t *tokens;
	uint32_t n;
	const struct token_logprob *logprobs;
	uint32_t skip; /* tokens before the first logprob: 1 in a prompt */
};

static const struct token_logprob *run_logprob(const struct token_run *r, uint32_t i)
{
	return i >= r->skip && r->logprobs ? &r->logprobs[i - r->skip] : NULL;
}

/* Append {"token": logprob}: the most likely tokens and the chosen one.  A second token with the same text is
 * left out, because JSON objects must not have duplicate keys. */
static void put_top_map(struct buf *b, const struct openai_shape *s, const struct token_logprob *l,
			struct buf *piece)
{
	struct buf key = {0};
	size_t start[PARAMS_LOGPROBS_MAX + 2], len[PARAMS_LOGPROBS_MAX + 2], n_keys = 0;
	buf_putc(b, '{');
	for (uint32_t k = 0; k <= l->n_top && n_keys < PARAMS_LOGPROBS_MAX + 2; k++) {
		bool chosen = k == l->n_top;
		bool duplicate = false;
		size_t from = key.len;
		put_token_of(&key, s, chosen ? l->token : l->top[k].token, piece);
		for (size_t i = 0; i < n_keys && !duplicate; i++)
			duplicate =
				len[i] == key.len - from && !memcmp(key.p + start[i], key.p + from, len[i]);
		if (duplicate)
			continue;
		start[n_keys] = from;
		len[n_keys] = key.len - from;
		if (n_keys++)
			buf_putc(b, ',');
		buf_put(b, key.p + from, key.len - from);
		buf_putc(b, ':');
		json_write_float(b, logprob_shown(chosen ? l->logprob : l->top[k].logprob));
	}
	buf_putc(b, '}');
	buf_fini(&key);
}

static void put_offsets(struct buf *b, const struct openai_shape *s, const struct token_run *runs,
			size_t n_runs, uint64_t *offset, struct buf *piece)
{
	bool first = true;
	for (size_t r = 0; r < n_runs; r++)
		for (uint32_t i = 0; i < runs[r].n; i++) {
			if (!first)
				buf_putc(b, ',');
			first = false;
			json_write_uint(b, *offset);
			if (s->skip_special && tokenizer_is_special(s->tokenizer, runs[r].tokens[i]))
				continue;
			buf_clear(piece);
			tokenizer_piece(s->tokenizer, runs[r].tokens[i], piece);
			*offset += utf8_chars(piece->p, piece->len);
		}
}

/* Append the logprobs of completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. */
static void put_completion_logprobs(struct buf *b, const struct openai_shape *s, const struct token_run *runs,
				    size_t n_runs, uint64_t *offset)
{
	struct buf piece = {0}, probs = {0}, tops = {0};
	const char *comma = "";
	buf_puts(b, "{\"tokens\":[");
	for (size_t r = 0; r < n_runs; r++)
		for (uint32_t i = 0; i < runs[r].n; i++) {
			const struct token_logprob *l = run_logprob(&runs[r], i);
			buf_puts(b, comma);
			buf_puts(&probs, comma);
			buf_puts(&tops, comma);
			comma = ",";
			put_token_of(b, s, runs[r].tokens[i], &piece);
			if (l) {
				json_write_float(&probs, logprob_shown(l->logprob));
				put_top_map(&tops, s, l, &piece);
			} else {
				buf_puts(&probs, "null");
				buf_puts(&tops, "null");
			}
		}
	buf_puts(b, "],\"token_logprobs\":[");
	buf_put(b, probs.p, probs.len);
	buf_puts(b, "],\"top_logprobs\":[");
	buf_put(b, tops.p, tops.len);
	buf_puts(b, "],\"text_offset\":[");
	put_offsets(b, s, runs, n_runs, offset, &piece);
	buf_puts(b, "]}");
	buf_fini(&piece);
	buf_fini(&probs);
	buf_fini(&tops);
}

void openai_prompt_logprobs(struct buf *b, const struct openai_shape *s, const struct openai_prompt *p)
{
	struct buf piece = {0};
	buf_puts(b, "[null");
	for (uint32_t i = 0; i + 1 < p->n_tokens; i++) {
		const struct token_logprob *l = &p->logprobs[i];
		buf_puts(b, ",{");
		bool first = true;
		for (uint32_t k = 0; k <= l->n_top; k++) {
			bool chosen = k == l->n_top;
			if (!chosen && l->top[k].token == l->token)
				continue; /* appended last, with its own rank */
			buf_printf(b, "%s\"%u\":{\"logprob\":", first ? "" : ",",
				   chosen ? l->token : l->top[k].token);
			first = false;
			json_write_float(b, logprob_shown(chosen ? l->logprob : l->top[k].logprob));
			buf_printf(b, ",\"rank\":%u,\"decoded_token\":", chosen ? l->rank : k + 1);
			buf_clear(&piece);
			tokenizer_piece(s->tokenizer, chosen ? l->token : l->top[k].token, &piece);
			json_write_string(b, piece.p, piece.len);
			buf_putc(b, '}');
		}
		buf_putc(b, '}');
	}
	buf_putc(b, ']');
	buf_fini(&piece);
}

/* --- choices --- */

static void put_finish(struct buf *b, const struct openai_shape *s, const struct output_view *v,
		       const struct chat_stream *chat)
{
	/* For a call forced by name, OpenAI's reason is "stop". */
	bool calls = chat && chat->called && v->finish == FINISH_STOP && !chat->rules->forced;
	buf_puts(b, ",\"finish_reason\":");
	json_write_str(b, v->finish == FINISH_NONE ? NULL : calls ? "tool_calls" : finish_name(v->finish));
	if (v->finish == FINISH_NONE)
		return;
	buf_puts(b, ",\"stop_reason\":");
	if (v->stop_string)
		json_write_str(b, v->stop_string);
	else if (v->stop_token >= 0 && v->stop_token != tokenizer_eos(s->tokenizer))
		json_write_int(b, v->stop_token);
	else
		buf_puts(b, "null");
}

/* Append ,"logprobs":... of an output or a delta. */
static void put_logprobs(struct buf *b, const struct openai_shape *s, const struct output_view *v,
			 const struct openai_prompt *p, uint64_t *offset)
{
	buf_puts(b, ",\"logprobs\":");
	if (!s->logprobs || !v->logprobs) {
		/* A delta that only ends the choice has no tokens. */
		buf_puts(b, "null");
		return;
	}
	if (s->chat) {
		put_chat_logprobs(b, s, v);
		return;
	}
	struct token_run runs[2] = {{.skip = 1}, {v->tokens, v->n_tokens, v->logprobs, 0}};
	if (p && p->echo_logprobs) {
		runs[0].tokens = p->tokens;
		runs[0].n = p->n_tokens;
		runs[0].logprobs = p->logprobs;
	}
	put_completion_logprobs(b, s, runs, 2, offset);
}

static void put_token_ids(struct buf *b, const struct openai_shape *s, const struct output_view *v)
{
	if (!s->return_token_ids)
		return;
	buf_puts(b, ",\"token_ids\":");
	json_write_ids(b, v->tokens, v->n_tokens);
}

static void put_choice_index(struct buf *b, uint32_t index)
{
	buf_puts(b, "{\"index\":");
	json_write_uint(b, index);
}

/* Append "tool_calls":[...]; streamed: each with its index, and only its new text. */
static void put_calls(struct buf *b, const struct chat_stream *chat, bool stream)
{
	buf_puts(b, "\"tool_calls\":[");
	for (uint32_t i = 0; i < chat->n_calls; i++) {
		const struct chat_stream_call *c = &chat->calls[i];
		buf_puts(b, i ? ",{" : "{");
		if (stream) {
			buf_puts(b, "\"index\":");
			json_write_uint(b, c->index);
			buf_putc(b, ',');
		}
		if (c->id[0]) {
			buf_printf(b, "\"id\":\"%s\",\"type\":\"function\",", c->id);
			buf_puts(b, "\"function\":{\"name\":");
			json_write_string(b, c->name.p, c->name.len);
			buf_putc(b, ',');
		} else {
			buf_puts(b, "\"function\":{");
		}
		buf_puts(b, "\"arguments\":");
		json_write_string(b, c->arguments.p, c->arguments.len);
		buf_puts(b, "}}");
	}
	buf_putc(b, ']');
}

/* Append the new segments of a chat's output. */
static void put_news(struct buf *b, const struct chat_stream *chat)
{
	const char *comma = "";
	if (chat->reasoning.len) {
		buf_puts(b, "\"reasoning_content\":");
		json_write_string(b, chat->reasoning.p, chat->reasoning.len);
		comma = ",";
	}
	if (chat->content.len) {
		buf_printf(b, "%s\"content\":", comma);
		json_write_string(b, chat->content.p, chat->content.len);
		comma = ",";
	}
	if (chat->n_calls) {
		buf_puts(b, comma);
		put_calls(b, chat, true);
	}
}

static void put_message(struct buf *b, const struct output_view *v, const struct chat_stream *chat)
{
	buf_puts(b, ",\"message\":{\"role\":\"assistant\",\"content\":");
	if (!chat)
		json_write_string(b, v->text, v->text_n);
	else if (chat->content.len || !(chat->n_calls || chat->reasoning.len))
		json_write_string(b, chat->content.p, chat->content.len);
	else
		buf_puts(b, "null");
	if (chat && chat->reasoning.len) {
		buf_puts(b, ",\"reasoning_content\":");
		json_write_string(b, chat->reasoning.p, chat->reasoning.len);
	}
	buf_puts(b, ",\"refusal\":null");
	if (chat && chat->n_calls) {
		buf_putc(b, ',');
		put_calls(b, chat, false);
	}
	buf_putc(b, '}');
}

void openai_chunk_role(struct buf *b, const struct openai_shape *s, uint32_t index)
{
	openai_begin(b, s);
	buf_puts(b, "\"choices\":[");
	put_choice_index(b, index);
	buf_puts(b, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_"
		    "reason\":null}]");
}

void openai_chunk_echo(struct buf *b, const struct openai_shape *s, uint32_t index,
		       const struct openai_prompt *p, uint64_t *offset)
{
	openai_begin(b, s);
	buf_puts(b, "\"choices\":[");
	put_choice_index(b, index);
	buf_puts(b, ",\"text\":");
	json_write_string(b, p->echo, p->echo_n);
	buf_puts(b, ",\"logprobs\":null,\"finish_reason\":null}]");
	*offset += utf8_chars(p->echo, p->echo_n);
}

void openai_chunk_delta(struct buf *b, const struct openai_shape *s, uint32_t index,
			const struct output_view *delta, const struct chat_stream *chat, uint64_t *offset)
{
	openai_begin(b, s);
	buf_puts(b, "\"choices\":[");
	put_choice_index(b, index);
	if (s->chat) {
		buf_puts(b, ",\"delta\":{");
		if (chat) {
			put_news(b, chat);
		} else if (delta->text_n || delta->n_tokens) {
			buf_puts(b, "\"content\":");
			json_write_string(b, delta->text, delta->text_n);
		}
		buf_putc(b, '}');
	} else {
		buf_puts(b, ",\"text\":");
		json_write_string(b, delta->text, delta->text_n);
	}
	put_logprobs(b, s, delta, NULL, offset);
	put_finish(b, s, delta, chat);
	put_token_ids(b, s, delta);
	buf_puts(b, "}]");
}

void openai_chunk_usage(struct buf *b, const struct openai_shape *s, const struct answer_usage *u,
			const struct answer_timing *t)
{
	openai_begin(b, s);
	buf_puts(b, "\"choices\":[]");
	if (t)
		openai_put_timing(b, t);
	openai_end_chunk(b, s, u);
}

void openai_put_timing(struct buf *b, const struct answer_timing *t)
{
	buf_puts(b, ",\"timing\":{\"queued_us\":");
	json_write_int(b, t->queued_us);
	buf_puts(b, ",\"first_token_us\":");
	json_write_int(b, t->first_token_us);
	buf_puts(b, ",\"total_us\":");
	json_write_int(b, t->total_us);
	buf_putc(b, '}');
}

void openai_end_chunk(struct buf *b, const struct openai_shape *s, const struct answer_usage *u)
{
	if (u || s->usage_null)
		buf_puts(b, ",\"usage\":");
	if (u)
		openai_usage(b, u);
	else if (s->usage_null)
		buf_puts(b, "null");
	buf_putc(b, '}');
}

void openai_choice(struct buf *b, const struct openai_shape *s, uint32_t index, const struct output_view *v,
		   const struct chat_stream *chat, const struct openai_prompt *p)
{
	uint64_t offset = 0;
	put_choice_index(b, index);
	if (s->chat) {
		put_message(b, v, chat);
	} else {
		struct buf text = {0};
		if (p->echo)
			buf_put(&text, p->echo, p->echo_n);
		buf_put(&text, v->text, v->text_n);
		if (p->echo && !p->echo_logprobs)
			offset = utf8_chars(p->echo, p->echo_n);
		buf_puts(b, ",\"text\":");
		json_write_string(b, text.p, text.len);
		buf_fini(&text);
	}
	put_logprobs(b, s, v, p, &offset);
	put_finish(b, s, v, chat);
	if (!s->chat && s->prompt_logprobs && p->logprobs) {
		buf_puts(b, ",\"prompt_logprobs\":");
		openai_prompt_logprobs(b, s, p);
	}
	put_token_ids(b, s, v);
	if (!s->chat && s->return_token_ids && p->tokens) {
		buf_puts(b, ",\"prompt_token_ids\":");
		json_write_ids(b, p->tokens, p->n_tokens);
	}
	buf_putc(b, '}');
}

void openai_usage(struct buf *b, const struct answer_usage *u)
{
	buf_puts(b, "{\"prompt_tokens\":");
	json_write_uint(b, u->prompt_tokens);
	buf_puts(b, ",\"completion_tokens\":");
	json_write_uint(b, u->completion_tokens);
	buf_puts(b, ",\"total_tokens\":");
	json_write_uint(b, u->prompt_tokens + u->completion_tokens);
	buf_puts(b, ",\"prompt_tokens_details\":{\"cached_tokens\":");
	json_write_uint(b, u->cached_tokens);
	buf_puts(b, u->class_changed ? "},\"class_changed\":true}" : "}}");
}
