/* Same tokens in every compute mode: a job's logits and tokens have the same bits alone, in a batch, with any
 * split of its prompt, any number of threads, another instruction set of the same numerics class, graphs or
 * single operations, recomputed, swapped or forked. The same holds within a group of two ranks and with
 * structured output. */
#include "grammar/source.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <xxhash.h>

enum { N_NEW = 24, N_MAX = 512, OTHERS = 31 };

struct model_case {
	char name[32];
	uint32_t n_prompt;
	uint32_t n_ranks;
	char compute[8], head[8], kv[8];
	enum { PLAIN, FORM, MIROSTAT } how; /* plain; with a constraint; sampled by mirostat */
};

/* Nested words, none of which ends a text soon. */
static const char constraint[] = "root ::= \"[\" item (\",\" item)* \"]\"\n"
				 "item ::= [a-z]+ | [0-9]{1,4} | \"[\" item (\", \" item)* \"]\"\n";

/* A job's output. */
struct trace {
	uint32_t tokens[N_NEW];
	uint64_t logits[N_NEW]; /* hash of the bits */
	uint32_t n;
};

static char numerics[256]; /* numerics class of the job run alone */

/* A running job. */
struct job {
	struct driver d;
	struct params params;
	uint32_t prompt[N_MAX]; /* followed by the generated tokens */
	uint32_t n_prompt;
	int32_t mu; /* mirostat's state after the last token */
	struct trace got;
};

/* 300 tokens reach the second chunk in which attention reads the cache. */
static const struct model_case sample[] = {{"qwen3-tied", 300, 1, "f32", "auto", "auto", PLAIN},
					   {"qwen3-awq-g32", 70, 1, "f32", "auto", "auto", PLAIN},
					   {"qwen3-window", 70, 1, "f32", "auto", "auto", PLAIN},
					   {"qwen3-awq-g32", 70, 2, "f32", "auto", "auto", PLAIN},
					   {"qwen3-awq-g32", 70, 1, "f32", "auto", "auto", FORM},
					   {"qwen3-tied", 70, 1, "f32", "auto", "auto", MIROSTAT},
					   /* On the CPU: */
					   {"demo", 70, 1, "int16", "auto", "auto", FORM},
					   {"qwen3-awq-g32", 70, 2, "int8", "auto", "auto", FORM},
					   {"demo", 70, 2, "int8", "auto", "auto", MIROSTAT},
					   {"demo", 300, 1, "int8", "auto", "auto", PLAIN},
					   {"demo", 70, 1, "int16", "auto", "auto", PLAIN},
					   {"qwen3-tied", 70, 1, "int8", "auto", "auto", PLAIN},
					   {"qwen3-awq-g32", 70, 2, "int8", "auto", "auto", PLAIN},
					   {"demo", 300, 1, "bf16", "auto", "auto", PLAIN},
					   {"qwen3-tied", 70, 1, "bf16", "auto", "auto", PLAIN},
					   {"qwen3-awq-g32", 70, 1, "int16", "int8", "auto", PLAIN},
					   {"qwen3-tied", 300, 1, "f32", "auto", "bf16", PLAIN},
					   {"demo", 300, 1, "int16", "auto", "int8", PLAIN},
					   {"qwen3-awq-g32", 70, 2, "f32", "auto", "int16", PLAIN},
					   /* Experts: further rows of an expert change nothing. */
					   {"qwen3-moe-awq", 70, 1, "f32", "auto", "auto", PLAIN},
					   {"qwen3-moe-awq", 70, 2, "int8", "auto", "auto", FORM},
					   {"qwen3-moe-awq", 70, 1, "int16", "auto", "auto", PLAIN},
					   {"glm4-moe", 70, 2, "bf16", "auto", "auto", PLAIN},
					   {"qwen2-moe", 70, 1, "int8", "auto", "auto", MIROSTAT},
					   {"gpt-oss", 70, 1, "int8", "auto", "auto", PLAIN}};
enum { SAMPLES = sizeof sample / sizeof sample[0], ON_ANY_DEVICE = 6, CASES_MAX = 256 };

