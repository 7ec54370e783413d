/* supervise.h - starts a controller and its local workers, restarts those that die, ends them.
 * Owns: the processes, the ready pipe, the signals while it runs.  Opens neither ZeroMQ sockets nor devices,
 * so that its children start in a clean process.
 *
 * The controller writes JSON lines to its --ready-fd:
 *   {"ready": true, "jobs": ..., "http": ..., "bus": ..., ...}   a replica serves (once, or each time)
 *   {"error": "..."}       the controller cannot continue, and ends
 *   {"failed": "..."}      a worker cannot serve, and none has served yet
 *   {"lost": PID}          this local worker hangs: it is killed, then restarted
 *   {"scale": {"workers": N, "devices": ["cpu", ...], "memory_fraction": F}}
 *                          N local workers are wanted, round robin over these devices (default: those of the
 *                          start).  Missing ones are started with this part of the device's memory (default:
 *                          the start's share); those beyond the table's size later, as others end.  No worker
 *                          is ended by this line.
 *   {"loading": {"workers": N, "doing": WHAT, "done": BYTES, "total": BYTES, "seconds": S}}
 *                          several times a second until a replica serves
 *   {"alive": true}        every five seconds, unless one of its threads has not run for a minute
 *   {"draining": {"jobs": N, "requests": N, "seconds": S}}
 *                          told to end, it waits for these for S seconds at most; 0: no longer
 *   {"retire": PID}        this local worker ends on purpose: it is not restarted, and is signalled, then
 *                          killed, if it lingers
 *   {"keep": [PID, ...]}   the scale is complete, with these of the local workers: every other one is ended,
 *                          and none is started */
#ifndef QUERN_CLI_SUPERVISE_H
#define QUERN_CLI_SUPERVISE_H

#include "base/options.h"
#include "cli/terminal/notify.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { SUPERVISE_WORKERS_MAX = 64 };

struct supervise_config {
	/* argv, NULL at the end; --ready-fd N is appended, and for a restart the endpoints of the first one.
	 */
	char **controller;
	/* The argv of a worker on this device, which n local workers share, with this part of its memory (0:
	 * its share of the start's).  Array and words are from malloc, and taken. */
	char **(*worker_argv)(void *launch, const char *device, size_t n, double memory_fraction);
	void *launch;
	const struct device_name *devices; /* of the workers of the start, round robin */
	size_t n_devices, n_workers;
	size_t group; /* workers of a tp group, on devices of one kind; 0: one */
	bool once;    /* the death of the controller is final: its clients cannot continue */
	bool reloads; /* SIGHUP goes to the controller, which reads its files again, and ends nothing */
	const char *log_dir; /* of files for the children's stderr; NULL: ours */
	int end_fd;          /* ends the service when readable or closed; -1: none */
	int64_t grace_us;    /* for an orderly end; then processes are killed */
	/* The service manager: it learns of the end, and gets a sign of life while the controller gives its
	 * own. NULL: none. */
	struct notify *notify;
	int64_t alive_us; /* without "alive" for this long, a controller that has written it does not live; 0:
			   * it always does */
	void (*on_ready)(void *user, const json_t *line);
	void (*on_loading)(void *user, const json_t *loading); /* before the first service; may be NULL */
	void *user;
};

/* Runs until SIGINT, SIGTERM, SIGHUP (unless it reloads) or end_fd (0), or until the service cannot continue
 * (negative, with the reason).
 *
 *   event                                    before the first service    later
 *   controller exits by itself               the end                     restart
 *   controller killed by a signal            restart                     restart
 *   worker dies                              restart                     restart
 *   process cannot be started                the end                     counts as a death, restart after >=
 * 1 s worker cannot serve ("failed")           the end                     it ends by itself: as a death 5
 * deaths in 30 s without serving         the end                     the end; a worker is given up if the
 *                                                                        others suffice for a group
 *   stopped by SIGSTOP for 1.6 s             killed                      killed
 *
 * Restarts wait for 0.1 s, and twice as long each time up to 5 s.  A later controller listens on the
 * endpoints of the first one, including the ports that it chose, and finds the workers, which keep their
 * weights for their grace period.
 *
 * The end: the controller gets SIGTERM.  While it waits for running requests its workers are still restarted,
 * and a second signal ends it at once, cutting them; otherwise a second signal kills.  The signals stay
 * blocked on return: the caller only cleans up and exits. */
int supervise(const struct supervise_config *cfg, char *why, size_t why_n);

#endif
