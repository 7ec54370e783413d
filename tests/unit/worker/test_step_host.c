/* A decoding step's use of the host, counted by the emulated device: no copy, and no wait between plans,
 * however many rows it has. */
#include "base/alloc.h"
#include "tests/cudasim/counted.h"
#include "tests/cudasim/kv_peek.h"
#include "tests/driver.h"
#include "worker/step_impl.h"

enum { PROMPT = 3, STEPS = 6, ROWS_MAX = 256, TOKENS = PROMPT + STEPS + 1 };

static struct driver d;
static const char *model;
static void *library;
static uint32_t tokens[ROWS_MAX][PROMPT], blocks[ROWS_MAX];
static struct params params[ROWS_MAX];

static void emulate(void)
{
	library = counted_open();
	if (!(model = tiny_model("llama3")))
		cr_skip_test("tiny models need Python with numpy");
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
	load.max_context = 256;
	const struct step_args a = {.device = "cuda:0", .load = &load, .no_graphs = !graphs};
	memset(&d, 0, sizeof d);
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
}

/* All kinds of sampling: greedy, all tokens, top tokens, penalties and lists, log-probabilities. */
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
	cr_assert_eq(step_begin(d.step, &d.plan, &d.why), 0, "%s", d.why.text);
	plan_reset(&d.plan);
}

