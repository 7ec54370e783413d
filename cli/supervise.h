/* supervise.h - starts a controller and its local workers, restarts those that die, and ends them.
 * It owns the processes, the ready pipe, and the signals while it runs.  It opens neither ZeroMQ sockets nor
 * devices, so that its children start in a clean process.
 *
 * The controller writes JSON lines to its --ready-fd:
 *   {"ready": true, "jobs": ..., "http": ..., "metrics_http": ..., "bus": ..., ...}
 *                          a replica serves (once, or each time)
 *   {"error": "..."}       the controller cannot continue, and ends
 *   {"failed": "..."}      a worker cannot serve, and none has served yet
 *   {"lost": PID}          this local worker hangs: it is killed, then restarted
 *   {"scale": {"workers": N, "devices": ["cpu", ...], "memory_fraction": F}}
 *                          N local workers are wanted, round robin over these devices (default: those of the
 *                          start).  Missing workers are started with this fraction of the device's memory
 *                          (default: the start's share).  Workers beyond the table's size are started later,
 *                          as others end.  This line ends no worker.
 *   {"loading": {"workers": N, "doing": WHAT, "done": BYTES, "total": BYTES, "seconds": S}}
 *                          several times a second until a replica serves
 *   {"alive": true}        every five seconds, unless one of its threads has not run for a minute
 *   {"draining": {"jobs": N, "requests": N, "seconds": S}}
 *                          the controller was asked to end and waits at most S seconds for these jobs and
 *                          requests; 0: no longer
 *   {"retire": PID}        this local worker ends on purpose: it is not restarted, and is signalled, then
 *                          killed, if it lingers
 *   {"keep": [PID, ...]}   the scale is complete with these local workers: every other local worker is ended,
 *                          and none is started */
#ifndef QUERN_CLI_SUPERVISE_H
#define QUERN_CLI_SUPERVISE_H

#include "base/err.h"
#include "base/options.h"
#include "cli/terminal/notify.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { SUPERVISE_WORKERS_MAX = 64 };

struct supervise_config {
	/* argv, NULL at the end; --ready-fd N is appended, and for a restart the endpoints of the first
	 * controller. */
	char **controller;
	/* Return the argv of a worker on this device, which n local workers share, with this fraction of its
	 * memory (0: its share at the start).  The array and its words are from malloc; the supervisor frees
	 * them. */
	char **(*worker_argv)(void *launch, const char *device, size_t n, double memory_fraction);
	void *launch;
	const struct device_name *devices; /* devices of the initial workers, round robin */
	size_t n_devices, n_workers;
	size_t group;        /* workers in a tensor-parallel group, on devices of one kind; 0: one */
	bool once;           /* the death of the controller is final, because its clients cannot continue */
	bool reloads;        /* SIGHUP goes to the controller, which rereads its files; it does not end the
		       * service */
	const char *log_dir; /* folder of files for the children's stderr; NULL: our stderr */
	int end_fd;          /* descriptor that ends the service when readable or closed; -1: none */
	int64_t grace_us;    /* time for an orderly end; then processes are killed */
	/* The service manager, which is notified of the end, and regularly while the controller reports
	 * "alive".  NULL: none. */
	struct notify *notify;
	int64_t alive_us; /* a controller that has sent "alive" counts as dead after this time without
			   * another; 0: never */
	void (*on_ready)(void *user, const json_t *line);
	void (*on_loading)(void *user, const json_t *loading); /* called before the first service; may be
							        * NULL */
	void *user;
};

/* Run until SIGINT, SIGTERM, SIGHUP (unless it reloads) or end_fd (returns 0), or until the service cannot
 * continue (returns a negative errno, with the reason).
 *
 *   event                             before the first service    later
 *   controller exits by itself        the end                     restart
 *   controller killed by a signal     restart                     restart
 *   worker dies                       restart                     restart
 *   process cannot be started         the end                     as a death; restart after >= 1 s
 *   worker cannot serve ("failed")    the end                     it ends by itself: as a death
 *   5 deaths in 30 s without serving  the end                     the end; a worker is given up if the
 *                                                                 others suffice for a group
 *   stopped by SIGSTOP for 1.6 s      killed                      killed
 *
 * The wait before a restart is 0.1 s, doubled each time up to 5 s.  A restarted controller listens on the
 * endpoints of the first one, including the ports that the first one chose.  It finds the workers there,
 * which keep their weights for their grace period.
 *
 * The end: the controller gets SIGTERM.  While it waits for running requests, its workers are still
 * restarted, and a second signal ends it at once and cuts the requests.  Otherwise a second signal kills.
 * The signals stay blocked on return: the caller only cleans up and exits. */
int supervise(const struct supervise_config *cfg, struct why *why);

#endif