/* Every model with every mode and every type of head, K and V. */
static size_t all_cases(struct model_case *cases)
{
	static const struct {
		const char *name;
		uint32_t n_prompt, n_ranks;
	} models[] = {{"demo", 300, 1},         {"demo", 300, 2},         {"qwen3-tied", 300, 1},
		      {"qwen3-awq-g32", 70, 1}, {"qwen3-awq-g32", 70, 2}, {"qwen3-window", 70, 1},
		      {"qwen3-moe-awq", 70, 1}};
	static const char *const computes[] = {"f32", "bf16", "int16", "int8"};
	static const char *const heads[] = {"stored", "int8"};
	static const char *const kvs[] = {"f32", "bf16", "int16", "int8"};
	size_t n = 0;
	for (size_t i = 0; i < sizeof models / sizeof models[0] * 4 * 2 * 4; i++) {
		struct model_case *c = &cases[n++];
		c->n_prompt = models[i / 32].n_prompt;
		c->n_ranks = models[i / 32].n_ranks;
		snprintf(c->name, sizeof c->name, "%s", models[i / 32].name);
		snprintf(c->compute, sizeof c->compute, "%s", computes[i / 8 % 4]);
		snprintf(c->head, sizeof c->head, "%s", heads[i / 4 % 2]);
		snprintf(c->kv, sizeof c->kv, "%s", kvs[i % 4]);
	}
	return n;
}

ParameterizedTestParameters(same_tokens, all)
{
	static struct model_case cases[CASES_MAX];
	const bool cpu = strcmp(driver_device(), "cpu") == 0;
	size_t n = cpu ? SAMPLES : ON_ANY_DEVICE;
	memcpy(cases, sample, n * sizeof *cases);
	if (cpu && getenv("QUERN_TEST_LONG"))
		n = all_cases(cases);
	return cr_make_param_array(struct model_case, cases, n);
}

/* Open a job. isa: NULL for the best. Returns false if this CPU lacks it. */
static bool job_open_isa(struct job *j, const struct model_case *c, uint32_t n_threads, const char *isa)
{
	const bool demo = strcmp(c->name, "demo") == 0;
	const char *dir = demo ? repofile("models/demo") : tiny_model(c->name);
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	driver_compute = c->compute;
	driver_head = c->head;
	driver_kv = c->kv;
	if (c->n_ranks > 1 && strcmp(driver_device(), "cpu") != 0)
		cr_skip_test("groups of ranks are tested on the CPU");
	struct bus_load load = driver_load(dir);
	load.n_threads = n_threads;
	load.n_ranks = c->n_ranks;
	memset(j, 0, sizeof *j);
	int rc = driver_open_isa(&j->d, &load, isa);
	if (rc && isa)
		return false;
	cr_assert_eq(rc, 0, "%s", j->d.why.text);
	if (c->how == FORM) {
		cr_assert_eq(driver_send_vocabulary(&j->d), 0, "%s", j->d.why.text);
		driver_form(&j->d, 3, GRAMMAR_GBNF, constraint);
		j->d.constraint = 3;
	}
	params_init(&j->params);
	j->params.temperature = 1.3f;
	j->params.top_p = 0.95f;
	j->params.repetition = 1.1f;
	j->params.seed = 4242;
	j->params.mirostat = c->how == MIROSTAT ? 1 + c->n_ranks % 2 : 0;
	j->params.mirostat_eta = 0.7f;
	j->mu = params_first_mu(&j->params);
	j->n_prompt = c->n_prompt;
	for (uint32_t i = 0; i < c->n_prompt; i++)
		j->prompt[i] = (i * i * 31 + i * 7 + 5) % 330;
	return true;
}

static void job_open(struct job *j, const struct model_case *c, uint32_t n_threads)
{
	job_open_isa(j, c, n_threads, NULL);
}

static void job_close(struct job *j)
{
	driver_close(&j->d);
}

