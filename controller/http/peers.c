#include "controller/http/peers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/housekeeper.h"
#include "base/log.h"
#include "controller/http/hangup.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
	SWEEP_US = 250 * 1000,
	/* Time for libmicrohttpd to read the bytes before the end, so that a complete request is answered. */
	GONE_US = 500 * 1000,
	BODY_BYTES_PER_S = 16 << 10, /* a slower body uses up the time limit */
};

struct peer {
	struct peer *prev, *next;
	int fd;
	int64_t until_us; /* deadline; INT64_MAX: its request is being answered */
	bool gone;        /* one of the two ends has closed it */
	struct peers *peers;
	uint64_t watch;
	size_t target;
};

struct peers {
	int64_t limit_us;
	struct hangup *hangup;
	struct housekeeper *house;
	int part;             /* id of this module's part in house */
	pthread_mutex_t lock; /* guards the field below and all peers */
	struct peer *first;
};

/* Shut down connections that are past their deadline; libmicrohttpd sees the end and closes them.  It misses
 * an end that arrives together with bytes (it waits for the edge of another event).  So the shutdown, which
 * is an event each time, is repeated until the connection is closed. */
static int64_t sweep(void *user, int64_t now)
{
	struct peers *p = user;
	unsigned n = 0;
	pthread_mutex_lock(&p->lock);
	for (struct peer *c = p->first; c; c = c->next)
		if (c->until_us < now) {
			shutdown(c->fd, SHUT_RDWR);
			c->until_us = now + GONE_US;
			n += !c->gone;
			c->gone = true;
		}
	pthread_mutex_unlock(&p->lock);
	if (n)
		log_info("http", "connections closed connections=%u reason=\"no request in time\"", n);
	return now + SWEEP_US;
}

/* Set a deadline: the request is complete by now, or never will be.  Called with hangup's lock held; so
 * hangup's lock is never taken under the peers' lock. */
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

int peers_start(struct housekeeper *house, unsigned limit_s, struct peers **out, struct why *why)
{
	struct peers *p = xcalloc(1, sizeof *p);
	p->limit_us = (int64_t)limit_s * 1000000;
	p->house = house;
	int rc = hangup_start(house, on_gone, &p->hangup, why);
	if (rc) {
		free(p);
		return rc;
	}
	pthread_mutex_init(&p->lock, NULL);
	p->part = housekeeper_add(house, &(struct house_part){.fd = -1, .tick = sweep, .user = p});
	*out = p;
	return 0;
}

void peers_stop(struct peers *p)
{
	if (!p)
		return;
	housekeeper_remove(p->house, p->part);
	hangup_stop(p->hangup);
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
