/* Bytes queued for one client of the job socket, and for all clients, are charged until a message has
 * left. */
#include "controller/jobsock/clients.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

enum { N = 5, BYTES = 100000 };

static void *zmq, *router, *dealer;
static struct clients table;
static struct client *client;
static char bytes[BYTES];

/* Both sockets belong to this thread, so a message is freed when the dealer closes it, not later. */
static void make(void)
{
	char route[256];
	const int one = 1, zero = 0;
	zmq = zmq_ctx_new();
	router = zmq_socket(zmq, ZMQ_ROUTER);
	dealer = zmq_socket(zmq, ZMQ_DEALER);
	zmq_setsockopt(router, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
	zmq_setsockopt(router, ZMQ_LINGER, &zero, sizeof zero);
	zmq_setsockopt(dealer, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_bind(router, "inproc://jobs"), 0);
	cr_assert_eq(zmq_connect(dealer, "inproc://jobs"), 0);
	cr_assert_eq(zmq_send(dealer, "hello", 5, 0), 5);
	const int n = zmq_recv(router, route, sizeof route, 0);
	cr_assert_gt(n, 0);
	cr_assert_eq(zmq_recv(router, bytes, sizeof bytes, 0), 5);
	clients_init(&table);
	client = clients_add(&table, route, (size_t)n, -1, "");
}

static void drop(void)
{
	clients_fini(&table);
	zmq_close(router);
	zmq_close(dealer);
	zmq_ctx_term(zmq);
	cr_expect_eq(clients_unsent(NULL), 0);
}

TestSuite(clients, .init = make, .fini = drop, .timeout = 30);

static void receive(int n)
{
	for (int i = 0; i < n; i++)
		cr_assert_eq(zmq_recv(dealer, bytes, sizeof bytes, 0), BYTES);
}

static void forget(void)
{
	clients_lose(&table, client);
	cr_assert_eq(clients_take_lost(&table), client);
	clients_unlink(&table, client);
	clients_release(client);
}

Test(clients, bytes_are_given_back_when_a_message_has_left)
{
	for (int i = 0; i < N; i++)
		cr_assert_eq(clients_send(client, router, false, bytes, BYTES), 0);
	const size_t all = clients_unsent(client);
	cr_expect_geq(all, N * (size_t)BYTES);
	cr_expect_eq(clients_unsent(NULL), all);
	receive(2);
	cr_expect_eq(clients_unsent(client), all / N * (N - 2));
	cr_expect_eq(clients_unsent(NULL), all / N * (N - 2));
	receive(N - 2);
	cr_expect_eq(clients_unsent(client), 0);
	cr_expect_eq(clients_unsent(NULL), 0);
	forget();
}

Test(clients, bytes_of_a_client_that_has_gone_are_given_back_later)
{
	for (int i = 0; i < N; i++)
		cr_assert_eq(clients_send(client, router, false, bytes, BYTES), 0);
	forget();
	cr_expect_geq(clients_unsent(NULL), N * (size_t)BYTES);
	receive(N);
	cr_expect_eq(clients_unsent(NULL), 0);
}

Test(clients, a_client_that_does_not_read_is_refused_more)
{
	static char large[6 << 20];
	cr_expect_eq(clients_send(client, router, false, large, sizeof large), 0);
	cr_expect_eq(clients_send(client, router, false, large, sizeof large), 0);
	const size_t all = clients_unsent(NULL);
	cr_expect_eq(clients_send(client, router, false, large, sizeof large), -EAGAIN);
	cr_expect_eq(clients_unsent(NULL), all);
	cr_expect_eq(clients_send(client, router, false, bytes, BYTES), 0);
	forget();
}
