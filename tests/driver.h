/* driver.h - a minimal controller for the worker's tests: it allocates blocks, numbers the plans and runs
 * them in process. If load.n_ranks is set, a tp_group runs the plans with one thread per rank, and results
 * are rank 0's. A test need not use every function. */
#ifndef QUERN_TESTS_DRIVER_H
#define QUERN_TESTS_DRIVER_H

#include "base/json.h"
#include "tests/testdata.h"
#include "worker/draft.h"
#include "worker/guide.h"
#include "worker/step.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_FN static __attribute__((unused))

static bool driver_no_graphs __attribute__((unused));     /* for steps opened later */
static uint64_t driver_epoch __attribute__((unused)) = 1; /* epoch of later plans */
static int64_t driver_notify_us __attribute__((unused));  /* for groups formed later */
static const char *driver_compute __attribute__((unused)) = "f32";
static const char *driver_head __attribute__((unused)) = "auto";
static const char *driver_kv __attribute__((unused)) = "auto";
static const char *driver_place __attribute__((unused)); /* for steps opened later without a group */
/* Also for steps opened later without a group, passed on unchanged. */
static const struct hot_options *driver_hot __attribute__((unused));
static const char *driver_experts_compute __attribute__((unused));
static int driver_send_above __attribute__((unused));
static const struct draft_source *driver_drafts __attribute__((unused));
static const struct guide_work *driver_guide __attribute__((unused));
static struct expert_load driver_experts __attribute__((unused));

enum { DRIVER_BLOCKS = 512, DRIVER_RANKS = 8, DRIVER_LATE_MS = 60000 };

struct driver {
	struct step *step;
	struct bus_ready ready;
	struct plan plan;
	struct result result;
	uint64_t number;
	uint32_t next_block;
	uint32_t constraint; /* number of the constraint for sequences added later; 0: none */
	struct why why;
	struct driver *peers; /* [n_ranks - 1] the other ranks; NULL: a single rank */
	uint32_t n_ranks;
};

DRIVER_FN struct bus_load driver_load(const char *model)
{
	struct bus_load l = {.epoch = 1,
			     .block_size = 16,
			     .max_rows = 256,
			     .max_slots = 40,
			     .max_runs = 40,
			     .kv_bytes = 32 << 20,
			     .swap_bytes = 4 << 20,
			     .n_threads = 2};
	snprintf(l.compute, sizeof l.compute, "%s", driver_compute);
	snprintf(l.head, sizeof l.head, "%s", driver_head);
	snprintf(l.kv, sizeof l.kv, "%s", driver_kv);
	snprintf(l.model, sizeof l.model, "%s", model);
	return l;
}

/* Return the device under test: the CPU, or the device that QUERN_TEST_DEVICE names. */
DRIVER_FN const char *driver_device(void)
{
	const char *named = getenv("QUERN_TEST_DEVICE");
	return named && named[0] ? named : "cpu";
}

/* Return true if tests must take fewer steps: on the emulated device, unless QUERN_TEST_LONG is set. */
DRIVER_FN bool driver_brief(void)
{
	return strcmp(driver_device(), "cpu") && getenv("QUERN_CUDA_LIBRARY") && !getenv("QUERN_TEST_LONG");
}

/* If QUERN_TEST_FAST=1, write a tune file to path that enables --fast for every number of rows, and return
 * true. */
DRIVER_FN bool driver_fast(char *path, size_t n)
{
	const char *set = getenv("QUERN_TEST_FAST");
	struct kern_open_args a = {
		.max_rows = 1, .max_seqs = 1, .max_logits = 1, .max_context = 16, .max_blocks_per_seq = 1};
	static struct tune t = {.n = 3,
				.layers = {{KERN_AWQ4, 0, 0, 0}, {KERN_F16, 0, 0, 0}, {KERN_BF16, 0, 0, 0}}};
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_info info;
	if (!set || strcmp(set, "1"))
		return false;
	if (kern_find(driver_device(), &ops, &a.index, NULL) || ops->open(&dev, &a, NULL))
		abort();
	ops->info(dev, &info);
	ops->close(dev);
	snprintf(t.device, sizeof t.device, "%s", info.name);
	snprintf(t.isa, sizeof t.isa, "%s", info.isa);
	snprintf(t.build, sizeof t.build, "%s", info.build);
	snprintf(path, n, "/tmp/quern-test-tune-%d.json", (int)getpid());
	if (tune_write(&t, path, NULL))
		abort();
	return true;
}