/* Record the i-th chosen token of the last step as the job's next token. */
static void job_note(struct job *j, uint32_t i)
{
	static float logits[1 << 16];
	size_t n = (size_t)step_config(j->d.step)->n_vocab;
	cr_assert_eq(step_logits(j->d.step, i, logits), 0);
	cr_assert_eq(j->d.result.n_mus, j->params.mirostat ? j->d.result.n_tokens : 0);
	j->mu = j->params.mirostat ? j->d.result.mus[i] : 0;
	j->prompt[j->n_prompt + j->got.n] = j->d.result.tokens[i];
	j->got.tokens[j->got.n] = j->d.result.tokens[i];
	j->got.logits[j->got.n++] = XXH3_64bits(logits, n * sizeof *logits);
}

static void job_step(struct job *j)
{
	cr_assert_eq(driver_step(&j->d), 0, "%s", j->d.why.text);
}

static void job_prefill(struct job *j, uint32_t chunk)
{
	cr_assert_eq(driver_prompt(&j->d, j->prompt, j->n_prompt, N_MAX, chunk, &j->params), 0, "%s",
		     j->d.why.text);
	job_note(j, 0);
}

/* Decode one token at a time until there are n. */
static void job_decode(struct job *j, uint32_t n)
{
	while (j->got.n < n) {
		driver_add_run(&j->d, 0, j->n_prompt + j->got.n - 1, 1, true);
		job_step(j);
		job_note(j, 0);
	}
}

static struct trace alone(const struct model_case *c, uint32_t n_threads, uint32_t chunk)
{
	static struct job j;
	job_open(&j, c, n_threads);
	snprintf(numerics, sizeof numerics, "%s", j.d.ready.numerics);
	job_prefill(&j, chunk);
	job_decode(&j, N_NEW);
	job_close(&j);
	return j.got;
}

/* Run with another instruction set; false if this CPU lacks it or its numerics class differs. */
static bool other_isa(const struct model_case *c, const char *isa, const char *class_of, struct trace *got)
{
	static struct job j;
	if (!job_open_isa(&j, c, 2, isa))
		return false;
	bool same_class = strcmp(j.d.ready.numerics, class_of) == 0;
	job_prefill(&j, 256);
	job_decode(&j, N_NEW);
	job_close(&j);
	*got = j.got;
	return same_class;
}

static void check_same(const struct trace *a, const struct trace *b, const char *what)
{
	cr_assert_eq(a->n, b->n, "%s", what);
	for (uint32_t i = 0; i < a->n; i++) {
		cr_assert_eq(a->logits[i], b->logits[i], "%s: the logits of token %u differ", what, i);
		cr_assert_eq(a->tokens[i], b->tokens[i], "%s: token %u differs", what, i);
	}
}

/* ---- with other sequences ---- */

/* 31 other sequences of various lengths decode in the batch, while the job's prompt runs in chunks. */
static struct trace in_company(const struct model_case *c)
{
	static struct job j;
	uint32_t pos[OTHERS + 1];
	job_open(&j, c, 2);
	for (uint32_t s = 1; s <= OTHERS; s++) {
		pos[s] = 1 + s % 5;
		driver_seq(&j.d, s, j.prompt + s, pos[s], pos[s], 96, &j.params);
		driver_add_run(&j.d, s, 0, pos[s], true);
	}
	job_step(&j);
	driver_seq(&j.d, 0, j.prompt, j.n_prompt, j.n_prompt, N_MAX, &j.params);
	for (uint32_t at = 0; j.got.n < N_NEW;) {
		uint32_t rows = at >= j.n_prompt ? 1 : j.n_prompt - at < 29 ? j.n_prompt - at : 29;
		bool chosen = at + rows >= j.n_prompt;
		for (uint32_t s = 1; s <= OTHERS; s++) {
			if (s == 17)
				driver_add_run(&j.d, 0, at, rows, chosen);
			driver_add_run(&j.d, s, pos[s]++, 1, true);
		}
		job_step(&j);
		at += rows;
		if (chosen)
			job_note(&j, 16);
	}
	job_close(&j);
	return j.got;
}

