/* jobsock_rig.h - a job socket for tests: the real front end and sockets, an engine without a model
 * (fake_engine.h), and clients. Included once per test program. */
#ifndef QUERN_TESTS_WIRE_JOBSOCK_RIG_H
#define QUERN_TESTS_WIRE_JOBSOCK_RIG_H

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "controller/front.h"
#include "controller/jobs/mailbox.h"
#include "proto/mp.h"
#include "tests/demo_service.h"
#include "tests/wire/fake_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { WAIT_MS = 50000 }; /* long enough for a loaded machine, less than a test's timeout */

static struct demo demo;
static void *zmq;
static struct front *front;
static struct mailbox *mailbox;
static struct fake_engine engine;

static inline void start_at(const char *endpoint)
{
	struct front_config cfg = {0};
	struct why why;
	demo_open(&demo);
	zmq = zmq_ctx_new();
	snprintf(cfg.jobs, sizeof cfg.jobs, "%s", endpoint);
	cr_assert_eq(front_start(zmq, &demo.svc, &cfg, &front, &why), 0, "%s", why.text);
	fake_start(&engine, zmq);
	front_connect(front);
	mailbox = front_mailbox(front);
}

static inline void start(void)
{
	start_at("tcp://127.0.0.1:*");
}

static inline void stop(void)
{
	front_stop(front);
	fake_stop(&engine);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

/* --- a client --- */

struct client {
	void *zmq; /* its own context, so that closing it resembles the end of a process */
	void *socket;
};

static inline void client_open_as(struct client *c, int type)
{
	int linger = 0;
	c->zmq = zmq_ctx_new();
	c->socket = zmq_socket(c->zmq, type);
	zmq_setsockopt(c->socket, ZMQ_LINGER, &linger, sizeof linger);
	cr_assert_eq(zmq_connect(c->socket, front_jobs_endpoint(front)), 0);
}

static inline void client_open(struct client *c)
{
	client_open_as(c, ZMQ_DEALER);
}

static inline void client_close(struct client *c)
{
	zmq_close(c->socket);
	zmq_ctx_term(c->zmq);
}

/* Send JSON text, written with ' for ", as msgpack. */
static inline void client_send_json(struct client *c, const char *text)
{
	json_t *v;
	struct why why;
	char *quoted = xstrdup(text);
	struct buf b = {0};
	for (char *p = quoted; *p; p++)
		if (*p == '\'')
			*p = '"';
	cr_assert_eq(json_parse(quoted, strlen(quoted), &v, &why), 0, "%s: %s", text, why.text);
	mp_encode(&b, v);
	cr_assert_geq(zmq_send(c->socket, b.p, b.len, 0), 0);
	json_decref(v);
	buf_fini(&b);
	free(quoted);
}

static inline json_t *client_receive_within(struct client *c, int ms)
{
	zmq_pollitem_t item = {.socket = c->socket, .events = ZMQ_POLLIN};
	struct mp_limits limits = mp_limits_reply();
	zmq_msg_t m;
	json_t *v = NULL;
	struct why why = {""};
	if (zmq_poll(&item, 1, ms) <= 0)
		return NULL;
	zmq_msg_init(&m);
	cr_assert_geq(zmq_msg_recv(&m, c->socket, 0), 0);
	cr_assert_not(zmq_msg_more(&m));
	cr_assert_eq(mp_decode(zmq_msg_data(&m), zmq_msg_size(&m), &limits, &v, &why), 0, "%s", why.text);
	zmq_msg_close(&m);
	return v;
}

static inline json_t *client_receive(struct client *c)
{
	json_t *v = client_receive_within(c, WAIT_MS);
	cr_assert(v, "no reply");
	return v;
}

static inline const char *str(const json_t *v, const char *key)
{
	const char *s = json_string_value(json_object_get(v, key));
	return s ? s : "";
}

static inline long num(const json_t *v, const char *key)
{
	return (long)json_integer_value(json_object_get(v, key));
}

/* Receive the next reply, which must have this op. The caller frees it. */
static inline json_t *expect(struct client *c, const char *op)
{
	json_t *v = client_receive(c);
	char *all = json_dumps(v, 0);
	cr_assert_str_eq(str(v, "op"), op, "%s", all);
	free(all);
	return v;
}

static inline void expect_error(struct client *c, const char *code, const char *words)
{
	json_t *v = expect(c, "error");
	cr_expect_str_eq(str(v, "code"), code, "%s", str(v, "message"));
	cr_expect(strstr(str(v, "message"), words), "\"%s\" does not contain \"%s\"", str(v, "message"),
		  words);
	json_decref(v);
}

static inline void expect_pong(struct client *c)
{
	client_send_json(c, "{'op': 'ping', 'id': 'still there?'}");
	json_t *v = expect(c, "ok");
	cr_expect_str_eq(str(v, "id"), "still there?");
	json_decref(v);
}

/* Receive up to `done`, which is returned; collects the text and the number of tokens of output 0. */
static inline json_t *expect_stream(struct client *c, struct buf *text, size_t *n)
{
	*n = 0;
	for (;;) {
		json_t *v = client_receive(c);
		if (strcmp(str(v, "op"), "delta") != 0) {
			cr_assert_str_eq(str(v, "op"), "done", "%s", str(v, "message"));
			return v;
		}
		if (num(v, "index") == 0) {
			cr_expect_eq(num(v, "offset"), (long)*n);
			buf_puts(text, str(v, "text"));
			*n += json_array_size(json_object_get(v, "tokens"));
		}
		json_decref(v);
	}
}

static inline const json_t *output(const json_t *done, size_t i)
{
	return json_array_get(json_object_get(done, "outputs"), i);
}

static inline bool eventually(bool (*holds)(void))
{
	int64_t until = clock_us() + WAIT_MS * 1000LL;
	while (!holds()) {
		if (clock_us() > until)
			return false;
		usleep(2000);
	}
	return true;
}

static inline bool engine_is_idle(void)
{
	return atomic_load(&engine.n_live) == 0;
}

#endif
