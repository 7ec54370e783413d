/* Connections of a listening socket: the connections that are closed when there are too many. */
#include "controller/net/conns.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX = 4 };

static int listening;
static struct sockaddr_in address;
static char endpoint[64];
static struct conns *conns;
static int clients[64]; /* the client's end, indexed by the accepted descriptor */

static void setup(void)
{
	socklen_t n = sizeof address;
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listening = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert(listening >= 0 && bind(listening, (struct sockaddr *)&address, sizeof address) == 0);
	cr_assert(listen(listening, 64) == 0 && getsockname(listening, (struct sockaddr *)&address, &n) == 0);
	snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
	conns = conns_new(endpoint, MAX);
}

static void finish(void)
{
	conns_free(conns);
}

TestSuite(conns, .init = setup, .fini = finish, .timeout = 30);

/* Open a connection; return the accepted descriptor. */
static int opened(int64_t until_us)
{
	int client = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
	int fd = accept(listening, NULL, NULL);
	cr_assert(fd >= 0 && fd < 64);
	clients[fd] = client;
	conns_opened(conns, fd, until_us);
	return fd;
}

/* Return whether the client sees the end of its connection. */
static bool is_cut(int fd)
{
	struct pollfd p = {.fd = clients[fd], .events = POLLIN};
	char c;
	return poll(&p, 1, 0) == 1 && recv(clients[fd], &c, 1, 0) == 0;
}

Test(conns, oldest_pending_connection_is_closed_beyond_the_limit)
{
	int fd[MAX + 2];
	for (int i = 0; i < MAX + 2; i++)
		fd[i] = opened(INT64_MAX);
	for (int i = 0; i < MAX + 2; i++)
		cr_expect_eq(is_cut(fd[i]), i < 2, "%d", i);
}

Test(conns, kept_connection_is_not_closed_for_pending_ones)
{
	int kept = opened(INT64_MAX);
	cr_expect(conns_keep(conns, kept) != 0);
	for (int i = 0; i < 10; i++)
		opened(INT64_MAX);
	cr_expect(!is_cut(kept));
}

Test(conns, newest_connection_is_closed_if_all_others_are_kept)
{
	int fd[MAX];
	for (int i = 0; i < MAX; i++)
		conns_keep(conns, fd[i] = opened(INT64_MAX));
	int one_more = opened(INT64_MAX);
	cr_expect(is_cut(one_more));
	for (int i = 0; i < MAX; i++)
		cr_expect(!is_cut(fd[i]));
}

Test(conns, closed_connection_counts_until_the_monitor_reports_its_end)
{
	int first = opened(INT64_MAX);
	for (int i = 0; i < MAX; i++)
		opened(INT64_MAX);
	cr_assert(is_cut(first));
	cr_expect_eq(conns_count(conns), (size_t)MAX + 1, "open until the monitor reports its end");
	cr_expect(!conns_closed(conns, first));
	cr_expect_eq(conns_count(conns), (size_t)MAX);
}

Test(conns, released_connection_is_the_first_to_be_closed)
{
	int released = opened(INT64_MAX), older;
	uint64_t number = conns_keep(conns, released);
	older = opened(INT64_MAX);
	conns_release(conns, released, number + 1, INT64_MAX); /* another connection's number: no effect */
	for (int i = 0; i < MAX - 2; i++)
		opened(INT64_MAX);
	conns_release(conns, released, number, INT64_MAX);
	opened(INT64_MAX);
	cr_expect(is_cut(released) && !is_cut(older));
}

Test(conns, pending_connections_expire)
{
	int soon = opened(10), later = opened(20), kept = opened(10);
	conns_keep(conns, kept);
	cr_expect_eq(conns_expire(conns, 9), 0u);
	cr_expect_eq(conns_expire(conns, 10), 1u);
	cr_expect(is_cut(soon) && !is_cut(later) && !is_cut(kept));
	cr_expect_eq(conns_expire(conns, 10), 0u, "closed once");
}

Test(conns, closed_tells_pending_from_kept_connections)
{
	int pending = opened(INT64_MAX), kept = opened(INT64_MAX);
	conns_keep(conns, kept);
	cr_expect(!conns_closed(conns, pending));
	cr_expect(conns_closed(conns, kept));
	cr_expect(!conns_is_open(conns, kept) && conns_keep(conns, kept) == 0);
}

/* By the time a connection expires, its descriptor may have been closed and reused. */
Test(conns, reused_descriptor_of_another_file_is_left_alone)
{
	int fd = opened(10), pair[2];
	char c;
	cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	cr_assert(dup2(pair[0], fd) == fd);
	close(pair[0]);
	cr_expect_eq(conns_expire(conns, 10), 1u);
	cr_expect(send(fd, "x", 1, 0) == 1 && recv(pair[1], &c, 1, 0) == 1);
}

Test(conns, limits_of_all_sockets_leave_a_reserve_of_descriptors)
{
	struct rlimit r = {2000, 2000};
	cr_assert(setrlimit(RLIMIT_NOFILE, &r) == 0);
	size_t jobs = conns_limit(16384, CONNS_JOBS), http = conns_limit(16384, CONNS_HTTP);
	cr_expect(jobs > 100 && http > jobs && jobs + http <= 2000 - 512, "%zu and %zu", jobs, http);
	cr_expect_eq(conns_limit(10, CONNS_JOBS), 10u);
}
