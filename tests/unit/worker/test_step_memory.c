/* GPU memory that a worker takes, and that it takes no more once it serves; on the emulated device
 * (tests/cudasim) with any memory size. */
#include "base/alloc.h"
#include "tests/cudasim/counted.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <errno.h>

#define MIB ((uint64_t)1 << 20)

static void (*memory)(uint64_t total, uint64_t others);
static void (*idle)(bool is);
static struct driver d;
static const char *model;

static void emulate(void)
{
	void *so = counted_open();
	if (!(model = tiny_model("llama3")))
		cr_skip_test("tiny models need Python with numpy");
	*(void **)&memory = dlsym(so, "cudasim_memory");
	*(void **)&idle = dlsym(so, "cudasim_idle");
	cr_assert(memory && idle);
}

static void close_worker(void)
{
	driver_close(&d);
}

TestSuite(memory, .init = emulate, .fini = close_worker, .timeout = 240);

/* Open a worker on a GPU with `total` bytes, of which others hold some; kv_bytes 0: the pool is sized by the
 * worker. */
static int open_worker(uint64_t total, uint64_t others, double fraction, uint64_t kv_bytes)
{
	struct bus_load load = driver_load(model);
	load.max_rows = 48;
	load.max_slots = load.max_runs = 8;
	load.kv_bytes = kv_bytes;
	const struct step_args a = {.device = "cuda:0", .load = &load, .memory_fraction = fraction};
	memory(total, others);
	memset(&d, 0, sizeof d);
	return step_open(&d.step, &a, &d.ready, &d.why);
}

static uint64_t held(void)
{
	return counted().live_bytes;
}

Test(memory, a_pool_is_what_a_fraction_leaves_beside_the_rest)
{
	cr_assert_eq(open_worker(256 * MIB, 0, 0.5, 0), 0, "%s", d.why.text);
	/* Pages and allocations are rounded differently here than on a GPU: a little is lost. */
	cr_expect_leq(held(), 128 * MIB);
	cr_expect_geq(held(), 118 * MIB);
}

Test(memory, nine_tenths_are_for_a_worker_that_nobody_told)
{
	cr_assert_eq(open_worker(256 * MIB, 0, 0, 0), 0, "%s", d.why.text);
	cr_expect_leq(held(), 231 * MIB);
	cr_expect_geq(held(), 220 * MIB);
}

Test(memory, what_others_hold_is_left_to_them)
{
	cr_assert_eq(open_worker(256 * MIB, 100 * MIB, 0.9, 0), 0, "%s", d.why.text);
	cr_expect_leq(held(), 152 * MIB); /* a margin stays free */
	cr_expect_geq(held(), 140 * MIB);
}

Test(memory, an_explicit_pool_wins_over_the_fraction)
{
	cr_assert_eq(open_worker(256 * MIB, 0, 0.01, 8 * MIB), 0, "%s", d.why.text);
	cr_expect_leq(d.ready.kv_bytes, 8 * MIB);
	cr_expect_gt(d.ready.kv_bytes, 7 * MIB);
}

Test(memory, no_room_for_a_pool_is_told_with_the_figures_and_the_remedy)
{
	cr_assert_eq(open_worker(256 * MIB, 0, 0.01, 0), -ENOMEM);
	cr_expect(strstr(d.why.text, "of 256 MiB of the device this worker may use 1% (3 MiB)"), "%s",
		  d.why.text);
	cr_expect(strstr(d.why.text, "--memory-fraction"), "%s", d.why.text);
}

/* ---- ranks of a group ---- */

/* Make both ranks meet. Ranks from number `fresh` on load the model; earlier ranks have it and only join. */
static void rendezvous(uint64_t epoch, uint32_t fresh)
{
	struct driver_rank ranks[2] = {0};
	struct tp_group_rendezvous *mine = NULL;
	struct bus_load load = driver_load(model);
	load.epoch = epoch;
	load.max_rows = 48;
	load.max_slots = load.max_runs = 8;
	load.kv_bytes = 0;
	load.n_ranks = 2;
	cr_assert_eq(tp_group_rendezvous_new(&mine, driver_device(), load.rendezvous, &d.why), 0, "%s",
		     d.why.text);
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct driver_rank){
			.load = load, .mine = i ? NULL : &mine, .again = i < fresh, .memory_fraction = 0.3};
		ranks[i].load.rank = i;
	}
	cr_assert_eq(driver_all(&d, ranks), 0, "%s", d.why.text);
	tp_group_rendezvous_free(mine);
	cr_expect_eq(d.ready.n_blocks, d.peers[0].ready.n_blocks);
}

