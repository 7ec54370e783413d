/* command.h - what commands of a running service share: the connection to it. */
#ifndef QUERN_CLI_COMMAND_H
#define QUERN_CLI_COMMAND_H

#include "cli/client.h"
#include "base/options.h"
#include "cli/terminal/usage.h"

#include <stddef.h>

enum { CONNECT_MS = 5000, CALL_MS = 30000 };

/* The functions below return COMMAND_GO_ON, or the exit status after --help or an error was printed. */

/* --to ENDPOINT: for commands that talk to a running service. */
extern const struct opt command_to_options[];
extern const size_t command_n_to_options;
/* Connects as the options and the environment say, with their keys if any; errors as client_open(). */
int command_open(const struct opts *o, struct client **c, char *why, size_t why_n);
/* The same, with errors reported. */
int command_connect(const struct opts *o, struct client **c);

/* Connects, sends {"op": op}, stores the reply, closes. */
int command_request(const struct opts *o, const char *op, json_t **reply);

#endif
