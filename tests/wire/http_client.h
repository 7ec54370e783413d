/* http_client.h - a client that sends exactly the bytes of a test and parses the answer. Reads have a time
 * limit, so that a test fails instead of hanging. */
#ifndef QUERN_TESTS_WIRE_HTTP_CLIENT_H
#define QUERN_TESTS_WIRE_HTTP_CLIENT_H

#include "base/buf.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENT_TIMEOUT_S = 20 };

struct answer {
	int status;      /* 0: no answer */
	struct buf raw;  /* all received bytes */
	struct buf body; /* decoded from chunks */
	json_t *json;    /* the parsed body, or NULL */
};

/* Connect to "127.0.0.1:80", "[::1]:80" or "unix:/path"; for any other host, to its port on 127.0.0.1. */
static int client_connect(const char *address)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr *a = (struct sockaddr *)&v4;
	socklen_t n = sizeof v4;
	struct timeval t = {CLIENT_TIMEOUT_S, 0};
	int one = 1;
	if (!strncmp(address, "unix:", 5)) {
		snprintf(un.sun_path, sizeof un.sun_path, "%s", address + 5);
		a = (struct sockaddr *)&un;
		n = sizeof un;
	} else if (!strncmp(address, "[::1]", 5)) {
		v6.sin6_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
		a = (struct sockaddr *)&v6;
		n = sizeof v6;
	} else {
		v4.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	}
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
	if (a->sa_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (connect(fd, a, n)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Send n bytes. Returns false if the server has closed the connection. */
static bool client_send(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

/* Read until the server closes, or until `until` was received (NULL: only the close). */
static void client_read(int fd, struct buf *b, const char *until)
{
	char part[65536];
	for (;;) {
		if (until && b->p && strstr(b->p, until))
			return;
		ssize_t k = recv(fd, part, sizeof part, 0);
		if (k <= 0)
			return;
		buf_put(b, part, (size_t)k);
	}
}

static const char *answer_header(const struct answer *a, const char *name)
{
	static char value[1024];
	char key[128];
	snprintf(key, sizeof key, "\r\n%s: ", name);
	const char *end = a->raw.p ? strstr(a->raw.p, "\r\n\r\n") : NULL;
	const char *at = a->raw.p ? strcasestr(a->raw.p, key) : NULL;
	if (!at || !end || at > end)
		return NULL;
	at += strlen(key);
	snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
	return value;
}

static void answer_parse(struct answer *a)
{
	const char *end = a->raw.p ? strstr(a->raw.p, "\r\n\r\n") : NULL;
	if (!end || strncmp(a->raw.p, "HTTP/1.", 7) != 0)
		return;
	a->status = atoi(a->raw.p + 9);
	const char *p = end + 4, *coding = answer_header(a, "Transfer-Encoding");
	if (!coding) {
		buf_put(&a->body, p, a->raw.len - (size_t)(p - a->raw.p));
	} else {
		for (;;) {
			char *data;
			size_t n = strtoul(p, &data, 16), left = a->raw.len - (size_t)(data - a->raw.p);
			if (!n || left < n + 2)
				break;
			buf_put(&a->body, data + 2, n);
			p = data + 2 + n + 2;
		}
	}
	if (a->body.len)
		a->json = json_loadb(a->body.p, a->body.len, 0, NULL);
}

/* Read the answer until the server closes, and parse it. */
static struct answer client_answer(int fd)
{
	struct answer a = {0};
	client_read(fd, &a.raw, NULL);
	close(fd);
	answer_parse(&a);
	return a;
}

static struct answer client_raw(const char *address, const char *bytes, size_t n)
{
	int fd = client_connect(address);
	client_send(fd, bytes, n);
	return client_answer(fd);
}

static void client_request(struct buf *b, const char *method, const char *path, const char *body)
{
	buf_printf(b, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", method, path);
	if (body)
		buf_printf(b, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
			   body);
	else
		buf_puts(b, "\r\n");
}

static __attribute__((unused)) struct answer client_ask(const char *address, const char *method,
							const char *path, const char *body)
{
	struct buf b = {0};
	client_request(&b, method, path, body);
	struct answer a = client_raw(address, b.p, b.len);
	buf_fini(&b);
	return a;
}

static __attribute__((unused)) void answer_fini(struct answer *a)
{
	buf_fini(&a->raw);
	buf_fini(&a->body);
	json_decref(a->json);
}

#endif
