/* ollama_json.h - the shapes of Ollama's replies: pure functions that append JSON to a buffer.
 *
 * A stream is lines of JSON; the last one has `done` and the times (of nanoseconds):
 *
 *   {"model", "created_at", "message": {"role", "content"}, "done": false}      /api/chat
 *   {"model", "created_at", "response", "done": false}                          /api/generate
 *
 * A call of a tool is one line, when its arguments, an object, are complete. */
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

/* Common to all lines of a reply.  Borrowed pointers. */
struct ollama_shape {
	const struct tokenizer *tokenizer;
	const char *model;
	bool generate; /* the shape of /api/generate */
	bool logprobs;
	int64_t at_us; /* created_at, microseconds since 1970; 0: now */
};

/* A call, with its arguments so far. */
struct ollama_call {
	bool open;
	struct buf name, arguments;
};
void ollama_call_fini(struct ollama_call *c);

/* "2026-11-24T00:00:00.000001Z" */
void ollama_put_time(struct buf *b, int64_t unix_us);

/* The lines of an output's news; in v->finish's delta, an open call is closed.  chat NULL: v's text as it is.
 */
void ollama_put_delta(struct buf *b, const struct ollama_shape *s, struct ollama_call *call,
		      const struct output_view *v, const struct chat_stream *chat);
/* The last line of a stream. */
void ollama_put_end(struct buf *b, const struct ollama_shape *s, const char *reason,
		    const struct answer_usage *u, const struct answer_timing *t);
/* A reply that is not streamed, without its end: then as the last line's. */
void ollama_put_whole(struct buf *b, const struct ollama_shape *s, const struct output_view *v,
		      const struct chat_stream *chat);
/* ,"done":true,"done_reason":...,"total_duration":...}  timing, usage: NULL for none. */
void ollama_put_done(struct buf *b, const char *reason, const struct answer_usage *u,
		     const struct answer_timing *t);
/* Of a request that generates nothing. */
void ollama_put_nothing(struct buf *b, const struct ollama_shape *s, const char *reason);

/* "stop" or "length"; static. */
const char *ollama_reason(const struct output_view *v);

#endif
