/* request.h - builds a `submit` request of the job socket from the options of submit and run. */
#ifndef QUERN_CLI_REQUEST_H
#define QUERN_CLI_REQUEST_H

#include "base/err.h"
#include "base/option_table.h"
#include "cli/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* -EINVAL if the given options contradict each other. */
int request_check_mode(const struct opts *o, struct why *why);
/* Decide whether the request is a chat: as the options say, else if the service's model has a chat template.
 * about: the service's description; zeroed with --raw, which needs no query.  Errors as client_call(). */
int request_is_chat(const struct opts *o, struct client *c, struct client_about *about, bool *chat,
		    struct why *why);

/* Change one of the sampling parameters in o by name; text NULL: a flag.  -EINVAL with the reason,
 * -ENOSYS. */
int request_set_param(struct opts *o, const char *name, const char *text, struct why *why);
/* Reset a parameter to its default.  -EINVAL: an unknown name. */
int request_unset_param(struct opts *o, const char *name, struct why *why);
/* Print the parameters that are set, one per line. */
void request_print_params(const struct opts *o, FILE *f);

/* Return {"op": "submit", "stream": true, "params": {...}} without a prompt.  The caller owns it. */
json_t *request_new(const struct opts *o);
/* Add the prompt to the request: as `prompt`, or for a chat as `messages`, after the message of --system.
 * The text must be UTF-8. */
int request_set_prompt(json_t *request, const struct opts *o, bool chat, const char *text, size_t n,
		       struct why *why);
/* Read the prompt given to a command: the word, or all of stdin (without one final newline) if the word is
 * "-".  The caller frees *text. */
int request_read_prompt(const char *word, char **text, size_t *n, struct why *why);

#endif
