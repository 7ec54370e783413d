#include "controller/http/peers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/http/hangup.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
	SWEEP_US = 250 * 1000,
	/* Time for libmicrohttpd to read the bytes before the end: a complete request is answered. */
	GONE_US = 500 * 1000,
	BODY_BYTES_PER_S = 16 << 10, /* a slower body uses up the time */
};

struct peer {
	struct peer *prev, *next;
	int fd;
	int64_t until_us; /* INT64_MAX: its request is being answered */
	bool gone;        /* the client has closed its end */
	struct peers *peers;
	uint64_t watch;
	size_t target;
};

struct peers {
	int64_t limit_us;
	struct hangup *hangup;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the fields below, and all peers */
	pthread_cond_t ending;
	bool quit;
	struct peer *first;
};

/* Only shut down: libmicrohttpd sees the end and closes. */
static void sweep(struct peers *p)
{
	int64_t now = clock_us();
	unsigned n = 0;
	for (struct peer *c = p->first; c; c = c->next)
		if (c->until_us < now) {
			shutdown(c->fd, SHUT_RDWR);
			c->until_us = INT64_MAX;
			n += !c->gone;
		}
	if (n)
		log_info("http", "connections closed, no request in time: n=%u", n);
}

static void *sweep_loop(void *arg)
{
	struct peers *p = arg;
	pthread_mutex_lock(&p->lock);
	while (!p->quit) {
		struct timespec at;
		clock_gettime(CLOCK_REALTIME, &at);
		at.tv_nsec += SWEEP_US * 1000;
		at.tv_sec += at.tv_nsec / 1000000000;
		at.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&p->ending, &p->lock, &at);
		sweep(p);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* The request is complete by now, or never will be.  Called with hangup's lock held, which is
 * therefore never taken under ours. */
static void on_gone(void *user)
{
	struct peer *c = user;
	pthread_mutex_lock(&c->peers->lock);
	int64_t until = clock_us() + GONE_US;
	c->gone = true;
	if (c->until_us != INT64_MAX && c->until_us > until)
		c->until_us = until;
	pthread_mutex_unlock(&c->peers->lock);
}

int peers_start(unsigned limit_s, struct peers **out, char *why, size_t why_n)
{
	struct peers *p = xcalloc(1, sizeof *p);
	p->limit_us = (int64_t)limit_s * 1000000;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->ending, NULL);
	int rc = hangup_start(on_gone, &p->hangup, why, why_n);
	if (rc)
		goto fail_hangup;
	rc = -pthread_create(&p->thread, NULL, sweep_loop, p);
	if (rc) {
		err_why(why, why_n, rc, "thread: %s", strerror(-rc));
		goto fail_thread;
	}
	*out = p;
	return 0;

fail_thread:
	hangup_stop(p->hangup);
fail_hangup:
	pthread_cond_destroy(&p->ending);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return rc;
}

void peers_stop(struct peers *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_signal(&p->ending);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	hangup_stop(p->hangup);
	pthread_cond_destroy(&p->ending);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct peer *peer_add(struct peers *p, int fd)
{
	struct peer *c = xcalloc(1, sizeof *c);
	c->fd = fd;
	c->peers = p;
	c->until_us = clock_us() + p->limit_us;
	pthread_mutex_lock(&p->lock);
	c->next = p->first;
	if (c->next)
		c->next->prev = c;
	p->first = c;
	pthread_mutex_unlock(&p->lock);
	c->watch = hangup_add(p->hangup, fd, c);
	return c;
}

void peer_del(struct peers *p, struct peer *c)
{
	hangup_del(p->hangup, c->watch);
	pthread_mutex_lock(&p->lock);
	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		p->first = c->next;
	pthread_mutex_unlock(&p->lock);
	free(c);
}

void peer_body(struct peers *p, struct peer *c, size_t n)
{
	pthread_mutex_lock(&p->lock);
	if (c->until_us != INT64_MAX && !c->gone)
		c->until_us += (int64_t)n * 1000000 / BODY_BYTES_PER_S;
	pthread_mutex_unlock(&p->lock);
}

void peer_requested(struct peers *p, struct peer *c)
{
	pthread_mutex_lock(&p->lock);
	c->until_us = INT64_MAX;
	pthread_mutex_unlock(&p->lock);
}

void peer_replied(struct peers *p, struct peer *c)
{
	pthread_mutex_lock(&p->lock);
	c->until_us = clock_us() + (c->gone ? GONE_US : p->limit_us);
	pthread_mutex_unlock(&p->lock);
}

size_t *peer_target(struct peer *c)
{
	return &c->target;
}
