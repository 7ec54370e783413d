/* The worker's link while plans are in flight on the emulated device, which runs asynchronously with a
 * delay. */
#include "tests/unit/worker/link_peer.h"

/* Most plans that may be answered before a device set to fail has failed. */
enum { PLANS = 200 };

static const char *open_worker(int64_t grace_ms)
{
	const char *library = builtfile("lib/libquern-cudasim.so");
	const char *dir = model();
	if (access(library, R_OK))
		cr_skip_test("the emulated CUDA device is not built: make cudasim-tests");
	setenv("QUERN_CUDA_LIBRARY", library, 1);
	start_worker_on("cuda:0", grace_ms);
	open_router();
	expect(BUS_HELLO);
	return dir;
}

static void open_serving(int64_t grace_ms)
{
	const char *dir = open_worker(grace_ms);
	send_load(dir, 1);
	expect(BUS_READY);
}

/* Continue the sequence of send_plan() by one token. */
static void send_decode(uint64_t number)
{
	struct plan p = {.epoch = 1, .number = number};
	struct buf b = {0};
	*plan_add_run(&p) = (struct plan_run){
		.slot = 1, .pos0 = (uint32_t)number + 2, .n_rows = 1, .flags = PLAN_SAMPLE, .from = 1};
	bus_encode_plan(&p, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
	plan_fini(&p);
}

static uint32_t token_of(uint64_t number)
{
	struct result r = {0};
	const struct bus_limits lim = {40, 256, 40, 256, 1 << 20, 1 << 20, 331, 1};
	cr_assert_eq(bus_decode_result(peer.bytes, peer.n, &lim, &r, &why), 0, "%s", why.text);
	cr_assert_eq(r.number, number);
	cr_assert_eq(r.n_tokens, 1);
	const uint32_t token = r.tokens[0];
	result_fini(&r);
	return token;
}

Test(link_ahead, two_plans_at_once_are_answered_in_turn_with_the_same_tokens)
{
	enum { N = 12 };
	uint32_t tokens[N + 1];
	const char *dir = open_worker(10000);
	send_load(dir, 1);
	expect(BUS_READY);
	for (uint64_t k = 1; k <= N; k++) {
		if (k == 1)
			send_plan(1, 1, 3);
		else
			send_decode(k);
		expect(BUS_RESULT);
		tokens[k] = token_of(k);
	}
	send_load(dir, 1);
	expect(BUS_READY);
	send_plan(1, 1, 3);
	for (uint64_t k = 1; k <= N; k++) {
		if (k < N)
			send_decode(k + 1);
		expect(BUS_RESULT);
		cr_expect_eq(token_of(k), tokens[k], "token %d", (int)k);
	}
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link_ahead, more_plans_than_can_be_under_way_wait)
{
	open_serving(10000);
	for (uint64_t k = 1; k <= 6; k++)
		send_plan(1, k, 3);
	for (uint64_t k = 1; k <= 6; k++)
		expect_result(1, k);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link_ahead, a_new_epoch_comes_after_what_is_under_way)
{
	const char *dir = open_worker(10000);
	send_load(dir, 1);
	expect(BUS_READY);
	send_plan(1, 1, 3);
	send_plan(1, 2, 3);
	send_load(dir, 2);
	expect_result(1, 1);
	expect_result(1, 2);
	expect(BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 2);
	send_plan(1, 3, 3); /* from the old epoch */
	send_plan(2, 1, 3);
	expect_result(2, 1);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link_ahead, a_stop_comes_after_what_is_under_way)
{
	open_serving(10000);
	send_plan(1, 1, 3);
	send_plan(1, 2, 3);
	send_stop();
	expect_result(1, 1);
	expect_result(1, 2);
	expect(BUS_STOP);
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link_ahead, a_plan_that_contradicts_is_told_after_the_answer_to_the_one_before)
{
	open_serving(10000);
	send_plan(1, 1, 3);
	send_plan(1, 2, 1 << 20);
	expect_result(1, 1);
	expect(BUS_FAILED);
	cr_expect(strstr(decoded().failed.why, "block"), "%s", decoded().failed.why);
	cr_expect_eq(end_worker(), 1);
	close_router();
}

Test(link_ahead, a_plan_too_early_leaves_those_under_way_alone)
{
	open_serving(10000);
	send_plan(1, 1, 3);
	send_plan(1, 4, 3);
	send_plan(1, 2, 3);
	expect_result(1, 1);
	expect_result(1, 2);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link_ahead, a_new_controller_gets_no_answers_to_the_old_one)
{
	const char *dir = open_worker(10000);
	send_load(dir, 1);
	expect(BUS_READY);
	send_plan(1, 1, 3);
	send_plan(1, 2, 3);
	close_router();
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 2);
	expect(BUS_READY);
	send_plan(2, 1, 3);
	expect_result(2, 1);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

/* The device is lost during a plan while the next plan is queued. */
Test(link_ahead, a_device_that_is_lost_is_told_and_ends_the_worker)
{
	uint64_t answered = 0;
	int type = BUS_BEAT;
	setenv("QUERN_CUDASIM_LOST", "5", 1);
	open_serving(10000);
	send_plan(1, 1, 3);
	while (type != BUS_FAILED && answered < PLANS) {
		send_plan(1, answered + 2, 3);
		do
			type = receive();
		while (type == BUS_BEAT);
		if (type == BUS_RESULT)
			token_of(++answered);
	}
	cr_assert_eq(type, BUS_FAILED, "%d plans were answered", (int)answered);
	cr_expect_gt(answered, 0);
	cr_expect(strstr(decoded().failed.why, "device"), "%s", decoded().failed.why);
	cr_expect_eq(end_worker(), 1);
	close_router();
}

/* The worker reports that it is alive but makes no progress. */
static void hang(int64_t grace_ms)
{
	setenv("QUERN_CUDASIM_HUNG", "1", 1);
	open_serving(grace_ms);
	send_plan(1, 1, 3);
	expect_result(1, 1);
	send_plan(1, 2, 3);
	send_plan(1, 3, 3);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(receive(), BUS_BEAT);
		cr_expect_eq(decoded().beat.progress, 1);
	}
}

