/* private.h - a private service for one command: its own controller and worker, reached over ipc.
 *
 *     command (ZeroMQ client) --fork--> supervisor --fork, exec--> quern-controller, quern-worker
 *             control pipe: closed to end the service;  report pipe: JSON lines from the supervisor
 *
 * The supervisor is forked before this process opens a socket, so that the child processes start without
 * ZeroMQ's threads.  The service ends with the command, however the command ends. */
#ifndef QUERN_CLI_PRIVATE_H
#define QUERN_CLI_PRIVATE_H

#include "base/err.h"
#include "base/options.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct private_service {
	pid_t pid;      /* the supervisor's; 0: none */
	int control_fd; /* closing it ends the service */
	int report_fd;  /* the supervisor's JSON lines */
	json_t *ready;  /* the controller's ready line; owned */
};

/* Start the service.  o has the options of a private service (option_table.c), already checked by
 * launch_check().  verbose: logs go to our stderr. */
int private_start(struct private_service *s, const struct opts *o, const char *model, bool verbose,
		  struct why *why);
/* Wait until the service is ready.  -EINTR: interrupted (term.h); other errors with the reason. */
int private_wait(struct private_service *s, struct why *why);
/* Return the endpoint of the service's job socket; NULL before the service is ready. */
const char *private_jobs(const struct private_service *s);
/* After the service went away: store the reason that the supervisor reported, if any, in why. */
void private_reason(struct private_service *s, struct why *why);
/* End the service and wait until it has ended. */
void private_stop(struct private_service *s);

#endif
