/* Connections of disconnected clients: the serving thread is notified repeatedly until it closes them. */
#include "controller/http/peers.h"

#include "base/housekeeper.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(peers, .timeout = 60);

static struct housekeeper *house;
static struct peers *peers;

static void start(unsigned limit_s)
{
	struct why why = {""};
	cr_assert(housekeeper_start(&house, &why) == 0, "%s", why.text);
	cr_assert(peers_start(house, limit_s, &peers, &why) == 0, "%s", why.text);
}

static void stop(void)
{
	peers_stop(peers);
	housekeeper_stop(house);
}

/* Open a TCP connection; fd[0] is the client's end, fd[1] the server's. */
static void connect_pair(int fd[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(bind(listening, (struct sockaddr *)&at, n) == 0 && listen(listening, 1) == 0);
	cr_assert(getsockname(listening, (struct sockaddr *)&at, &n) == 0);
	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(connect(fd[0], (struct sockaddr *)&at, n) == 0);
	fd[1] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	cr_assert(fd[1] >= 0);
	close(listening);
}

/* Watch fd as libmicrohttpd does: edge-triggered, so each event is reported once. */
static int watch_edges(int fd)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
	cr_assert(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) == 0);
	return epoll;
}

static uint32_t next_event(int epoll)
{
	struct epoll_event ev = {0};
	while (epoll_wait(epoll, &ev, 1, -1) != 1) /* the suite has a time limit */
		;
	return ev.events;
}

/* A busy thread gets bytes, the client's end and the first shutdown in one event, and reads only the
 * bytes. */
Test(peers, an_end_that_was_missed_is_reported_again)
{
	int fd[2];
	char got[16];
	start(3600);
	connect_pair(fd);
	cr_assert(send(fd[0], "GET /", 5, 0) == 5);
	close(fd[0]);
	struct peer *peer = peer_add(peers, fd[1]);
	int epoll = watch_edges(fd[1]);
	while (!(next_event(epoll) & EPOLLHUP)) /* until the first shutdown */
		;
	cr_assert(recv(fd[1], got, sizeof got, 0) == 5);
	next_event(epoll);
	cr_expect(recv(fd[1], got, sizeof got, 0) == 0, "the end is not seen");
	peer_del(peers, peer);
	close(fd[1]);
	close(epoll);
	stop();
}

Test(peers, a_client_that_sends_no_request_in_time_is_shut_down)
{
	int fd[2];
	char got[16];
	start(0);
	connect_pair(fd);
	struct peer *peer = peer_add(peers, fd[1]);
	cr_expect(recv(fd[0], got, sizeof got, 0) == 0, "the connection is not shut down");
	peer_del(peers, peer);
	close(fd[0]);
	close(fd[1]);
	stop();
}

/* Both clients have closed their sending sides; one had sent a complete request before. */
Test(peers, a_complete_request_is_answered_before_its_end_counts)
{
	int fd[2], half[2];
	char got[16];
	start(3600);
	connect_pair(fd);
	connect_pair(half);
	struct peer *complete = peer_add(peers, fd[1]), *incomplete = peer_add(peers, half[1]);
	peer_requested(peers, complete);
	shutdown(fd[0], SHUT_WR);
	shutdown(half[0], SHUT_WR);
	cr_assert(recv(half[0], got, sizeof got, 0) == 0);
	cr_expect(recv(fd[0], got, sizeof got, MSG_DONTWAIT) < 0, "shut down before its answer");
	peer_replied(peers, complete);
	cr_expect(recv(fd[0], got, sizeof got, 0) == 0);
	peer_del(peers, complete);
	peer_del(peers, incomplete);
	for (int i = 0; i < 2; i++) {
		close(fd[i]);
		close(half[i]);
	}
	stop();
}
