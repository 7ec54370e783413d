/* generation.h - a request in one of OpenAI's dialects (api.h), whichever API it came from, to jobs
 * (completion.h), and their events to a writer (answer.h).  Common to all APIs: prompts, bounds of the
 * request as a whole, the API key's terms. */
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

/* A request without a connection (a line of a batch): its jobs are durable. */
struct generation_line {
	char key[GENERATION_KEY_SIZE - 24]; /* prefix of its jobs' idempotency keys */
	int32_t priority;                   /* added to the request's */
	const char *owner;                  /* name of the key that the batch belongs to; "" for none */
	struct api_key_terms terms;         /* of that key; for none, any priority */
	bool existing;                      /* listens to jobs that exist; makes none */
};

/* A field of the dialect, and what the client's API calls it.  Errors and the list of ignored fields name the
 * client's. */
struct generation_name {
	const char *internal, *client;
};

struct resume_request;

struct generation {
	enum api_dialect dialect;            /* API_CHAT or API_COMPLETIONS: of the request */
	const struct answer_writer *writer;  /* outlives the exchange */
	void *writer_data;                   /* taken */
	const char *id_prefix;               /* of the reply's id: "chatcmpl-" */
	const struct generation_name *names; /* ends with NULLs; NULL: all names are the client's */
	const struct resume_request *resume; /* the client's headers; NULL: not read.  Of streams only */
	const struct generation_line *line;  /* durable jobs with these keys; NULL: of x's life */
	const char *id;                      /* the reply's; NULL: one is drawn */
	bool to_context;                     /* without max_tokens, a completion has what the context holds */
	bool attach;                         /* the jobs exist, most likely: nothing counts for the API key */
	/* May be NULL: completes the request, of one prompt, at a cost that a client without a place for its
	 * job must not cause.  -EINVAL with *p filled. */
	int (*prepare)(const struct exchange *x, const void *user, struct api_problem *p);
	const void *prepare_user;
};

/* Checks the request's model and fields, and submits its jobs; or x has its reply.  request: borrowed during
 * the call.  x->ignored may hold names of the client's fields already. */
void generation_start(struct exchange *x, const json_t *request, const struct generation *g);

/* Puts the client's names into a problem that was found with the dialect's. */
void generation_rename(const struct generation_name *names, struct api_problem *p);

struct submit;

/* The job is the key's: its owner, share, priority and prefixes. */
void generation_own_by_key(const struct exchange *x, struct submit *s);
/* The idempotency key of one of a line's n_jobs jobs: "batch/line" or "batch/line/job". */
void generation_job_key(char out[GENERATION_KEY_SIZE], const char *key, size_t n_jobs, size_t job);

#endif
