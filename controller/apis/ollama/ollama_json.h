/* ollama_json.h - the shapes of Ollama's replies: pure functions that append JSON to a buffer.
 *
 * A stream is lines of JSON; the last line has `done` and the times (nanoseconds):
 *
 *   {"model", "created_at", "message": {"role", "content"}, "done": false}      /api/chat
 *   {"model", "created_at", "response", "done": false}                          /api/generate
 *
 * A tool call is one line, written when its arguments, an object, are complete. */
#ifndef QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_JSON_H
#define QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_JSON_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/chat/chat_stream.h"
#include "controller/message/job_event.h"
#include "controller/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fields common to all lines of a reply.  Borrowed pointers. */
struct ollama_shape {
	const struct tokenizer *tokenizer;
	const char *model;
	bool generate; /* the shape of /api/generate */
	bool logprobs;
	int64_t at_us; /* created_at, microseconds since 1970; 0: now */
};

/* A tool call with its arguments so far. */
struct ollama_call {
	bool open;
	struct buf name, arguments;
};
void ollama_call_fini(struct ollama_call *c);

/* Append a time: "2026-11-24T00:00:00.000001Z". */
void ollama_put_time(struct buf *b, int64_t unix_us);

/* Append the lines of an output's news; the delta with v->finish closes an open call.  chat NULL: v's text
 * unchanged. */
void ollama_put_delta(struct buf *b, const struct ollama_shape *s, struct ollama_call *call,
		      const struct output_view *v, const struct chat_stream *chat);
/* Append the last line of a stream. */
void ollama_put_end(struct buf *b, const struct ollama_shape *s, const char *reason,
		    const struct answer_usage *u, const struct answer_timing *t);
/* Append a reply that is not streamed, without its end, which ollama_put_done() appends. */
void ollama_put_whole(struct buf *b, const struct ollama_shape *s, const struct output_view *v,
		      const struct chat_stream *chat);
/* Append ,"done":true,"done_reason":...,"total_duration":...} timing, usage: NULL for none. */
void ollama_put_done(struct buf *b, const char *reason, const struct answer_usage *u,
		     const struct answer_timing *t);
/* Append the reply of a request that generates nothing. */
void ollama_put_nothing(struct buf *b, const struct ollama_shape *s, const char *reason);

/* Return "stop" or "length"; static. */
const char *ollama_reason(const struct output_view *v);

#endif
