/* restarts.h - when a process that died is started again, or given up, and when one that does not obey is
 * signalled.  Pure: times are arguments, in microseconds of one clock. */
#ifndef QUERN_BASE_RESTARTS_H
#define QUERN_BASE_RESTARTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RESTARTS_CRASHES = 5, /* deaths without serving within RESTARTS_WINDOW_S: given up */
	RESTARTS_WINDOW_S = 30,
};

struct restarts {
	int64_t start_us;                    /* valid while the process does not run: when it is started */
	int64_t delay_us;                    /* before the next restart: 0.1 s, doubled up to 5 s */
	int64_t deaths_us[RESTARTS_CRASHES]; /* the last ones without serving: a ring */
	unsigned n_deaths;
};

void restarts_reset(struct restarts *r);
/* Records a death and schedules the restart.  False: too many without serving. */
bool restarts_died(struct restarts *r, bool served, int64_t now);
/* The system had no process or memory to start one: the restart that is scheduled next is at least a second
 * later. */
void restarts_refused(struct restarts *r);

/* The signal for a process that was stopped (SIGSTOP), or retired, at this time (0: it was not): 0, SIGTERM
 * or SIGKILL. */
int restarts_overdue(int64_t stopped_us, int64_t retired_us, int64_t now);

#endif
