/* completion.h - a completions request as jobs, and their events as its reply: the work of an exchange.
 *
 *   request --.--> subrequest 0: prompt 0 --> job --> choices 0 .. n-1   --.
 *             |--> subrequest 1: prompt 1 --> job --> choices n .. 2n-1  --|--> reply, or chunks
 *             `--> ...                                                   --'
 *
 * Made by the thread that calls the route (completions.h); its events come on the front end's thread,
 * under the exchange's lock.  A subrequest lives as long as its exchange: each one that was submitted holds a
 * reference to the exchange until the front end has released its listener. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_COMPLETION_H
#define QUERN_CONTROLLER_ENDPOINTS_COMPLETION_H

#include "base/buf.h"
#include "controller/chat/chat_stream.h"
#include "controller/endpoints/openai_json.h"
#include "controller/http/exchange.h"
#include "controller/message/job_event.h"
#include "controller/message/submit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct completion;
struct mailbox;
struct subrequest;

/* A request of pooled jobs (params.pool): what its reply is made of, instead of choices.  All called
 * under the exchange's lock, but free. */
struct completion_pooled {
	/* A job's values; false: they are not numbers, the request fails. */
	bool (*done)(struct subrequest *s, const struct job_event *e);
	/* Of all jobs: the reply's body. */
	void (*reply)(struct completion *c, struct buf *b);
	void (*free)(void *data);
};

/* One prompt of a request: one job. */
struct subrequest {
	struct completion *completion;
	struct submit *submit; /* owned until it is submitted */
	uint32_t first;        /* number of its first choice */
	uint32_t n_outputs;
	uint32_t n_prompt; /* tokens */
	char *echo;        /* owned: the prompt's text, or NULL */
	size_t echo_n;
	uint32_t *tokens; /* owned: a copy of the prompt's, where the reply shows them */
	/* Under the exchange's lock. */
	uint64_t listener;
	uint64_t n_generated; /* tokens, also after the client has disconnected */
	char job[64];         /* its id, once it was accepted; "" before */
	bool submitted, finished, unlistened;
	bool settled; /* its place in the API key's limit on jobs was given back */
	struct chat_stream
		*chat;      /* [n_outputs], owned: reasoning and tool calls are parsed; NULL: they are not */
	uint64_t *offset;   /* [n_outputs] characters sent, owned */
	struct buf choices; /* not streamed: its choices, "{...},{...}" */
	struct buf prompt_logprobs; /* not streamed, chat: the reply's field */
};

/* Fields down to key_jobs are set before completion_submit(), and are not changed afterwards. */
struct completion {
	struct exchange *x;
	struct mailbox *mailbox;
	struct subrequest *subs; /* owned */
	size_t n_subs;
	struct openai_shape shape;
	struct chat_stream_rules rules;
	char *forced;     /* owned: rules.forced */
	json_t *declared; /* owned: rules.declared */
	char *model;      /* owned: shape.model */
	bool stream, continuous_usage, echo_logprobs;
	bool return_timing;
	bool no_output;                         /* the outputs' tokens are left out */
	const struct completion_pooled *pooled; /* NULL: outputs become choices */
	void *pooled_data;                      /* owned */
	uint32_t key_jobs; /* places taken in the API key's limit on jobs, before the prompts are tokenized:
			    * n_subs, each given back when its job ends; or 0 */

	/* Under the exchange's lock. */
	bool handed_over;          /* completion_submit() has begun: the fields above are set */
	size_t n_accepted, n_done; /* subrequests */
	struct openai_usage usage;
	struct openai_timing timing; /* of the jobs that ended: the longest of each */
	unsigned finishes;           /* bits 1 << enum finish, of outputs that ended */
	uint64_t streamed_tokens;
};

/* The exchange's work, with n subrequests to be filled in. */
struct completion *completion_new(struct exchange *x, size_t n);
/* The exchange's completion; NULL: its work is another, or it has none. */
struct completion *completion_of(const struct exchange *x);

/* Nothing is submitted: the places in the key's limit are free again, before the client has its reply. */
void completion_give_up(struct completion *c);
/* Hands the subrequests to the front end; parks the exchange first. */
void completion_submit(struct completion *c);

/* Ends the jobs that were accepted and still run, whether or not they are durable.  For an exchange
 * after its route was called; any thread that holds a reference. */
void completion_cancel_jobs(struct exchange *x);

#endif
