/* A group's steps as graphs that include the exchange between ranks: the same bits as single operations, one
 * launch per rank, and new graphs for a new group. Runs on the emulated device (tests/cudasim), each rank a
 * thread. */
#include "base/alloc.h"
#include "tests/cudasim/counted.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <errno.h>

enum { SEQS = 3, PROMPT = 20, STEPS = 4, VOCAB_MAX = 512 };

static void (*watch)(void (*fn)(const struct cudasim_launched *l));
static void (*nccl_stuck)(bool is);
static struct driver d;
static struct params params;
static uint32_t tokens[PROMPT];
static const char *model;

static void emulate(void)
{
	void *so = counted_open();
	if (!(model = tiny_model("llama3")))
		cr_skip_test("tiny models need Python with numpy");
	setenv("QUERN_TEST_DEVICE", "cuda:0", 1);
	*(void **)&watch = dlsym(so, "cudasim_watch_launches");
	*(void **)&nccl_stuck = dlsym(so, "cudasim_nccl_stuck");
	cr_assert(watch && nccl_stuck);
	params_init(&params);
	params.temperature = 0;
	for (uint32_t i = 0; i < PROMPT; i++)
		tokens[i] = (i * 17 + 3) % 331;
}

TestSuite(tp_graphs, .init = emulate, .timeout = 240);

static struct bus_load load_of(uint32_t n_ranks)
{
	struct bus_load load = driver_load(model);
	load.max_rows = 32;
	load.max_slots = load.max_runs = 4;
	load.kv_bytes = 1 << 20;
	load.swap_bytes = 0;
	load.max_context = 64;
	load.n_ranks = n_ranks;
	return load;
}

static void open_group(uint32_t n_ranks, bool no_graphs)
{
	struct bus_load load = load_of(n_ranks);
	driver_no_graphs = no_graphs;
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
}

static uint64_t n_launches;

static void count_launch(const struct cudasim_launched *l)
{
	(void)l;
	n_launches++;
}

/* Chosen tokens and the last sequence's logits for every step. */
struct output {
	uint32_t token[STEPS][SEQS];
	float logits[STEPS][VOCAB_MAX];
	uint64_t launches, graphs, replayed; /* launches of all ranks; graphs and replays of rank 0 */
};

static void prompts(void)
{
	for (uint32_t s = 0; s < SEQS; s++) {
		driver_seq(&d, s, tokens, PROMPT - s, PROMPT - s, 64, &params);
		driver_add_run(&d, s, 0, PROMPT - s, true);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	}
}

static void decode(struct output *out)
{
	prompts();
	const uint64_t graphs = counted().graphs, replayed = step_replayed(d.step);
	n_launches = 0;
	watch(count_launch);
	for (uint32_t i = 0; i < STEPS; i++) {
		for (uint32_t s = 0; s < SEQS; s++)
			driver_add_run(&d, s, PROMPT - s + i, 1, true);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
		cr_assert_eq(d.result.n_tokens, SEQS);
		memcpy(out->token[i], d.result.tokens, sizeof out->token[i]);
		cr_assert_eq(step_logits(d.step, SEQS - 1, out->logits[i]), 0);
	}
	watch(NULL);
	out->launches = n_launches;
	out->graphs = counted().graphs - graphs;
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
	/* Launches besides the graph: the batch on every rank, four of the sampler on rank 0, and on every
	 * rank one that receives or sends the tokens. */
	cr_expect_eq(with.launches, STEPS * (n_ranks + 4 + n_ranks), "%u ranks: %llu launches in %d steps",
		     n_ranks, (unsigned long long)with.launches, (int)STEPS);
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

/* Form the group again with the same two ranks, in epoch 2. */
static void form_again(void)
{
	struct driver_rank ranks[DRIVER_RANKS] = {0};
	struct tp_group_rendezvous *mine = NULL;
	struct bus_load load = load_of(2);
	load.epoch = 2;
	cr_assert_eq(tp_group_rendezvous_new(&mine, "cuda:0", load.rendezvous, &d.why), 0, "%s", d.why.text);
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct driver_rank){.load = load, .mine = i ? NULL : &mine, .again = true};
		ranks[i].load.rank = i;
	}
	cr_assert_eq(driver_all(&d, ranks), 0, "%s", d.why.text);
	tp_group_rendezvous_free(mine);
	d.number = d.next_block = 0;
	plan_reset(&d.plan);
	driver_epoch = 2;
}

/* The communicator is new. The old group's graphs are freed, or its end would have waited for them. */
Test(tp_graphs, a_group_that_forms_again_makes_its_own)
{
	static struct output first, again;
	open_group(2, false);
	decode(&first);
	const uint64_t bytes = counted().live_bytes;
	form_again();
	cr_expect_eq(counted().live_bytes, bytes, "the graphs of before are freed");
	decode(&again);
	cr_expect_eq(again.replayed, STEPS);
	cr_expect_eq(memcmp(first.logits, again.logits, sizeof first.logits), 0);
	driver_close(&d);
}

