#include "controller/peers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
	SWEEP_S = 1,
	BODY_BYTES_PER_S = 16 << 10, /* slower than this, a body uses up the time */
};

struct peer {
	struct peer *prev, *next;
	int fd;
	int64_t until_us; /* INT64_MAX: its request is being answered */
};

struct peers {
	int64_t limit_us;
	pthread_t thread;
	pthread_mutex_t lock; /* what follows, and all peers */
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
			n++;
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
		at.tv_sec += SWEEP_S;
		pthread_cond_timedwait(&p->ending, &p->lock, &at);
		sweep(p);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int peers_start(unsigned limit_s, struct peers **out, char *why, size_t why_n)
{
	struct peers *p = xcalloc(1, sizeof *p);
	p->limit_us = (int64_t)limit_s * 1000000;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->ending, NULL);
	int e = pthread_create(&p->thread, NULL, sweep_loop, p);
	if (e) {
		pthread_cond_destroy(&p->ending);
		pthread_mutex_destroy(&p->lock);
		free(p);
		return err_why(why, why_n, -e, "thread: %s", strerror(e));
	}
	*out = p;
	return 0;
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
	pthread_cond_destroy(&p->ending);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct peer *peer_add(struct peers *p, int fd)
{
	struct peer *c = xcalloc(1, sizeof *c);
	c->fd = fd;
	c->until_us = clock_us() + p->limit_us;
	pthread_mutex_lock(&p->lock);
	c->next = p->first;
	if (c->next)
		c->next->prev = c;
	p->first = c;
	pthread_mutex_unlock(&p->lock);
	return c;
}

void peer_del(struct peers *p, struct peer *c)
{
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
	if (c->until_us != INT64_MAX)
		c->until_us += (int64_t)n * 1000000 / BODY_BYTES_PER_S;
	pthread_mutex_unlock(&p->lock);
}

void peer_asked(struct peers *p, struct peer *c)
{
	pthread_mutex_lock(&p->lock);
	c->until_us = INT64_MAX;
	pthread_mutex_unlock(&p->lock);
}

void peer_replied(struct peers *p, struct peer *c)
{
	pthread_mutex_lock(&p->lock);
	c->until_us = clock_us() + p->limit_us;
	pthread_mutex_unlock(&p->lock);
}
