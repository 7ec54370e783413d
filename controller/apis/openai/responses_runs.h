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

/* Borrows the host and the journal. */
struct responses *responses_start(struct exchange_host *host, struct journal *j);
void responses_quiesce(struct responses *rs); /* NULL is fine; no run begins from here on */
void responses_stop(struct responses *rs);    /* NULL is fine; all exchanges have gone */
struct responses_store *responses_store_of(struct responses *rs);

/* Begins the run of a response that is not done, unless it runs.  key: of which key_jobs places are given
 * back when it ends; or NULL, 0.  cancel: it ends at once, also if it runs. */
void responses_run(struct responses *rs, const struct response_row *row, struct api_key *key,
		   uint32_t key_jobs, bool cancel);
/* The response's events behind `after` (-1: all) become x's reply. */
void responses_read_again(struct exchange *x, const struct response_row *row, int64_t after);

#endif
