/* launch.h - from the options of `serve` to the command lines of controller and workers. */
#ifndef QUERN_CLI_LAUNCH_H
#define QUERN_CLI_LAUNCH_H

#include "base/options.h"
#include "base/user_socket.h"
#include "cli/rundir.h"
#include "cli/supervise.h"

#include <stdbool.h>
#include <stddef.h>

#define LAUNCH_JOBS "tcp://127.0.0.1:7420"
#define LAUNCH_HTTP "127.0.0.1:8080"
enum { LAUNCH_JOBS_SIZE = sizeof "ipc://" + USER_SOCKET_SIZE };
/* The job socket of a service that was started without --jobs: this user's own (user_socket.h) where a
 * service listens, else LAUNCH_JOBS. */
const char *launch_jobs_endpoint(char out[LAUNCH_JOBS_SIZE]);

/* The model, devices and limits: for serve, and for commands with a private service. */
extern const struct opt launch_model_options[];
extern const size_t launch_n_model_options;
/* Where to listen, and for which clients: for serve. */
extern const struct opt launch_listen_options[];
extern const size_t launch_n_listen_options;

struct launch {
	const struct opts *o; /* borrowed */
	bool own;
	struct rundir dir;
	char **controller; /* owned */
	char *worker;      /* path of the program, owned */
	char worker_bus[512];
	char *counts; /* copy of --expert-counts in dir, owned; NULL: not given */
	char *token;  /* its file, for a bus on TCP (local_token.h); owned, NULL on ipc */
	struct device_name devices[DEVICES_MAX];
	size_t n_devices, n_workers; /* dealt over the devices */
};

/* Checks the options and the model: -EINVAL (wrong usage), -ENOSYS (not built yet), -ENOENT (no model). */
int launch_check(const struct opts *o, const char *model, char *why, size_t why_n);

/* Checks, creates the run directory and builds the command lines.  own: a private service for this
 * command, with its sockets in the run directory and no HTTP; o then has only the model options.  o must
 * outlive l.  -EINVAL (wrong usage), -ENOSYS (not built yet), -ENOENT. */
int launch_open(struct launch *l, const struct opts *o, const char *model, bool own, char *why, size_t why_n);
/* Fills in the members of cfg that describe what to start; l must outlive cfg. */
void launch_supervise(struct launch *l, struct supervise_config *cfg);
void launch_close(struct launch *l);
/* The line "loading" of a controller (supervise.h), as a bar on a terminal. */
void launch_show_loading(const json_t *loading);

#endif
