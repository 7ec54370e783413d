/* Pooled prompts: rows, means and logits agree with transformers (tests/golden/pool.json), and have the same
 * bits whatever else is in the batch and however the prompt is split. */
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(pool, .timeout = 240);

enum { WIDTH_MAX = 1024 };

static const enum params_pool kinds[] = {PARAMS_POOL_LAST, PARAMS_POOL_MEAN, PARAMS_POOL_LOGITS};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* A prompt's pooled result. */
struct pooled {
	uint32_t n;
	float last[WIDTH_MAX]; /* or logits */
	int64_t sums[WIDTH_MAX];
};

static struct params params_of(enum params_pool pool, int32_t *ids, uint32_t n)
{
	struct params p;
	params_init(&p);
	p.temperature = 0;
	p.max_tokens = 1;
	p.pool = pool;
	p.allowed = ids;
	p.n_allowed = pool == PARAMS_POOL_LOGITS ? n : 0;
	return p;
}

/* Add the slot's entry of the last result to `out`. */
static bool take(struct driver *d, uint32_t slot, const struct params *p, struct pooled *out)
{
	for (uint32_t i = 0; i < d->result.n_pools; i++) {
		const struct result_pool *e = &d->result.pools[i];
		const uint32_t *words = d->result.pool_words + e->at;
		if (e->slot != slot)
			continue;
		if (p->pool == PARAMS_POOL_MEAN) {
			out->n = e->n_words / 2;
			for (uint32_t k = 0; k < out->n; k++) {
				int64_t x;
				memcpy(&x, words + 2 * (size_t)k, sizeof x);
				cr_assert_neq(x, RESULT_POOL_NAN);
				out->sums[k] += x;
			}
		} else {
			out->n = e->n_words;
			memcpy(out->last, words, e->n_words * sizeof *words);
		}
		return true;
	}
	return false;
}

/* Compute a prompt alone, in chunks. */
static void alone(struct driver *d, const uint32_t *tokens, uint32_t n, uint32_t chunk,
		  const struct params *p, struct pooled *out)
{
	memset(out, 0, sizeof *out);
	driver_seq(d, 0, tokens, n, n, n + 1, p);
	for (uint32_t at = 0; at < n; at += chunk) {
		uint32_t rows = n - at < chunk ? n - at : chunk;
		driver_add_run(d, 0, at, rows, false);
		cr_assert_eq(driver_step(d), 0, "%s", d->why.text);
		cr_assert_eq(d->result.n_tokens, 0);
		const bool has = take(d, 0, p, out), due = at + rows == n || p->pool == PARAMS_POOL_MEAN;
		cr_assert_eq(has, due);
	}
	*plan_add_drop(&d->plan) = 0;
}

static double value(const struct pooled *r, const struct params *p, uint32_t i, uint32_t n_rows)
{
	return p->pool == PARAMS_POOL_MEAN ? (double)r->sums[i] / RESULT_POOL_ONE / n_rows
					   : (double)r->last[i];
}

/* As in test_model.c: operands of F32, or of F16 or BF16 on a GPU. */
static double tolerance(const struct driver *d)
{
	if (strcmp(driver_device(), "cpu") == 0)
		return 1e-3;
	return strstr(d->ready.numerics, "bf16") ? 0.2 : 6e-2;
}

static void check(const struct driver *d, const struct pooled *got, const struct params *p,
		  const json_t *want, int stride, uint32_t n_rows, const char *name)
{
	static const char *const names[] = {"", "last", "mean", "logits"};
	cr_assert_eq(json_array_size(want), (got->n + (uint32_t)stride - 1) / (uint32_t)stride, "%s", name);
	for (size_t i = 0; i < json_array_size(want); i++) {
		const double x = value(got, p, (uint32_t)i * (uint32_t)stride, n_rows),
			     w = json_number_value(json_array_get(want, i));
		cr_assert_float_eq(x, w, tolerance(d), "%s: %s[%zu] is %g, not %g", name, names[p->pool], i,
				   x, w);
	}
}

