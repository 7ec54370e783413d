/* command.h - the connection to a running service, shared by the commands that use one. */
#ifndef QUERN_CLI_COMMAND_H
#define QUERN_CLI_COMMAND_H

#include "base/err.h"
#include "cli/client.h"
#include "base/options.h"
#include "cli/terminal/usage.h"

#include <stddef.h>

enum { CONNECT_MS = 5000, CALL_MS = 30000 };

/* The functions below, except command_open(), return COMMAND_GO_ON, or the exit status after printing --help
 * or an error. */

/* Connect according to the options and the environment, with their keys if any.  Errors as client_open(). */
int command_open(const struct opts *o, struct client **c, struct why *why);
/* command_open(), but errors are reported. */
int command_connect(const struct opts *o, struct client **c);

/* Connect, send {"op": op}, store the reply, and close. */
int command_request(const struct opts *o, const char *op, json_t **reply);

#endif
