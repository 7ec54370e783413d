/* responses_runs.h - responses that are stored, and those that are made without a client.
 * Owns: the store, the runs: each an exchange without a connection that listens to a response's durable job
 * and stores what it comes to.  After a restart of the service the job goes on by itself; its run begins anew
 * as soon as a client asks for the response.  Any thread. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_RUNS_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_RUNS_H

#include "controller/apis/openai/responses_answer.h"
#include "controller/apis/openai/responses_store.h"
#include "controller/http/exchange.h"

#include <stdbool.h>
#include <stdint.h>

struct responses;

struct service;

/* What may be stored where no option says otherwise; keys: each API key is an owner.  All owners together
 * leave most of the journal to jobs and files. */
struct responses_limits responses_limits_of(const struct service *svc, bool keys);

/* Borrows the host and the journal. */
struct responses *responses_start(struct exchange_host *host, struct journal *j,
				  const struct responses_limits *limits);
void responses_quiesce(struct responses *rs); /* NULL is fine; no run begins from here on */
void responses_stop(struct responses *rs);    /* NULL is fine; all exchanges have gone */
struct responses_store *responses_store_of(struct responses *rs);

/* The run of a new response, before its job and its row are: whoever finds the row begins no other.  NULL:
 * the service ends. */
struct run;
struct run *responses_run_reserve(struct responses *rs, const char *id);
/* Begins it, or gives it up where begun->yes is false; ends the reservation.  key: of which begun->key_jobs
 * places are given back when the run ends; or NULL. */
void responses_run_begin(struct run *r, const struct responses_begun *begun, struct api_key *key);

/* Begins the run of a response that is not done, unless it runs.  cancel: it ends at once, also if it runs.
 */
void responses_run(struct responses *rs, const struct response_row *row, bool cancel);
/* Begins the runs of a conversation's responses that are not done: the service was begun anew since they
 * were. */
void responses_run_pending(struct responses *rs, const char *owner, const char *conversation);
/* The response's events behind `after` (-1: all) become x's reply. */
void responses_read_again(struct exchange *x, const struct response_row *row, int64_t after);

#endif
