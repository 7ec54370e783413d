/* batch_file.h - quern submit --batch: runs a file of requests (OpenAI batch lines) through the job socket.
 *
 *     FILE --lines--> jobs --results--> OUTPUT.part --when complete--> OUTPUT
 *                                       (as jobs end)                  (in the order of FILE)
 *
 * Each job has an idempotency key, made of a random run id stored in the .part file and the line's number.
 * After an interruption, the same command continues.  No line is computed twice while the service keeps its
 * job. */
#ifndef QUERN_CLI_BATCH_FILE_H
#define QUERN_CLI_BATCH_FILE_H

#include "base/options.h"
#include "cli/client.h"

/* Run the file of --batch.  Takes *c, and replaces it when the service goes away and comes back.  Errors have
 * been reported.  Returns the exit status. */
int batch_file_run(struct client **c, const struct opts *o);

#endif
