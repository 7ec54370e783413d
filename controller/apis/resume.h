/* resume.h - streams that can be cut and resumed.  A request with the header Idempotency-Key has a job that
 * continues without its client.  The same request, sent again with Last-Event-ID, gets the events after that
 * one:
 *
 *     headers --resume_read()--> resume_request --generation.h--> jobs; their keys, seeds and ids are derived
 *                                                                 from the client's key
 *     events of the jobs --turns.h--> one order --writer--> bytes --event_ids.h--> numbered events, without
 *                                                                                  those the client has
 *
 * Every event is made again from the jobs' tokens, with the same bytes.  It depends on the tokens, on the
 * request and on when its jobs were accepted, never on how the tokens arrive.  The first few hundred of the
 * client's events are made again at once; the pool of preparing threads makes the rest.  Near the end of a
 * long stream they are tenths of a second of work, too much for the front end's thread. */
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

/* The resume headers of a request. */
struct resume_request {
	bool on;     /* has an Idempotency-Key */
	bool attach; /* also has a Last-Event-ID: the jobs must exist */
	uint64_t after;
	char key[RESUME_KEY_MAX + 1];
	uint8_t body[16]; /* digest of the path and the client's body */
};

/* Read the headers.  false: a header is malformed, x has its reply. */
bool resume_read(struct exchange *x, const json_t *client, struct resume_request *r);

/* Set the key, seed and flags of job i of n, derived from the client's key.  seeded: the request has its own
 * seed. */
void resume_own(const struct resume_request *r, struct submit *s, size_t i, size_t n, bool durable,
		bool seeded);
/* Write the reply's id, derived from the owner and the key. */
void resume_id(const struct resume_request *r, const struct submit *s, const char *prefix, char *out,
	       size_t out_n);

/* Return the number from which the ids of a choice's tool calls are made (chat_stream.h). */
uint64_t resume_calls(const struct resume_request *r, const struct submit *s, uint32_t choice);

/* Resume state of a reply. */
struct resume {
	struct turns *turns;
	struct event_ids ids;
	bool attach;
	bool catching_up;              /* a pool thread is making the client's events again; only it writes */
	char limit[RESUME_LIMIT_SIZE]; /* why the API key's limit is reached: only existing jobs can be
				        * resumed; "": not reached */
};
struct resume *resume_new(const struct resume_request *r, uint32_t n_outputs, bool lines);
void resume_free(struct resume *r); /* NULL is fine */

#endif
