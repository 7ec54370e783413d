/* answer.h - the events of a request's jobs, as an API's writer gets them and turns them into its reply.
 *
 *   request of an API --reader--> tree of OpenAI's dialect --generation.h--> jobs
 *                                                                              |
 *   bytes of the reply <--writer (this)-- completion.h <------ events of jobs -'
 *
 * A writer is a table of functions that append to the reply's bytes.  It knows its API's shapes and nothing
 * of jobs, keys, limits and connections; nothing below knows which API it was.
 *
 *   stream    begin, accepted (each job), delta ..., end
 *   whole     begin, done and output (each job), body
 *   error     after begin at any point, instead of the rest: `error` within a stream, else the route's shape
 * of errors (http.h)
 *
 * All run under the exchange's lock and must not block, on the front end's thread or, while a stream that can
 * be gone on with (resume.h) waits for its client, on libmicrohttpd's; but begin (the thread of the route,
 * before any job is submitted) and free.  What accepted, delta and end append to a stream is whole events.  A
 * request of several prompts has several jobs, with their events interleaved. */
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
	bool class_changed; /* shown if so */
};

/* Microseconds since a job was accepted: until it ran, until its first token, until its end. */
struct answer_timing {
	int64_t queued_us, first_token_us, total_us;
};

/* A function that is NULL is not called. */
struct answer_writer {
	/* The writer parses reasoning and calls of tools itself, by c->rules: it gets no chat, and every
	 * delta. */
	bool raw;
	/* Content-Type of a stream, static; NULL: text/event-stream. */
	const char *stream_type;
	bool lines; /* a stream's events are lines; false: server-sent events */
	/* The request (as generation_start() got it) was found good; the prompts are in c->subs[].submit. */
	void (*begin)(struct completion *c, const json_t *request, const struct api_reply *reply);
	/* Streams only: the job was accepted, and e has the tokens of its prompt.  It may reply at once, by
	 * exchange_reply_locked(): nothing more comes then. */
	void (*accepted)(struct subrequest *s, const struct job_event *e);
	/* The request fails before any of its jobs was accepted: the reply is the error.  Not called for what
	 * the writer's begin() was not. */
	void (*refused)(struct completion *c, const struct http_failure *f);
	/* Streams only: news of an output, which is choice s->first + d->index of the request.  chat: its
	 * new parts, to be read in place of d's text; NULL: d's text is the content.  d->finish is set
	 * in the last one.  Deltas without news come only where c->every_delta is set. */
	void (*delta)(struct subrequest *s, const struct output_view *d, const struct chat_stream *chat);
	/* Streams only: the client has read all that was written: a writer that holds back events which would
	 * be too much at once appends more of them.  false: there are none.  Thread: the connection's. */
	bool (*more)(struct completion *c);
	/* Streams only: every output has ended; c->usage and c->timing are complete. */
	void (*end)(struct completion *c);
	/* Whole replies: the job has ended, its outputs follow.  Not NULL: why the request fails as an
	 * internal error. */
	const char *(*done)(struct subrequest *s, const struct job_event *e);
	/* Whole replies: one output of the job, complete.  chat: all of its parts, as in delta. */
	void (*output)(struct subrequest *s, const struct output_view *v, const struct chat_stream *chat,
		       const struct job_event *e);
	/* Whole replies: of all jobs. */
	void (*body)(struct completion *c, struct buf *b);
	/* Streams only: the error, and what ends a stream.  NULL: as OpenAI's chat has them. */
	void (*error)(struct completion *c, const struct http_failure *f);
	void (*free)(void *data); /* c->writer_data */
};

/* The text of an output's news that is neither reasoning nor a call of a tool. */
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
