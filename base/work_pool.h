/* work_pool.h - threads that run work items from a bounded queue per client, in fair order.
 *
 *   client "key alice"       [a1 a2 a3]  --.
 *   client "address 10.0.0.7"      [b1]  --+-- least served first: a1 b1 c1 a2 c2 a3 --> threads
 *   client "jobs 17"            [c1 c2]  --'
 *
 * Each client's queue is first come, first served.  Between clients, the client that has used the least CPU
 * time is next, so that a client with much costly work delays another client by at most one item per thread.
 * A client that returns starts level with the least served waiting client: idle time earns no credit.
 * The first thread takes small work only, so that large or costly work never occupies all threads. */
#ifndef QUERN_BASE_WORK_POOL_H
#define QUERN_BASE_WORK_POOL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct work_pool;

enum {
	WORK_THREADS_MAX = 16,
	WORK_CLIENT_SIZE = 112,       /* size of a client's name, including the NUL */
	WORK_SMALL_BYTES = 256 << 10, /* larger items are left to the other threads, if there are any */
};

struct work_limits {
	unsigned n_threads;  /* 1 to WORK_THREADS_MAX */
	size_t items, bytes; /* limit for all waiting work */
	size_t client_items; /* limit for one client; a client without waiting work may put an item of any
			      * size */
	size_t client_bytes;
	int64_t (*cpu_us)(void); /* CPU time of the calling thread; NULL: clock_thread_cpu_us() */
};
/* Limits for a service's front end: 3 threads; 32,768 items and 256 MiB in all, 8,192 items and 64 MiB per
 * client. */
extern const struct work_limits work_limits_usual;

/* A work item, embedded in the caller's own structure. */
struct work {
	void (*run)(struct work *w); /* runs on a thread of the pool; may free w */
	size_t bytes;                /* memory that the item holds while it waits */
	bool costly;                 /* may take long even if its bytes are few */
	bool in_order;               /* the client's work runs one item at a time */
	struct work *next;           /* used by the pool while the item waits */
};

/* Start the pool.  -errno with the reason. */
int work_pool_start(const struct work_limits *limits, struct work_pool **out, struct why *why);
/* Finish all waiting work, then stop.  NULL is fine. */
void work_pool_stop(struct work_pool *p);

/* Queue w; the pool owns it until its run() is called.  client: the name of its queue, cut to
 * WORK_CLIENT_SIZE. -EAGAIN: this client's queue is full; -ENOBUFS: all queues together are.  Then w is
 * unchanged, and why gives the amount of waiting work.  Any thread. */
int work_pool_put(struct work_pool *p, const char *client, struct work *w, struct why *why);
/* Number of items that wait or run. */
size_t work_pool_n(struct work_pool *p);

#endif