/* ---- groups: every rank does the same at the same time ---- */

struct driver_rank {
	struct driver *d;
	struct bus_load load;
	const char *isa;
	const struct plan *plan; /* plan to run; NULL: open the step */
	struct tp_group_rendezvous **mine;
	bool again; /* the weights are loaded: only join */
	double memory_fraction;
	bool no_graphs;
	int rc;
};

DRIVER_FN void *driver_rank_main(void *arg)
{
	struct driver_rank *r = arg;
	struct driver *d = r->d;
	const struct step_args a = {.device = driver_device(),
				    .isa = r->isa,
				    .load = &r->load,
				    .no_graphs = driver_no_graphs || r->no_graphs,
				    .two_pools = true,
				    .memory_fraction = r->memory_fraction};
	const struct step_group g = {
		.mine = r->mine, .timeout_ms = DRIVER_LATE_MS, .notify_us = driver_notify_us};
	if (r->plan) {
		r->rc = step_run(d->step, r->plan, &d->result, &d->why);
		return NULL;
	}
	r->rc = r->again ? 0 : step_open(&d->step, &a, &d->ready, &d->why);
	if (!r->rc)
		r->rc = step_join(d->step, &r->load, &g, &d->ready, &d->why);
	return NULL;
}

/* Return the result of rank 0, or of the first other rank that failed. */
DRIVER_FN int driver_all(struct driver *d, struct driver_rank *ranks)
{
	pthread_t threads[DRIVER_RANKS];
	int rc = 0;
	for (uint32_t i = 0; i < d->n_ranks; i++) {
		ranks[i].d = i ? &d->peers[i - 1] : d;
		if (pthread_create(&threads[i], NULL, driver_rank_main, &ranks[i]))
			abort();
	}
	for (uint32_t i = 0; i < d->n_ranks; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = d->n_ranks; i--;) {
		rc = ranks[i].rc ? ranks[i].rc : rc;
		if (ranks[i].rc && i)
			d->why = d->peers[i - 1].why;
	}
	return rc;
}

DRIVER_FN int driver_open_group(struct driver *d, const struct bus_load *l, const char *isa)
{
	struct driver_rank ranks[DRIVER_RANKS] = {0};
	struct tp_group_rendezvous *mine = NULL;
	struct bus_load load = *l;
	d->n_ranks = l->n_ranks;
	d->peers = calloc(l->n_ranks - 1, sizeof *d->peers);
	int rc = tp_group_rendezvous_new(&mine, driver_device(), load.rendezvous, &d->why);
	for (uint32_t i = 0; i < l->n_ranks; i++) {
		ranks[i] = (struct driver_rank){.load = load, .isa = isa, .mine = i ? NULL : &mine};
		ranks[i].load.rank = i;
	}
	if (!rc)
		rc = driver_all(d, ranks);
	tp_group_rendezvous_free(mine);
	return rc;
}

DRIVER_FN int driver_open_isa(struct driver *d, const struct bus_load *l, const char *isa)
{
	struct bus_load load = *l;
	struct step_args a = {.device = driver_device(),
			      .isa = isa,
			      .load = &load,
			      .place = driver_place,
			      .hot = driver_hot,
			      .stream_above_rows = driver_send_above,
			      .experts = &driver_experts,
			      .no_graphs = driver_no_graphs,
			      .drafts = driver_drafts,
			      .guide = driver_guide,
			      .two_pools = true};
	char path[64];
	memset(d, 0, sizeof *d);
	if (driver_experts_compute)
		snprintf(load.experts_compute, sizeof load.experts_compute, "%s", driver_experts_compute);
	if (l->n_ranks > 1)
		return driver_open_group(d, l, isa);
	const bool all_fast = driver_fast(path, sizeof path);
	load.fast = load.fast || all_fast;
	a.tune.file = all_fast ? path : NULL;
	int rc = step_open(&d->step, &a, &d->ready, &d->why);
	if (all_fast)
		unlink(path);
	return rc;
}

DRIVER_FN int driver_open(struct driver *d, const struct bus_load *l)
{
	return driver_open_isa(d, l, NULL);
}

/* Make a vocabulary: the first 256 tokens are bytes, the other tokens short words, and the last token ends a
 * text. */
