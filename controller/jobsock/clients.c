#include "controller/jobsock/clients.h"

#include "base/alloc.h"
#include "base/entropy.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zmq.h>

enum {
	MESSAGE_COST = 256,             /* overhead of a message in ZeroMQ and here */
	CLIENT_UNSENT_MAX = 16 << 20,   /* bytes waiting for a client; a single message may be larger */
	CLIENT_UNSENT_FAIR = 256 << 10, /* that limit, while ALL_UNSENT_MAX is exceeded */
	END_TRIES = 3,                  /* to complete a message that is partly sent */
};
#define ALL_UNSENT_MAX ((size_t)1 << 30)

/* Bytes that ZeroMQ holds for all clients.  Its threads lower the count, even after the socket is closed. */
static atomic_size_t all_unsent;

/* Bytes that ZeroMQ holds for one client.  Freed with the client's last message, after the client. */
struct budget {
	atomic_size_t unsent;
	atomic_size_t refs; /* one for the client, one per message */
};

static void budget_unref(struct budget *b)
{
	if (atomic_fetch_sub(&b->refs, 1) == 1)
		free(b);
}

/* --- the table --- */

void clients_init(struct clients *t)
{
	*t = (struct clients){.hash_seed = entropy_u64()};
}

void clients_fini(struct clients *t)
{
	map_fini(&t->by_route);
	free(t->by_fd);
}

static uint64_t route_hash(const struct clients *t, const void *route, size_t n)
{
	return XXH3_64bits_withSeed(route, n, t->hash_seed);
}

struct client *clients_find(const struct clients *t, const void *route, size_t n)
{
	struct client *c = map_get(&t->by_route, route_hash(t, route, n));
	while (c && (c->route_n != n || memcmp(c->route, route, n) != 0))
		c = c->same_hash;
	return c;
}

static struct client **fd_chain(struct clients *t, int fd)
{
	size_t n = t->n_fd ? t->n_fd : 64;
	while (n <= (size_t)fd)
		n *= 2;
	if (n != t->n_fd) {
		t->by_fd = xrealloc(t->by_fd, n, sizeof(struct client *));
		memset(t->by_fd + t->n_fd, 0, (n - t->n_fd) * sizeof(struct client *));
		t->n_fd = n;
	}
	return &t->by_fd[fd];
}

struct client *clients_of_fd(struct clients *t, int fd)
{
	return *fd_chain(t, fd);
}

struct client *clients_add(struct clients *t, const void *route, size_t n, int fd, const char *owner)
{
	struct client *c = xcalloc(1, sizeof *c);
	snprintf(c->owner, sizeof c->owner, "%s", owner);
	memcpy(c->route, route, n);
	c->route_n = n;
	c->fd = fd;
	c->budget = xcalloc(1, sizeof *c->budget);
	atomic_init(&c->budget->refs, 1);
	uint64_t h = route_hash(t, route, n);
	c->same_hash = map_get(&t->by_route, h);
	map_put(&t->by_route, h, c);
	if (fd >= 0) {
		struct client **chain = fd_chain(t, fd);
		c->same_fd = *chain;
		*chain = c;
	}
	return c;
}

void clients_lose(struct clients *t, struct client *c)
{
	c->lost = true;
	if (c->queued)
		return;
	c->queued = true;
	c->next_lost = t->lost;
	t->lost = c;
}

void clients_lose_if(struct clients *t, bool (*lost)(void *user, const struct client *c), void *user)
{
	for (size_t i = 0; i < t->by_route.cap; i++)
		for (struct client *c = t->by_route.slots[i].value; c; c = c->same_hash)
			if (!lost || lost(user, c))
				clients_lose(t, c);
}

struct client *clients_take_lost(struct clients *t)
{
	struct client *c = t->lost;
	if (c)
		t->lost = c->next_lost;
	return c;
}

void clients_unlink(struct clients *t, struct client *c)
{
	uint64_t h = route_hash(t, c->route, c->route_n);
	struct client *head = map_get(&t->by_route, h), **at = &head;
	while (*at != c)
		at = &(*at)->same_hash;
	*at = c->same_hash;
	if (head)
		map_put(&t->by_route, h, head);
	else
		map_remove(&t->by_route, h);
	at = c->fd >= 0 ? fd_chain(t, c->fd) : NULL;
	while (at && *at && *at != c)
		at = &(*at)->same_fd;
	if (at && *at)
		*at = c->same_fd;
	c->unlinked = true;
}

void clients_release(struct client *c)
{
	if (!c->unlinked || c->n_parsing)
		return;
	assert(!c->calls);
	budget_unref(c->budget);
	free(c);
}

const char *clients_owner(const struct client *c)
{
	return c->owner[0] ? c->owner : NULL;
}

/* --- sending --- */

size_t clients_unsent(const struct client *c)
{
	return atomic_load(c ? &c->budget->unsent : &all_unsent);
}

/* A message's bytes, charged to the budget until ZeroMQ frees them. */
struct counted {
	struct budget *budget;
	size_t n;
	char bytes[];
};

/* Called by ZeroMQ's threads when a message has been written. */
static void counted_free(void *data, void *hint)
{
	struct counted *m = hint;
	(void)data;
	atomic_fetch_sub(&m->budget->unsent, m->n);
	atomic_fetch_sub(&all_unsent, m->n);
	budget_unref(m->budget);
	free(m);
}

static int send_counted(struct budget *b, void *router, const void *bytes, size_t n)
{
	struct counted *m = xmalloc(sizeof *m + n);
	m->budget = b;
	m->n = n + MESSAGE_COST;
	memcpy(m->bytes, bytes, n);
	atomic_fetch_add(&b->refs, 1);
	atomic_fetch_add(&b->unsent, m->n);
	atomic_fetch_add(&all_unsent, m->n);
	zmq_msg_t msg;
	if (zmq_msg_init_data(&msg, m->bytes, n, counted_free, m)) {
		counted_free(NULL, m);
		return -ENOMEM;
	}
	if (zmq_msg_send(&msg, router, ZMQ_DONTWAIT) < 0) {
		int rc = -zmq_errno();
		zmq_msg_close(&msg);
		return rc;
	}
	return 0;
}

/* Complete a message that failed in the middle: ZeroMQ would take the next message for the rest of it. */
static void end_message(void *router)
{
	for (int i = 0; i < END_TRIES && zmq_send(router, "", 0, ZMQ_DONTWAIT) < 0; i++)
		;
}

int clients_send(struct client *c, void *router, bool delimiter, const void *bytes, size_t n)
{
	size_t waiting = clients_unsent(c);
	size_t max = clients_unsent(NULL) > ALL_UNSENT_MAX ? CLIENT_UNSENT_FAIR : CLIENT_UNSENT_MAX;
	if (waiting && waiting + n > max)
		return -EAGAIN;
	if (zmq_send(router, c->route, c->route_n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		return -zmq_errno();
	int rc = delimiter && zmq_send(router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0
			 ? -zmq_errno()
			 : send_counted(c->budget, router, bytes, n);
	if (rc)
		end_message(router);
	return rc;
}
