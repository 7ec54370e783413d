/* steps.h - breaks down the time of an engine's steps, and compares it with the machine's roofs: the trace of
 * a private worker (worker/trace.h), and probes of this machine between the runs.
 *
 *     probe | run 1 | probe | run 2 | probe | ...    a run is compared with the probes before and after it
 *
 * The service is idle during a probe.  A step of a mixture-of-experts model is assumed to read the experts
 * that some row used, as counted by the worker. */
#ifndef QUERN_BENCH_STEPS_H
#define QUERN_BENCH_STEPS_H

#include "base/err.h"
#include "cli/terminal/table.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct steps;

/* Open the trace of a service that is ready.  -ENOTSUP: its device is not a CPU; -EIO, -ENOMEM with the
 * reason. */
int steps_new(struct steps **out, const char *trace, struct why *why);
void steps_free(struct steps *s); /* NULL is fine */

/* Return the bytes of weights that a decode step reads.  If the embedding is not also the head, only its rows
 * are read and it does not count. */
double steps_weights_bytes(const struct steps *s);

/* Call around each run with `batch` jobs; steps_run_end() also probes the machine.  s NULL: no-op. */
void steps_run_begin(struct steps *s, int64_t batch);
void steps_run_end(struct steps *s);

/* Read the trace of all runs, after the service has ended.  -EIO with the reason. */
int steps_read(struct steps *s, struct why *why);

/* Add a heading to t, and for each batch size one row for decoding and one for prompts. */
void steps_table(const struct steps *s, struct table *t);
/* Return the figures of one batch size: {"decode": {..}, "prompt": {..}}.  Figures without a step are null.
 * The caller owns the result. */
json_t *steps_json(const struct steps *s, int64_t batch);

#endif
