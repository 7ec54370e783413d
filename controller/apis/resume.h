/* resume.h - streams that can be cut and gone on with.  A request with the header Idempotency-Key has a job
 * that lives on without its client; the same request again, with Last-Event-ID, gets the events behind that
 * one:
 *
 *     headers --resume_read()--> resume_request --generation.h--> jobs with keys, drawn from it as are seeds
 * and ids events of the jobs --turns.h--> one order --writer--> bytes --event_ids.h--> numbered, the first
 * ones left out
 *
 * Every event is made again from the jobs' tokens, with the same bytes: it depends on them, on the request
 * and on when its jobs were accepted, never on how the tokens came. */
#ifndef QUERN_CONTROLLER_APIS_RESUME_H
#define QUERN_CONTROLLER_APIS_RESUME_H

#include "controller/apis/event_ids.h"
#include "controller/apis/turns.h"
#include "controller/http/exchange.h"
#include "controller/message/submit.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RESUME_KEY_MAX = 255,
	RESUME_LIMIT_SIZE = 160,
	RESUME_AHEAD = 128 << 10 /* bytes made before the client has read them */
};

/* What a request's headers ask for. */
struct resume_request {
	bool on;     /* there is an Idempotency-Key */
	bool attach; /* and a Last-Event-ID: the jobs must exist */
	uint64_t after;
	char key[RESUME_KEY_MAX + 1];
	uint8_t body[16]; /* digest of the path and the client's body */
};

/* From a route's call only.  false: a header is malformed, x has its reply. */
bool resume_read(struct exchange *x, const json_t *client, struct resume_request *r);

/* Job i of n is known by the client's key.  seeded: the request has a seed of its own. */
void resume_own(const struct resume_request *r, struct submit *s, size_t i, size_t n, bool durable,
		bool seeded);
/* The reply's id: of the owner and the key. */
void resume_id(const struct resume_request *r, const struct submit *s, const char *prefix, char *out,
	       size_t out_n);

/* What the ids of a choice's calls are made of (chat_stream.h). */
uint64_t resume_calls(const struct resume_request *r, const struct submit *s, uint32_t choice);

/* Of a reply. */
struct resume {
	struct turns *turns;
	struct event_ids ids;
	bool attach;
	char limit[RESUME_LIMIT_SIZE]; /* the API key's limit is reached, why: only jobs that exist are gone
					  on with; or "" */
};
struct resume *resume_new(const struct resume_request *r, uint32_t n_outputs, bool lines);
void resume_free(struct resume *r); /* NULL is fine */

#endif
