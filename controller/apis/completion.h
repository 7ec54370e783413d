/* completion.h - a request's jobs, and their events as its reply: the work of an exchange.
 *
 *   request --.--> subrequest 0: prompt 0 --> job --> choices 0 .. n-1   --.
 *             |--> subrequest 1: prompt 1 --> job --> choices n .. 2n-1  --|--> writer: reply, or chunks
 *             `--> ...                                                   --'
 *
 * Made by the thread that calls the route (generation.h); its events come on the front end's thread,
 * under the exchange's lock, and go to the API's writer (answer.h).  A subrequest lives as long as its
 * exchange: each one that was submitted holds a reference to the exchange until the front end has released
 * its listener. */
#ifndef QUERN_CONTROLLER_APIS_COMPLETION_H
#define QUERN_CONTROLLER_APIS_COMPLETION_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/chat/chat_stream.h"
#include "controller/http/exchange.h"
#include "controller/message/job_event.h"
#include "controller/message/submit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct completion;
struct mailbox;
struct resume;

/* One prompt of a request: one job. */
struct subrequest {
	struct completion *completion;
	struct submit *submit; /* owned until it is submitted */
	uint32_t first;        /* number of its first choice */
	uint32_t n_outputs;
	uint32_t n_prompt; /* tokens */
	/* Under the exchange's lock. */
	uint64_t listener;
	uint64_t n_generated; /* tokens, also after the client has disconnected */
	char job[64];         /* its id, once it was accepted; "" before */
	bool submitted, finished, unlistened;
	bool settled; /* its place in the API key's limit on jobs was given back */
	struct chat_stream
		*chat;   /* [n_outputs], owned: reasoning and tool calls are parsed; NULL: they are not */
	struct buf part; /* the writer's: what the whole reply has of this job */
};

/* Fields down to key_jobs are set before completion_submit(), and are not changed afterwards. */
struct completion {
	struct exchange *x;
	struct mailbox *mailbox;
	struct subrequest *subs; /* owned */
	size_t n_subs;
	const struct answer_writer *writer;
	void *writer_data; /* owned: freed by the writer */
	struct chat_stream_rules rules;
	char *forced;     /* owned: rules.forced */
	json_t *declared; /* owned: rules.declared */
	char *model;      /* owned: the model's name, as the client calls it */
	char id[64];      /* of the reply, "chatcmpl-..." */
	/* clock_unix_us(), and its seconds; of a stream that can be gone on with: when its job was accepted,
	 * known from `accepted` on. */
	int64_t created_us, created;
	bool stream;
	bool every_delta;  /* the writer shows tokens: it gets deltas without text, too */
	bool no_output;    /* the outputs' tokens are left out */
	uint32_t key_jobs; /* places taken in the API key's limit on jobs, before the prompts are tokenized:
			    * n_subs, each given back when its job ends; or 0 */

	struct resume *resume; /* owned: the stream can be gone on with; NULL: it cannot */

	/* Under the exchange's lock. */
	bool handed_over;          /* completion_submit() has begun: the fields above are set */
	size_t n_accepted, n_done; /* subrequests */
	struct answer_usage usage;
	struct answer_timing timing; /* of the jobs that ended: the longest of each */
	unsigned finishes;           /* bits 1 << enum finish, of outputs that ended */
	uint64_t streamed_tokens;
};

/* The exchange's work, with n subrequests to be filled in.  Takes data. */
struct completion *completion_new(struct exchange *x, size_t n, const struct answer_writer *writer,
				  void *data);
/* The exchange's completion; NULL: its work is another, or it has none. */
struct completion *completion_of(const struct exchange *x);
/* The reply's id, or if that is NULL, the prefix and 128 random bits; also the exchange's, for headers and
 * the log. */
void completion_set_id(struct completion *c, const char *prefix, const char *id);

enum { COMPLETION_LIMIT_SIZE = 160 };
/* Takes the jobs' places in the API key's limit on jobs at once, before any prompt is tokenized.  false: x
 * has its reply.  limit: NULL, or gets the reason where there is no room, which is true then. */
bool completion_begin_key(struct completion *c, char limit[COMPLETION_LIMIT_SIZE]);
/* Nothing is submitted: the places in the key's limit are free again, before the client has its reply. */
void completion_give_up(struct completion *c);
/* Hands the subrequests to the front end; parks the exchange first. */
void completion_submit(struct completion *c);

/* Ends the jobs that were accepted and still run, whether or not they are durable.  For an exchange
 * after its route was called; any thread that holds a reference. */
void completion_cancel_jobs(struct exchange *x);

#endif
