/* Several workers form a group: one process per rank runs the link, and a ROUTER here plays the
 * controller. */
#include "base/buf.h"
#include "tests/driver.h"
#include "worker/link.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <zmq.h>

enum { WORKERS = 4, QUEUE = 64, PATIENT_MS = 60000 };

struct message {
	char *bytes;
	size_t n;
};

struct peer {
	pid_t pid;
	unsigned char id[32];
	size_t id_n; /* 0: no hello yet */
	char rendezvous[BUS_RENDEZVOUS_SIZE];
	struct message queue[QUEUE];
	int n_queued;
	struct bus_msg last; /* found by expect() */
};

static struct why why;
static char dir[64], bus[128];
static void *ctx, *sock;
static struct peer peers[WORKERS];
static int n_peers;

/* ---- processes ---- */

static void set_up(void)
{
	strcpy(dir, "/tmp/quern-group-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(bus, sizeof bus, "ipc://%s/bus", dir);
}

static const char *log_of(const struct peer *w)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/log.%d", dir, (int)(w - peers));
	return path;
}

/* Count the lines of the worker's log with this text. NULL: print all lines, for a failure's report. */
static int count_lines(const struct peer *w, const char *text)
{
	char line[1100];
	int n = 0;
	FILE *f = fopen(log_of(w), "r");
	while (f && fgets(line, sizeof line, f)) {
		n += text && strstr(line, text);
		if (!text)
			fputs(line, stderr);
	}
	if (f)
		fclose(f);
	return n;
}

static void tear_down(void)
{
	char path[128];
	for (int i = 0; i < n_peers; i++) {
		if (peers[i].pid > 0)
			kill(peers[i].pid, SIGKILL);
		count_lines(&peers[i], NULL);
		unlink(log_of(&peers[i]));
	}
	if (sock) {
		zmq_close(sock);
		zmq_ctx_term(ctx);
	}
	snprintf(path, sizeof path, "%s/bus", dir);
	unlink(path);
	rmdir(dir);
}

TestSuite(link_group, .init = set_up, .fini = tear_down, .timeout = 120);

/* Start a worker. Forks before any socket is opened here, or leaves the sockets alone. */
static struct peer *start(int late_ms)
{
	struct peer *w = &peers[n_peers++];
	w->pid = fork();
	if (w->pid == 0) {
		cr_assert(freopen(log_of(w), "w", stderr));
		const struct link_args a = {
			.bus = bus, .device = "cpu", .n_threads = 1, .late_ms = late_ms, .grace_ms = 30000};
		int rc = link_run(&a, &why);
		if (rc)
			fprintf(stderr, "worker: %s\n", why.text);
		_exit(rc ? 1 : 0);
	}
	return w;
}

static int status_of(struct peer *w)
{
	int s;
	cr_assert_eq(waitpid(w->pid, &s, 0), w->pid);
	w->pid = 0;
	return WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
}

static void open_router(void)
{
	int ms = 30000, zero = 0;
	ctx = zmq_ctx_new();
	sock = zmq_socket(ctx, ZMQ_ROUTER);
	zmq_setsockopt(sock, ZMQ_RCVTIMEO, &ms, sizeof ms);
	zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_bind(sock, bus), 0);
}

/* ---- messages ---- */

static struct peer *find(const unsigned char *id, size_t n, const char *bytes, size_t bytes_n)
{
	struct bus_msg m;
	for (int i = 0; i < n_peers; i++)
		if (peers[i].id_n == n && memcmp(peers[i].id, id, n) == 0)
			return &peers[i];
	cr_assert_eq(bus_decode(bytes, bytes_n, &m, &why), 0, "%s", why.text);
	cr_assert_eq(m.type, BUS_HELLO);
	for (int i = 0; i < n_peers; i++)
		if (peers[i].pid == m.hello.pid) {
			memcpy(peers[i].id, id, n);
			peers[i].id_n = n;
			return &peers[i];
		}
	cr_assert_fail("a hello of an unknown worker");
	return NULL;
}

/* Queue one message for its sender; a heartbeat only if the queue is empty, or heartbeats would fill it. */
static void receive(void)
{
	static char bytes[1 << 16];
	unsigned char id[32];
	int id_n = zmq_recv(sock, id, sizeof id, 0);
	cr_assert_gt(id_n, 0, "no message: %s", zmq_strerror(errno));
	int n = zmq_recv(sock, bytes, sizeof bytes, 0);
	cr_assert(n > 0 && n <= (int)sizeof bytes);
	struct peer *w = find(id, (size_t)id_n, bytes, (size_t)n);
	if (w->n_queued && bus_peek(bytes, (size_t)n, NULL) == BUS_BEAT)
		return;
	cr_assert_lt(w->n_queued, QUEUE);
	w->queue[w->n_queued++] = (struct message){memcpy(malloc((size_t)n), bytes, (size_t)n), (size_t)n};
}

