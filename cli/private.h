/* private.h - a service for one command: its own controller and worker, reached over ipc.
 *
 *     command (ZeroMQ client) --fork--> supervisor --fork, exec--> quern-controller, quern-worker
 *             control pipe: closed to end the service;  report pipe: JSON lines from the supervisor
 *
 * The supervisor is forked before this process opens a socket, so that processes are started without ZeroMQ's
 * threads.  The service ends with the command, however the command ends. */
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
	json_t *ready;  /* the controller's ready line; owned */
};

/* o has the launch_model_options, already checked by launch_check().  verbose: logs go to our stderr. */
int private_start(struct private_service *s, const struct opts *o, const char *model, bool verbose, char *why,
		  size_t why_n);
/* Waits until the service is ready.  -EINTR when interrupted (term.h); others with the reason. */
int private_wait(struct private_service *s, char *why, size_t why_n);
/* Endpoint of its job socket; NULL before it is ready. */
const char *private_jobs(const struct private_service *s);
/* After the service went away: the reason that the supervisor reported, if any, into why. */
void private_reason(struct private_service *s, char *why, size_t why_n);
/* Ends the service and waits for its end. */
void private_stop(struct private_service *s);

#endif
