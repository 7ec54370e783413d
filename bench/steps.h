/* steps.h - where the time of an engine's steps goes, and the roofs that they stand under: what a private
 * worker has written (worker/trace.h), beside probes of this machine made between the runs.
 *
 *     probe | run 1 | probe | run 2 | probe | ...        a run is compared with the probes before and after
 * it
 *
 * The service has nothing to do during a probe.  A step of a mixture is taken to read the experts that some
 * row of it had, as the worker has counted them. */
#ifndef QUERN_BENCH_STEPS_H
#define QUERN_BENCH_STEPS_H

#include "cli/terminal/table.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct steps;

/* The trace of a service that is ready.  -ENOTSUP: its device is not a CPU; -EIO, -ENOMEM with the reason. */
int steps_new(struct steps **out, const char *trace, char *why, size_t why_n);
void steps_free(struct steps *s); /* NULL is fine */

/* Bytes of weights that a step of outputs reads: of an embedding that is no head only rows are. */
double steps_weights_bytes(const struct steps *s);

/* Around each run with `batch` jobs, probes included; NULL: nothing is measured. */
void steps_run_begin(struct steps *s, int64_t batch);
void steps_run_end(struct steps *s);

/* Of all runs, when the service has ended.  -EIO with the reason. */
int steps_read(struct steps *s, char *why, size_t why_n);

/* A heading, and a row for the outputs and one for the prompts of each batch size. */
void steps_table(const struct steps *s, struct table *t);
/* Likewise for one batch size: {"decode": {..}, "prompt": {..}}; the caller's.  Null for what no step shows.
 */
json_t *steps_json(const struct steps *s, int64_t batch);

#endif