DRIVER_FN void driver_vocabulary(struct vocabulary *v, uint32_t n)
{
	for (uint32_t t = 0; t < n; t++) {
		char word[5] = {(char)('a' + t % 26), (char)('a' + t / 7 % 26), (char)('a' + t / 180 % 26),
				'e'};
		if (t < 256 && t + 1 < n)
			vocabulary_add(v, &(char){(char)t}, 1, VOCABULARY_TEXT);
		else
			vocabulary_add(v, word, 2 + t % 3, t + 1 < n ? VOCABULARY_TEXT : VOCABULARY_END);
	}
}

/* Send that vocabulary to the step, or to the steps of all ranks. */
DRIVER_FN int driver_send_vocabulary(struct driver *d)
{
	struct vocabulary v = {0};
	driver_vocabulary(&v, step_limits(d->step)->n_vocab);
	int rc = step_vocabulary(d->step, &v, &d->why);
	for (uint32_t i = 1; !rc && i < d->n_ranks; i++)
		rc = step_vocabulary(d->peers[i - 1].step, &v, &d->why);
	vocabulary_fini(&v);
	return rc;
}

/* Add a constraint to the plan. language: enum grammar_language. The constraint is freed when 64 more were
 * added. */
DRIVER_FN void driver_form(struct driver *d, uint32_t number, uint8_t language, const char *text)
{
	static struct constraint *constraints[64];
	static unsigned turn;
	struct constraint **f = &constraints[turn++ % 64];
	constraint_free(*f); /* its plan was run long ago */
	*f = constraint_new(language, text, strlen(text));
	*plan_add_constraint(&d->plan) = (struct plan_constraint){number, *f};
}

DRIVER_FN void driver_close(struct driver *d)
{
	for (uint32_t i = 1; i < d->n_ranks; i++) {
		step_close(d->peers[i - 1].step);
		result_fini(&d->peers[i - 1].result);
	}
	free(d->peers);
	step_close(d->step);
	plan_fini(&d->plan);
	result_fini(&d->result);
}

/* Add a sequence to the plan, with its own blocks for n_max tokens, at most for the whole context. */
DRIVER_FN void driver_seq(struct driver *d, uint32_t slot, const uint32_t *tokens, uint32_t n_prompt,
			  uint32_t n, uint32_t n_max, const struct params *p)
{
	static uint32_t blocks[64][DRIVER_BLOCKS * KINDS_MAX];
	static unsigned turn;
	uint32_t *mine = blocks[turn++ % 64];
	if (n_max > step_limits(d->step)->max_context)
		n_max = step_limits(d->step)->max_context;
	uint32_t n_blocks = (n_max + step_block_size(d->step) - 1) / step_block_size(d->step);
	const uint32_t pool = step_limits(d->step)->n_blocks;
	/* A sequence's blocks are scattered, as in a real pool. A stride that divides the pool's size would
	 * use few blocks. */
	const uint32_t apart = pool % 7 ? 7 : pool % 11 ? 11 : 1;
	const uint32_t n_ids = n_blocks * step_limits(d->step)->n_kinds;
	for (uint32_t i = 0; i < n_ids; i++)
		mine[i] = (d->next_block + i * apart) % pool;
	d->next_block += apart * n_ids;
	*plan_add_seq(&d->plan) = (struct plan_seq){.slot = slot,
						    .seq = slot + 1,
						    .n_prompt = n_prompt,
						    .n_tokens = n,
						    .n_blocks = n_blocks,
						    .constraint = d->constraint,
						    .mu = params_first_mu(p),
						    .tokens = tokens,
						    .blocks = mine,
						    .params = p};
}

DRIVER_FN void driver_add_run(struct driver *d, uint32_t slot, uint32_t pos0, uint32_t n_rows, bool sample)
{
	*plan_add_run(&d->plan) = (struct plan_run){.slot = slot,
						    .pos0 = pos0,
						    .n_rows = n_rows,
						    .flags = sample ? PLAN_SAMPLE : 0,
						    .from = slot};
	d->plan.n_rows += n_rows;
	d->plan.n_samples += sample;
}

/* Run the plan and begin a new plan. */
DRIVER_FN int driver_step(struct driver *d)
{
	d->plan.epoch = driver_epoch;
	d->plan.number = ++d->number;
	struct driver_rank ranks[DRIVER_RANKS] = {0};
	for (uint32_t i = 0; i < d->n_ranks; i++)
		ranks[i].plan = &d->plan;
	int rc = d->peers ? driver_all(d, ranks) : step_run(d->step, &d->plan, &d->result, &d->why);
	plan_reset(&d->plan);
	return rc;
}