/* Expect this type of the worker's next message, skipping heartbeats unless a heartbeat is expected. */
static const struct bus_msg *expect(struct peer *w, int type)
{
	for (;;) {
		while (!w->n_queued)
			receive();
		struct message m = w->queue[0];
		memmove(w->queue, w->queue + 1, (size_t)--w->n_queued * sizeof m);
		int got = bus_peek(m.bytes, m.n, &why);
		if (got == BUS_BEAT && type != BUS_BEAT) {
			free(m.bytes);
			continue;
		}
		cr_assert_eq(got, type, "type %d, not %d", got, type);
		if (type != BUS_RESULT)
			cr_assert_eq(bus_decode(m.bytes, m.n, &w->last, &why), 0, "%s", why.text);
		if (type == BUS_HELLO) {
			cr_assert_str_neq(w->last.hello.rendezvous, w->rendezvous,
					  "a place that was said before");
			cr_assert(w->last.hello.rendezvous[0]);
			strcpy(w->rendezvous, w->last.hello.rendezvous);
		}
		free(m.bytes);
		return &w->last;
	}
}

static uint32_t expect_token(struct peer *w, uint64_t epoch, uint64_t number)
{
	const struct bus_limits lim = {40, 256, 40, 256, 1 << 20, 1 << 20, 331, 1};
	struct result r = {0};
	while (!w->n_queued || bus_peek(w->queue[0].bytes, w->queue[0].n, NULL) == BUS_BEAT) {
		if (w->n_queued)
			expect(w, BUS_BEAT);
		else
			receive();
	}
	cr_assert_eq(bus_decode_result(w->queue[0].bytes, w->queue[0].n, &lim, &r, &why), 0, "%s", why.text);
	cr_expect_eq(r.epoch, epoch);
	cr_expect_eq(r.number, number);
	cr_assert_eq(r.n_tokens, 1);
	uint32_t token = r.tokens[0];
	result_fini(&r);
	expect(w, BUS_RESULT);
	return token;
}

static void send_bytes(const struct peer *w, const struct buf *b)
{
	zmq_send(sock, w->id, w->id_n, ZMQ_SNDMORE);
	zmq_send(sock, b->p, b->len, 0);
}

static void send_msg(const struct peer *w, const struct bus_msg *m)
{
	struct buf b = {0};
	bus_encode(m, &b);
	send_bytes(w, &b);
	buf_fini(&b);
}

static void send_stop(const struct peer *w)
{
	send_msg(w, &(struct bus_msg){.type = BUS_STOP});
}

/* Send the controller's heartbeat; epoch 0: the worker is in no group. */
static void send_beat(const struct peer *w, uint64_t epoch)
{
	send_msg(w, &(struct bus_msg){.type = BUS_BEAT, .beat = {.epoch = epoch, .state = BUS_SERVING}});
}

static void send_load(const struct peer *w, const char *name, uint64_t epoch, uint32_t rank, uint32_t n_ranks,
		      const char *rendezvous)
{
	const char *model = tiny_model(name);
	struct bus_msg m = {.type = BUS_LOAD};
	if (!model)
		cr_skip_test("tiny models need Python with numpy");
	m.load = driver_load(model);
	m.load.epoch = epoch;
	m.load.n_threads = 1;
	m.load.rank = rank;
	m.load.n_ranks = n_ranks;
	snprintf(m.load.rendezvous, sizeof m.load.rendezvous, "%s", rendezvous);
	send_msg(w, &m);
}

/* Send plan 1 (a prompt and its first token) or a later plan (the next token). */
static void send_plan(const struct peer *w, uint64_t epoch, uint64_t number)
{
	static const uint32_t tokens[] = {5, 6, 7, 8}, blocks[] = {3, 4};
	struct params params;
	struct plan p = {.epoch = epoch, .number = number};
	struct buf b = {0};
	params_init(&params);
	params.temperature = 0;
	if (number == 1)
		*plan_add_seq(&p) = (struct plan_seq){.slot = 1,
						      .n_prompt = 4,
						      .n_tokens = 4,
						      .n_blocks = 2,
						      .tokens = tokens,
						      .blocks = blocks,
						      .params = &params};
	*plan_add_run(&p) = (struct plan_run){.slot = 1,
					      .pos0 = number == 1 ? 0 : (uint32_t)number + 2,
					      .n_rows = number == 1 ? 4 : 1,
					      .flags = PLAN_SAMPLE,
					      .from = 1};
	bus_encode_plan(&p, &b);
	send_bytes(w, &b);
	buf_fini(&b);
	plan_fini(&p);
}