/* ---- moved in memory ---- */

/* The job is preempted in mid-generation; everything is sent and computed again in other blocks. */
static struct trace recomputed(const struct model_case *c)
{
	static struct job j;
	job_open(&j, c, 2);
	job_prefill(&j, 64);
	job_decode(&j, N_NEW / 2);
	*plan_add_drop(&j.d.plan) = 0;
	job_step(&j);
	uint32_t n = j.n_prompt + j.got.n;
	driver_seq(&j.d, 5, j.prompt, j.n_prompt, n, N_MAX, &j.params);
	j.d.plan.seqs[j.d.plan.n_seqs - 1].mu = j.mu;
	for (uint32_t at = 0; at < n; at += 13)
		driver_add_run(&j.d, 5, at, n - at < 13 ? n - at : 13, at + 13 >= n), job_step(&j);
	job_note(&j, 0);
	while (j.got.n < N_NEW) {
		driver_add_run(&j.d, 5, j.n_prompt + j.got.n - 1, 1, true);
		job_step(&j);
		job_note(&j, 0);
	}
	job_close(&j);
	return j.got;
}

/* Add a sequence with chosen blocks, so that swaps can name them. */
static void add_seq_at(struct job *j, uint32_t slot, uint32_t first, uint32_t n_blocks, uint32_t *blocks)
{
	for (uint32_t i = 0; i < n_blocks * step_limits(j->d.step)->n_kinds; i++)
		blocks[i] = first + i;
	*plan_add_seq(&j->d.plan) = (struct plan_seq){.slot = slot,
						      .n_prompt = j->n_prompt,
						      .n_tokens = j->n_prompt,
						      .n_blocks = n_blocks,
						      .constraint = j->d.constraint,
						      .mu = j->mu,
						      .tokens = j->prompt,
						      .blocks = blocks,
						      .params = &j->params};
}

/* Set entry i of a job's tables, counted row by row, all kinds of a row together.  A block before a window
 * becomes block 0, which holds something else: it is not read. */
static void set_entry(struct job *j, uint32_t slot, uint32_t i, uint32_t block)
{
	const struct kinds *kinds = &j->d.ready.kinds;
	const uint32_t row = i / kinds->n, kind = i % kinds->n, pos = j->n_prompt + j->got.n - 1;
	const bool read = row >= kinds_first(kinds, kind, pos) / 16;
	*plan_add_table(&j->d.plan) = (struct plan_table){slot, row, read ? block : 0, kind};
}

/* The job is swapped out in mid-generation, another sequence uses its blocks, and it is swapped in
 * elsewhere. */
static struct trace swapped(const struct model_case *c)
{
	static struct job j;
	static uint32_t blocks[2][64 * KINDS_MAX];
	job_open(&j, c, 2);
	const uint32_t n_blocks = (j.n_prompt + N_NEW + 15) / 16;
	const uint32_t n_ids = n_blocks * j.d.ready.kinds.n;
	add_seq_at(&j, 0, 3, n_blocks, blocks[0]);
	for (uint32_t at = 0; at < j.n_prompt; at += 100) {
		uint32_t rows = j.n_prompt - at < 100 ? j.n_prompt - at : 100;
		driver_add_run(&j.d, 0, at, rows, at + rows == j.n_prompt);
		job_step(&j);
	}
	job_note(&j, 0);
	job_decode(&j, N_NEW / 2);
	for (uint32_t i = 0; i < n_ids; i++)
		*plan_add_swap_out(&j.d.plan) = (struct plan_pair){3 + i, n_ids - 1 - i};
	job_step(&j);
	add_seq_at(&j, 1, 3, n_blocks, blocks[1]);
	for (uint32_t at = 0; at < j.n_prompt; at += 50)
		driver_add_run(&j.d, 1, at, j.n_prompt - at < 50 ? j.n_prompt - at : 50, false), job_step(&j);
	for (uint32_t i = 0; i < n_ids; i++) {
		*plan_add_swap_in(&j.d.plan) = (struct plan_pair){n_ids - 1 - i, 100 + i};
		set_entry(&j, 0, i, 100 + i);
	}
	job_decode(&j, N_NEW * 3 / 4);
	/* Then it is moved by copies on the device, as in copy-on-write. */
	for (uint32_t i = 0; i < n_ids; i++) {
		*plan_add_copy(&j.d.plan) = (struct plan_pair){100 + i, 150 + i};
		set_entry(&j, 0, i, 150 + i);
	}
	job_decode(&j, N_NEW);
	job_close(&j);
	return j.got;
}

