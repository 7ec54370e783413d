#include "controller/http/listen.h"

#include "base/alloc.h"
#include "base/err.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BACKLOG = 1024,
	HOST_SIZE = 256,
	PORT_TRIES = 16, /* free ports tried for a name with several addresses */
};

/* An address to bind, with its port. */
struct target {
	struct sockaddr_storage a;
	socklen_t n;
};

struct targets {
	struct target at[HTTP_LISTENERS_MAX];
	size_t n;
};

/* Names with addresses that do not depend on the machine's resolver. */
static const struct {
	const char *name, *hosts[2];
} known_names[] = {
	{"", {"127.0.0.1", NULL}},
	{"localhost", {"127.0.0.1", "::1"}},
	{"*", {"0.0.0.0", "::"}},
};

/* Split "host:port". */
static int split_addr(const char *addr, char host[HOST_SIZE], char port[8], struct why *why)
{
	const char *colon = strrchr(addr, ':');
	size_t n = colon ? (size_t)(colon - addr) : 0;
	char *end;
	unsigned long p = colon ? strtoul(colon + 1, &end, 10) : 0;
	if (!colon || !colon[1] || colon[1] < '0' || colon[1] > '9' || *end || p > 65535)
		return err_why(why, -EINVAL,
			       "HTTP address %s: must be HOST:PORT, the port at most 65535, or unix:PATH",
			       addr);
	const char *h = addr;
	if (n >= 2 && h[0] == '[' && h[n - 1] == ']') {
		h++;
		n -= 2;
	} else if (memchr(h, ':', n)) {
		return err_why(why, -EINVAL, "HTTP address %s: an IPv6 address must be in brackets", addr);
	}
	if (n >= HOST_SIZE)
		return err_why(why, -EINVAL, "HTTP address: the host's name is too long");
	snprintf(host, HOST_SIZE, "%.*s", (int)n, h);
	snprintf(port, 8, "%lu", p);
	return 0;
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static int port_of(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port
					     : ((const struct sockaddr_in6 *)a)->sin6_port);
}

static void set_port(struct sockaddr_storage *a, int port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
	else
		((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
}

static void add_target(struct targets *t, const struct addrinfo *ai)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->at[i].n == ai->ai_addrlen && !memcmp(&t->at[i].a, ai->ai_addr, ai->ai_addrlen))
			return;
	if (t->n == HTTP_LISTENERS_MAX || (ai->ai_family != AF_INET && ai->ai_family != AF_INET6))
		return;
	memcpy(&t->at[t->n].a, ai->ai_addr, ai->ai_addrlen);
	t->at[t->n++].n = ai->ai_addrlen;
}

/* Append the addresses of one name.  Returns getaddrinfo()'s error. */
static int resolve_name(const char *host, const char *port, struct targets *t)
{
	struct addrinfo *found, want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	int e = getaddrinfo(host, port, &want, &found);
	if (e)
		return e;
	for (const struct addrinfo *ai = found; ai; ai = ai->ai_next)
		add_target(t, ai);
	freeaddrinfo(found);
	return 0;
}

static int resolve(const char *addr, const char *host, const char *port, struct targets *t, struct why *why)
{
	const char *one[] = {host, NULL}, *const *hosts = one;
	int e = 0;
	t->n = 0;
	for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++)
		if (!strcasecmp(host, known_names[i].name))
			hosts = known_names[i].hosts;
	for (size_t i = 0; i < 2 && hosts[i] && !e; i++)
		e = resolve_name(hosts[i], port, t);
	if (e || !t->n)
		return err_why(why, -EINVAL, "HTTP address %s: %s", addr, gai_strerror(e ? e : EAI_NONAME));
	return 0;
}

/* Return true if an IPv6 socket must not accept IPv4 clients, because an IPv4 socket has that port. */
static bool is_of_v6_alone(const struct http_listeners *l, int port)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->at[i].family == AF_INET && l->at[i].port == port)
			return true;
	return false;
}

/* Bind one socket and append it.  Returns 0 or -errno. */
static int bind_one(const struct target *t, struct http_listeners *l)
{
	struct sockaddr_storage bound = {0};
	socklen_t n = sizeof bound;
	int one = 1, v6 = t->a.ss_family == AF_INET6 && is_of_v6_alone(l, port_of(&t->a));
	int fd = socket(t->a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    (v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one)) ||
	    bind(fd, (const struct sockaddr *)&t->a, t->n) || listen(fd, BACKLOG) ||
	    getsockname(fd, (struct sockaddr *)&bound, &n)) {
		int rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	l->at[l->n++] = (struct http_listener){.fd = fd, .family = t->a.ss_family, .port = port_of(&bound)};
	return 0;
}

/* Return true if the machine lacks the address, or IPv6. */
static bool is_absent(int rc)
{
	return rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT;
}

