/* restarts.h - decides when a dead process is restarted or given up, and when an unresponsive process is
 * signalled.
 * Pure: times are arguments, in microseconds of one clock. */
#ifndef QUERN_BASE_RESTARTS_H
#define QUERN_BASE_RESTARTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RESTARTS_CRASHES = 5, /* the process is given up after this many deaths without serving in
			       * RESTARTS_WINDOW_S */
	RESTARTS_WINDOW_S = 30,
};

struct restarts {
	int64_t start_us;                    /* start time; valid while the process does not run */
	int64_t delay_us;                    /* before the next restart: 0.1 s, doubled up to 5 s */
	int64_t deaths_us[RESTARTS_CRASHES]; /* ring of the most recent deaths without serving */
	unsigned n_deaths;
};

void restarts_reset(struct restarts *r);
/* Record a death and schedule the restart.  Returns false after too many deaths without serving. */
bool restarts_died(struct restarts *r, bool served, int64_t now);
/* Note that the system had no process or memory left to start a process.  The next scheduled restart is at
 * least a second later. */
void restarts_refused(struct restarts *r);

/* Return the signal to send to a process that was stopped (SIGSTOP) or retired at the given times (0: it was
 * not): 0, SIGTERM or SIGKILL. */
int restarts_overdue(int64_t stopped_us, int64_t retired_us, int64_t now);

#endif