/* ---- a group ---- */

static struct peer *group[2];

static void load_group(uint64_t epoch)
{
	for (uint32_t r = 0; r < 2; r++)
		send_load(group[r], "llama3", epoch, r, 2, group[0]->rendezvous);
}

static void expect_ready(uint64_t epoch)
{
	for (int r = 0; r < 2; r++) {
		expect(group[r], BUS_READY);
		cr_expect_eq(group[r]->last.ready.epoch, epoch);
	}
	cr_expect_eq(group[0]->last.ready.n_blocks, group[1]->last.ready.n_blocks);
	cr_expect_str_eq(group[0]->last.ready.numerics, group[1]->last.ready.numerics);
}

static void send_plans(uint64_t epoch, uint64_t number)
{
	send_plan(group[0], epoch, number);
	send_plan(group[1], epoch, number);
}

static void constraint(int late_ms)
{
	if (!tiny_model("llama3"))
		cr_skip_test("tiny models need Python with numpy");
	group[0] = start(late_ms);
	group[1] = start(late_ms);
	open_router();
	expect(group[0], BUS_HELLO);
	expect(group[1], BUS_HELLO);
	cr_expect_str_neq(group[0]->rendezvous, group[1]->rendezvous);
	load_group(1);
	expect_ready(1);
}

static void stop_all(void)
{
	for (int r = 0; r < 2; r++) {
		send_stop(group[r]);
		expect(group[r], BUS_STOP);
		cr_expect_eq(status_of(group[r]), 0);
	}
}

/* Return the token that a worker alone chooses in plan 1. */
static uint32_t token_alone(void)
{
	struct peer *w = start(PATIENT_MS);
	expect(w, BUS_HELLO);
	send_load(w, "llama3", 5, 0, 1, "");
	expect(w, BUS_READY);
	send_plan(w, 5, 1);
	uint32_t token = expect_token(w, 5, 1);
	send_stop(w);
	cr_expect_eq(status_of(w), 0);
	return token;
}

Test(link_group, two_workers_serve_as_one)
{
	constraint(PATIENT_MS);
	/* Run-ahead: the second plan refers to a token that has no result yet. */
	send_plans(1, 1);
	send_plans(1, 2);
	uint32_t token = expect_token(group[0], 1, 1);
	expect_token(group[0], 1, 2);
	/* The other rank only reports that it has executed as much. */
	do
		expect(group[1], BUS_BEAT);
	while (group[1]->last.beat.progress < 2);
	cr_expect_eq(group[1]->last.beat.expected, 3);
	cr_expect_eq(group[1]->last.beat.state, BUS_SERVING);
	cr_expect_eq(token, token_alone());
	stop_all();
}

Test(link_group, a_rank_whose_peer_died_says_hello_and_serves_again)
{
	constraint(PATIENT_MS);
	send_plans(1, 1);
	uint32_t token = expect_token(group[0], 1, 1);
	kill(group[1]->pid, SIGKILL);
	cr_expect_eq(status_of(group[1]), 128 + SIGKILL);
	send_plan(group[0], 1, 2);
	expect(group[0], BUS_HELLO); /* neither a result nor an exit */
	group[1] = start(PATIENT_MS);
	expect(group[1], BUS_HELLO);
	load_group(2);
	expect_ready(2);
	cr_expect_eq(count_lines(group[0], "load model="), 1, "its weights were loaded again");
	cr_expect_eq(count_lines(group[1], "load model="), 1);
	send_plan(group[0], 1, 3); /* from the lost group: ignored */
	send_plans(2, 1);
	cr_expect_eq(expect_token(group[0], 2, 1), token);
	stop_all();
}

Test(link_group, a_stopped_rank_is_given_up_and_comes_back)
{
	constraint(500);
	kill(group[1]->pid, SIGSTOP);
	send_plans(1, 1);
	expect(group[0], BUS_HELLO);
	kill(group[1]->pid, SIGCONT);
	expect(group[1], BUS_HELLO);
	load_group(2);
	expect_ready(2);
	send_plans(2, 1);
	expect_token(group[0], 2, 1);
	stop_all();
}