/* ---- forks ---- */

/* The second output of a job with n = 2 has its own index and so other random numbers. forked: from the first
 * output's prompt in the same plan; otherwise computed alone. */
static struct trace second_output(const struct model_case *c, bool forked)
{
	static struct job j;
	static uint32_t blocks[2][64 * KINDS_MAX];
	job_open(&j, c, 2);
	const uint32_t n_blocks = (j.n_prompt + N_NEW + 15) / 16, shared = j.n_prompt / 16;
	uint32_t slot = forked ? 9 : 0;
	add_seq_at(&j, 0, 0, n_blocks, blocks[0]);
	if (!forked)
		j.d.plan.seqs[0].index = 1;
	for (uint32_t at = 0; at + 64 < j.n_prompt; at += 64)
		driver_add_run(&j.d, 0, at, 64, false), job_step(&j);
	uint32_t at = (j.n_prompt - 1) / 64 * 64;
	driver_add_run(&j.d, 0, at, j.n_prompt - at, true);
	if (forked) {
		*plan_add_fork(&j.d.plan) = (struct plan_fork){0, slot, 1};
		*plan_add_run(&j.d.plan) = (struct plan_run){slot, j.n_prompt, 0, PLAN_SAMPLE, 0, 0};
	}
	job_step(&j);
	job_note(&j, forked);
	const uint32_t n_kinds = j.d.ready.kinds.n;
	for (uint32_t i = shared * n_kinds; forked && i < n_blocks * n_kinds; i++) {
		*plan_add_copy(&j.d.plan) = (struct plan_pair){i, 50 + i};
		set_entry(&j, slot, i, 50 + i);
	}
	while (j.got.n < N_NEW) {
		uint32_t pos = j.n_prompt + j.got.n - 1;
		driver_add_run(&j.d, slot, pos, 1, true);
		if (forked)
			driver_add_run(&j.d, 0, pos, 1, true);
		job_step(&j);
		job_note(&j, 0);
	}
	job_close(&j);
	return j.got;
}

/* ---- the test ---- */

ParameterizedTest(struct model_case *c, same_tokens, all)
{
	struct trace want = alone(c, 2, 256), got;
	cr_assert_eq(want.n, N_NEW);
	const uint32_t chunks[] = {1, 7, 64};
	for (int i = 0; i < 3; i++) {
		got = alone(c, 2, chunks[i]);
		check_same(&want, &got, "another chunk of the prompt");
	}
	got = alone(c, 1, 256);
	check_same(&want, &got, "one thread");
	got = alone(c, 3, 256);
	check_same(&want, &got, "three threads");
	const char *const isas[] = {"avx2", "plain"};
	for (int i = 0; i < 2; i++)
		if (other_isa(c, isas[i], numerics, &got))
			check_same(&want, &got, isas[i]);
	got = in_company(c);
	check_same(&want, &got, "among 31 others");
	if (strcmp(driver_device(), "cpu") != 0) {
		driver_no_graphs = true;
		got = alone(c, 2, 256);
		check_same(&want, &got, "operation by operation");
		driver_no_graphs = false;
	}
	got = recomputed(c);
	check_same(&want, &got, "recomputed");
	got = swapped(c);
	check_same(&want, &got, "swapped out and in, then copied");
	struct trace own = second_output(c, false);
	got = second_output(c, true);
	check_same(&own, &got, "forked");
	cr_expect_neq(memcmp(own.tokens, want.tokens, sizeof own.tokens), 0,
		      "two outputs of a job are the same");
}
