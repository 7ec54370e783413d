/* submit.h - a validated request, passed from the parser of either protocol to the table of jobs. */
#ifndef QUERN_CONTROLLER_MESSAGE_SUBMIT_H
#define QUERN_CONTROLLER_MESSAGE_SUBMIT_H

#include "controller/message/trace_context.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

/* First byte of the owner of an HTTP job, before the name of its API key: no public key contains it. */
#define SUBMIT_API_KEY '~'

/* Handed over by mailbox_submit() or jobs_submit(), which take ownership. */
struct submit {
	uint32_t *tokens; /* owned: the prompt */
	uint32_t n_tokens;
	struct params params;
	uint32_t best_of; /* outputs to sample; the params.n most likely are returned.  0: params.n */
	char **stop;      /* stop strings, owned */
	uint32_t n_stop;
	/* A chat: its output may begin with reasoning (SUBMIT_REASONING_OPEN: begins inside it).  Stop
	 * strings and late_stop_ids apply only after the end of the reasoning. */
	enum submit_reasoning {
		SUBMIT_REASONING_NONE,
		SUBMIT_REASONING_OPTIONAL,
		SUBMIT_REASONING_OPEN
	} reasoning;
	uint32_t *late_stop_ids; /* owned, [n_late_stop_ids]; the engine does not know them */
	uint32_t n_late_stop_ids;
	bool include_stop;          /* include_stop_str_in_output */
	bool skip_special;          /* skip_special_tokens */
	bool stream;                /* send JOB_DELTA to the listener */
	bool keep;                  /* continues without listeners; else it is cancelled */
	bool durable;               /* accepted once it is on disk; survives the controller */
	bool existing;              /* listens to the job with this key; refused if there is none */
	uint8_t body[16];           /* with an idempotency key: digest of the request, api_digest() */
	int64_t deadline_us;        /* clock_us(), 0: none */
	bool chat;                  /* the prompt was built from chat messages */
	bool of_http;               /* part of an HTTP request, which has a span of its own */
	struct trace_context trace; /* owned */
	int64_t received_us;        /* clock_us() when the request arrived; 0: unknown */
	char *user;                 /* owned or NULL: user of the owner; users divide the owner's share */
	char *key;                  /* owned or NULL: idempotency key */
	char *owner;                /* owned or NULL: public key or API key that may see the job */
	char *cache_salt; /* owned or NULL: prefix blocks are shared only between jobs of equal salt */
	int32_t priority; /* lower runs first */
	uint32_t share;   /* weight of the owner; 0 counts as 1 */
};
void submit_free(struct submit *s); /* NULL is fine */

#endif
