/* launch.h - turns the options of `serve` into the command lines of the controller and workers. */
#ifndef QUERN_CLI_LAUNCH_H
#define QUERN_CLI_LAUNCH_H

#include "base/err.h"
#include "base/option_table.h"
#include "base/user_socket.h"
#include "cli/rundir.h"
#include "cli/supervise.h"

#include <stdbool.h>
#include <stddef.h>

enum { LAUNCH_JOBS_SIZE = sizeof "ipc://" + USER_SOCKET_SIZE };
/* Return the job socket of a service that was started without --jobs: the user's own socket (user_socket.h)
 * if a service listens there, else OPTION_JOBS. */
const char *launch_jobs_endpoint(char out[LAUNCH_JOBS_SIZE]);

struct launch {
	const struct opts *o; /* borrowed */
	bool own;
	struct rundir dir;
	char **controller; /* owned */
	char *worker;      /* path of the worker program, owned */
	char worker_bus[512];
	char *http;   /* --http with --host and --port, owned; NULL: neither is given */
	char *counts; /* copy of --expert-counts in dir, owned; NULL: not given */
	char *token;  /* file of the token for a bus on TCP (local_token.h); owned; NULL on ipc */
	struct device_name devices[DEVICES_MAX];
	size_t n_devices, n_workers; /* workers are assigned to the devices in turn */
};

/* Check the options and the model.  -EINVAL (wrong usage), -ENOSYS (not built yet), -ENOENT (no model). */
int launch_check(const struct opts *o, const char *model, struct why *why);

/* Check the options, create the run directory and build the command lines.  own: start a private service for
 * this command, with its sockets in the run directory and without HTTP; o then has only the model options. o
 * must outlive l.  -EINVAL (wrong usage), -ENOSYS (not built yet), -ENOENT. */
int launch_open(struct launch *l, const struct opts *o, const char *model, bool own, struct why *why);
/* Fill in the members of cfg that describe the processes to start.  l must outlive cfg. */
void launch_supervise(struct launch *l, struct supervise_config *cfg);
void launch_close(struct launch *l);
/* Draw a controller's "loading" line (supervise.h) as a progress bar on a terminal. */
void launch_show_loading(const json_t *loading);

#endif