/* Decode `rows` sequences; got receives STEPS tokens each after the prompt's first token. */
static void decode(uint32_t rows, uint32_t got[ROWS_MAX][STEPS])
{
	uint32_t n_begun = 0;
	struct cudasim_counters sum = {0};
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
	/* As many prompts as fit in one plan at a time. */
	for (uint32_t first = 0; first < rows; first += rows / PROMPT) {
		for (uint32_t i = first; i < rows && i < first + rows / PROMPT; i++)
			driver_add_run(&d, i, 0, PROMPT, true);
		send(&n_begun);
		cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
	}
	for (uint32_t s = 0; s <= STEPS; s++) {
		if (s < STEPS) { /* before the previous result is taken */
			for (uint32_t i = 0; i < rows; i++)
				driver_add_run(&d, i, PROMPT + s, 1, true);
			counted_again();
			send(&n_begun);
			const struct cudasim_counters c = counted();
			sum.copies += c.copies;
			sum.syncs += c.syncs;
		}
		if (s == 0)
			continue;
		cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
		cr_assert_eq(d.result.n_tokens, rows);
		for (uint32_t i = 0; i < rows; i++)
			got[i][s - 1] = d.result.tokens[i];
	}
	cr_expect_eq(sum.copies, 0, "%lu copies in %d steps", (unsigned long)sum.copies, STEPS);
	cr_expect_eq(sum.syncs, 0, "the host may have waited %lu times", (unsigned long)sum.syncs);
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

/* Afterwards 65 of the sequences run again from a graph and give the same tokens. */
Test(step_host, of_256_rows_copies_nothing_and_never_waits)
{
	static uint32_t all[ROWS_MAX][STEPS], some[ROWS_MAX][STEPS];
	check(256, false, all);
	close_worker();
	check(65, true, some);
	for (uint32_t i = 0; i < 65; i++)
		cr_expect_arr_eq(some[i], all[i], sizeof all[i], "sequence %u", i);
}

/* Add sequence i, with one block of its own or several consecutive ones. */
static void add_seq(uint32_t i, const uint32_t *ids, uint32_t n, uint32_t n_blocks)
{
	params_init(&params[i]);
	params[i].temperature = 0;
	for (uint32_t k = 0; k < n_blocks; k++)
		blocks[i + k] = i + k;
	*plan_add_seq(&d.plan) = (struct plan_seq){.slot = i,
						   .seq = i + 1,
						   .n_prompt = n,
						   .n_tokens = n,
						   .n_blocks = n_blocks,
						   .tokens = ids,
						   .blocks = &blocks[i],
						   .params = &params[i]};
}

/* Count the work of the last of some steps until its result is taken: `rows` sequences with one row each, or
 * one prompt of as many rows; all greedy. */
static struct cudasim_counters count_step(uint32_t rows, bool prompt, uint32_t *n_begun)
{
	static uint32_t ids[ROWS_MAX];
	const uint32_t seqs = prompt ? 1 : rows, n = prompt ? rows : PROMPT;
	for (uint32_t k = 0; k < n; k++)
		ids[k] = (k * 5 + 3) % 331;
	for (uint32_t step = 0; step < 4; step++) {
		for (uint32_t i = 0; i < seqs; i++) {
			if (step == 0 || prompt)
				add_seq(i, ids, n, (n + 5) / 16 + 1);
			driver_add_run(&d, i, prompt ? 0 : PROMPT - 1 + step, prompt ? n : 1, true);
		}
		counted_again();
		send(n_begun);
		cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
	}
	return counted();
}

/* Compare whole steps of a two-layer model with the known maxima, and print the table of
 * docs/performance/cuda.md. Steps of 256 rows run without graphs, as making all graphs takes too long. */
static void check_whole_steps(uint32_t rows_max, bool graphs)
{
	static const struct {
		const char *what;
		uint32_t rows;
		bool prompt, graphs;
		struct cudasim_counters most;
	} cases[] = {
		{"decode 1", 1, false, true, {.launched = 5, .graph_nodes = 22, .mapped_bytes = 20 << 10}},
		{"decode 16", 16, false, true, {.launched = 5, .graph_nodes = 22, .mapped_bytes = 24 << 10}},
		{"decode 64", 64, false, true, {.launched = 8, .graph_nodes = 22, .mapped_bytes = 48 << 10}},
		{"decode 256", 256, false, false, {.launched = 48, .mapped_bytes = 176 << 10}},
		{"prompt 240", 240, true, false, {.launched = 28, .mapped_bytes = 40 << 10}},
	};
	uint32_t n_begun = 0;
	open_worker(rows_max, graphs);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (cases[i].graphs != graphs)
			continue;
		const struct cudasim_counters c = count_step(cases[i].rows, cases[i].prompt, &n_begun),
					      *most = &cases[i].most;
		counted_print(cases[i].what, &c);
		cr_expect_leq(c.launched, most->launched, "%s", cases[i].what);
		cr_expect_leq(c.graph_nodes, most->graph_nodes, "%s", cases[i].what);
		cr_expect_eq(c.copies, 0, "%s", cases[i].what);
		cr_expect_eq(c.syncs, 1, "%s: the host waits for the result", cases[i].what);
		cr_expect_leq(c.mapped_bytes, most->mapped_bytes, "%s", cases[i].what);
	}
}

Test(step_host, whole_steps_from_graphs_ask_for_no_more)
{
	check_whole_steps(64, true);
}

Test(step_host, whole_steps_without_graphs_ask_for_no_more)
{
	check_whole_steps(256, false);
}

