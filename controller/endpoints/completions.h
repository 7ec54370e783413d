/* completions.h - the routes (http.h) of /v1/completions and /v1/chat/completions: they turn a request's body
 * into jobs (completion.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_COMPLETIONS_H
#define QUERN_CONTROLLER_ENDPOINTS_COMPLETIONS_H

#include "controller/http/exchange.h"

#include "controller/http/api_keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void completions_call_text(struct exchange *x, const char *rest);
void completions_call_chat(struct exchange *x, const char *rest);

enum { COMPLETIONS_KEY_SIZE = 128 };

/* A line of a batch: a request without a connection, with durable jobs. */
struct completions_line {
	char key[COMPLETIONS_KEY_SIZE - 24]; /* prefix of its jobs' idempotency keys */
	int32_t priority;                    /* added to the request's */
	const char *owner;                   /* name of the key that the batch belongs to; "" for none */
	struct api_key_terms terms;          /* of that key; for none, any priority */
};

struct completion;
struct submit;

/* Takes c's jobs from the API key's limit on jobs at once, before any prompt is tokenized.  false: x has its
 * reply. */
bool completions_begin_key(struct completion *c);
/* The job is the key's: its owner, share, priority and prefixes. */
void completions_own_by_key(const struct exchange *x, struct submit *s);

/* The same as the routes, for a line in x->body of an exchange without a connection. */
void completions_call_line(struct exchange *x, bool chat, const struct completions_line *line);

/* The idempotency key of one of a line's n_jobs jobs: "batch/line" or "batch/line/job". */
void completions_job_key(char out[COMPLETIONS_KEY_SIZE], const char *key, size_t n_jobs, size_t job);

#endif