Test(link_ahead, a_worker_whose_device_hangs_ends_with_its_controller)
{
	hang(3000 * slow()); /* the controller is silent while the worker loads */
	close_router();
	cr_expect_eq(end_worker(), 1);
}

Test(link_ahead, a_worker_whose_device_hangs_heeds_a_signal)
{
	hang(10000);
	kill(peer.pid, SIGTERM);
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link_ahead, a_signal_ends_a_worker_with_plans_under_way)
{
	open_serving(10000);
	send_plan(1, 1, 3);
	send_plan(1, 2, 3);
	expect_result(1, 1);
	kill(peer.pid, SIGTERM);
	cr_expect_eq(end_worker(), 0);
	close_router();
}

/* ---- modes ---- */

/* Return the hello of a worker with this placement after the model is loaded. */
static struct bus_hello hello_of_loaded(const char *place)
{
	peer.place = place;
	open_worker(10000);
	const char *dir = tiny_model("qwen2-moe");
	cr_assert(dir);
	send_load(dir, 1);
	expect(BUS_READY);
	close_router();
	open_router();
	expect(BUS_HELLO);
	const struct bus_hello h = decoded().hello;
	send_load(dir, 2);
	expect(BUS_READY);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
	return h;
}

/* The next controller may have a model with host experts, in the mode that all workers share. */
Test(link_ahead, a_model_without_experts_on_the_cpu_leaves_their_mode_open)
{
	const struct bus_hello with = hello_of_loaded("*.experts=cpu"),
			       none = hello_of_loaded("*.experts=cuda");
	cr_expect(with.loaded && with.experts_loaded);
	cr_expect(none.loaded && !none.experts_loaded);
	cr_expect_str_eq(none.experts_compute, with.experts_compute); /* the machine's own default */
}
