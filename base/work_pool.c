#include "base/work_pool.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Expected CPU time of an item that has not run yet: PIECE_US, plus 1 us for each BYTES_PER_US bytes. */
enum { PIECE_US = 20, BYTES_PER_US = 16 };

const struct work_limits work_limits_usual = {
	.n_threads = 3, .items = 32768, .bytes = 256 << 20, .client_items = 8192, .client_bytes = 64 << 20};

struct queue {
	struct work *first, **last; /* last: where the next item is linked */
};

/* A client with waiting or running work. */
struct client {
	struct client *next;
	char name[WORK_CLIENT_SIZE];
	struct queue small, large; /* each first come, first served; items with in_order are all in small */
	size_t n, bytes;           /* of waiting work */
	unsigned n_running;
	uint64_t served; /* microseconds of CPU used, plus the expected time of running items */
};

struct work_pool {
	struct work_limits limits;
	pthread_t threads[WORK_THREADS_MAX];
	unsigned n_threads;
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t more;
	struct client *clients;
	size_t n, bytes; /* of waiting work */
	unsigned n_running;
	bool quit;
};

struct thread {
	struct work_pool *pool;
	bool small_only;
};

/* ---- queues ---- */

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

static void queue_put(struct queue *q, struct work *w)
{
	w->next = NULL;
	*q->last = w;
	q->last = &w->next;
}

static struct work *queue_take(struct queue *q)
{
	struct work *w = q->first;
	q->first = w->next;
	if (!q->first)
		q->last = &q->first;
	return w;
}

static struct client *client_find(const struct work_pool *p, const char *name)
{
	struct client *c = p->clients;
	while (c && strncmp(c->name, name, WORK_CLIENT_SIZE - 1) != 0)
		c = c->next;
	return c;
}

static struct client *client_add(struct work_pool *p, const char *name)
{
	struct client *c = xcalloc(1, sizeof *c);
	snprintf(c->name, sizeof c->name, "%s", name);
	queue_init(&c->small);
	queue_init(&c->large);
	if (p->clients)
		c->served = UINT64_MAX;
	struct client **at = &p->clients;
	for (; *at; at = &(*at)->next)
		c->served = (*at)->served < c->served ? (*at)->served : c->served;
	*at = c;
	return c;
}

static void client_drop_idle(struct work_pool *p, const struct client *c)
{
	struct client **at = &p->clients;
	if (c->n || c->n_running)
		return;
	while (*at != c)
		at = &(*at)->next;
	struct client *gone = *at;
	*at = gone->next;
	free(gone);
}

static bool is_small(const struct work *w)
{
	return !w->costly && w->bytes <= WORK_SMALL_BYTES;
}

static uint64_t expected_us(const struct work *w)
{
	return PIECE_US + w->bytes / BYTES_PER_US;
}

/* Return the queue that a thread may serve now; NULL: none. */
static struct queue *client_ready(struct client *c, bool small_only)
{
	if (c->small.first && !(c->small.first->in_order && c->n_running) &&
	    !(small_only && !is_small(c->small.first)))
		return &c->small;
	return c->large.first && !small_only ? &c->large : NULL;
}

/* ---- threads ---- */

static struct work *take(struct work_pool *p, bool small_only, struct client **from)
{
	struct client *best = NULL;
	for (struct client *c = p->clients; c; c = c->next)
		if (client_ready(c, small_only) && (!best || c->served < best->served))
			best = c;
	if (!best)
		return NULL;
	/* Only the first thread is reserved for small work; the others take large work first. */
	struct queue *q = !small_only && best->large.first ? &best->large : client_ready(best, small_only);
	struct work *w = queue_take(q);
	best->n--;
	best->bytes -= w->bytes;
	best->n_running++;
	best->served += expected_us(w);
	p->n--;
	p->bytes -= w->bytes;
	p->n_running++;
	*from = best;
	return w;
}

static void *work_loop(void *arg)
{
	struct thread t = *(struct thread *)arg;
	struct work_pool *p = t.pool;
	free(arg);
	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct client *c;
		struct work *w = take(p, t.small_only, &c);
		if (!w && p->quit && !p->n)
			break;
		if (!w) {
			pthread_cond_wait(&p->more, &p->lock);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		const uint64_t expected = expected_us(w);
		const int64_t begun = p->limits.cpu_us();
		w->run(w);
		const uint64_t took = (uint64_t)(p->limits.cpu_us() - begun);
		pthread_mutex_lock(&p->lock);
		c->served += (took > PIECE_US ? took : PIECE_US) - expected;
		p->n_running--;
		c->n_running--;
		client_drop_idle(p, c);
		/* The client's next item may wait for this one, and work_pool_stop() for the last. */
		pthread_cond_broadcast(&p->more);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int work_pool_start(const struct work_limits *limits, struct work_pool **out, struct why *why)
{
	struct work_pool *p = xcalloc(1, sizeof *p);
	p->limits = *limits;
	if (!p->limits.cpu_us)
		p->limits.cpu_us = clock_thread_cpu_us;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	for (; p->n_threads < limits->n_threads && p->n_threads < WORK_THREADS_MAX; p->n_threads++) {
		struct thread *t = xcalloc(1, sizeof *t);
		*t = (struct thread){.pool = p, .small_only = p->n_threads == 0 && limits->n_threads > 1};
		int e = pthread_create(&p->threads[p->n_threads], NULL, work_loop, t);
		if (e) {
			free(t);
			work_pool_stop(p);
			return err_why(why, -e, "thread: %s", strerror(e));
		}
	}
	*out = p;
	return 0;
}

void work_pool_stop(struct work_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->more);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static int admit(const struct work_pool *p, const struct client *c, const struct work *w, struct why *why)
{
	const struct work_limits *l = &p->limits;
	if (c && c->n && (c->n >= l->client_items || c->bytes + w->bytes > l->client_bytes))
		return err_why(why, -EAGAIN,
			       "%zu large requests of this client (%s) with %zu bytes wait to be prepared, "
			       "at most %zu with %zu bytes may: wait for their replies first",
			       c->n, c->name, c->bytes, l->client_items, l->client_bytes);
	if (p->n && (p->n >= l->items || p->bytes + w->bytes > l->bytes))
		return err_why(why, -ENOBUFS,
			       "%zu large requests of all clients with %zu bytes wait to be prepared, at "
			       "most %zu with %zu bytes may: try again in a moment",
			       p->n, p->bytes, l->items, l->bytes);
	return 0;
}

int work_pool_put(struct work_pool *p, const char *client, struct work *w, struct why *why)
{
	pthread_mutex_lock(&p->lock);
	struct client *c = client_find(p, client);
	int rc = admit(p, c, w, why);
	if (!rc) {
		if (!c)
			c = client_add(p, client);
		queue_put(w->in_order || is_small(w) ? &c->small : &c->large, w);
		c->n++;
		c->bytes += w->bytes;
		p->n++;
		p->bytes += w->bytes;
		/* Wake all threads, because not every thread may take this item. */
		pthread_cond_broadcast(&p->more);
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

size_t work_pool_n(struct work_pool *p)
{
	pthread_mutex_lock(&p->lock);
	size_t n = p->n + p->n_running;
	pthread_mutex_unlock(&p->lock);
	return n;
}