static void check_case(const json_t *c)
{
	static const char *const fields[] = {"", "last", "mean", "logits"};
	const char *name = json_string_value(json_get(c, "name")), *dir = tiny_model(name);
	static struct pooled got;
	struct driver d;
	uint32_t n, n_ids;
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	uint32_t *prompt = json_ids(json_get(c, "prompt"), &n),
		 *ids = json_ids(json_get(c, "tokens"), &n_ids);
	struct bus_load load = driver_load(dir);
	load.max_context = (uint32_t)json_integer_value(json_get(c, "context"));
	cr_assert_eq(driver_open(&d, &load), 0, "%s: %s", name, d.why.text);
	for (int k = 0; k < KINDS; k++) {
		const struct params p = params_of(kinds[k], (int32_t *)ids, n_ids);
		const int stride =
			kinds[k] == PARAMS_POOL_LOGITS ? 1 : (int)json_integer_value(json_get(c, "stride"));
		alone(&d, prompt, n, 100, &p, &got);
		check(&d, &got, &p, json_get(c, fields[kinds[k]]), stride, n, name);
	}
	driver_close(&d);
	free(prompt);
	free(ids);
}

Test(pool, agrees_with_transformers)
{
	struct why why;
	json_t *all = NULL;
	cr_assert_eq(json_read(repofile("tests/golden/pool.json"), 4 << 20, &all, &why), 0, "%s", why.text);
	for (size_t i = 0; i < json_array_size(all); i += driver_brief() ? 5 : 1)
		check_case(json_array_get(all, i));
	json_decref(all);
}

/* ---- bitwise equal results ---- */

static uint32_t tokens[128];
static int32_t ids[] = {3, 330, 77};

static void open_model(struct driver *d, const char *compute, uint32_t n_threads, uint32_t n_ranks)
{
	const char *dir = tiny_model("llama3");
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	driver_compute = compute;
	struct bus_load load = driver_load(dir);
	load.n_threads = n_threads;
	load.n_ranks = n_ranks;
	cr_assert_eq(driver_open(d, &load), 0, "%s", d->why.text);
	for (uint32_t i = 0; i < 128; i++)
		tokens[i] = (i * 17 + 3) % 331;
}

/* Pool slots 0..2 in every way, in chunks, with 30 other sequences that decode or are pooled. */
static void in_company(struct driver *d, const struct params *p, uint32_t n, struct pooled *out)
{
	const struct params greedy = params_of(PARAMS_POOL_NONE, NULL, 0);
	uint32_t at = 0;
	memset(out, 0, KINDS * sizeof *out);
	for (uint32_t s = 3; s < 33; s++) {
		driver_seq(d, s, tokens + s, 2 + s % 5, 2 + s % 5, 64, s % 3 ? &greedy : &p[s % KINDS]);
		driver_add_run(d, s, 0, 2 + s % 5, s % 3);
	}
	cr_assert_eq(driver_step(d), 0, "%s", d->why.text);
	for (uint32_t k = 0; k < KINDS; k++)
		driver_seq(d, k, tokens, n, n, n + 1, &p[k]);
	for (uint32_t turn = 0; at < n; turn++) {
		const uint32_t rows = n - at < 7 + turn ? n - at : 7 + turn;
		for (uint32_t s = 3; s < 33; s++) {
			if (s % 10 == 4)
				driver_add_run(d, s / 10, at, rows, false);
			if (s % 3)
				driver_add_run(d, s, 2 + s % 5 + turn, 1, true);
		}
		at += rows;
		cr_assert_eq(driver_step(d), 0, "%s", d->why.text);
		for (uint32_t k = 0; k < KINDS; k++)
			take(d, k, &p[k], &out[k]);
	}
}

static void check_same(const struct pooled *a, const struct pooled *b, const char *compute, int kind)
{
	cr_assert_eq(a->n, b->n);
	cr_assert_gt(a->n, 0);
	cr_assert_arr_eq(a->last, b->last, sizeof a->last, "%s, kind %d", compute, kind);
	cr_assert_arr_eq(a->sums, b->sums, sizeof a->sums, "%s, kind %d", compute, kind);
}

Test(pool, has_the_same_bits_in_any_company_and_any_parts)
{
	static const char *const modes[] = {"f32", "bf16", "int16", "int8"};
	const size_t n_modes = strcmp(driver_device(), "cpu") ? 1 : 4;
	static struct pooled whole[KINDS], other, all[KINDS];
	const uint32_t n = driver_brief() ? 30 : 100;
	for (size_t m = 0; m < n_modes; m++) {
		struct driver d;
		struct params p[KINDS];
		open_model(&d, modes[m], 1, 0);
		for (int k = 0; k < KINDS; k++) {
			p[k] = params_of(kinds[k], ids, 3);
			alone(&d, tokens, n, n, &p[k], &whole[k]);
			alone(&d, tokens, n, 13, &p[k], &other);
			check_same(&whole[k], &other, modes[m], k);
		}
		driver_close(&d);
		open_model(&d, modes[m], 2, 0);
		in_company(&d, p, n, all);
		for (int k = 0; k < KINDS; k++)
			check_same(&whole[k], &all[k], modes[m], k);
		driver_close(&d);
	}
}

