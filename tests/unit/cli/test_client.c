/* test_client.c - the commands' connection to a job socket, tested with a fake service. */
#include "base/buf.h"
#include "cli/client.h"
#include "proto/mp.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

enum { REPLIES = 500, WAIT_MS = 60000 };

/* A service that answers one request with many replies, the last of them `done`, and then closes. */
struct service {
	void *context, *router;
	char endpoint[256];
};

static void service_start(struct service *s)
{
	size_t n = sizeof s->endpoint;
	s->context = zmq_ctx_new();
	s->router = zmq_socket(s->context, ZMQ_ROUTER);
	cr_assert_eq(zmq_bind(s->router, "tcp://127.0.0.1:*"), 0);
	cr_assert_eq(zmq_getsockopt(s->router, ZMQ_LAST_ENDPOINT, s->endpoint, &n), 0);
}

/* Answer, and return when all messages are sent. */
static void service_answer_and_end(struct service *s)
{
	zmq_msg_t route, request;
	struct buf b = {0};
	zmq_msg_init(&route);
	zmq_msg_init(&request);
	cr_assert(zmq_msg_recv(&route, s->router, 0) >= 0);
	cr_assert(zmq_msg_recv(&request, s->router, 0) >= 0);
	for (int i = 0; i < REPLIES; i++) {
		json_t *reply = json_pack("{s:s, s:i}", "op", i + 1 < REPLIES ? "delta" : "done", "id", 1);
		buf_clear(&b);
		mp_encode(&b, reply);
		json_decref(reply);
		cr_assert(zmq_send(s->router, zmq_msg_data(&route), zmq_msg_size(&route), ZMQ_SNDMORE) >= 0);
		cr_assert(zmq_send(s->router, b.p, b.len, 0) >= 0);
	}
	buf_fini(&b);
	zmq_msg_close(&route);
	zmq_msg_close(&request);
	zmq_close(s->router);
	zmq_ctx_term(s->context);
}

Test(client, replies_sent_before_the_service_ended_are_received)
{
	struct service s;
	struct client *c;
	struct why why;
	service_start(&s);
	cr_assert_eq(client_open(s.endpoint, NULL, WAIT_MS, &c, &why), 0, "%s", why.text);
	json_t *request = json_pack("{s:s}", "op", "submit"), *reply;
	cr_assert_eq(client_send(c, request, NULL, &why), 0, "%s", why.text);
	json_decref(request);
	service_answer_and_end(&s);
	/* Leave time to detect the close; no assertion depends on it. */
	nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
	for (int i = 0; i < REPLIES; i++) {
		cr_assert_eq(client_recv(c, WAIT_MS, &reply, &why), 0, "reply %d: %s", i, why.text);
		cr_assert_str_eq(client_reply_op(reply), i + 1 < REPLIES ? "delta" : "done");
		json_decref(reply);
	}
	cr_assert_eq(client_recv(c, WAIT_MS, &reply, &why), -ECONNRESET);
	cr_assert(strstr(why.text, "has gone away"));
	client_close(c);
}

/* --concurrency allows 65,536 requests in flight. */
Test(client, requests_to_a_slow_service_are_queued_without_a_bound)
{
	struct service s;
	struct client *c;
	struct why why;
	service_start(&s);
	cr_assert_eq(client_open(s.endpoint, NULL, WAIT_MS, &c, &why), 0, "%s", why.text);
	json_t *request = json_pack("{s:s}", "op", "submit");
	for (int i = 0; i < 65536; i++)
		cr_assert_eq(client_send(c, request, NULL, &why), 0, "request %d: %s", i, why.text);
	json_decref(request);
	client_close(c);
	zmq_close(s.router);
	zmq_ctx_term(s.context);
}

Test(client, nothing_is_sent_to_a_service_that_has_ended)
{
	struct service s;
	struct client *c;
	struct why why;
	service_start(&s);
	cr_assert_eq(client_open(s.endpoint, NULL, WAIT_MS, &c, &why), 0, "%s", why.text);
	zmq_close(s.router);
	zmq_ctx_term(s.context);
	json_t *request = json_pack("{s:s}", "op", "submit"), *reply;
	cr_assert_eq(client_recv(c, WAIT_MS, &reply, &why), -ECONNRESET);
	cr_assert_eq(client_send(c, request, NULL, &why), -ECONNRESET);
	json_decref(request);
	client_close(c);
}
