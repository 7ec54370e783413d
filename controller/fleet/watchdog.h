/* watchdog.h - detects a worker that makes no progress on the load or the plans that it was sent.
 * Heartbeats alone do not show a hang: a separate thread sends them, and continues while the main thread
 * hangs.  Progress is an answer, or a heartbeat with a new progress counter.  Pure; times in microseconds. */
#ifndef QUERN_CONTROLLER_FLEET_WATCHDOG_H
#define QUERN_CONTROLLER_FLEET_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct watchdog {
	bool pending;        /* a load, or a plan, is not answered yet */
	int64_t progress_us; /* while pending: the last progress, or the time of the first request */
	uint64_t counter;    /* progress counter in the last heartbeat */
};

/* A request was sent.  Further requests while one is pending do not extend its time. */
static inline void watchdog_expect(struct watchdog *w, int64_t now_us)
{
	if (!w->pending)
		w->progress_us = now_us;
	w->pending = true;
}

/* Every request is answered. */
static inline void watchdog_done(struct watchdog *w)
{
	w->pending = false;
}

static inline void watchdog_progress(struct watchdog *w, int64_t now_us)
{
	w->progress_us = now_us;
}

static inline void watchdog_beat(struct watchdog *w, uint64_t counter, int64_t now_us)
{
	if (counter != w->counter)
		watchdog_progress(w, now_us);
	w->counter = counter;
}

static inline bool watchdog_is_stuck(const struct watchdog *w, int64_t limit_us, int64_t now_us)
{
	return w->pending && now_us - w->progress_us > limit_us;
}

#endif
