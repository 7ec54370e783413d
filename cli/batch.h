/* batch.h - quern submit --batch: a file of requests (OpenAI's batch lines) through the job socket.
 * Results are kept in OUTPUT.part as they come, in the input's order in OUTPUT when all are there.  The
 * jobs have keys of the run, which the .part file remembers: the same command goes on where an
 * interrupted one was, and no line is computed twice while the service knows its job. */
#ifndef QUERN_CLI_BATCH_H
#define QUERN_CLI_BATCH_H

#include "base/options.h"
#include "cli/client.h"

extern const struct opt batch_options[];
extern const size_t batch_n_options;

/* Takes *c, which may be exchanged for another connection when the service goes away.  The exit status,
 * everything said. */
int batch_run(struct client **c, const struct opts *o);

#endif
