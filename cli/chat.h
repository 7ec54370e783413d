/* chat.h - `quern chat`: a conversation with the model of a running service; also the chat of `quern run`. */
#ifndef QUERN_CLI_CHAT_H
#define QUERN_CLI_CHAT_H

#include "base/err.h"
#include "base/options.h"
#include "cli/client.h"

#include <stdbool.h>
#include <stddef.h>

int cmd_chat(int argc, char **argv);

/* Read messages and commands from stdin until its end, and print the answers.  o has the request_options,
 * which /set changes.  If the service goes away and reopen is set, the conversation is kept and the next
 * message connects again with the options in o (command_open()).  Without reopen, the chat ends with
 * -ECONNRESET or -ETIMEDOUT.
 * -ENOTSUP: the model has no chat template; -EINTR: ended by a signal; -EIO: without a terminal, a message
 * got no answer or a command failed. */
int chat_run(struct client **c, struct opts *o, bool reopen, struct why *why);

#endif
