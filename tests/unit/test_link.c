/* The worker's side of the bus: a process that runs the link, and a ROUTER here that plays the
 * controller. */
#include "base/buf.h"
#include "base/clock.h"
#include "tests/driver.h"
#include "worker/link.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/wait.h>
#include <zmq.h>

struct peer {
	char dir[64], bus[128];
	pid_t pid;
	void *ctx, *sock;
	unsigned char id[32]; /* the worker's */
	size_t id_n;
	char bytes[1 << 16];
	size_t n;
};

static struct peer peer;
static char why[512];

/* The worker's process; before any socket is opened here. */
static void start_worker(int64_t grace_ms)
{
	strcpy(peer.dir, "/tmp/quern-link-XXXXXX");
	cr_assert(mkdtemp(peer.dir));
	snprintf(peer.bus, sizeof peer.bus, "ipc://%s/bus", peer.dir);
	peer.pid = fork();
	if (peer.pid == 0) {
		const struct link_args a = {.bus = peer.bus, .device = "cpu", .grace_ms = grace_ms};
		int rc = link_run(&a, why, sizeof why);
		if (rc)
			fprintf(stderr, "worker: %s\n", why);
		_exit(rc == 0 ? 0 : rc == -ETIMEDOUT ? 3 : rc == -EPROTO ? 4 : 1);
	}
}

static void open_router(void)
{
	int ms = 8000, zero = 0;
	peer.ctx = zmq_ctx_new();
	peer.sock = zmq_socket(peer.ctx, ZMQ_ROUTER);
	zmq_setsockopt(peer.sock, ZMQ_RCVTIMEO, &ms, sizeof ms);
	zmq_setsockopt(peer.sock, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_bind(peer.sock, peer.bus), 0);
}

static void close_router(void)
{
	zmq_close(peer.sock);
	zmq_ctx_term(peer.ctx);
}

static int end_worker(void)
{
	char path[128];
	int status;
	waitpid(peer.pid, &status, 0);
	snprintf(path, sizeof path, "%s/bus", peer.dir);
	unlink(path);
	rmdir(peer.dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The next message of the worker; its type. */
static int receive(void)
{
	int n = zmq_recv(peer.sock, peer.id, sizeof peer.id, 0);
	cr_assert_gt(n, 0, "no message of the worker: %s", zmq_strerror(errno));
	peer.id_n = (size_t)n;
	n = zmq_recv(peer.sock, peer.bytes, sizeof peer.bytes, 0);
	cr_assert(n > 0 && n <= (int)sizeof peer.bytes);
	peer.n = (size_t)n;
	int type = bus_peek(peer.bytes, peer.n, why, sizeof why);
	cr_assert_gt(type, 0, "%s", why);
	return type;
}

/* The next message that is no beat, which must be of this type. */
static void expect(int type)
{
	int got;
	do
		got = receive();
	while (got == BUS_BEAT && type != BUS_BEAT);
	cr_assert_eq(got, type, "type %d, not %d", got, type);
}

static struct bus_msg decoded(void)
{
	struct bus_msg m;
	cr_assert_eq(bus_decode(peer.bytes, peer.n, &m, why, sizeof why), 0, "%s", why);
	return m;
}

static void send_bytes(const void *p, size_t n)
{
	zmq_send(peer.sock, peer.id, peer.id_n, ZMQ_SNDMORE);
	zmq_send(peer.sock, p, n, 0);
}

static void send_msg(const struct bus_msg *m)
{
	struct buf b = {0};
	bus_encode(m, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
}

static void send_load(const char *model, uint64_t epoch)
{
	struct bus_msg m = {.type = BUS_LOAD, .load = driver_load(model)};
	m.load.epoch = epoch;
	send_msg(&m);
}

static void send_stop(void)
{
	const struct bus_msg m = {.type = BUS_STOP};
	send_msg(&m);
}

static const char *model(void)
{
	const char *dir = tiny_model("llama3");
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	return dir;
}

/* A plan with one prompt, whose first token is chosen. */
static void send_plan(uint64_t epoch, uint64_t number, uint32_t block)
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

static void expect_result(uint64_t epoch, uint64_t number)
{
	struct result r = {0};
	const struct bus_limits lim = {40, 256, 40, 256, 1 << 20, 1 << 20, 331};
	expect(BUS_RESULT);
	cr_assert_eq(bus_decode_result(peer.bytes, peer.n, &lim, &r, why, sizeof why), 0, "%s", why);
	cr_expect_eq(r.epoch, epoch);
	cr_expect_eq(r.number, number);
	cr_expect_eq(r.n_tokens, 1);
	result_fini(&r);
}

Test(link, serves_from_hello_to_stop)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	cr_expect_str_eq(decoded().hello.device, "cpu");
	cr_expect_eq(decoded().hello.pid, peer.pid);
	send_load(dir, 5);
	expect(BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 5);
	cr_expect_eq(decoded().ready.n_vocab, 331);
	cr_expect_leq(decoded().ready.load_ms, 2000);
	send_plan(5, 1, 3);
	send_plan(5, 2, 3);
	expect_result(5, 1);
	expect_result(5, 2);
	expect(BUS_BEAT);
	cr_expect_eq(decoded().beat.state, BUS_SERVING);
	cr_expect_eq(decoded().beat.progress, 2);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, beats_every_quarter_of_a_second)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	expect(BUS_BEAT);
	int64_t t0 = clock_us();
	for (int i = 0; i < 4; i++)
		expect(BUS_BEAT);
	int64_t ms = (clock_us() - t0) / 1000;
	cr_expect(ms > 800 && ms < 1600, "%lld ms for four beats", (long long)ms);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, a_missing_plan_is_told_by_a_beat)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	send_plan(1, 4, 3);
	expect(BUS_BEAT);
	cr_expect_eq(decoded().beat.expected, 1);
	send_plan(1, 1, 3);
	expect_result(1, 1);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, a_plan_that_contradicts_is_told_and_ends_the_worker)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	send_plan(1, 1, 1 << 20);
	expect(BUS_FAILED);
	cr_expect(strstr(decoded().failed.why, "block"), "%s", decoded().failed.why);
	cr_expect_eq(end_worker(), 1);
	close_router();
}