/* One rank has no graphs. All ranks must launch the same graph or none, so they form no group. */
Test(tp_graphs, ranks_with_and_without_graphs_form_no_group)
{
	struct driver_rank ranks[2] = {0};
	struct tp_group_rendezvous *mine = NULL;
	struct bus_load load = driver_load(model);
	memset(&d, 0, sizeof d);
	d.n_ranks = 2;
	d.peers = calloc(1, sizeof *d.peers);
	load.n_ranks = 2;
	cr_assert_eq(tp_group_rendezvous_new(&mine, "cuda:0", load.rendezvous, &d.why), 0, "%s", d.why.text);
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct driver_rank){.load = load, .mine = i ? NULL : &mine, .no_graphs = i == 1};
		ranks[i].load.rank = i;
	}
	cr_expect_eq(driver_all(&d, ranks), -EINVAL, "%s", d.why.text);
	cr_expect(strstr(d.why.text, "no graphs"), "%s", d.why.text);
	tp_group_rendezvous_free(mine);
	driver_close(&d);
}

/* ---- one plan and the next ---- */

/* Build the i-th decoding step after the prompts in p. */
static void step_plan(uint32_t i, struct plan *p)
{
	for (uint32_t s = 0; s < SEQS; s++)
		driver_add_run(&d, s, PROMPT - s + i, 1, true);
	d.plan.epoch = driver_epoch;
	d.plan.number = ++d.number;
	*p = d.plan;
	d.plan = (struct plan){0};
}

struct turn {
	struct driver *d;
	const struct plan *plan; /* plan to begin; NULL: end the oldest */
	int rc;
};

static void *take_turn(void *arg)
{
	struct turn *t = arg;
	struct driver *r = t->d;
	t->rc = t->plan ? step_begin(r->step, t->plan, &r->why) : step_end(r->step, &r->result, &r->why);
	return NULL;
}

static void all_take_turns(const struct plan *p)
{
	pthread_t threads[DRIVER_RANKS];
	struct turn turns[DRIVER_RANKS];
	for (uint32_t r = 0; r < d.n_ranks; r++) {
		turns[r] = (struct turn){.d = r ? &d.peers[r - 1] : &d, .plan = p};
		cr_assert_eq(pthread_create(&threads[r], NULL, take_turn, &turns[r]), 0);
	}
	for (uint32_t r = 0; r < d.n_ranks; r++) {
		pthread_join(threads[r], NULL);
		cr_assert_eq(turns[r].rc, 0, "rank %u: %s", r, turns[r].d->why.text);
	}
}

/* Every rank begins the next plan before the previous one has a result. No host waits: each only polls
 * once. */
static void check_ahead(uint32_t n_ranks)
{
	static struct output waited;
	struct plan plans[STEPS];
	open_group(n_ranks, false);
	decode(&waited);
	driver_close(&d);
	open_group(n_ranks, false);
	prompts();
	for (uint32_t i = 0; i <= STEPS; i++) {
		if (i < STEPS) {
			step_plan(i, &plans[i]);
			const uint64_t asked = counted().not_ready;
			all_take_turns(&plans[i]);
			cr_expect_leq(counted().not_ready - asked, n_ranks, "step %u: %llu waits", i,
				      (unsigned long long)(counted().not_ready - asked));
			plan_fini(&plans[i]);
		}
		if (!i)
			continue;
		cr_expect_eq(step_in_flight(d.step), i < STEPS ? 2 : 1);
		all_take_turns(NULL);
		cr_assert_eq(d.result.n_tokens, SEQS);
		cr_expect_eq(memcmp(d.result.tokens, waited.token[i - 1], sizeof waited.token[0]), 0,
			     "step %u: other tokens", i - 1);
	}
	driver_close(&d);
}

Test(tp_graphs, the_next_step_is_queued_before_the_tokens_are_known)
{
	check_ahead(2);
}

Test(tp_graphs, in_a_group_of_four_too)
{
	check_ahead(4);
}

/* Begin plans on rank 0 alone; on a device they would wait for the other rank. */
static void begin_stuck(struct plan plans[2])
{
	nccl_stuck(true);
	for (uint32_t i = 0; i < 2; i++) {
		step_plan(i, &plans[i]);
		cr_assert_eq(step_begin(d.step, &plans[i], &d.why), 0, "%s", d.why.text);
		plan_fini(&plans[i]);
	}
	nccl_stuck(false);
	cr_expect(!step_done(d.step));
}

Test(tp_graphs, a_rank_lost_while_plans_are_in_flight_is_noticed_and_the_group_forms_again)
{
	static struct output again, want;
	struct plan plans[2];
	open_group(2, false);
	decode(&want);
	driver_close(&d);
	open_group(2, false);
	prompts();
	begin_stuck(plans);
	step_leave(d.peers[0].step);
	while (!step_done(d.step))
		usleep(1000);
	cr_expect_eq(step_end(d.step, &d.result, &d.why), -ECONNRESET);
	cr_expect(strstr(d.why.text, "rank 1"), "%s", d.why.text);
	cr_expect(!step_joined(d.step));
	cr_expect_eq(step_in_flight(d.step), 0);
	form_again();
	decode(&again);
	cr_expect_eq(memcmp(want.token, again.token, sizeof want.token), 0);
	driver_close(&d);
}

/* A dismissed rank leaves, as the other ranks may never come. */
Test(tp_graphs, leaving_with_plans_in_flight_waits_for_no_rank)
{
	struct plan plans[2];
	open_group(2, false);
	prompts();
	begin_stuck(plans);
	const uint64_t asked = counted().not_ready;
	step_leave(d.step);
	cr_expect_eq(counted().not_ready, asked);
	cr_expect_eq(step_in_flight(d.step), 0);
	driver_close(&d);
}
