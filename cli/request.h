/* request.h - from the options of submit and run to a `submit` request of the job socket. */
#ifndef QUERN_CLI_REQUEST_H
#define QUERN_CLI_REQUEST_H

#include "base/options.h"
#include "cli/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Sampling parameters, and the system message. */
extern const struct opt request_options[];
extern const size_t request_n_options;
/* Whether the prompt is a chat message, or completed as it is. */
extern const struct opt request_mode_options[];
extern const size_t request_n_mode_options;
/* -EINVAL where the options given contradict each other. */
int request_check_mode(const struct opts *o, char *why, size_t why_n);
/* As the options say; without any, a chat if the service's model has a chat template.  about: of the service;
 * zeros with --raw, where it is not asked.  Errors as client_call(). */
int request_is_chat(const struct opts *o, struct client *c, struct client_about *about, bool *chat, char *why,
		    size_t why_n);

/* Changes one of the sampling parameters of o by name; text NULL: a flag.  -EINVAL with the reason, -ENOSYS.
 */
int request_set_param(struct opts *o, const char *name, const char *text, char *why, size_t why_n);
/* Back to the default.  -EINVAL: an unknown name. */
int request_unset_param(struct opts *o, const char *name, char *why, size_t why_n);
/* Those that are set, one a line. */
void request_print_params(const struct opts *o, FILE *f);

/* {"op": "submit", "stream": true, "params": {...}} without a prompt; the caller's. */
json_t *request_new(const struct opts *o);
/* Puts the prompt in: as `prompt`, or with --system as `messages` of a chat.  The text must be UTF-8. */
int request_set_prompt(json_t *request, const struct opts *o, bool chat, const char *text, size_t n,
		       char *why, size_t why_n);
/* The prompt a command was given: a word, or all of stdin (less one newline at its end) where it
 * is "-".  *text is the caller's. */
int request_read_prompt(const char *word, char **text, size_t *n, char *why, size_t why_n);

#endif