Test(memory, a_rank_that_is_started_again_makes_its_pool_beside_one_that_has_its)
{
	setenv("QUERN_TEST_DEVICE", "cuda:0", 1);
	memory(256 * MIB, 0);
	memset(&d, 0, sizeof d);
	d.n_ranks = 2;
	d.peers = calloc(1, sizeof *d.peers);
	rendezvous(1, 0);
	const uint32_t blocks = d.ready.n_blocks;
	cr_expect_leq(held(), 154 * MIB);
	cr_expect_geq(held(), 140 * MIB);
	step_close(d.peers[0].step);
	d.peers[0].step = NULL;
	rendezvous(2, 1);
	cr_expect_eq(d.ready.n_blocks, blocks);
	cr_expect_leq(held(), 154 * MIB);
}

/* ---- nothing is allocated while serving ---- */

static uint32_t tokens[128];

/* Run eight sequences: chunked prompts, all kinds of parameters, forks, swaps, copies, beam steps. */
static void work(struct params *p)
{
	static int32_t bias_ids[] = {3, 9}, allowed[] = {1, 2, 3, 5, 8, 13, 21}, bad[] = {4, 5, 6};
	static int32_t bad_len[] = {2, 1};
	static uint32_t stop_ids[] = {7};
	static float bias[] = {1.5f, -2};
	for (uint32_t i = 0; i < 128; i++)
		tokens[i] = (i * 17 + 3) % 331;
	for (int i = 0; i < 8; i++)
		params_init(&p[i]);
	p[0].temperature = 0;
	p[1].top_k = 40, p[1].top_p = 0.9f, p[1].min_p = 0.01f;
	p[2].presence = p[2].frequency = 0.5f, p[2].repetition = 1.2f;
	p[3].logprobs = 20, p[3].prompt_logprobs = 5;
	p[4].bias_ids = bias_ids, p[4].bias = bias, p[4].n_bias = 2;
	p[5].allowed = allowed, p[5].n_allowed = 7;
	p[6].bad = bad, p[6].bad_len = bad_len, p[6].n_bad = 2, p[6].n_bad_ids = 3;
	p[7].stop_ids = stop_ids, p[7].n_stop_ids = 1, p[7].min_tokens = 5, p[7].max_tokens = 50;
}

/* armed: the host may not allocate either. */
static void step_ok(bool armed)
{
	alloc_guard(armed);
	int rc = driver_step(&d);
	alloc_guard(false);
	cr_assert_eq(rc, 0, "%s", d.why.text);
}

/* armed: the host may allocate only for new sequences. The first round grows lists to their sizes. */
static void serve_all(struct params *p, bool armed)
{
	for (uint32_t s = 0; s < 8; s++)
		driver_seq(&d, s, tokens + s, 40, 40, 96, &p[s]);
	for (uint32_t s = 0; s < 8; s++) {
		if (s)
			driver_add_run(&d, s - 1, 30, 10, true);
		driver_add_run(&d, s, 0, 30, false);
		step_ok(armed && s > 0);
	}
	driver_add_run(&d, 7, 30, 10, true);
	step_ok(armed);
	for (uint32_t pos = 40; pos < 48; pos++) {
		for (uint32_t s = 0; s < 8; s++)
			driver_add_run(&d, s, pos, 1, true);
		step_ok(armed);
	}
}

/* Copy slot 0 to slot 1, first as for a job with two outputs, then as in a beam search. */
static void fork_both_ways(void)
{
	*plan_add_drop(&d.plan) = 1;
	*plan_add_fork(&d.plan) = (struct plan_fork){.parent = 0, .child = 1, .index = 1};
	for (uint32_t s = 0; s < 2; s++)
		driver_add_run(&d, s, 48, 1, true);
	step_ok(false);
	*plan_add_set(&d.plan) = (struct plan_set){.slot = 1, .from = 0, .position = 49, .token = 5};
	for (uint32_t s = 0; s < 2; s++)
		driver_add_run(&d, s, 49, 1, true);
	step_ok(false);
}

static void move_blocks(bool armed)
{
	for (uint32_t i = 0; i < 3; i++) {
		*plan_add_swap_out(&d.plan) = (struct plan_pair){i, 2 * i};
		*plan_add_swap_in(&d.plan) = (struct plan_pair){2 * i, 20 + i};
		*plan_add_copy(&d.plan) = (struct plan_pair){20 + i, 30 + i};
	}
	step_ok(armed);
}

