/* supervise.h - starts a controller and its local workers, watches them, ends them.
 * Owns: the processes, the ready pipe, the signals while it runs.  Opens neither ZeroMQ nor a
 * device, so that what it starts begins in a clean process.
 *
 * The controller writes JSON lines to its --ready-fd:
 *   {"ready": true, "jobs": ..., "http": ..., "bus": ..., ...}   a replica serves (once, or each time)
 *   {"error": "..."}                                             it cannot go on, and ends
 *   {"lost": PID}    this local worker hangs: it is killed for good before it is replaced */
#ifndef QUERN_CLI_SUPERVISE_H
#define QUERN_CLI_SUPERVISE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct supervise_config {
	char **controller; /* argv, NULL at the end; --ready-fd N is added */
	char ***workers;   /* one argv each */
	size_t n_workers;
	const char *log_dir; /* where the children's stderr goes; NULL: to ours */
	int end_fd;          /* end in order when it becomes readable or is closed; -1: none */
	int64_t grace_us;    /* to end in order; then they are killed */
	void (*on_ready)(void *user, const json_t *line);
	void *user;
};

/* Runs until SIGINT, SIGTERM, SIGHUP or end_fd says so (0), or until it cannot go on (negative,
 * with the reason).  A worker that dies is started again, after 0.1 s and twice as long each
 * time up to 5 s; 5 deaths within 30 s without serving are the end.  One that is stopped
 * (SIGSTOP) for 2 s is killed.  A second signal kills.  The signals stay blocked on return: what
 * is left to do is to clean up and exit. */
int supervise(const struct supervise_config *cfg, char *why, size_t why_n);

#endif
