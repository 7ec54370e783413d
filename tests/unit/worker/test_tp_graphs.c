/* Steps of a group as graphs, with what the ranks exchange in them: the bits of single operations, one launch
 * for each rank, and another group's own graphs.  On the emulated device (tests/cudasim), each rank a thread.
 */
#include "base/alloc.h"
#include "tests/cudasim/cudasim.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>

enum { SEQS = 3, PROMPT = 20, STEPS = 4, VOCAB_MAX = 512 };

static struct cudasim_counters (*stats)(void);
static void (*watch)(void (*fn)(const struct cudasim_launched *l));
static struct driver d;
static struct params params;
static uint32_t tokens[PROMPT];
static const char *model;

static void emulate(void)
{
	static const char library[] = QUERN_BUILD "/lib/libquern-cudasim.so";
	if (access(library, R_OK))
		cr_skip_test("the emulated CUDA device is not built; make cudasim-tests");
	if (!(model = tiny_model("llama3")))
		cr_skip_test("tiny models need Python with numpy");
	setenv("QUERN_CUDA_LIBRARY", library, 1);
	setenv("QUERN_TEST_DEVICE", "cuda:0", 1);
	void *so = dlopen(library, RTLD_NOW);
	cr_assert(so, "%s", dlerror());
	*(void **)&stats = dlsym(so, "cudasim_stats");
	*(void **)&watch = dlsym(so, "cudasim_watch_launches");
	cr_assert(stats && watch);
	params_init(&params);
	params.temperature = 0;
	for (uint32_t i = 0; i < PROMPT; i++)
		tokens[i] = (i * 17 + 3) % 331;
}

TestSuite(tp_graphs, .init = emulate, .timeout = 240);

static void open_group(uint32_t n_ranks, bool no_graphs)
{
	struct bus_load load = driver_load(model);
	load.max_rows = 32;
	load.max_slots = load.max_runs = 4;
	load.kv_bytes = 1 << 20;
	load.swap_bytes = 0;
	load.max_context = 64;
	load.n_ranks = n_ranks;
	driver_no_graphs = no_graphs;
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why);
}

static uint64_t n_launches;

static void count_launch(const struct cudasim_launched *l)
{
	(void)l;
	n_launches++;
}

/* What was chosen, and the logits of the last sequence, of every step. */
struct output {
	uint32_t token[STEPS][SEQS];
	float logits[STEPS][VOCAB_MAX];
	uint64_t launches, graphs, replayed; /* of all ranks; of rank 0 */
};

static void decode(struct output *out)
{
	for (uint32_t s = 0; s < SEQS; s++) {
		driver_seq(&d, s, tokens, PROMPT - s, PROMPT - s, 64, &params);
		driver_add_run(&d, s, 0, PROMPT - s, true);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why);
	}
	const uint64_t graphs = stats().graphs, replayed = step_replayed(d.step);
	n_launches = 0;
	watch(count_launch);
	for (uint32_t i = 0; i < STEPS; i++) {
		for (uint32_t s = 0; s < SEQS; s++)
			driver_add_run(&d, s, PROMPT - s + i, 1, true);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why);
		cr_assert_eq(d.result.n_tokens, SEQS);
		memcpy(out->token[i], d.result.tokens, sizeof out->token[i]);
		cr_assert_eq(step_logits(d.step, SEQS - 1, out->logits[i]), 0);
	}
	watch(NULL);
	out->launches = n_launches;
	out->graphs = stats().graphs - graphs;
	out->replayed = step_replayed(d.step) - replayed;
}

static void check_ranks(uint32_t n_ranks)
{
	static struct output with, without;
	open_group(n_ranks, false);
	decode(&with);
	driver_close(&d);
	open_group(n_ranks, true);
	decode(&without);
	driver_close(&d);
	cr_expect_eq(memcmp(with.token, without.token, sizeof with.token), 0, "%u ranks: other tokens",
		     n_ranks);
	cr_expect_eq(memcmp(with.logits, without.logits, sizeof with.logits), 0, "%u ranks: other bits",
		     n_ranks);
	cr_expect_eq(with.replayed, STEPS);
	cr_expect_eq(with.graphs, STEPS * n_ranks, "a step is one launch of a graph for each rank");
	cr_expect_eq(without.graphs, 0);
	/* Beside the graph: the batch for every rank, the sampler's four for rank 0, and for every other rank
	 * each token that it is sent. */
	cr_expect_eq(with.launches, STEPS * (n_ranks + 4 + SEQS * (n_ranks - 1)),
		     "%u ranks: %llu launches in %d steps", n_ranks, (unsigned long long)with.launches,
		     (int)STEPS);
	cr_expect_gt(without.launches, STEPS * n_ranks * 20);
}

Test(tp_graphs, two_ranks_have_the_bits_of_single_operations_in_one_launch_each)
{
	check_ranks(2);
}

Test(tp_graphs, so_have_four)
{
	check_ranks(4);
}

/* Its communicator is another: graphs of the group before are gone, or its end would have waited for them. */
Test(tp_graphs, a_group_that_forms_again_makes_its_own)
{
	static struct output first, again;
	struct driver_rank ranks[DRIVER_RANKS] = {0};
	struct tp_group_meet *mine = NULL;
	open_group(2, false);
	decode(&first);
	struct bus_load load = driver_load(model);
	load.epoch = 2;
	load.max_rows = 32;
	load.max_slots = load.max_runs = 4;
	load.kv_bytes = 1 << 20;
	load.swap_bytes = 0;
	load.max_context = 64;
	load.n_ranks = 2;
	const uint64_t bytes = stats().live_bytes;
	cr_assert_eq(tp_group_meet_new(&mine, "cuda:0", load.meet, d.why, sizeof d.why), 0, "%s", d.why);
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct driver_rank){.load = load, .mine = i ? NULL : &mine, .again = true};
		ranks[i].load.rank = i;
	}
	cr_assert_eq(driver_all(&d, ranks), 0, "%s", d.why);
	tp_group_meet_free(mine);
	cr_expect_eq(stats().live_bytes, bytes, "the graphs of before are freed");
	d.number = d.next_block = 0;
	plan_reset(&d.plan);
	driver_epoch = 2;
	decode(&again);
	cr_expect_eq(again.replayed, STEPS);
	cr_expect_eq(memcmp(first.logits, again.logits, sizeof first.logits), 0);
	driver_close(&d);
}

/* One of them cannot: they are of different kinds, since all launch the same or none. */
Test(tp_graphs, ranks_with_and_without_graphs_form_no_group)
{
	struct driver_rank ranks[2] = {0};
	struct tp_group_meet *mine = NULL;
	struct bus_load load = driver_load(model);
	memset(&d, 0, sizeof d);
	d.n_ranks = 2;
	d.peers = calloc(1, sizeof *d.peers);
	load.n_ranks = 2;
	cr_assert_eq(tp_group_meet_new(&mine, "cuda:0", load.meet, d.why, sizeof d.why), 0, "%s", d.why);
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct driver_rank){.load = load, .mine = i ? NULL : &mine, .no_graphs = i == 1};
		ranks[i].load.rank = i;
	}
	cr_expect_eq(driver_all(&d, ranks), -EINVAL, "%s", d.why);
	cr_expect(strstr(d.why, "no graphs"), "%s", d.why);
	tp_group_meet_free(mine);
	driver_close(&d);
}