/* 20 sequences request three logits each: each gets those of its row, without a copy. */
Test(step_host, pooled_logits_come_without_copies)
{
	enum { SEQS = 20, IDS = 3 };
	static float logits[SEQS][1024];
	static int32_t allowed[SEQS][IDS];
	static uint32_t ids[SEQS][PROMPT];
	const size_t n_vocab = 331;
	uint32_t n_begun = 0;
	open_worker(64, false);
	cr_assert_eq(step_config(d.step)->n_vocab, n_vocab);
	for (int pooled = 0; pooled < 2; pooled++) {
		for (uint32_t i = 0; i < SEQS; i++) {
			for (uint32_t k = 0; k < PROMPT; k++)
				ids[i][k] = (i * 29 + k * 7 + 1) % 331;
			add_seq(i, ids[i], PROMPT, 1);
			for (uint32_t k = 0; pooled && k < IDS; k++)
				allowed[i][k] = (int32_t)((i * 13 + k * 101 + 5) % 331);
			if (pooled) {
				params[i].pool = PARAMS_POOL_LOGITS;
				params[i].allowed = allowed[i];
				params[i].n_allowed = IDS;
			}
			driver_add_run(&d, i, 0, PROMPT, !pooled);
		}
		counted_again();
		send(&n_begun);
		cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
		cr_expect_eq(counted().copies, 0, "%d copies", (int)counted().copies);
		for (uint32_t i = 0; !pooled && i < SEQS; i++)
			cr_assert_eq(step_logits(d.step, i, logits[i]), 0);
	}
	cr_assert_eq(d.result.n_pools, SEQS);
	for (uint32_t i = 0; i < SEQS; i++) {
		const struct result_pool *p = &d.result.pools[i];
		cr_assert(p->slot == i && p->n_words == IDS);
		for (uint32_t k = 0; k < IDS; k++)
			cr_expect(!memcmp(&d.result.pool_words[p->at + k], &logits[i][allowed[i][k]],
					  sizeof(float)),
				  "sequence %u, logit %u", i, k);
	}
}

/* ---- block tables ---- */

enum { SLOTS = 8, CONTEXT = 256, BLOCK = 16, BLOCKS = CONTEXT / BLOCK, PLANS = 250 };

struct seq {
	bool used, touched; /* touched: changed by this plan */
	uint32_t n_tokens, n_blocks;
	uint32_t blocks[BLOCKS];
};

static struct batch_peek peek;
static struct seq seqs[SLOTS];
static struct params greedy;
static uint32_t ids[CONTEXT];
static uint64_t numbers = 5;

static uint32_t drawn(uint32_t below)
{
	numbers = numbers * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(numbers >> 33) % below;
}

static uint32_t any_block(void)
{
	return drawn(step_limits(d.step)->n_blocks);
}

/* ---- a plan's events for a slot, in the order of step_begin() ---- */

/* A new or swapped-in sequence gets other blocks. */
static void set(uint32_t slot)
{
	struct seq *q = &seqs[slot];
	q->n_tokens = 1 + drawn(CONTEXT / 2);
	q->n_blocks = (q->n_tokens + BLOCK - 1) / BLOCK;
	for (uint32_t i = 0; i < q->n_blocks; i++)
		q->blocks[i] = any_block();
	q->used = q->touched = true;
	*plan_add_seq(&d.plan) = (struct plan_seq){.slot = slot,
						   .seq = slot + 1,
						   .n_prompt = 1,
						   .n_tokens = q->n_tokens,
						   .n_blocks = q->n_blocks,
						   .tokens = ids,
						   .blocks = q->blocks,
						   .params = &greedy};
}

static void drop(uint32_t slot)
{
	*plan_add_drop(&d.plan) = slot;
	seqs[slot] = (struct seq){.touched = true};
}

/* Replace or append a block of the table: copy-on-write, or growth. */
static void put(uint32_t slot, uint32_t logical)
{
	struct seq *q = &seqs[slot];
	q->blocks[logical] = any_block();
	q->n_blocks += logical == q->n_blocks;
	*plan_add_table(&d.plan) = (struct plan_table){slot, logical, q->blocks[logical], 0};
}

static void fork_to(uint32_t parent, uint32_t child)
{
	seqs[child] = seqs[parent];
	seqs[child].touched = true;
	*plan_add_fork(&d.plan) = (struct plan_fork){parent, child, 1};
}

