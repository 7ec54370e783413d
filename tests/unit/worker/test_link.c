/* The worker's side of the bus: a process runs the link, and a ROUTER here plays the controller. */
#include "base/clock.h"
#include "grammar/source.h"
#include "store/files.h"
#include "tests/unit/worker/link_peer.h"

/* Start a worker that serves its first controller; return the model's directory. */
static const char *begin(void)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 1);
	expect(BUS_READY);
	return dir;
}

static void stop(void)
{
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, serves_from_hello_to_stop)
{
	const char *dir = model();
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	cr_expect_str_eq(decoded().hello.device, "cpu");
	cr_expect_eq(decoded().hello.pid, peer.pid);
	const int64_t t0 = clock_us();
	send_load(dir, 5);
	expect(BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 5);
	cr_expect_eq(decoded().ready.n_vocab, 331);
	cr_expect_leq(decoded().ready.load_ms, (clock_us() - t0) / 1000 + 1);
	send_plan(5, 1, 3);
	send_plan(5, 2, 3);
	expect_result(5, 1);
	expect_result(5, 2);
	expect(BUS_BEAT);
	cr_expect_eq(decoded().beat.state, BUS_SERVING);
	cr_expect_eq(decoded().beat.progress, 2);
	const uint64_t moves = decoded().beat.moves;
	cr_expect_gt(moves, 0); /* of the load and of two steps */
	send_plan(5, 3, 3);
	expect_result(5, 3);
	expect(BUS_BEAT);
	cr_expect_gt(decoded().beat.moves, moves);
	stop();
}

