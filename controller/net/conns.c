#include "controller/net/conns.h"

#include "base/alloc.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	SPARE = 512,    /* descriptors for the worker bus, files, ZeroMQ itself */
	WANTED = 66048, /* (WANTED - SPARE) / 4 is 16,384 connections */
};

/* One descriptor.  Pending connections form a list, the first to be closed at its head. */
struct conn {
	bool open, pending, cut; /* cut: shut down, but the monitor has not reported its end yet */
	uint64_t number;
	int next, prev; /* neighbours in the pending list; -1: none */
	int64_t until_us;
};

struct conns {
	char endpoint[256];
	struct conn *at; /* [n] indexed by descriptor */
	size_t n, n_open, max;
	size_t n_cut;    /* open connections that are cut */
	int first, last; /* ends of the pending list; -1: empty */
	uint64_t last_number;
};

/* ---- descriptors ---- */

size_t conns_limit(size_t want, enum conns_quarters share)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r))
		return want;
	if (r.rlim_cur < WANTED) {
		struct rlimit more = {r.rlim_max < WANTED ? r.rlim_max : WANTED, r.rlim_max};
		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			r = more;
	}
	size_t spare = r.rlim_cur >= 2 * SPARE ? SPARE : (size_t)r.rlim_cur / 2;
	size_t can = ((size_t)r.rlim_cur - spare) / 4 * share;
	return want < can ? want : can;
}

/* ---- the table ---- */

struct conns *conns_new(const char *endpoint, size_t max)
{
	struct conns *c = xcalloc(1, sizeof *c);
	snprintf(c->endpoint, sizeof c->endpoint, "%s", endpoint);
	c->max = max;
	c->first = c->last = -1;
	return c;
}

void conns_free(struct conns *c)
{
	if (!c)
		return;
	free(c->at);
	free(c);
}

static struct conn *find(const struct conns *c, int fd)
{
	return fd >= 0 && (size_t)fd < c->n ? &c->at[fd] : NULL;
}

static void grow(struct conns *c, int fd)
{
	size_t n = c->n ? c->n : 64;
	while (n <= (size_t)fd)
		n *= 2;
	if (n == c->n)
		return;
	c->at = xrealloc(c->at, n, sizeof *c->at);
	memset(c->at + c->n, 0, (n - c->n) * sizeof *c->at);
	c->n = n;
}

static void unlink_pending(struct conns *c, int fd)
{
	struct conn *k = &c->at[fd];
	if (!k->pending)
		return;
	*(k->prev >= 0 ? &c->at[k->prev].next : &c->first) = k->next;
	*(k->next >= 0 ? &c->at[k->next].prev : &c->last) = k->prev;
	k->pending = false;
}

static void link_pending(struct conns *c, int fd, bool first, int64_t until_us)
{
	struct conn *k = &c->at[fd];
	k->pending = true;
	k->until_us = until_us;
	k->prev = first ? -1 : c->last;
	k->next = first ? c->first : -1;
	*(k->prev >= 0 ? &c->at[k->prev].next : &c->first) = fd;
	*(k->next >= 0 ? &c->at[k->next].prev : &c->last) = fd;
}

/* Return whether the descriptor is still a connection to this endpoint.  The monitor's events lag: ZeroMQ may
 * have closed the descriptor, and its number may belong to another file by now (hardly to another connection
 * of the same endpoint). */
static bool is_ours(const struct conns *c, int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	} a = {0};
	socklen_t n = sizeof a;
	const char *colon = strrchr(c->endpoint, ':');
	if (getsockname(fd, &a.any, &n) < 0)
		return false;
	switch (a.any.sa_family) {
	case AF_INET:
		return colon && ntohs(a.in.sin_port) == atoi(colon + 1);
	case AF_INET6:
		return colon && ntohs(a.in6.sin6_port) == atoi(colon + 1);
	case AF_UNIX:
		return strncmp(c->endpoint, "ipc://", 6) == 0 &&
		       strncmp(c->endpoint + 6, a.un.sun_path, sizeof a.un.sun_path) == 0;
	default:
		return false;
	}
}

static void cut(struct conns *c, int fd)
{
	unlink_pending(c, fd);
	c->at[fd].cut = true;
	c->n_cut++;
	if (is_ours(c, fd))
		shutdown(fd, SHUT_RDWR);
}

void conns_opened(struct conns *c, int fd, int64_t until_us)
{
	assert(fd >= 0);
	grow(c, fd);
	conns_closed(c, fd);
	c->at[fd].open = true;
	c->at[fd].number = ++c->last_number;
	c->n_open++;
	link_pending(c, fd, false, until_us);
	if (c->n_open - c->n_cut > c->max)
		cut(c, c->first);
}

bool conns_closed(struct conns *c, int fd)
{
	struct conn *k = find(c, fd);
	if (!k || !k->open)
		return true;
	bool kept = !k->pending && !k->cut;
	unlink_pending(c, fd);
	c->n_cut -= k->cut;
	k->open = k->cut = false;
	c->n_open--;
	return kept;
}

bool conns_is_open(const struct conns *c, int fd)
{
	const struct conn *k = find(c, fd);
	return k && k->open;
}

size_t conns_count(const struct conns *c)
{
	return c->n_open;
}

uint64_t conns_keep(struct conns *c, int fd)
{
	if (!conns_is_open(c, fd))
		return 0;
	unlink_pending(c, fd);
	return c->at[fd].number;
}

void conns_release(struct conns *c, int fd, uint64_t number, int64_t until_us)
{
	if (!conns_is_open(c, fd) || c->at[fd].number != number || c->at[fd].cut)
		return;
	unlink_pending(c, fd);
	link_pending(c, fd, true, until_us);
}

size_t conns_expire(struct conns *c, int64_t now_us)
{
	size_t n = 0;
	for (int fd = c->first, next; fd >= 0; fd = next) {
		next = c->at[fd].next;
		if (c->at[fd].until_us > now_us)
			continue;
		cut(c, fd);
		n++;
	}
	return n;
}