static void work_twice(struct params *p)
{
	work(p);
	for (int round = 0; round < 2; round++) {
		serve_all(p, round > 0);
		fork_both_ways();
		move_blocks(round > 0);
		step_reset(d.step, 1, NULL);
		d.number = 0;
	}
}

Test(memory, a_worker_on_the_cpu_takes_no_more_once_it_serves)
{
	struct params p[8];
	struct bus_load load = driver_load(model);
	const struct step_args a = {.device = "cpu", .load = &load, .two_pools = true};
	memset(&d, 0, sizeof d);
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
	const size_t before = alloc_big_bytes();
	work_twice(p);
	cr_expect_eq(alloc_big_bytes(), before);
}

Test(memory, nothing_is_allocated_once_a_worker_serves)
{
	struct params p[8];
	cr_assert_eq(open_worker(256 * MIB, 0, 0.5, 0), 0, "%s", d.why.text);
	const struct cudasim_counters before = counted();
	work_twice(p);
	const struct cudasim_counters after = counted();
	cr_expect_gt(after.launches, before.launches);
	cr_expect_eq(after.allocs, before.allocs, "%llu pieces of device or pinned memory",
		     (unsigned long long)(after.allocs - before.allocs));
	cr_expect_eq(after.live_bytes, before.live_bytes);
	/* The warm-up steps ran every kernel, so the driver takes no more memory. */
	cr_expect_eq(after.kernels, before.kernels);
}

/* ---- memory of a model besides its pool ---- */

/* Return a model's directory with sparse weight files, made on first use; NULL without numpy. */
static const char *empty_model(const char *shape)
{
	static char dir[2048], cmd[8192];
	snprintf(dir, sizeof dir, "%s/%s-awq-empty", builtfile("tiny"), shape);
	snprintf(cmd, sizeof cmd, "%s/config.json", dir);
	if (access(cmd, R_OK) == 0)
		return dir;
	snprintf(cmd, sizeof cmd,
		 "mkdir -p '%s'; for p in '%s' python3; do \"$p\" '%s' '%s' --shape %s --type awq "
		 "--empty "
		 ">/dev/null 2>&1 && exit 0; done; exit 1",
		 builtfile("tiny"), repofile("build/venv/bin/python"), repofile("tests/tools/make_model.py"),
		 dir, shape);
	return system(cmd) == 0 ? dir : NULL;
}

/* Check the cost with the sizes of `quern serve` without options, on a device of 80 GiB. */
static void check_cost(const char *shape, double most)
{
	const char *dir = empty_model(shape);
	if (!dir)
		cr_skip_test("models of other shapes need Python with numpy");
	struct bus_load load = {.epoch = 1, .max_rows = 2048, .max_slots = 256, .max_runs = 256};
	snprintf(load.model, sizeof load.model, "%s", dir);
	const struct step_args a = {.device = "cuda:0", .load = &load};
	memory(80ull << 30, 0);
	setenv("QUERN_CUDASIM_SMS", "132", 1); /* the sampler has scratch per multiprocessor */
	idle(true);
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
	const struct bus_ready *r = &d.ready;
	const double cost = (double)(r->weights_bytes + r->scratch_bytes) / (double)r->stored_bytes;
	printf("%s: on disk %.1f MB, weights %.1f, scratch %.1f, KV pool %.1f: %.1f%%\n", shape,
	       (double)r->stored_bytes / 1e6, (double)r->weights_bytes / 1e6, (double)r->scratch_bytes / 1e6,
	       (double)r->kv_bytes / 1e6, 100 * cost);
	cr_expect_leq(cost, most);
	/* All held memory is accounted for; pages here are smaller than a GPU's. */
	const double sum = (double)(r->weights_bytes + r->scratch_bytes + r->kv_bytes);
	cr_expect_geq(sum, 0.999 * (double)counted().live_bytes);
	cr_expect_leq(sum, 1.01 * (double)counted().live_bytes);
	/* The driver allocates graphs after the pool, from the memory beyond the fraction. */
	cr_expect_leq((double)counted().live_bytes, 0.9 * 80 * 1024 * (double)MIB);
}

Test(memory, qwen3_8b_awq_serves_within_110_percent_of_its_weights_on_disk)
{
	check_cost("qwen3-8b", 1.10);
}