/* Run a prompt in slot 0, in chunks, with no other sequence; sample its first token. */
DRIVER_FN int driver_prompt(struct driver *d, const uint32_t *tokens, uint32_t n, uint32_t n_max,
			    uint32_t chunk, const struct params *p)
{
	int rc = 0;
	driver_seq(d, 0, tokens, n, n, n_max, p);
	for (uint32_t at = 0; !rc && at < n; at += chunk) {
		uint32_t rows = n - at < chunk ? n - at : chunk;
		driver_add_run(d, 0, at, rows, at + rows == n);
		rc = driver_step(d);
	}
	return rc;
}

/* Return the directory of a tiny model: packed with the tests, or made at first use. NULL if it cannot be
 * made (no Python with numpy). */
DRIVER_FN const char *tiny_model(const char *name)
{
	static char dir[2048], cmd[16384];
	snprintf(cmd, sizeof cmd, "tests/tiny/%s", name);
	snprintf(dir, sizeof dir, "%s", repofile(cmd));
	if (access(dir, R_OK) == 0)
		return dir;
	snprintf(dir, sizeof dir, "%s/%s", builtfile("tiny"), name);
	snprintf(cmd, sizeof cmd, "%s/config.json", dir);
	if (access(cmd, R_OK) == 0)
		return dir;
	snprintf(cmd, sizeof cmd,
		 "mkdir -p '%s'; for p in '%s' python3; do \"$p\" -c 'import numpy' 2>/dev/null && exec "
		 "\"$p\" "
		 "'%s' '%s' --tiny '%s' >/dev/null 2>&1; done; exit 1",
		 builtfile("tiny"), repofile("build/venv/bin/python"), repofile("tests/tools/make_model.py"),
		 dir, name);
	if (system(cmd) == 0)
		return dir;
	/* Another test may have made it in the meantime. */
	snprintf(cmd, sizeof cmd, "%s/config.json", dir);
	return access(cmd, R_OK) == 0 ? dir : NULL;
}

/* Return what a program of tests/tools makes of a name: PROGRAM NAME PATH, at first use.  ending: of the
 * path.  NULL: it cannot be made. */
DRIVER_FN const char *tiny_made(const char *program, const char *name, const char *ending)
{
	static char path[2048], cmd[16384];
	snprintf(path, sizeof path, "%s/%s%s", builtfile("tiny"), name, ending);
	if (access(path, R_OK) == 0)
		return path;
	snprintf(cmd, sizeof cmd,
		 "mkdir -p '%s'; for p in '%s' python3; do \"$p\" -c 'import numpy' 2>/dev/null && exec "
		 "\"$p\" '%s' '%s' '%s' >/dev/null 2>&1; done; exit 1",
		 builtfile("tiny"), repofile("build/venv/bin/python"), repofile(program), name, path);
	return system(cmd) == 0 || access(path, R_OK) == 0 ? path : NULL;
}

/* Return a file of tests/tools/make_gguf_family.py, or NULL. */
DRIVER_FN const char *tiny_gguf(const char *name)
{
	return tiny_made("tests/tools/make_gguf_family.py", name, ".gguf");
}

/* Return the directory of a class in tests/golden/classes.json, or NULL. */
DRIVER_FN const char *tiny_class(const char *name)
{
	return tiny_made("tests/tools/make_class.py", name, "-class");
}

/* Open a worker with a tiny model. params: greedy; tokens: n random tokens of its vocabulary. Skip the test
 * if the model cannot be made. */
DRIVER_FN void driver_open_tiny(struct driver *d, struct params *params, uint32_t *tokens, uint32_t n)
{
	const char *dir = tiny_model("llama3");
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	struct bus_load load = driver_load(dir);
	cr_assert_eq(driver_open(d, &load), 0, "%s", d->why.text);
	params_init(params);
	params->temperature = 0;
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = (i * 17 + 3) % 331;
}

/* Return the numbers of a JSON array; the caller frees them. */
DRIVER_FN uint32_t *json_ids(const json_t *a, uint32_t *n)
{
	*n = (uint32_t)json_array_size(a);
	uint32_t *ids = calloc(*n + 1, sizeof *ids);
	for (uint32_t i = 0; i < *n; i++)
		ids[i] = (uint32_t)json_integer_value(json_array_get(a, i));
	return ids;
}

#endif
