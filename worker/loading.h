/* loading.h - progress of a load: written by the thread that loads, read by the thread that sends
 * heartbeats. */
#ifndef QUERN_WORKER_LOADING_H
#define QUERN_WORKER_LOADING_H

#include "proto/bus.h"

#include <stdatomic.h>
#include <stdint.h>

struct loading {
	atomic_uint doing;          /* enum bus_doing */
	atomic_uint_fast64_t done;  /* bytes of the model's files that are on the device */
	atomic_uint_fast64_t total; /* bytes of the files that this worker needs; 0: not known yet */
};

/* Set the current activity.  l: NULL is fine. */
static inline void loading_now(struct loading *l, enum bus_doing doing)
{
	if (l)
		atomic_store_explicit(&l->doing, doing, memory_order_relaxed);
}

static inline void loading_begin(struct loading *l, int64_t total)
{
	if (!l)
		return;
	atomic_store_explicit(&l->done, 0, memory_order_relaxed);
	atomic_store_explicit(&l->total, (uint64_t)total, memory_order_relaxed);
	loading_now(l, BUS_DOING_OPEN);
}

static inline void loading_add(struct loading *l, int64_t bytes)
{
	if (l)
		atomic_fetch_add_explicit(&l->done, (uint64_t)bytes, memory_order_relaxed);
}

/* All weights are loaded: set done to total, since the sum of the chunks omits small tensors. */
static inline void loading_complete(struct loading *l)
{
	if (l)
		atomic_store_explicit(&l->done, atomic_load(&l->total), memory_order_relaxed);
}

#endif
