/* supervise.h - starts a controller and its local workers, watches them, ends them.
 * Owns: the processes, the ready pipe, the signals while it runs.  Opens neither ZeroMQ nor a
 * device, so that what it starts begins in a clean process.
 *
 * The controller writes JSON lines to its --ready-fd:
 *   {"ready": true, "jobs": ..., "http": ..., "bus": ..., ...}   a replica serves (once, or each time)
 *   {"error": "..."}                                             it cannot go on, and ends
 *   {"failed": "..."}                                            a worker cannot serve, and none has yet
 *   {"lost": PID}      this local worker hangs: it is killed for good before it is replaced
 *   {"scale": {"workers": N, "devices": ["cpu", ...]}}   N local workers, dealt round robin over
 *                      these devices (absent: those of the start): what a device lacks is started,
 *                      with "memory_fraction" of it each where that is given, and what has no place
 *                      in the table when others have gone; nothing is ended because of this line
 *   {"retire": PID}    this local worker ends on purpose: it is not started again, and ended
 *                      should it linger
 *   {"keep": [PID, ...]}   a scale is carried out with these, which may be of other hosts, too: no
 *                      other local worker is started (again), and one that runs is ended */
#ifndef QUERN_CLI_SUPERVISE_H
#define QUERN_CLI_SUPERVISE_H

#include "base/options.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { SUPERVISE_WORKERS_MAX = 64 };

struct supervise_config {
	char **controller; /* argv, NULL at the end; --ready-fd N is added, and at a restart where it listened */
	/* The argv of a worker on this device, which n of the local ones share, that may take this part of
	 * its memory (0: its share of the start's): from malloc, with its words; taken. */
	char **(*worker_argv)(void *launch, const char *device, size_t n, double memory_fraction);
	void *launch;
	const struct device_name *devices; /* the workers of the start are dealt over them */
	size_t n_devices, n_workers;
	size_t group;        /* so many on devices of one kind serve together; 0: one */
	bool once;           /* the controller's death is the end: who talked to it cannot go on */
	const char *log_dir; /* where the children's stderr goes; NULL: to ours */
	int end_fd;          /* end in order when it becomes readable or is closed; -1: none */
	int64_t grace_us;    /* to end in order; then they are killed */
	void (*on_ready)(void *user, const json_t *line);
	void *user;
};

/* Runs until SIGINT, SIGTERM, SIGHUP or end_fd says so (0), or until it cannot go on (negative,
 * with the reason).
 *
 * A process that dies is started again, after 0.1 s and twice as long each time up to 5 s; 5
 * deaths within 30 s without serving are the end.  A worker alone is given up, if there has been
 * service and the others, serving or not, are enough for a group.  One that the system cannot start
 * just now counts as a death, and waits for 1 s at least; before there was service it is the end,
 * and so is a worker that cannot serve.  One that is stopped (SIGSTOP) for 2 s is killed.
 * A controller that dies before a worker served tells why there will be no service: that is the end,
 * unless a signal killed it.  Later ones listen exactly where the first one did (the ports that it
 * chose), and find the workers, which keep what they have loaded for their grace period.
 *
 * A second signal kills.  The signals stay blocked on return: what is left to do is to clean up
 * and exit. */
int supervise(const struct supervise_config *cfg, char *why, size_t why_n);

#endif
