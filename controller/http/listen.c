#include "controller/http/listen.h"

#include "base/err.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

/* "host:port" to its parts; an empty host is loopback. */
static int split_addr(const char *addr, char host[256], char port[8], char *why, size_t why_n)
{
	const char *colon = strrchr(addr, ':');
	size_t n = colon ? (size_t)(colon - addr) : 0;
	char *end;
	unsigned long p = colon ? strtoul(colon + 1, &end, 10) : 0;
	if (!colon || !colon[1] || colon[1] < '0' || colon[1] > '9' || *end || p > 65535)
		return err_why(why, why_n, -EINVAL,
			       "HTTP address %s: must be HOST:PORT, the port at most 65535", addr);
	const char *h = addr;
	if (n >= 2 && h[0] == '[' && h[n - 1] == ']') {
		h++;
		n -= 2;
	} else if (memchr(h, ':', n)) {
		return err_why(why, why_n, -EINVAL, "HTTP address %s: an IPv6 address must be in brackets",
			       addr);
	}
	if (n >= 256)
		return err_why(why, why_n, -EINVAL, "HTTP address: the host's name is too long");
	snprintf(host, 256, "%.*s", (int)n, h);
	if (!n)
		snprintf(host, 256, "127.0.0.1");
	else if (!strcmp(host, "*"))
		snprintf(host, 256, "0.0.0.0");
	snprintf(port, 8, "%lu", p);
	return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static int resolve(const char *addr, struct addrinfo **out, char *why, size_t why_n)
{
	char host[256], port[8];
	int rc = split_addr(addr, host, port, why, why_n);
	if (rc)
		return rc;
	struct addrinfo want = {
		.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	int e = getaddrinfo(host, port, &want, out);
	if (e) {
		want.ai_family = AF_INET6;
		e = getaddrinfo(host, port, &want, out);
	}
	if (e)
		return err_why(why, why_n, -EINVAL, "HTTP address %s: %s", addr, gai_strerror(e));
	return 0;
}

static void name_address(char address[HTTP_ADDRESS_SIZE], int fd)
{
	struct sockaddr_storage a = {0};
	socklen_t n = sizeof a;
	char host[INET6_ADDRSTRLEN] = "", port[8] = "";
	getsockname(fd, (struct sockaddr *)&a, &n);
	getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(address, HTTP_ADDRESS_SIZE, a.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int http_listen(const char *addr, bool insecure, bool *v6, char address[HTTP_ADDRESS_SIZE], char *why,
		size_t why_n)
{
	struct addrinfo *ai;
	int one = 1, rc = resolve(addr, &ai, why, why_n);
	if (rc)
		return rc;
	*v6 = ai->ai_family == AF_INET6;
	int fd = -1;
	if (!is_loopback(ai->ai_addr) && !insecure) {
		rc = err_why(why, why_n, -EPERM,
			     "HTTP address %s is not loopback: any host that reaches it may use the service; "
			     "--insecure allows it",
			     addr);
		goto done;
	}
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, BACKLOG)) {
		rc = err_why(why, why_n, -errno, "HTTP address %s: %s", addr, strerror(errno));
		if (fd >= 0)
			close(fd);
		goto done;
	}
	name_address(address, fd);
done:
	freeaddrinfo(ai);
	return rc ? rc : fd;
}
