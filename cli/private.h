/* private.h - a service for one command: its own controller and worker, reached over ipc.
 * A supervisor process is forked before this process opens anything, so that the client side may
 * use ZeroMQ while the side that starts processes does not.  Whatever becomes of the command,
 * the service ends with it. */
#ifndef QUERN_CLI_PRIVATE_H
#define QUERN_CLI_PRIVATE_H

#include "base/options.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct private_service {
	pid_t pid;      /* the supervisor's; 0: none */
	int control_fd; /* closing it ends the service */
	int report_fd;  /* its JSON lines */
	json_t *ready;  /* what the controller said; owned */
};

/* o has the launch_model_options, checked by launch_check() already.  verbose: what the
 * processes log goes to our stderr. */
int private_start(struct private_service *s, const struct opts *o, const char *model, bool verbose, char *why,
		  size_t why_n);
/* Until it serves.  -EINTR when interrupted (term.h), else the reason of its failure. */
int private_wait(struct private_service *s, char *why, size_t why_n);
const char *private_jobs(const struct private_service *s);
/* Why the service went away on its own: into why, where the supervisor said so. */
void private_reason(struct private_service *s, char *why, size_t why_n);
/* Ends it and waits for that. */
void private_stop(struct private_service *s);

#endif
