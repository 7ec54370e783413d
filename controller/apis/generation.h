/* generation.h - turn a request in one of OpenAI's dialects (api.h) into jobs (completion.h); their events go
 * to a writer (answer.h).  Common to all APIs: prompts, limits of the whole request, the API key's terms. */
#ifndef QUERN_CONTROLLER_APIS_GENERATION_H
#define QUERN_CONTROLLER_APIS_GENERATION_H

#include "controller/apis/answer.h"
#include "controller/http/api_keys.h"
#include "controller/http/exchange.h"
#include "controller/request/api.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GENERATION_KEY_SIZE = 128 };

/* A request without a connection, run by a batch, a background response or the job socket. */
struct generation_line {
	char key[GENERATION_KEY_SIZE - 24]; /* prefix of its jobs' idempotency keys; "": they have none */
	int32_t priority;                   /* added to the request's priority */
	const char *owner;                  /* name of the API key that owns the request; "": none */
	const char *peer;           /* the client's public key at the job socket, which owns the request;
				     * NULL: none */
	struct api_key_terms terms; /* terms of the API key; without a key, any priority */
	bool existing;              /* listens to existing jobs; makes none */
	bool durable;               /* its jobs survive a restart */
	bool keep;                  /* its jobs continue without a listener; durable jobs always do */
};

/* A field's names in the dialect and in the client's API.  Errors and the list of ignored fields use the
 * client's. */
struct generation_name {
	const char *internal, *client;
};

struct resume_request;

struct generation {
	enum api_dialect dialect;            /* the request's: API_CHAT or API_COMPLETIONS */
	const struct answer_writer *writer;  /* outlives the exchange */
	void *writer_data;                   /* taken by generation_start() */
	const char *id_prefix;               /* prefix of the reply's id: "chatcmpl-" */
	const struct generation_name *names; /* ends with NULLs; NULL: the client uses the internal names */
	const struct resume_request *resume; /* the client's headers; NULL: not read.  Streams only */
	const struct generation_line *line;  /* the line that the jobs belong to; NULL: x->line, if any */
	const char *id;                      /* the reply's id; NULL: drawn */
	bool to_context;                     /* a completion without max_tokens may fill the context */
	bool attach;                         /* the jobs probably exist: nothing counts against the API key */
	/* May be NULL.  Completes a request of one prompt.  Runs after the job's slot in the key's limit is
	 * taken, because it is expensive.  -EINVAL with *p filled. */
	int (*prepare)(const struct exchange *x, const void *user, struct api_problem *p);
	const void *prepare_user;
};

/* Check the request's model and fields, and submit its jobs; or x has its reply.  request: borrowed during
 * the call.  x->ignored may already have names of the client's fields. */
void generation_start(struct exchange *x, const json_t *request, const struct generation *g);

/* Replace the dialect's names in a problem by the client's. */
void generation_rename(const struct generation_name *names, struct api_problem *p);

struct submit;

/* Set the job's owner, share, priority and prefixes from the key. */
void generation_own_by_key(const struct exchange *x, struct submit *s);
/* Set the job's owner, share, priority and prefixes from the line. */
void generation_own_by_line(const struct generation_line *line, struct submit *s);
/* Write the idempotency key of one of a line's n_jobs jobs: "batch/line" or "batch/line/job". */
void generation_job_key(char out[GENERATION_KEY_SIZE], const char *key, size_t n_jobs, size_t job);

#endif
