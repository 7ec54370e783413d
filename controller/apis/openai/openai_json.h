/* openai_json.h - the shapes of OpenAI's replies, with vLLM's additions: pure functions that append JSON to a
 * buffer; and checks shared by its requests.  Knows nothing of connections. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_OPENAI_JSON_H
#define QUERN_CONTROLLER_APIS_OPENAI_OPENAI_JSON_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/chat/chat_stream.h"
#include "controller/message/job_event.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fields common to all chunks and choices of a reply.  Borrowed pointers. */
struct openai_shape {
	const struct tokenizer *tokenizer;
	char id[64]; /* "chatcmpl-..." */
	const char *model;
	int64_t created;
	bool chat;
	bool stream;
	bool usage_null; /* stream_options.include_usage: "usage": null in all chunks */
	bool skip_special;
	bool tokens_as_ids;
	bool return_token_ids;
	bool logprobs;        /* show logprobs of the generated tokens */
	bool prompt_logprobs; /* show vLLM's field prompt_logprobs */
};

/* The prompt of a choice, if the reply shows it. */
struct openai_prompt {
	const char *echo; /* completions with echo: the prompt's text; NULL: none */
	size_t echo_n;
	const uint32_t *tokens; /* NULL: not needed */
	uint32_t n_tokens;
	const struct token_logprob *logprobs; /* [n_tokens - 1], for tokens from 1 on; or NULL */
	bool echo_logprobs;                   /* the choice's logprobs begin with the prompt's tokens */
};

/* Append the start, up to "choices" exclusively: {"id":...,"object":...,"created":...,"model":..., */
void openai_begin(struct buf *b, const struct openai_shape *s);

/* Append a stream's chunk with one choice, without usage and closing; openai_end_chunk() ends it.  offset:
 * characters of the choice before this delta (text_offset); advanced by the delta.  chat: the new segments of
 * a chat's output, shown instead of delta's text; NULL: delta's text is shown unchanged. */
void openai_chunk_role(struct buf *b, const struct openai_shape *s, uint32_t index);
void openai_chunk_echo(struct buf *b, const struct openai_shape *s, uint32_t index,
		       const struct openai_prompt *p, uint64_t *offset);
void openai_chunk_delta(struct buf *b, const struct openai_shape *s, uint32_t index,
			const struct output_view *delta, const struct chat_stream *chat, uint64_t *offset);
/* Append the last chunk: no choice, the usage, the timing (NULL for either: none). */
void openai_chunk_usage(struct buf *b, const struct openai_shape *s, const struct answer_usage *u,
			const struct answer_timing *t);
/* End a chunk.  usage: NULL for none. */
void openai_end_chunk(struct buf *b, const struct openai_shape *s, const struct answer_usage *u);

/* Check a request's metadata, an object within OpenAI's limits, which count characters.  Returns NULL, or the
 * reason to refuse it.  m NULL: no metadata. */
const char *openai_check_metadata(const json_t *m);

/* Append one choice of a reply that is not streamed.  chat: as above, all of its segments. */
void openai_choice(struct buf *b, const struct openai_shape *s, uint32_t index, const struct output_view *v,
		   const struct chat_stream *chat, const struct openai_prompt *p);
/* Append vLLM's prompt_logprobs: [null, {"id": {"logprob", "rank", "decoded_token"}}, ...] */
void openai_prompt_logprobs(struct buf *b, const struct openai_shape *s, const struct openai_prompt *p);
void openai_usage(struct buf *b, const struct answer_usage *u);
/* Append ,"timing":{...} */
void openai_put_timing(struct buf *b, const struct answer_timing *t);

#endif