Test(link_group, a_load_ends_a_wait_for_a_rank_and_beats_go_on)
{
	constraint(PATIENT_MS);
	send_plan(group[0], 1, 1); /* the other rank never gets this plan */
	for (int i = 0; i < 4; i++) {
		expect(group[0], BUS_BEAT);
		cr_expect_eq(group[0]->last.beat.progress, 0);
		send_beat(group[0], 1);
	}
	send_load(group[0], "llama3", 2, 0, 1, "");
	expect(group[0], BUS_READY);
	cr_expect_eq(group[0]->last.ready.epoch, 2);
	send_plan(group[0], 2, 1);
	expect_token(group[0], 2, 1);
	stop_all();
}

Test(link_group, a_stop_ends_a_wait_for_a_rank)
{
	constraint(PATIENT_MS);
	send_plan(group[0], 1, 1);
	expect(group[0], BUS_BEAT);
	stop_all();
}

Test(link_group, a_beat_of_no_group_ends_a_wait_for_a_rank)
{
	constraint(PATIENT_MS);
	send_plan(group[0], 1, 1);
	expect(group[0], BUS_BEAT);
	send_beat(group[0], 0);
	expect(group[0], BUS_HELLO);
	/* An idle rank leaves the group too. */
	send_beat(group[1], 0);
	expect(group[1], BUS_HELLO);
	load_group(2);
	expect_ready(2);
	send_plans(2, 1);
	expect_token(group[0], 2, 1);
	stop_all();
}

Test(link_group, a_beat_of_no_group_ends_the_wait_for_the_group)
{
	group[0] = start(PATIENT_MS);
	open_router();
	expect(group[0], BUS_HELLO);
	send_load(group[0], "llama3", 1, 0, 2, group[0]->rendezvous);
	expect(group[0], BUS_BEAT);
	send_beat(group[0], 0);
	expect(group[0], BUS_HELLO);
	send_stop(group[0]);
	expect(group[0], BUS_STOP);
	cr_expect_eq(status_of(group[0]), 0);
}

Test(link_group, a_stop_ends_the_wait_for_the_group)
{
	group[0] = start(PATIENT_MS);
	open_router();
	expect(group[0], BUS_HELLO);
	send_load(group[0], "llama3", 1, 0, 2, group[0]->rendezvous);
	expect(group[0], BUS_BEAT);
	cr_expect_eq(group[0]->last.beat.state, BUS_LOADING);
	send_stop(group[0]);
	expect(group[0], BUS_STOP);
	cr_expect_eq(status_of(group[0]), 0);
}

Test(link_group, a_place_that_is_given_up_brings_a_hello)
{
	group[0] = start(PATIENT_MS);
	group[1] = start(PATIENT_MS);
	open_router();
	expect(group[0], BUS_HELLO);
	expect(group[1], BUS_HELLO);
	char old[BUS_RENDEZVOUS_SIZE];
	strcpy(old, group[0]->rendezvous);
	/* The first try uses up the meeting place, as the other worker is gone. */
	kill(group[1]->pid, SIGKILL);
	status_of(group[1]);
	send_load(group[0], "llama3", 1, 0, 2, old);
	expect(group[0], BUS_BEAT);
	send_load(group[0], "llama3", 2, 0, 2, old);
	expect(group[0], BUS_HELLO);
	group[1] = start(PATIENT_MS);
	expect(group[1], BUS_HELLO);
	send_load(group[1], "llama3", 3, 1, 2, old);
	expect(group[1], BUS_HELLO);
	load_group(4);
	expect_ready(4);
	stop_all();
}

Test(link_group, a_model_that_cannot_be_cut_ends_the_worker_with_the_reason)
{
	group[0] = start(PATIENT_MS);
	open_router();
	expect(group[0], BUS_HELLO);
	send_load(group[0], "llama3", 1, 0, 3, group[0]->rendezvous);
	expect(group[0], BUS_FAILED);
	cr_expect(strstr(group[0]->last.failed.why, "num_attention_heads is 8, not a multiple of 3"), "%s",
		  group[0]->last.failed.why);
	cr_expect_eq(status_of(group[0]), 1);
}

Test(link_group, a_place_on_another_host_ends_the_worker_with_the_reason)
{
	group[0] = start(PATIENT_MS);
	open_router();
	expect(group[0], BUS_HELLO);
	send_load(group[0], "llama3", 1, 1, 2, "shm:00000000-0000.1:0123456789abcdef0123456789abcdef");
	expect(group[0], BUS_FAILED);
	cr_expect(strstr(group[0]->last.failed.why, "another host"), "%s", group[0]->last.failed.why);
	cr_expect_eq(status_of(group[0]), 1);
}