static int by_size(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* Checks the median: a busy machine may delay a heartbeat, and the next one then comes sooner. */
Test(link, beats_every_quarter_of_a_second)
{
	enum { GAPS = 9 };
	int64_t gaps[GAPS];
	begin();
	expect(BUS_BEAT);
	for (int i = 0; i < GAPS; i++) {
		const int64_t t0 = clock_us();
		expect(BUS_BEAT);
		gaps[i] = clock_us() - t0;
	}
	qsort(gaps, GAPS, sizeof *gaps, by_size);
	const int64_t ms = gaps[GAPS / 2] / 1000;
	cr_expect(ms > 150 && ms < 450, "a beat every %lld ms", (long long)ms);
	stop();
}

static void send_vocabulary(uint32_t n_tokens, bool damaged)
{
	struct vocabulary v = {0};
	struct buf b = {0};
	driver_vocabulary(&v, n_tokens);
	bus_encode_vocabulary(&v, &b);
	if (damaged)
		b.p[b.len / 2] ^= 1;
	send_bytes(b.p, b.len);
	buf_fini(&b);
	vocabulary_fini(&v);
}

/* Send a plan with one prompt and a constraint on its output. */
static void send_plan_with_form(uint64_t number, const char *pattern)
{
	static const uint32_t tokens[] = {5, 6, 7, 8}, block = 3;
	struct params params;
	struct plan p = {.epoch = 1, .number = number};
	struct buf b = {0};
	struct constraint *f = constraint_new(GRAMMAR_REGEX, pattern, strlen(pattern));
	params_init(&params);
	*plan_add_constraint(&p) = (struct plan_constraint){1, f};
	*plan_add_seq(&p) = (struct plan_seq){.slot = 1,
					      .n_prompt = 4,
					      .n_tokens = 4,
					      .n_blocks = 1,
					      .constraint = 1,
					      .tokens = tokens,
					      .blocks = &block,
					      .params = &params};
	*plan_add_run(&p) = (struct plan_run){.slot = 1, .n_rows = 4, .flags = PLAN_SAMPLE, .from = 1};
	bus_encode_plan(&p, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
	plan_fini(&p);
	constraint_free(f);
}

/* Send the row again that slot 1's first token is sampled from. */
static void send_row(uint64_t number)
{
	struct plan p = {.epoch = 1, .number = number};
	struct buf b = {0};
	*plan_add_run(&p) =
		(struct plan_run){.slot = 1, .pos0 = 3, .n_rows = 1, .flags = PLAN_SAMPLE, .from = 1};
	bus_encode_plan(&p, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
	plan_fini(&p);
}

static struct result received_result(void)
{
	const struct bus_limits lim = {40, 256, 40, 256, 1 << 20, 1 << 20, 331, 1};
	struct result r = {0};
	expect(BUS_RESULT);
	cr_assert_eq(bus_decode_result(peer.bytes, peer.n, &lim, &r, &why), 0, "%s", why.text);
	return r;
}

/* Return the result of the last plan, `number`. If its mask was not ready, return the result of the first
 * later plan with a token. */
static struct result received_token(uint64_t *number)
{
	struct result r = received_result();
	struct bus_msg m;
	while (r.n_held) {
		cr_assert(r.n_held == 1 && r.held[0] == 1);
		result_fini(&r);
		expect(BUS_AWAKE);
		cr_assert_eq(bus_decode(peer.bytes, peer.n, &m, &why), 0, "%s", why.text);
		cr_assert(m.awake.epoch == 1 && m.awake.n == 1 && m.awake.slots[0] == 1);
		send_row(++*number);
		r = received_result();
	}
	return r;
}

Test(link, outputs_keep_their_forms_once_the_vocabulary_is_there)
{
	uint64_t number = 1;
	begin();
	send_plan_with_form(1, "x+");
	struct result r = received_token(&number);
	cr_assert_eq(r.n_failed, 1);
	cr_expect_eq(r.failed[0].slot, 1);
	cr_expect(strstr(r.failed[0].reason, "vocabulary"), "%s", r.failed[0].reason);
	result_fini(&r);
	send_vocabulary(331, false);
	send_plan_with_form(++number, "x+");
	r = received_token(&number);
	cr_expect_eq(r.n_failed, 0);
	cr_assert_eq(r.n_tokens, 1);
	cr_expect_eq(r.tokens[0], 'x');
	result_fini(&r);
	do
		expect(BUS_BEAT);
	while (!decoded().beat.grammar_bytes);
	cr_expect_eq(decoded().beat.counts.mask_waits, 0);
	stop();
}

Test(link, a_damaged_vocabulary_ends_the_worker)
{
	begin();
	send_vocabulary(331, true);
	expect(BUS_FAILED);
	cr_expect(strstr(decoded().failed.why, "vocabulary"), "%s", decoded().failed.why);
	cr_expect_eq(end_worker(), 1);
	close_router();
}

Test(link, a_missing_plan_is_told_by_a_beat)
{
	begin();
	send_plan(1, 4, 3);
	expect(BUS_BEAT);
	cr_expect_eq(decoded().beat.expected, 1);
	send_plan(1, 1, 3);
	expect_result(1, 1);
	stop();
}

/* Send both messages while the worker is stopped, so that it finds the second when it has the first's
 * result. */
static void send_together(void (*first)(void), void (*second)(void))
{
	kill(peer.pid, SIGSTOP);
	first();
	second();
	kill(peer.pid, SIGCONT);
}

static void plan_1(void)
{
	send_plan(1, 1, 3);
}

static void plan_5(void)
{
	send_plan(1, 5, 3);
}

static void plan_that_contradicts(void)
{
	send_plan(1, 2, 1 << 20);
}

Test(link, a_result_is_sent_before_a_beat_that_counts_it)
{
	begin();
	send_together(plan_1, plan_5);
	int type = receive();
	if (type == BUS_BEAT && decoded().beat.state == BUS_SERVING) /* sent before the plan */
		type = receive();
	cr_expect_eq(type, BUS_RESULT);
	expect(BUS_BEAT);
	cr_expect_eq(decoded().beat.state, BUS_MISSED);
	cr_expect_eq(decoded().beat.progress, 1);
	stop();
}

Test(link, a_result_is_sent_before_a_failure)
{
	begin();
	send_together(plan_1, plan_that_contradicts);
	expect_result(1, 1);
	expect(BUS_FAILED);
	cr_expect_eq(end_worker(), 1);
	close_router();
}

Test(link, a_result_is_sent_before_the_worker_stops)
{
	begin();
	send_together(plan_1, send_stop);
	expect_result(1, 1);
	expect(BUS_STOP);
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, a_plan_that_contradicts_is_told_and_ends_the_worker)
{
	begin();
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
	static const char result[] = {'\x93', BUS_VERSION, BUS_RESULT, '\x80'}; /* only workers may send it */
	static const char plan[] = {'\x93', BUS_VERSION, BUS_PLAN, '\x90'};     /* before a model is loaded */
	send_bytes(result, sizeof result);
	send_bytes(plan, sizeof plan);
	send_load(dir, 1);
	expect(BUS_READY);
	stop();
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
	cr_expect_eq(end_worker(), 3); /* within the grace period, as the suite has a time limit */
}

Test(link, a_new_controller_gets_a_hello_and_the_weights_stay)
{
	const char *dir = begin();
	send_plan(1, 1, 3);
	expect_result(1, 1);
	close_router();
	open_router();
	expect(BUS_HELLO);
	send_load(dir, 2);
	expect(BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 2);
	send_plan(1, 2, 3); /* from the old epoch */
	send_plan(2, 1, 3);
	expect_result(2, 1);
	stop();
}

/* The mode agreed with the previous controller is not forgotten. */
Test(link, a_hello_names_the_mode_that_is_loaded)
{
	struct bus_msg m = {.type = BUS_LOAD, .load = driver_load(model())};
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	const struct bus_hello before = decoded().hello;
	cr_expect(!before.loaded);
	m.load.epoch = 1;
	strcpy(m.load.compute, strcmp(before.compute, "f32") == 0 ? "int16" : "f32");
	send_msg(&m);
	expect(BUS_READY);
	close_router();
	open_router();
	expect(BUS_HELLO);
	cr_expect(decoded().hello.loaded);
	cr_expect_str_eq(decoded().hello.compute, m.load.compute);
	send_stop();
	expect(BUS_HELLO);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

static void check_experts(const char *device, bool named)
{
	peer.place = "*.experts=cpu";
	start_worker_on(device, 10000);
	open_router();
	expect(BUS_HELLO);
	cr_expect_eq(decoded().hello.experts_compute[0] != '\0', named, "%s", device);
	send_stop();
	end_worker();
	close_router();
}

Test(link, a_cpu_has_no_experts_beside_itself)
{
	check_experts("cpu", false);
	check_experts("cpu:0", false);
	check_experts("cuda:0", true);
}

/* A restarted controller answers a message from before the restart with stop. */
Test(link, the_first_stop_of_a_new_controller_is_answered_by_hello)
{
	const char *dir = begin();
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
	begin();
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

/* ---- leaving ---- */

static void expect_leaving(void)
{
	do
		expect(BUS_BEAT);
	while (decoded().beat.state != BUS_LEAVING);
}

Test(link, a_leaving_worker_serves_until_it_is_sent_stop)
{
	begin();
	kill(peer.pid, SIGUSR1);
	expect_leaving();
	send_together(plan_1, send_stop);
	expect_result(1, 1);
	expect(BUS_STOP);
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, a_leaving_worker_ends_by_itself_when_no_stop_comes)
{
	peer.leave_ms = 300;
	begin();
	kill(peer.pid, SIGUSR1);
	expect_leaving();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, a_worker_that_serves_nothing_leaves_at_once)
{
	start_worker(60000);
	open_router();
	expect(BUS_HELLO);
	kill(peer.pid, SIGUSR1);
	cr_expect_eq(end_worker(), 0);
	close_router();
}

Test(link, a_leaving_worker_does_not_wait_for_a_controller_that_is_gone)
{
	begin();
	close_router();
	kill(peer.pid, SIGUSR1);
	cr_expect_eq(end_worker(), 0); /* waiting would take a minute, and the grace period is longer */
}

/* ---- the model ---- */

static void send_load_of(const char *dir, const char *quick_fingerprint, uint64_t epoch)
{
	struct bus_msg m = {.type = BUS_LOAD, .load = driver_load(dir)};
	m.load.epoch = epoch;
	snprintf(m.load.quick_fingerprint, sizeof m.load.quick_fingerprint, "%s", quick_fingerprint);
	send_msg(&m);
}

static void expect_refused(const char *quick_fingerprint, uint64_t epoch)
{
	expect(BUS_FAILED);
	cr_expect_eq(decoded().failed.epoch, epoch);
	cr_expect(strstr(decoded().failed.why, "is not the model that the controller serves: their weights"),
		  "%s", decoded().failed.why);
	cr_expect_eq(end_worker(), 1, "%s", quick_fingerprint);
	close_router();
}

/* Compute the fingerprint of the model at dir, and that of another model with the same configuration and
 * sizes. */
static void quick_fingerprints(const char *dir, char right[QUICK_FINGERPRINT_SIZE],
			       char wrong[QUICK_FINGERPRINT_SIZE])
{
	struct store_files l;
	cr_assert_eq(store_files_list(dir, &l, &why), 0, "%s", why.text);
	cr_assert_eq(store_files_quick_fingerprint(&l, right, &why), 0, "%s", why.text);
	store_files_fini(&l);
	strcpy(wrong, right);
	wrong[QUICK_FINGERPRINT_SIZE - 2] = right[QUICK_FINGERPRINT_SIZE - 2] == '0' ? '1' : '0';
}

Test(link, another_model_than_the_controllers_is_refused)
{
	char right[QUICK_FINGERPRINT_SIZE], wrong[QUICK_FINGERPRINT_SIZE];
	const char *dir = model();
	quick_fingerprints(dir, right, wrong);
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load_of(dir, wrong, 1);
	expect_refused(wrong, 1);
}

/* Copy the model at dir. Removing the copy's weights (`less`) makes a later open fail. */
static char copied[64];

static void copy_of(const char *dir)
{
	char command[512];
	strcpy(copied, "/tmp/quern-model-XXXXXX");
	cr_assert(mkdtemp(copied));
	snprintf(command, sizeof command, "cp '%s'/* '%s'", dir, copied);
	cr_assert_eq(system(command), 0);
}

static void less(const char *glob)
{
	char command[512];
	snprintf(command, sizeof command, "rm -rf '%s'%s", copied, glob);
	cr_assert_eq(system(command), 0);
}

/* Several controller versions in turn: without fingerprints or with those of another rule, then one that
 * knows the model. */
Test(link, weights_stay_where_a_controller_does_not_tell_the_model)
{
	char right[QUICK_FINGERPRINT_SIZE], wrong[QUICK_FINGERPRINT_SIZE], later[QUICK_FINGERPRINT_SIZE];
	copy_of(model());
	quick_fingerprints(copied, right, wrong);
	strcpy(later, wrong);
	later[0] = '2';
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load_of(copied, "", 1);
	expect(BUS_READY);
	less("/*.safetensors");
	const char *const then[] = {right, later, "", right};
	for (uint64_t i = 0; i < sizeof then / sizeof *then; i++) {
		send_load_of(copied, then[i], 2 + i);
		expect(BUS_READY);
		cr_expect_eq(decoded().ready.epoch, 2 + i);
	}
	send_load_of(copied, wrong, 9); /* the worker compares, although no controller did */
	expect(BUS_FAILED);
	cr_expect_eq(end_worker(), 1);
	close_router();
	less("");
}

Test(link, a_model_that_the_controller_cannot_compare_is_opened)
{
	char right[QUICK_FINGERPRINT_SIZE], wrong[QUICK_FINGERPRINT_SIZE];
	const char *dir = model();
	quick_fingerprints(dir, right, wrong);
	wrong[0] = '2';
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load_of(dir, wrong, 1);
	expect(BUS_READY);
	send_stop();
	cr_expect_eq(end_worker(), 0);
	close_router();
}

/* As after a controller restart, with other files at the same path. */
Test(link, a_worker_does_not_keep_the_weights_of_another_model)
{
	char right[QUICK_FINGERPRINT_SIZE], wrong[QUICK_FINGERPRINT_SIZE];
	const char *dir = model();
	quick_fingerprints(dir, right, wrong);
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	send_load_of(dir, right, 1);
	expect(BUS_READY);
	send_load_of(dir, right, 2);
	expect(BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 2);
	send_load_of(dir, wrong, 3);
	expect_refused(wrong, 3);
}

/* The controller cannot compare, so the worker compares with the loaded model. */
Test(link, weights_that_were_replaced_on_the_disk_are_not_kept)
{
	char command[512];
	copy_of(model());
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
	for (uint64_t epoch = 1; epoch <= 2; epoch++) {
		send_load_of(copied, "", epoch);
		expect(BUS_READY);
		cr_expect_eq(decoded().ready.epoch, epoch);
	}
	snprintf(command, sizeof command,
		 "cd '%s' && for f in *.safetensors; do printf x | dd of=$f bs=1 seek=9 conv=notrunc "
		 "status=none; done",
		 copied);
	cr_assert_eq(system(command), 0);
	send_load_of(copied, "", 3);
	expect(BUS_FAILED); /* same size but no model: the file was read again */
	cr_expect_eq(decoded().failed.epoch, 3);
	cr_expect_eq(end_worker(), 1);
	close_router();
	less("");
}
