/* completion.h - the work of an exchange: a request's jobs; their events become its reply.
 *
 *   request --.--> subrequest 0: prompt 0 --> job --> choices 0 .. n-1   --.
 *             |--> subrequest 1: prompt 1 --> job --> choices n .. 2n-1  --|--> writer: reply, or chunks
 *             `--> ...                                                   --'
 *
 * The thread that calls the route makes it (generation.h).  Its events arrive on the front end's thread,
 * under the exchange's lock, and go to the API's writer (answer.h).  A subrequest exists as long as its
 * exchange: each submitted subrequest holds a reference to the exchange until the front end has released its
 * listener. */
#ifndef QUERN_CONTROLLER_APIS_COMPLETION_H
#define QUERN_CONTROLLER_APIS_COMPLETION_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/chat/chat_stream.h"
#include "controller/http/exchange.h"
#include "controller/message/job_event.h"
#include "controller/message/submit.h"

#include <stdatomic.h>
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
	uint64_t n_generated; /* tokens generated, including those after the client has disconnected */
	char job[64];         /* job id; "" until accepted */
	bool submitted, finished, unlistened;
	bool slot_released;       /* its slot in the API key's job limit has been released */
	struct chat_stream *chat; /* [n_outputs], owned: parse reasoning and tool calls; NULL: not parsed */
	struct buf part;          /* used by the writer: this job's segment of the whole reply */
};

/* Fields down to key_jobs are set before completion_submit(), and not changed afterwards. */
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
	char *model;      /* owned: the model's name as the client wrote it */
	char id[64];      /* id of the reply, "chatcmpl-..." */
	/* clock_unix_us(), and its seconds.  For a resumable stream: when its job was accepted, known from
	 * `accepted` on. */
	int64_t created_us, created;
	bool stream;
	bool every_delta;  /* the writer shows tokens: it also gets deltas without text */
	bool no_output;    /* the outputs' tokens are left out */
	uint32_t key_jobs; /* slots taken in the API key's job limit before the prompts are tokenized: n_subs,
			    * each released when its job ends; or 0 */

	struct resume *resume; /* owned: the stream can be resumed; NULL: it cannot */

	/* Result of the writer's keep(). */
	struct completion_kept {
		atomic_int phase; /* completion.c */
		int rc;           /* 0; or -errno and why: the reply is an error */
		char why[512];
	} kept;

	/* Under the exchange's lock. */
	bool handed_over;          /* completion_submit() has begun: the fields above are set */
	size_t n_accepted, n_done; /* number of subrequests */
	struct answer_usage usage;
	struct answer_timing timing; /* the longest time of each kind among the ended jobs */
	unsigned finishes;           /* bits 1 << enum finish, for outputs that ended */
	uint64_t streamed_tokens;
};

/* Make the exchange's work, with n subrequests to be filled in.  Takes data. */
struct completion *completion_new(struct exchange *x, size_t n, const struct answer_writer *writer,
				  void *data);
/* Return the exchange's completion; NULL if it has no work, or other work. */
struct completion *completion_of(const struct exchange *x);
/* Set the id of the reply to id, or, if that is NULL, to the prefix and 128 random bits.  Also sets the
 * exchange's id, for headers and the log. */
void completion_set_id(struct completion *c, const char *prefix, const char *id);

enum { COMPLETION_LIMIT_SIZE = 160 };
/* Take all the jobs' slots in the API key's job limit, before any prompt is tokenized.  false: x has its
 * reply.  limit: NULL, or receives the reason if there is no room; then the result is true. */
bool completion_begin_key(struct completion *c, char limit[COMPLETION_LIMIT_SIZE]);
/* Give up without submitting: release the slots in the key's limit before the client gets its reply. */
void completion_give_up(struct completion *c);
/* Submit the subrequests to the front end; parks the exchange first. */
void completion_submit(struct completion *c);

/* Report that the data of answer_writer.keep() is on disk (rc 0), or failed (-errno, why).  user: the
 * completion.  Once, on any thread. */
void completion_kept(void *user, int rc, const char *why);

/* End the accepted jobs that still run, durable or not.  Only after the exchange's route was called; any
 * thread that holds a reference. */
void completion_cancel_jobs(struct exchange *x);

#endif
