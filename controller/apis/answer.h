/* answer.h - the events of a request's jobs, which an API's writer turns into its reply.
 *
 *   request of an API --reader--> tree of OpenAI's dialect --generation.h--> jobs
 *                                                                              |
 *   bytes of the reply <--writer (this)-- completion.h <------ events of jobs -'
 *
 * A writer is a table of functions that append to the reply's bytes.  It knows its API's shapes and nothing
 * of jobs, keys, limits and connections; the code below it does not know which API it serves.
 *
 *   stream    begin, accepted (each job), delta ..., keep, end
 *   whole     begin, done and output (each job), keep, body
 *   error     at any point after begin, instead of the rest: `error` within a stream, otherwise the route's
 *             error shape (http.h)
 *
 * All functions except begin and free run under the exchange's lock and must not block.  They run on the
 * front end's thread; if a resumable stream (resume.h) waits for its client, on libmicrohttpd's thread.
 * begin runs on the route's thread, before any job is submitted.  accepted, delta and end append whole events
 * to a stream.  A request with several prompts has several jobs; their events are interleaved. */
#ifndef QUERN_CONTROLLER_APIS_ANSWER_H
#define QUERN_CONTROLLER_APIS_ANSWER_H

#include "base/buf.h"
#include "controller/chat/chat_stream.h"
#include "controller/message/job_event.h"
#include "controller/request/api.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct completion;
struct http_failure;
struct subrequest;

struct answer_usage {
	uint64_t prompt_tokens, completion_tokens, cached_tokens;
	bool class_changed; /* shown only if true */
};

/* Microseconds from a job's acceptance: until it ran, until its first token, until its end. */
struct answer_timing {
	int64_t queued_us, first_token_us, total_us;
};

/* Functions that are NULL are not called. */
struct answer_writer {
	/* The writer parses reasoning and tool calls itself, by c->rules: it gets no chat, and every
	 * delta. */
	bool raw;
	/* Content-Type of a stream, static; NULL: text/event-stream. */
	const char *stream_type;
	bool lines; /* the events of a stream are lines; false: server-sent events */
	/* The request (as passed to generation_start()) is valid; the prompts are in c->subs[].submit. */
	void (*begin)(struct completion *c, const json_t *request, const struct api_reply *reply);
	/* Streams only: the job was accepted, and e has the tokens of its prompt.  May reply at once with
	 * exchange_reply_locked(); then no further function is called. */
	void (*accepted)(struct subrequest *s, const struct job_event *e);
	/* The request fails before any of its jobs was accepted: the reply is the error.  Called only after
	 * the writer's begin(). */
	void (*refused)(struct completion *c, const struct http_failure *f);
	/* Streams only: new text of an output, which is choice s->first + d->index of the request.  chat: the
	 * output's new segments, to be used instead of d's text; NULL: d's text is the content.  d->finish is
	 * set in the last call.  Deltas without news come only if c->every_delta is set. */
	void (*delta)(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat);
	/* Streams only: the client has read everything written so far.  A writer that holds back events
	 * appends more of them.  false: there are none.  Thread: the connection's. */
	bool (*more)(struct completion *c);
	/* Every output has ended, before body or end: stores the data that the reply promises to keep.  true:
	 * completion_kept() is called with c once the data is on disk or has failed, perhaps already, and the
	 * reply waits for it. */
	bool (*keep)(struct completion *c);
	/* Streams only: every output has ended; c->usage and c->timing are complete. */
	void (*end)(struct completion *c);
	/* Whole replies: the job has ended, its outputs follow.  Returns NULL, or why the request fails as an
	 * internal error. */
	const char *(*done)(struct subrequest *s, const struct job_event *e);
	/* Whole replies: one complete output of the job.  chat: all of its segments, used as in delta. */
	void (*output)(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		       const struct job_event *e);
	/* Whole replies: appends the body, for all jobs. */
	void (*body)(struct completion *c, struct buf *b);
	/* Streams only: appends the error and the end of the stream.  NULL: in OpenAI's chat shape. */
	void (*error)(struct completion *c, const struct http_failure *f);
	void (*free)(void *data); /* frees c->writer_data */
};

/* The new text of an output that is neither reasoning nor a tool call. */
struct answer_text {
	const char *p;
	size_t n;
};
static inline struct answer_text answer_text(const struct output_view *v, const struct chat_stream *chat)
{
	return chat ? (struct answer_text){chat->content.p, chat->content.len}
		    : (struct answer_text){v->text, v->text_n};
}

#endif
