/* responses_runs.h - stored responses, and responses that run without a client.
 * Owns: the store and the runs.  A run is an exchange without a connection that listens to a response's
 * durable job and stores its result.  After a restart of the service the job continues by itself; its run
 * starts again when a client next requests the response.  Any thread. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_RUNS_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_RUNS_H

#include "controller/apis/openai/responses_answer.h"
#include "controller/apis/openai/responses_store.h"
#include "controller/http/exchange.h"

#include <stdbool.h>
#include <stdint.h>

struct responses;

struct service;

/* Return the default limits of what is stored.  keys: each API key is an owner.  All owners together leave
 * most of the journal to jobs and files. */
struct responses_limits responses_limits_of(const struct service *svc, bool keys);

/* Start.  Borrows the host and the journal. */
struct responses *responses_start(struct exchange_host *host, struct journal *j,
				  const struct responses_limits *limits);
void responses_quiesce(struct responses *rs); /* starts no more runs.  NULL is fine */
void responses_stop(struct responses *rs);    /* NULL is fine; all exchanges must have gone */
struct responses_store *responses_store_of(struct responses *rs);

/* Reserve the run of a new response before its job and its row exist, so that a reader of the row starts no
 * second run.  NULL: the service stops. */
struct run;
struct run *responses_run_reserve(struct responses *rs, const char *id);
/* Start the run, or give it up if begun->yes is false; ends the reservation.  key: its begun->key_jobs slots
 * are released when the run ends; or NULL. */
void responses_run_begin(struct run *r, const struct responses_begun *begun, struct api_key *key);

/* Start the run of a response that is not done, unless it is running.  cancel: end it at once, also if it is
 * running. */
void responses_run(struct responses *rs, const struct response_row *row, bool cancel);
/* End a response that is not done.  done is called on any thread, perhaps at once: 0 when the end is on disk,
 * or -errno and why. */
void responses_cancel(struct responses *rs, const struct response_row *row, responses_done *done, void *user);
/* Start the runs of a conversation's responses that are not done because the service has restarted. */
void responses_run_pending(struct responses *rs, const char *owner, const char *conversation);
/* Reply to x with the response's events after `after` (-1: all). */
void responses_read_again(struct exchange *x, const struct response_row *row, int64_t after);

#endif
