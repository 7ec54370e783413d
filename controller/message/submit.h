/* submit.h - a validated request, from the parser of either protocol to the table of jobs. */
#ifndef QUERN_CONTROLLER_MESSAGE_SUBMIT_H
#define QUERN_CONTROLLER_MESSAGE_SUBMIT_H

#include "controller/message/trace_context.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

/* The owner of a job of HTTP is this and the name of its API key: no public key has that byte. */
#define SUBMIT_API_KEY '~'

/* Handed over by mailbox_submit() or jobs_submit(), which take ownership. */
struct submit {
	uint32_t *tokens; /* owned: the prompt */
	uint32_t n_tokens;
	struct params params;
	uint32_t best_of; /* outputs to sample; the params.n most likely are returned.  0: params.n */
	char **stop;      /* stop strings, owned */
	uint32_t n_stop;
	bool include_stop;          /* include_stop_str_in_output */
	bool skip_special;          /* skip_special_tokens */
	bool stream;                /* send JOB_DELTA to the listener */
	bool keep;                  /* continues without listeners; else it is cancelled */
	bool durable;               /* accepted once it is on disk; survives the controller */
	bool existing;              /* listens to the job with this key; is refused if there is none */
	uint8_t body[16];           /* with an idempotency key: digest of the request, api_digest() */
	int64_t deadline_us;        /* clock_us(), 0: none */
	bool chat;                  /* its prompt is of messages */
	bool of_http;               /* a part of an HTTP request, which has a span of its own */
	struct trace_context trace; /* owned */
	int64_t received_us;        /* clock_us() when the request came; 0: not known */
	char *user;                 /* owned or NULL: of the owner: users divide what their owner gets */
	char *key;                  /* owned or NULL: idempotency key */
	char *owner;                /* owned or NULL: the public key, or the API key, that may see the job */
	char *cache_salt; /* owned or NULL: prefix blocks are shared only between jobs of equal salt */
	int32_t priority; /* lower runs first */
	uint32_t share;   /* weight of the owner; 0 is 1 */
};
void submit_free(struct submit *s); /* NULL is fine */

#endif
