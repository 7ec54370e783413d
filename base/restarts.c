#include "base/restarts.h"

#include <signal.h>

static const int64_t delay_first_us = 100 * 1000;
static const int64_t delay_max_us = 5 * 1000000LL;
/* Minimum wait if a process cannot be started: five attempts take 12 s. */
static const int64_t delay_refused_us = 1000 * 1000;
/* A stopped process is killed after this time.  Its peers give it up after two seconds, and starting another
 * process must fit in. */
static const int64_t stop_patience_us = 1600 * 1000;
/* A retired worker finishes a step and frees its device: SIGTERM after this time, SIGKILL after twice this
 * time. */
static const int64_t retire_patience_us = 10 * 1000000LL;

void restarts_reset(struct restarts *r)
{
	r->delay_us = delay_first_us;
	r->n_deaths = 0;
}

bool restarts_died(struct restarts *r, bool served, int64_t now)
{
	if (served) {
		restarts_reset(r);
	} else {
		r->deaths_us[r->n_deaths++ % RESTARTS_CRASHES] = now;
		/* When the ring is full, the next slot holds the oldest death. */
		if (r->n_deaths >= RESTARTS_CRASHES &&
		    now - r->deaths_us[r->n_deaths % RESTARTS_CRASHES] < RESTARTS_WINDOW_S * 1000000LL)
			return false;
	}
	r->start_us = now + r->delay_us;
	r->delay_us = r->delay_us * 2 < delay_max_us ? r->delay_us * 2 : delay_max_us;
	return true;
}

void restarts_refused(struct restarts *r)
{
	if (r->delay_us < delay_refused_us)
		r->delay_us = delay_refused_us;
}

int restarts_overdue(int64_t stopped_us, int64_t retired_us, int64_t now)
{
	const int64_t retired = retired_us ? now - retired_us : 0;
	if ((stopped_us && now - stopped_us > stop_patience_us) || retired > 2 * retire_patience_us)
		return SIGKILL;
	return retired > retire_patience_us ? SIGTERM : 0;
}
