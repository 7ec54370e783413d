/* batch_file.h - quern submit --batch: a file of requests (OpenAI batch lines) through the job socket.
 *
 *     FILE --lines--> jobs --results--> OUTPUT.part --when all are there--> OUTPUT
 *                                       (as they come)                      (in the order of FILE)
 *
 * Each job has an idempotency key, made of a random run id in the .part file and the line's number: after an
 * interruption the same command continues, and no line is computed twice while the service keeps its job. */
#ifndef QUERN_CLI_BATCH_FILE_H
#define QUERN_CLI_BATCH_FILE_H

#include "base/options.h"
#include "cli/client.h"

extern const struct opt batch_file_options[];
extern const size_t batch_file_n_options;

/* Runs the file of --batch.  Takes *c, and replaces it when the service goes away and comes back.  Returns
 * the exit status; errors have been reported. */
int batch_file_run(struct client **c, const struct opts *o);

#endif
