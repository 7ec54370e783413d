/* What a step of decoding asks of the host, on the emulated device, which counts: no copy, and no wait
 * between a plan and the next, however many rows it has. */
#include "tests/cudasim/cudasim.h"
#include "tests/driver.h"

#include <dlfcn.h>

enum { PROMPT = 3, STEPS = 6, ROWS_MAX = 256, TOKENS = PROMPT + STEPS + 1 };

static struct cudasim_counters (*stats)(void);
static void (*count_again)(void);
static struct driver d;
static const char *model;
static uint32_t tokens[ROWS_MAX][PROMPT], blocks[ROWS_MAX];
static struct params params[ROWS_MAX];

/* Before the first model: the table is opened once in a process. */
static void emulate(void)
{
	static const char library[] = QUERN_BUILD "/lib/libquern-cudasim.so";
	if (access(library, R_OK))
		cr_skip_test("the emulated CUDA device is not built; make cudasim-tests");
	if (!(model = tiny_model("llama3")))
		cr_skip_test("tiny models need Python with numpy");
	setenv("QUERN_CUDA_LIBRARY", library, 1);
	void *so = dlopen(library, RTLD_NOW);
	cr_assert(so, "%s", dlerror());
	*(void **)&stats = dlsym(so, "cudasim_stats");
	*(void **)&count_again = dlsym(so, "cudasim_count_again");
	cr_assert(stats && count_again);
}

static void close_worker(void)
{
	driver_close(&d);
}

TestSuite(step_host, .init = emulate, .fini = close_worker, .timeout = 240);

static void open_worker(uint32_t rows, bool graphs)
{
	struct bus_load load = driver_load(model);
	load.max_rows = load.max_slots = load.max_runs = rows;
	load.max_context = 64;
	const struct step_args a = {.device = "cuda:0", .load = &load, .no_graphs = !graphs};
	memset(&d, 0, sizeof d);
	cr_assert_eq(step_open(&d.step, &a, &d.ready, d.why, sizeof d.why), 0, "%s", d.why);
}

/* Of every kind: greedy, from all tokens, from some, with penalties and lists, with likely tokens. */
static void some_params(struct params *p, uint32_t i)
{
	params_init(p);
	p->temperature = i % 5 ? 0.8f : 0;
	p->top_p = i % 3 ? 1 : 0.9f;
	p->top_k = i % 4 ? 0 : 20;
	p->min_p = i % 7 ? 0 : 0.05f;
	p->repetition = i % 6 ? 1 : 1.2f;
	p->logprobs = i % 8 ? -1 : (int32_t)(i % 3) * 4;
	p->seed = i;
}

static void send(uint32_t *n_begun)
{
	d.plan.epoch = 1;
	d.plan.number = ++*n_begun;
	cr_assert_eq(step_begin(d.step, &d.plan, d.why, sizeof d.why), 0, "%s", d.why);
	plan_reset(&d.plan);
}

/* The tokens of `rows` sequences, STEPS of each after the prompt's own. */
static void decode(uint32_t rows, uint32_t got[ROWS_MAX][STEPS])
{
	uint32_t n_begun = 0;
	struct cudasim_counters counted = {0};
	for (uint32_t i = 0; i < rows; i++) {
		for (uint32_t k = 0; k < PROMPT; k++)
			tokens[i][k] = (i * 17 + k * 5 + 3) % 331;
		blocks[i] = i;
		some_params(&params[i], i);
		*plan_add_seq(&d.plan) = (struct plan_seq){.slot = i,
							   .seq = i + 1,
							   .n_prompt = PROMPT,
							   .n_tokens = PROMPT,
							   .n_blocks = 1,
							   .tokens = tokens[i],
							   .blocks = &blocks[i],
							   .params = &params[i]};
	}
	/* As many prompts as fit a plan at a time. */
	for (uint32_t first = 0; first < rows; first += rows / PROMPT) {
		for (uint32_t i = first; i < rows && i < first + rows / PROMPT; i++)
			driver_add_run(&d, i, 0, PROMPT, true);
		send(&n_begun);
		cr_assert_eq(step_end(d.step, &d.result, d.why, sizeof d.why), 0, "%s", d.why);
	}
	for (uint32_t s = 0; s <= STEPS; s++) {
		if (s < STEPS) { /* before the result of the one before is taken */
			for (uint32_t i = 0; i < rows; i++)
				driver_add_run(&d, i, PROMPT + s, 1, true);
			count_again();
			send(&n_begun);
			const struct cudasim_counters c = stats();
			counted.copies += c.copies;
			counted.syncs += c.syncs;
		}
		if (s == 0)
			continue;
		cr_assert_eq(step_end(d.step, &d.result, d.why, sizeof d.why), 0, "%s", d.why);
		cr_assert_eq(d.result.n_tokens, rows);
		for (uint32_t i = 0; i < rows; i++)
			got[i][s - 1] = d.result.tokens[i];
	}
	cr_expect_eq(counted.copies, 0, "%lu copies in %d steps", (unsigned long)counted.copies, STEPS);
	cr_expect_eq(counted.syncs, 0, "the host may have waited %lu times", (unsigned long)counted.syncs);
}

static void check(uint32_t rows, bool graphs, uint32_t got[ROWS_MAX][STEPS])
{
	open_worker(rows, graphs);
	decode(rows, got);
	cr_expect_eq(step_replayed(d.step) > 0, graphs);
}

Test(step_host, of_65_rows_copies_nothing_and_never_waits)
{
	static uint32_t got[ROWS_MAX][STEPS];
	check(65, false, got);
}

Test(step_host, of_128_rows_copies_nothing_and_never_waits)
{
	static uint32_t got[ROWS_MAX][STEPS];
	check(128, false, got);
}

/* Then 65 of the sequences again, from a graph: each has the tokens that it had. */
Test(step_host, of_256_rows_copies_nothing_and_never_waits)
{
	static uint32_t all[ROWS_MAX][STEPS], some[ROWS_MAX][STEPS];
	check(256, false, all);
	close_worker();
	check(65, true, some);
	for (uint32_t i = 0; i < 65; i++)
		cr_expect_arr_eq(some[i], all[i], sizeof all[i], "sequence %u", i);
}