/* Make a plan's events; forks are last, as in the worker. */
static void happen(void)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		seqs[i].touched = false;
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct seq *q = &seqs[i];
		const uint32_t what = drawn(12);
		if (!q->used ? what < 4 : what == 0)
			set(i);
		else if (q->used && what == 1)
			drop(i);
		else if (q->used && what == 2)
			put(i, drawn(q->n_blocks));
		else if (q->used && q->n_blocks < BLOCKS && q->n_tokens > q->n_blocks * BLOCK)
			put(i, q->n_blocks);
	}
	const uint32_t parent = drawn(SLOTS), child = drawn(SLOTS);
	if (parent != child && seqs[parent].used && !seqs[child].touched && drawn(3) == 0)
		fork_to(parent, child);
}

/* ---- plans ---- */

/* The tables of the slots that ran, as the plan's kernels must see them. */
struct expected {
	uint32_t n_blocks[SLOTS];
	uint32_t blocks[SLOTS][BLOCKS];
};

static size_t table_bytes(void)
{
	return (size_t)peek.n_tables * (size_t)peek.stride * sizeof(int32_t);
}

static struct expected run(void *kept)
{
	struct expected x = {0};
	const uint32_t first = drawn(SLOTS);
	happen();
	for (uint32_t k = 0; k < SLOTS; k++) {
		const uint32_t i = (first + k) % SLOTS;
		struct seq *q = &seqs[i];
		if (!q->used || q->n_tokens == CONTEXT || q->n_blocks * BLOCK < q->n_tokens || drawn(4) == 0)
			continue;
		x.n_blocks[i] = (q->n_tokens + BLOCK - 1) / BLOCK;
		memcpy(x.blocks[i], q->blocks, sizeof x.blocks[i]);
		driver_add_run(&d, i, q->n_tokens++ - 1, 1, true);
	}
	d.plan.epoch = 1;
	d.plan.number = ++d.number;
	cr_assert_eq(step_begin(d.step, &d.plan, &d.why), 0, "%s", d.why.text);
	plan_reset(&d.plan);
	/* Copied after the plan's kernels and before those of the next plan. */
	cr_assert_eq(d.step->ops->copy(d.step->stream, kept, peek.tables, table_bytes()), 0);
	return x;
}

static void check_tables(void *kept, int32_t *got, const struct expected *x, int plan)
{
	cr_assert_eq(d.step->ops->download(d.step->stream, got, kept, table_bytes()), 0);
	cr_assert_eq(d.step->ops->stream_sync(d.step->stream), 0);
	for (int i = 0; i < SLOTS; i++)
		for (uint32_t k = 0; k < x->n_blocks[i]; k++)
			cr_assert_eq(got[i * peek.stride + (int)k], (int32_t)x->blocks[i][k],
				     "plan %d: slot %d has block %d at %u, not %u", plan, i,
				     got[i * peek.stride + (int)k], k, x->blocks[i][k]);
}

/* With a plan queued ahead, each step's kernels read the tables of its own slots. */
Test(step_host, tables_on_the_device_are_the_slots_whatever_plans_do)
{
	struct batch_peek (*peek_at)(const struct kern_dev *dev);
	*(void **)&peek_at = dlsym(library, "batch_peek_at");
	cr_assert(peek_at);
	open_worker(SLOTS, true);
	peek = peek_at(d.step->dev);
	params_init(&greedy);
	greedy.temperature = 0;
	struct expected x[2];
	void *kept[2];
	int32_t *got = xmalloc(table_bytes());
	for (int i = 0; i < 2; i++) {
		kept[i] = d.step->ops->mem_new(d.step->dev, table_bytes());
		cr_assert(kept[i]);
	}
	x[0] = run(kept[0]);
	for (int plan = 1; plan < PLANS; plan++) {
		x[plan % 2] = run(kept[plan % 2]); /* before the previous result is taken */
		cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
		check_tables(kept[(plan - 1) % 2], got, &x[(plan - 1) % 2], plan - 1);
	}
	cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
	cr_expect_gt(step_replayed(d.step), PLANS / 2);
	for (int i = 0; i < 2; i++)
		d.step->ops->mem_free(d.step->dev, kept[i], table_bytes());
	free(got);
}