/* These logits equal those that the sampler uses. */
Test(pool, logits_are_the_samplers)
{
	struct driver d;
	static float logits[331];
	static struct pooled got;
	const struct params p = params_of(PARAMS_POOL_LOGITS, ids, 3),
			    greedy = params_of(PARAMS_POOL_NONE, NULL, 0);
	open_model(&d, "f32", 2, 0);
	alone(&d, tokens, 50, 50, &p, &got);
	cr_assert_eq(driver_prompt(&d, tokens, 50, 64, 50, &greedy), 0, "%s", d.why.text);
	cr_assert_eq(step_logits(d.step, 0, logits), 0);
	cr_assert_eq(got.n, 3);
	for (int i = 0; i < 3; i++)
		cr_expect_eq(got.last[i], logits[ids[i]]);
	driver_close(&d);
}

/* A plan has more pooled runs than the head takes rows, and more than the previous plan. */
Test(pool, many_runs_of_a_plan)
{
	struct driver d;
	static struct pooled one[KINDS], got;
	struct params p[KINDS];
	open_model(&d, "f32", 2, 0);
	for (int k = 0; k < KINDS; k++) {
		p[k] = params_of(kinds[k], ids, 3);
		alone(&d, tokens, 6, 6, &p[k], &one[k]);
	}
	for (uint32_t s = 0; s < 40; s++) {
		driver_seq(&d, s, tokens, 6, 6, 16, &p[s % KINDS]);
		driver_add_run(&d, s, 0, 6, false);
	}
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_pools, 40);
	for (uint32_t s = 0; s < 40; s++) {
		cr_expect_eq(d.result.pools[s].slot, s);
		memset(&got, 0, sizeof got);
		cr_assert(take(&d, s, &p[s % KINDS], &got));
		check_same(&one[s % KINDS], &got, "f32", (int)(s % KINDS));
	}
	driver_close(&d);
}

Test(pool, is_not_sampled_from)
{
	struct driver d;
	const struct params p = params_of(PARAMS_POOL_LAST, NULL, 0);
	struct params odd = params_of(PARAMS_POOL_LOGITS, ids, 3);
	open_model(&d, "f32", 2, 0);
	driver_seq(&d, 0, tokens, 6, 6, 16, &p);
	driver_add_run(&d, 0, 0, 6, true);
	cr_expect_eq(driver_step(&d), -EINVAL);
	cr_expect(strstr(d.why.text, "a sequence that is pooled is not sampled from"), "%s", d.why.text);
	for (int i = 0; i < 3; i++) {
		step_reset(d.step, 1, NULL);
		d.number = 0;
		odd.n_allowed = i == 0 ? 0 : i == 1 ? PARAMS_POOL_IDS_MAX + 1 : 3;
		odd.prompt_logprobs = i == 2 ? 0 : -1;
		driver_seq(&d, 0, tokens, 6, 6, 16, &odd);
		cr_expect_eq(driver_step(&d), -EINVAL);
		cr_expect(strstr(d.why.text, "pooled in a way that is not known"), "%s", d.why.text);
	}
	driver_close(&d);
}

/* In a group, rank 0 returns the pools. They differ slightly from one worker's, since partial rows are
 * added. */
Test(pool, of_a_group_are_rank_0s)
{
	struct driver d;
	static struct pooled one[KINDS], got;
	struct params p[KINDS];
	open_model(&d, "f32", 2, 0);
	for (int k = 0; k < KINDS; k++) {
		p[k] = params_of(kinds[k], ids, 3);
		alone(&d, tokens, 60, 60, &p[k], &one[k]);
	}
	driver_close(&d);
	open_model(&d, "f32", 1, 2);
	for (int k = 0; k < KINDS; k++) {
		alone(&d, tokens, 60, 25, &p[k], &got);
		cr_assert_eq(got.n, one[k].n);
		for (uint32_t i = 0; i < got.n; i++)
			cr_expect_float_eq(value(&got, &p[k], i, 60), value(&one[k], &p[k], i, 60),
					   strcmp(driver_device(), "cpu") ? 6e-2 : 1e-4);
		cr_expect_eq(d.peers[0].result.n_pools, 0);
	}
	driver_close(&d);
}
