/* work_pool.h - threads that run pieces of work from a bounded queue per client, in fair turns.
 *
 *   client "key alice"       [a1 a2 a3]  --.
 *   client "address 10.0.0.7"      [b1]  --+-- least served first: a1 b1 c1 a2 c2 a3 --> threads
 *   client "jobs 17"            [c1 c2]  --'
 *
 * Within a client first come, first served; between clients the one whose finished work has the fewest bytes
 * is next, so that a client with much large work delays another by at most a piece of it.  A client that
 * returns starts level with the least served that waits: idle time is not saved up.  The first thread takes
 * small work only: large work never occupies all threads. */
#ifndef QUERN_BASE_WORK_POOL_H
#define QUERN_BASE_WORK_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct work_pool;

enum {
	WORK_THREADS_MAX = 16,
	WORK_CLIENT_SIZE = 112,       /* of a client's name, the NUL included */
	WORK_SMALL_BYTES = 256 << 10, /* larger work is left to the other threads, where there are any */
};

struct work_limits {
	unsigned n_threads;  /* 1 to WORK_THREADS_MAX */
	size_t items, bytes; /* of all work that waits */
	size_t client_items; /* of one client's; a client without waiting work may put a piece of any size */
	size_t client_bytes;
};
/* Of a service's front end: 3 threads; 4,096 requests and 256 MiB wait, 1,024 and 64 MiB of a client. */
extern const struct work_limits work_limits_usual;

/* A piece of work, within the caller's own structure. */
struct work {
	void (*run)(struct work *w); /* on a thread of the pool; may free w */
	size_t bytes;                /* what it holds while it waits, and its share of the turns */
	bool in_order;               /* the client's work runs one piece at a time */
	struct work *next;           /* the pool's, while it waits */
};

/* -errno with the reason. */
int work_pool_start(const struct work_limits *limits, struct work_pool **out, char *why, size_t why_n);
/* Finishes all work that waits.  NULL is fine. */
void work_pool_stop(struct work_pool *p);

/* Takes w until its run() is called.  client: the name of its queue, cut to WORK_CLIENT_SIZE.  -EAGAIN: this
 * client's queue is full; -ENOBUFS: all queues together are; why says how much waits, w is unchanged.  Any
 * thread. */
int work_pool_put(struct work_pool *p, const char *client, struct work *w, char *why, size_t why_n);
/* Pieces that wait or run. */
size_t work_pool_n(struct work_pool *p);

#endif
