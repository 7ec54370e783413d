/* chat.h - `quern chat`: a conversation with the model of a running service; and that of `quern run`. */
#ifndef QUERN_CLI_CHAT_H
#define QUERN_CLI_CHAT_H

#include "base/options.h"
#include "cli/client.h"

#include <stdbool.h>
#include <stddef.h>

int cmd_chat(int argc, char **argv);

/* Reads messages and commands from stdin until its end, and prints the answers.  o has the
 * request_options, which /set changes.  reopen: where the service goes away the conversation stays, and
 * the next message connects again as o says (command_open()); otherwise that is the end, -ECONNRESET or
 * -ETIMEDOUT.
 * -ENOTSUP: the model has no chat template; -EINTR: ended by a signal; -EIO: without a terminal, a message
 * got no answer or a command failed. */
int chat_run(struct client **c, struct opts *o, bool reopen, char *why, size_t why_n);

#endif
