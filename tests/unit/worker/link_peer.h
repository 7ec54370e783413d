/* link_peer.h - plays the controller for a worker's link: starts the worker's process and opens a ROUTER.
 * Everything here may be unused in a test. */
#ifndef QUERN_TESTS_UNIT_WORKER_LINK_PEER_H
#define QUERN_TESTS_UNIT_WORKER_LINK_PEER_H

#include "base/buf.h"
#include "base/err.h"
#include "tests/driver.h"
#include "worker/link.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <zmq.h>

struct peer {
	char dir[64], bus[128];
	pid_t pid;
	void *ctx, *sock;
	unsigned char id[32]; /* of the worker */
	size_t id_n;
	char bytes[1 << 16];
	size_t n;
	int64_t leave_ms;  /* the worker's option; 0: a minute */
	const char *cache; /* as in link_args */
	bool fetch;
	const char *place;
};

static struct peer peer;
static struct why why;

static void on_term(int sig)
{
	(void)sig;
	link_stop();
}

DRIVER_FN void on_leave(int sig)
{
	(void)sig;
	link_leave();
}

/* Start the worker's process, before any socket is opened here. SIGUSR1 makes it leave. */
DRIVER_FN void start_worker_on(const char *device, int64_t grace_ms)
{
	strcpy(peer.dir, "/tmp/quern-link-XXXXXX");
	cr_assert(mkdtemp(peer.dir));
	snprintf(peer.bus, sizeof peer.bus, "ipc://%s/bus", peer.dir);
	peer.pid = fork();
	if (peer.pid == 0) {
		signal(SIGTERM, on_term);
		signal(SIGUSR1, on_leave);
		const struct link_args a = {.bus = peer.bus,
					    .device = device,
					    .grace_ms = grace_ms,
					    .cache = peer.cache,
					    .place = peer.place,
					    .fetch = peer.fetch,
					    .leave_ms = peer.leave_ms ? peer.leave_ms : 60000};
		int rc = link_run(&a, &why);
		if (rc)
			fprintf(stderr, "worker: %s\n", why.text);
		_exit(rc == 0 ? 0 : rc == -ETIMEDOUT ? 3 : rc == -EPROTO ? 4 : 1);
	}
}

DRIVER_FN void start_worker(int64_t grace_ms)
{
	start_worker_on("cpu", grace_ms);
}

DRIVER_FN void open_router(void)
{
	int ms = 60000, zero = 0;
	peer.ctx = zmq_ctx_new();
	peer.sock = zmq_socket(peer.ctx, ZMQ_ROUTER);
	zmq_setsockopt(peer.sock, ZMQ_RCVTIMEO, &ms, sizeof ms);
	zmq_setsockopt(peer.sock, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_bind(peer.sock, peer.bus), 0);
}

DRIVER_FN void close_router(void)
{
	zmq_close(peer.sock);
	zmq_ctx_term(peer.ctx);
}

/* Return how much slower this machine is than a quiet one without sanitizers: QUERN_TEST_SLOW, as for the
 * Python tests. */
DRIVER_FN int slow(void)
{
	const char *times = getenv("QUERN_TEST_SLOW");
	const int n = times ? atoi(times) : 1;
	return n > 0 ? n : 1;
}

DRIVER_FN int end_worker(void)
{
	char path[128];
	int status;
	waitpid(peer.pid, &status, 0);
	snprintf(path, sizeof path, "%s/bus", peer.dir);
	unlink(path);
	rmdir(peer.dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Receive the worker's next message; return its type. */
DRIVER_FN int receive(void)
{
	int n = zmq_recv(peer.sock, peer.id, sizeof peer.id, 0);
	cr_assert_gt(n, 0, "no message of the worker: %s", zmq_strerror(errno));
	peer.id_n = (size_t)n;
	n = zmq_recv(peer.sock, peer.bytes, sizeof peer.bytes, 0);
	cr_assert(n > 0 && n <= (int)sizeof peer.bytes);
	peer.n = (size_t)n;
	int type = bus_peek(peer.bytes, peer.n, &why);
	cr_assert_gt(type, 0, "%s", why.text);
	return type;
}

/* Skip heartbeats; expect a message of this type. */
DRIVER_FN void expect(int type)
{
	int got;
	do
		got = receive();
	while (got == BUS_BEAT && type != BUS_BEAT);
	cr_assert_eq(got, type, "type %d, not %d", got, type);
}

DRIVER_FN struct bus_msg decoded(void)
{
	struct bus_msg m;
	cr_assert_eq(bus_decode(peer.bytes, peer.n, &m, &why), 0, "%s", why.text);
	return m;
}

DRIVER_FN void send_bytes(const void *p, size_t n)
{
	zmq_send(peer.sock, peer.id, peer.id_n, ZMQ_SNDMORE);
	zmq_send(peer.sock, p, n, 0);
}

DRIVER_FN void send_msg(const struct bus_msg *m)
{
	struct buf b = {0};
	bus_encode(m, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
}

DRIVER_FN void send_load(const char *model, uint64_t epoch)
{
	struct bus_msg m = {.type = BUS_LOAD, .load = driver_load(model)};
	m.load.epoch = epoch;
	send_msg(&m);
}

DRIVER_FN void send_stop(void)
{
	const struct bus_msg m = {.type = BUS_STOP};
	send_msg(&m);
}

DRIVER_FN const char *model(void)
{
	const char *dir = tiny_model("llama3");
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	return dir;
}

/* Send a plan with one prompt, which samples its first token. */
DRIVER_FN void send_plan(uint64_t epoch, uint64_t number, uint32_t block)
{
	static const uint32_t tokens[] = {5, 6, 7, 8};
	struct params params;
	struct plan p = {.epoch = epoch, .number = number};
	struct buf b = {0};
	params_init(&params);
	params.temperature = 0;
	*plan_add_seq(&p) = (struct plan_seq){.slot = 1,
					      .n_prompt = 4,
					      .n_tokens = 4,
					      .n_blocks = 1,
					      .tokens = tokens,
					      .blocks = &block,
					      .params = &params};
	*plan_add_run(&p) = (struct plan_run){.slot = 1, .n_rows = 4, .flags = PLAN_SAMPLE, .from = 1};
	bus_encode_plan(&p, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
	plan_fini(&p);
}

DRIVER_FN void expect_result(uint64_t epoch, uint64_t number)
{
	struct result r = {0};
	const struct bus_limits lim = {40, 256, 40, 256, 1 << 20, 1 << 20, 331, 1};
	expect(BUS_RESULT);
	cr_assert_eq(bus_decode_result(peer.bytes, peer.n, &lim, &r, &why), 0, "%s", why.text);
	cr_expect_eq(r.epoch, epoch);
	cr_expect_eq(r.number, number);
	cr_expect_eq(r.n_tokens, 1);
	result_fini(&r);
}

#endif