/* Bind all addresses of a name to one port.  An address that the machine lacks is skipped if another can be
 * bound. */
static int bind_all(struct targets *t, struct http_listeners *l)
{
	const size_t n_before = l->n;
	int absent = 0;
	for (size_t i = 0; i < t->n; i++) {
		if (l->n > n_before)
			set_port(&t->at[i].a, l->at[n_before].port);
		int rc = l->n < HTTP_LISTENERS_MAX ? bind_one(&t->at[i], l) : -E2BIG;
		if (is_absent(rc)) {
			absent = rc;
		} else if (rc) {
			while (l->n > n_before)
				close(l->at[--l->n].fd);
			return rc;
		}
	}
	return l->n > n_before ? 0 : absent;
}

static int bind_name(struct targets *t, struct http_listeners *l)
{
	const bool any_port = port_of(&t->at[0].a) == 0;
	int rc = -EADDRINUSE;
	for (int i = 0; rc == -EADDRINUSE && i < (any_port ? PORT_TRIES : 1); i++) {
		for (size_t k = 0; any_port && k < t->n; k++)
			set_port(&t->at[k].a, 0);
		rc = bind_all(t, l);
	}
	return rc;
}

/* Write the address of the sockets from `first` on: numeric for a single socket, else by the name. */
static void name_address(const struct http_listeners *l, size_t first, const char *host,
			 char out[HTTP_ADDRESS_SIZE])
{
	struct sockaddr_storage a = {0};
	socklen_t n = sizeof a;
	char numbers[INET6_ADDRSTRLEN + 32] = "";
	if (l->n - first > 1) {
		snprintf(out, HTTP_ADDRESS_SIZE, "%s:%d", host, l->at[first].port);
		return;
	}
	getsockname(l->at[first].fd, (struct sockaddr *)&a, &n);
	getnameinfo((struct sockaddr *)&a, n, numbers, sizeof numbers, NULL, 0, NI_NUMERICHOST);
	snprintf(out, HTTP_ADDRESS_SIZE, a.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d", numbers,
		 l->at[first].port);
}

static int listen_name(const char *addr, bool guarded, struct http_listeners *l,
		       char bound[HTTP_ADDRESS_SIZE], struct why *why)
{
	char host[HOST_SIZE], port[8];
	struct targets t;
	const size_t first = l->n;
	int rc = split_addr(addr, host, port, why);
	if (!rc)
		rc = resolve(addr, host, port, &t, why);
	if (rc)
		return rc;
	for (size_t i = 0; i < t.n; i++)
		if (!guarded && !is_loopback(&t.at[i].a))
			return err_why(
				why, -EPERM,
				"HTTP address %s is not loopback: any host that reaches it may use the "
				"service; --insecure allows it",
				addr);
	rc = bind_name(&t, l);
	if (rc)
		return err_why(why, rc, "HTTP address %s: %s", addr, strerror(-rc));
	name_address(l, first, host, bound);
	return 0;
}

static int listen_path(const char *addr, bool guarded, struct http_listeners *l,
		       char bound[HTTP_ADDRESS_SIZE], struct why *why)
{
	int rc = http_listen_unix(addr + strlen("unix:"), guarded, &l->at[l->n], why);
	l->n += !rc;
	snprintf(bound, HTTP_ADDRESS_SIZE, "%s", addr);
	return rc;
}

int http_listen(const char *addrs, bool guarded, struct http_listeners *out, struct why *why)
{
	char *copy = xstrdup(addrs), *rest = copy, bound[HTTP_ADDRESS_SIZE];
	int rc = 0;
	*out = (struct http_listeners){0};
	while (!rc && rest) {
		const char *addr = strsep(&rest, ",");
		const size_t n = strlen(out->address);
		if (out->n == HTTP_LISTENERS_MAX)
			rc = err_why(why, -E2BIG, "HTTP address %s: more than %d sockets", addr,
				     HTTP_LISTENERS_MAX);
		else if (!strncmp(addr, "unix:", 5))
			rc = listen_path(addr, guarded, out, bound, why);
		else
			rc = listen_name(addr, guarded, out, bound, why);
		if (!rc && snprintf(out->address + n, sizeof out->address - n, "%s%s", n ? "," : "", bound) >=
				   (int)(sizeof out->address - n))
			rc = err_why(why, -ENAMETOOLONG, "HTTP addresses: more than %d bytes",
				     HTTP_ADDRESS_SIZE - 1);
	}
	free(copy);
	if (rc)
		http_listeners_close(out);
	return rc;
}

void http_listeners_close(struct http_listeners *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct http_listener *s = &l->at[i];
		struct stat file;
		if (s->path && !lstat(s->path, &file) && file.st_dev == s->dev && file.st_ino == s->ino)
			unlink(s->path);
		if (s->fd >= 0)
			close(s->fd);
		free(s->path);
	}
	*l = (struct http_listeners){0};
}