Test(link, a_model_that_does_not_load_is_told)
{
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load("/nonexistent/model", 2);
	expect(BUS_FAILED);
	cr_expect_eq(decoded().failed.epoch, 2);
	cr_expect(strstr(decoded().failed.why, "/nonexistent/model/config.json"), "%s", decoded().failed.why);
	cr_expect_eq(end_worker(), 1);
	close_router();
}

Test(link, garbage_is_passed_over)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_bytes("\xdd\xff\xff\xff\xff", 5);
	send_bytes("", 0);
	send_bytes("\x93\x02\x06\x80", 4); /* a result, which only a worker may send */
	send_bytes("\x93\x02\x05\x90", 4); /* a plan before anything is loaded */
	send_load(dir, 1);
	expect(BUS_READY);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, another_version_is_a_plain_error)
{
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_bytes("\x93\x09\x02\x80", 4);
	cr_expect_eq(end_worker(), 4);
	close_router();
}

Test(link, ends_when_the_controller_is_gone)
{
	start_worker(700);
	open_router();
	expect(BUS_HELLO);
	close_router();
	int64_t t0 = clock_us();
	cr_expect_eq(end_worker(), 3);
	cr_expect_leq(clock_us() - t0, 1700000);
}

Test(link, a_new_controller_gets_a_hello_and_the_weights_stay)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	send_plan(1, 1, 3);
	expect_result(1, 1);
	close_router();
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 2);
	expect(BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 2);
	send_plan(1, 2, 3); /* of the old epoch */
	send_plan(2, 1, 3);
	expect_result(2, 1);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

/* A restarted controller answers a message of the time before it with stop. */
Test(link, the_first_stop_of_a_new_controller_is_answered_by_hello)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	close_router();
	open_router();
	expect(BUS_HELLO);
	send_stop();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	send_stop();
	expect(BUS_STOP);
	close_router();
	cr_expect_eq(end_worker(), 0);
}

Test(link, a_second_stop_of_a_new_controller_is_meant)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	close_router();
	open_router();
	expect(BUS_HELLO);
	send_stop();
	expect(BUS_HELLO);
	send_stop();
	expect(BUS_STOP);
	close_router();
	cr_expect_eq(end_worker(), 0);
}
