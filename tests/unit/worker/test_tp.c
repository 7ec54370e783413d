/* Tensor parallelism: groups agree with the references of a single worker. Also: refused splits, agreement
 * between ranks, and the loss of a rank. */
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <math.h>

/* As in test_model.c: operands of F32, or of BF16 or F16 on a GPU; float16 transformers errs by f16. */
static float tolerance(const struct driver *d, double f16)
{
	if (strncmp(d->ready.numerics, "cuda", 4) != 0)
		return 2e-3f;
	return strstr(d->ready.numerics, "bf16") ? 0.2f : fmaxf(3e-2f, (float)(2 * f16));
}

static double margin_min(const struct driver *d)
{
	return 2.5 * (double)tolerance(d, 0);
}

struct tp_case {
	char name[32];
	uint32_t n_ranks;
};

/* All types of weights, biases in all layers, tied and separate heads, KV heads split and replicated,
 * vocabularies that no number of ranks divides. */
static struct tp_case cases[] = {
	{"qwen3-tied", 2},     {"qwen3-window", 2},
	{"qwen3-window", 4},   {"qwen3-types", 4},
	{"qwen3-awq-g32", 2},  {"qwen3-awq-g32", 4},
	{"llama-awq-even", 2}, {"qwen2-yarn", 2},
	{"llama2-even", 2},    {"llama2-even", 4},
	{"llama3", 2},         {"llama3", 4},
	{"llama3", 8},         {"llama-longrope", 2},
	{"mistral", 2},        {"mistral-params", 4},
	{"olmo2", 2},          {"olmo2", 4},
	{"smollm3", 2},        {"phi3-awq-g32", 2},
	{"phi3-longrope", 4},  {"glm", 2},
	{"glm4", 4},           {"gemma2", 2},
	{"gemma2", 4},         {"gemma3", 2},
	{"gemma3-text", 8},    {"qwen3-moe", 2},
	{"qwen3-moe-awq", 2},  {"qwen2-moe", 4},
	{"mixtral", 2},        {"olmoe", 4},
	{"glm4-moe", 2},       {"gpt-oss-tp", 2},
	{"gpt-oss-tp", 4},
};

/* Whole experts per rank: uneven numbers, experts that cannot be split, shared experts, biases, groups. A GPU
 * runs the first three. */
static struct tp_case ep_cases[] = {
	{"qwen3-moe", 2}, {"qwen2-moe", 2}, {"qwen3-moe-awq", 4}, {"qwen2-moe", 4},  {"mixtral", 4},
	{"olmoe", 2},     {"glm4-moe", 2},  {"gpt-oss", 2},       {"gpt-oss-tp", 4},
};

/* On the emulated GPU. */
static struct tp_case gpu_cases[] = {
	{"qwen3-awq-g32", 2},
	{"qwen3-moe", 2},
	{"qwen3-moe-awq", 2},
	{"qwen2-moe", 2},
};

static bool on_cpu(void)
{
	const char *device = getenv("QUERN_TEST_DEVICE");
	return !device || !*device || strncmp(device, "cpu", 3) == 0;
}

/* ---- compared with transformers ---- */

static json_t *golden(const char *name)
{
	static json_t *all;
	struct why why;
	if (!all)
		cr_assert_eq(json_read(repofile("tests/golden/models.json"), 4 << 20, &all, &why), 0, "%s",
			     why.text);
	for (size_t i = json_array_size(all); i--;)
		if (strcmp(json_string_value(json_get(json_array_get(all, i), "name")), name) == 0)
			return json_array_get(all, i);
	cr_assert_fail("no golden case %s", name);
	return NULL;
}

static void check_row(struct driver *d, const json_t *expected, int stride, const struct tp_case *c,
		      float most_off)
{
	static float logits[1 << 16];
	size_t worst = 0;
	float most = 0;
	cr_assert_eq(step_logits(d->step, 0, logits), 0);
	for (size_t i = 0; i < json_array_size(expected); i++) {
		float e = fabsf(logits[i * (size_t)stride] -
				(float)json_number_value(json_array_get(expected, i)));
		if (!(e <= most)) {
			most = e;
			worst = i;
		}
	}
	cr_expect(most <= most_off, "%s of %u ranks: logit %zu differs by %g", c->name, c->n_ranks,
		  worst * (size_t)stride, most);
}

static void check_greedy(struct driver *d, uint32_t at, const json_t *c, const struct tp_case *tp)
{
	uint32_t n;
	uint32_t *want = json_ids(json_get(c, "greedy"), &n);
	for (uint32_t i = 0; i < n; i++) {
		if (json_number_value(json_array_get(json_get(c, "margins"), i)) < margin_min(d))
			break;
		cr_assert_eq(d->result.tokens[0], want[i], "%s of %u ranks: token %u", tp->name, tp->n_ranks,
			     i);
		driver_add_run(d, 0, at + i, 1, true);
		if (i + 1 < n)
			cr_assert_eq(driver_step(d), 0, "%s", d->why.text);
	}
	free(want);
}

static struct bus_load load_of(const struct tp_case *c)
{
	const char *dir = tiny_model(c->name);
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	struct bus_load load = driver_load(dir);
	load.n_ranks = c->n_ranks;
	load.n_threads = 1;
	return load;
}

static void check_agrees(const struct tp_case *c, bool ep)
{
	const json_t *g = golden(c->name);
	struct bus_load load = load_of(c);
	struct driver d;
	struct params p;
	uint32_t n;
	load.ep = ep;
	load.max_context = (uint32_t)json_integer_value(json_get(g, "context"));
	cr_assert_eq(driver_open(&d, &load), 0, "%s of %u ranks: %s", c->name, c->n_ranks, d.why.text);
	params_init(&p);
	p.temperature = 0;
	uint32_t *prompt = json_ids(json_get(g, "prompt"), &n);
	cr_assert_eq(driver_prompt(&d, prompt, n, load.max_context, 23, &p), 0, "%s", d.why.text);
	check_row(&d, json_get(g, "logits"), (int)json_integer_value(json_get(g, "stride")), c,
		  tolerance(&d, json_number_value(json_object_get(g, "f16"))));
	check_greedy(&d, n, g, c);
	/* All ranks report the same pool sizes and numerics class. */
	for (uint32_t r = 1; r < c->n_ranks; r++) {
		cr_expect_eq(d.peers[r - 1].ready.n_blocks, d.ready.n_blocks);
		cr_expect_eq(d.peers[r - 1].ready.n_host_blocks, d.ready.n_host_blocks);
		cr_expect_str_eq(d.peers[r - 1].ready.numerics, d.ready.numerics);
	}
	free(prompt);
	driver_close(&d);
}

ParameterizedTestParameters(tp, agrees_with_transformers)
{
	if (!on_cpu())
		return cr_make_param_array(struct tp_case, gpu_cases, sizeof gpu_cases / sizeof gpu_cases[0]);
	return cr_make_param_array(struct tp_case, cases, sizeof cases / sizeof cases[0]);
}

ParameterizedTest(struct tp_case *c, tp, agrees_with_transformers)
{
	check_agrees(c, false);
}

ParameterizedTestParameters(tp, whole_experts_agree_with_transformers)
{
	const size_t n = sizeof ep_cases / sizeof ep_cases[0];
	return cr_make_param_array(struct tp_case, ep_cases, on_cpu() ? n : 3);
}

ParameterizedTest(struct tp_case *c, tp, whole_experts_agree_with_transformers)
{
	check_agrees(c, true);
}

/* Forms of layers that the tiny models above do not have: parallel blocks, layer norms, FFNs without gates,
 * biases, learned positions, heads with weights of their own, factors. */
static struct tp_case family_cases[] = {
	{"cohere2", 2}, {"stablelm", 2}, {"gpt2", 2}, {"phi", 2},     {"apertus", 2},
	{"granite", 2}, {"nemotron", 2}, {"gpt2", 4}, {"cohere2", 4}, {"hunyuan_v1_dense", 2},
};

ParameterizedTestParameters(tp, families_agree_with_transformers)
{
	const size_t n = sizeof family_cases / sizeof *family_cases;
	return cr_make_param_array(struct tp_case, family_cases, on_cpu() ? n : 1);
}

/* Compare the greedy tokens of each prompt, unless the reference itself is undecided. */
static void check_prompts(struct driver *d, const json_t *all, const struct tp_case *c)
{
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *one = json_array_get(all, i);
		uint32_t n, n_ids;
		uint32_t *prompt = json_ids(json_get(one, "prompt"), &n),
			 *ids = json_ids(json_get(one, "ids"), &n_ids);
		struct params p;
		params_init(&p);
		p.temperature = 0;
		cr_assert_eq(driver_prompt(d, prompt, n, n + n_ids, 23, &p), 0, "%s: %s", c->name,
			     d->why.text);
		for (uint32_t k = 0; k < n_ids; k++) {
			const double margin = json_number_value(json_array_get(json_get(one, "margins"), k));
			if (margin < margin_min(d))
				break;
			cr_assert_eq(d->result.tokens[0], ids[k], "%s of %u ranks: token %u", c->name,
				     c->n_ranks, k);
			driver_add_run(d, 0, n + k, 1, true);
			cr_assert_eq(driver_step(d), 0, "%s: %s", c->name, d->why.text);
		}
		free(prompt);
		free(ids);
	}
}

ParameterizedTest(struct tp_case *c, tp, families_agree_with_transformers)
{
	const char *root = testdata("families");
	char dir[4096], path[4200];
	struct why why;
	struct driver d;
	json_t *all;
	if (!root)
		cr_skip_test("families is not here");
	snprintf(dir, sizeof dir, "%s/%s", root, c->name);
	snprintf(path, sizeof path, "%s/reference.json", dir);
	cr_assert_eq(json_read(path, 4 << 20, &all, &why), 0, "%s", why.text);
	struct bus_load load = driver_load(dir);
	load.n_ranks = c->n_ranks;
	load.n_threads = 1;
	load.max_context = 256;
	cr_assert_eq(driver_open(&d, &load), 0, "%s of %u ranks: %s", c->name, c->n_ranks, d.why.text);
	check_prompts(&d, all, c);
	json_decref(all);
	driver_close(&d);
}

/* ALiBi's slopes of a rank's heads, sinks, a bias in some layers, experts averaged with the shared one. */
static struct tp_case class_cases[] = {
	{"bloom", 2}, {"falcon-rw", 4},         {"mpt", 2},
	{"flint", 2}, {"gpt-neox-japanese", 2}, {"cohere2-moe", 2},
};

ParameterizedTestParameters(tp, classes_agree_with_transformers)
{
	const size_t n = sizeof class_cases / sizeof *class_cases;
	return cr_make_param_array(struct tp_case, class_cases, on_cpu() ? n : 1);
}

ParameterizedTest(struct tp_case *c, tp, classes_agree_with_transformers)
{
	const char *dir = tiny_class(c->name);
	struct why why;
	struct driver d;
	json_t *all, *one, *mine = json_array();
	size_t i;
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	cr_assert_eq(json_read(repofile("tests/golden/classes.json"), 4 << 20, &all, &why), 0, "%s",
		     why.text);
	json_array_foreach(all, i, one)
	{
		if (strcmp(json_string_value(json_get(one, "name")), c->name) != 0)
			continue;
		json_object_set(one, "ids", json_object_get(one, "greedy"));
		json_array_append(mine, one);
	}
	cr_assert_eq(json_array_size(mine), 1);
	struct bus_load load = driver_load(dir);
	load.n_ranks = c->n_ranks;
	load.n_threads = 1;
	load.max_context = 128;
	cr_assert_eq(driver_open(&d, &load), 0, "%s of %u ranks: %s", c->name, c->n_ranks, d.why.text);
	check_prompts(&d, mine, c);
	json_decref(mine);
	json_decref(all);
	driver_close(&d);
}

/* ---- memory of a rank ---- */

static struct bus_ready ready_of(const char *name, uint32_t n_ranks)
{
	struct tp_case c = {.n_ranks = n_ranks};
	struct driver d;
	snprintf(c.name, sizeof c.name, "%s", name);
	struct bus_load load = load_of(&c);
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
	struct bus_ready r = d.ready;
	driver_close(&d);
	return r;
}

Test(tp, a_rank_holds_its_part_of_the_weights_and_of_the_cache)
{
	const char *const names[] = {"qwen3-awq-g32", "llama3", "mistral"};
	for (size_t i = 0; i < 3; i++) {
		struct bus_ready one = ready_of(names[i], 1), two = ready_of(names[i], 2);
		double share = (double)two.weights_bytes / (double)one.weights_bytes;
		cr_expect(share > 0.4 && share < 0.65, "%s: %g of the weights", names[i], share);
		cr_expect_eq(two.block_bytes * 2, one.block_bytes);
		cr_expect_eq(two.n_blocks, 2 * one.n_blocks, "the same bytes hold twice the blocks");
		cr_expect_eq(two.n_vocab, one.n_vocab);
	}
}

Test(tp, the_fingerprint_names_the_number_of_ranks)
{
	struct bus_ready one = ready_of("llama3", 1), two = ready_of("llama3", 2),
			 four = ready_of("llama3", 4);
	cr_expect_null(strstr(one.numerics, "tp"));
	cr_expect(strstr(two.numerics, " tp=2"), "%s", two.numerics);
	cr_expect(strstr(four.numerics, " tp=4"), "%s", four.numerics);
	cr_expect_eq(strncmp(one.numerics, two.numerics, strlen(one.numerics)), 0);
}

/* ---- refused splits ---- */

static void refused(const char *name, uint32_t n_ranks, const char *reason, const char *possible)
{
	struct tp_case c = {.n_ranks = n_ranks};
	struct driver d;
	snprintf(c.name, sizeof c.name, "%s", name);
	struct bus_load load = load_of(&c);
	int rc = driver_open(&d, &load);
	cr_expect_eq(rc, -EINVAL, "%s of %u ranks: %d", name, n_ranks, rc);
	cr_expect(strstr(d.why.text, reason), "\"%s\" does not say \"%s\"", d.why.text, reason);
	cr_expect(strstr(d.why.text, possible), "\"%s\" does not say \"%s\"", d.why.text, possible);
	driver_close(&d);
}

Test(tp, a_dimension_that_cannot_be_cut_is_named)
{
	refused("qwen3-tied", 4, "num_attention_heads is 6, not a multiple of 4", "possible: --tp 1, 2, 6");
	refused("qwen3-odd", 7, "intermediate_size is 100, not a multiple of 7", "possible: --tp 1");
	refused("llama2", 3, "intermediate_size is 104, not a multiple of 3", "possible: --tp 1");
	refused("qwen3-awq-g64", 2,
		"the 320 inputs of model.layers.0.mlp.down_proj cannot be cut into 2 parts of whole groups "
		"of 64",
		"possible: --tp 1");
	refused("llama-awq-even", 4,
		"the 176 outputs of model.layers.0.mlp.up_proj cannot be cut into 4 parts of whole words of "
		"8",
		"possible: --tp 1, 2");
	refused("llama3", 3, "--tp 3: num_attention_heads is 8", "possible: --tp 1, 2, 4, 8");
}

Test(tp, ranks_beyond_the_bound_are_refused)
{
	struct tp_case c = {"llama3", 65};
	struct bus_load load = load_of(&c);
	const struct step_args a = {.device = "cpu", .load = &load};
	struct step *s;
	struct why why;
	cr_expect_eq(step_open(&s, &a, NULL, &why), -EINVAL);
	load.n_ranks = 2;
	load.rank = 2;
	cr_expect_eq(step_open(&s, &a, NULL, &why), -EINVAL);
	cr_expect(strstr(why.text, "rank 2 of 2"), "%s", why.text);
}

/* ---- agreement ---- */

/* Open two ranks with different loads. */
static int open_two(struct driver *d, struct bus_load *loads)
{
	static struct driver peers[1];
	struct driver_rank ranks[2];
	struct tp_group_rendezvous *mine;
	memset(d, 0, sizeof *d);
	memset(peers, 0, sizeof peers);
	d->peers = peers;
	d->n_ranks = 2;
	cr_assert_eq(tp_group_rendezvous_new(&mine, driver_device(), loads[0].rendezvous, &d->why), 0);
	for (uint32_t i = 0; i < 2; i++) {
		memcpy(loads[i].rendezvous, loads[0].rendezvous, sizeof loads[i].rendezvous);
		loads[i].rank = i;
		ranks[i] = (struct driver_rank){.load = loads[i], .mine = i ? NULL : &mine};
	}
	int rc = driver_all(d, ranks);
	tp_group_rendezvous_free(mine);
	return rc;
}

static void close_two(struct driver *d)
{
	step_close(d->peers[0].step);
	result_fini(&d->peers[0].result);
	d->n_ranks = 0;
	d->peers = NULL;
	driver_close(d);
}

Test(tp, ranks_agree_on_the_least_of_their_pools)
{
	struct tp_case c = {"llama3", 2};
	struct bus_load loads[2] = {load_of(&c), load_of(&c)};
	struct driver d;
	loads[1].kv_bytes /= 3;
	loads[0].swap_bytes /= 2;
	cr_assert_eq(open_two(&d, loads), 0, "%s", d.why.text);
	cr_expect_eq(d.ready.n_blocks, loads[1].kv_bytes / d.ready.block_bytes);
	cr_expect_eq(d.ready.n_host_blocks, loads[0].swap_bytes / d.ready.block_bytes);
	cr_expect_eq(d.peers[0].ready.n_blocks, d.ready.n_blocks);
	cr_expect_eq(d.peers[0].ready.n_host_blocks, d.ready.n_host_blocks);
	cr_expect_eq(step_limits(d.step)->n_blocks, d.ready.n_blocks);
	close_two(&d);
}

Test(tp, ranks_of_different_kinds_are_refused)
{
	struct tp_case c = {"llama3", 2};
	struct bus_load loads[2] = {load_of(&c), load_of(&c)};
	struct driver d;
	loads[1].max_rows = 77;
	cr_expect_eq(open_two(&d, loads), -EINVAL);
	cr_expect(strstr(d.why.text, "must be alike") && strstr(d.why.text, "rows 77"), "%s", d.why.text);
	close_two(&d);
}

/* ---- losing a rank ---- */

static uint32_t first_token(struct driver *d, uint64_t epoch)
{
	uint32_t prompt[50];
	struct params p;
	struct driver_rank ranks[DRIVER_RANKS] = {0};
	params_init(&p);
	p.temperature = 0;
	for (uint32_t i = 0; i < 50; i++)
		prompt[i] = (i * 29 + 3) % 331;
	d->next_block = 0;
	driver_seq(d, 0, prompt, 50, 50, 64, &p);
	driver_add_run(d, 0, 0, 50, true);
	d->plan.epoch = epoch;
	d->plan.number = 1;
	for (uint32_t i = 0; i < d->n_ranks; i++)
		ranks[i].plan = &d->plan;
	cr_assert_eq(driver_all(d, ranks), 0, "%s", d->why.text);
	plan_reset(&d->plan);
	return d->result.tokens[0];
}

Test(tp, a_group_that_lost_a_rank_meets_again_with_its_weights)
{
	struct tp_case c = {"llama3", 2};
	struct bus_load loads[2] = {load_of(&c), load_of(&c)};
	struct tp_group_rendezvous *mine;
	struct driver d;
	const struct step *kept;
	cr_assert_eq(open_two(&d, loads), 0, "%s", d.why.text);
	kept = d.step;
	uint32_t want = first_token(&d, 1);
	step_leave(d.peers[0].step);
	cr_expect(!step_joined(d.peers[0].step) && step_joined(d.step));
	/* The remaining rank detects the loss in its next step and ignores the plan after it. */
	struct params params;
	params_init(&params);
	driver_seq(&d, 0, (const uint32_t[]){1, 2, 3}, 3, 3, 16, &params);
	driver_add_run(&d, 0, 0, 3, false);
	d.plan.epoch = 1;
	d.plan.number = 2;
	cr_expect_eq(step_run(d.step, &d.plan, &d.result, &d.why), -ECONNRESET);
	cr_expect(strstr(d.why.text, "rank 1"), "%s", d.why.text);
	cr_expect(!step_joined(d.step));
	d.plan.number = 3;
	cr_expect_eq(step_run(d.step, &d.plan, &d.result, &d.why), -ESTALE);
	plan_reset(&d.plan);
	/* Let both ranks form a new group. */
	struct driver_rank ranks[2] = {0};
	char rendezvous[BUS_RENDEZVOUS_SIZE];
	cr_assert_eq(tp_group_rendezvous_new(&mine, driver_device(), rendezvous, &d.why), 0);
	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct driver_rank){.load = loads[i], .mine = i ? NULL : &mine, .again = true};
		ranks[i].load.epoch = 2;
		snprintf(ranks[i].load.rendezvous, sizeof ranks[i].load.rendezvous, "%s", rendezvous);
	}
	cr_assert_eq(driver_all(&d, ranks), 0, "%s", d.why.text);
	tp_group_rendezvous_free(mine);
	cr_expect_eq(d.step, kept);
	cr_expect_eq(d.ready.epoch, 2);
	cr_expect_eq(first_token(&d, 2), want);
	close_two(&d);
}

Test(tp, one_rank_serves_only_its_own_place)
{
	struct tp_case c = {"llama3", 2};
	struct bus_load loads[2] = {load_of(&c), load_of(&c)}, other;
	struct driver d;
	cr_assert_eq(open_two(&d, loads), 0, "%s", d.why.text);
	other = loads[0];
	other.epoch = 9;
	snprintf(other.rendezvous, sizeof other.rendezvous, "elsewhere");
	cr_expect(step_serves(d.step, &other));
	other.rank = 1;
	cr_expect(!step_serves(d.step, &other));
	other.rank = 0;
	other.n_ranks = 1;
	cr_expect(!step_serves(d.step, &other));
	close_two(&d);
}

/* ---- log-probabilities ---- */

/* Prompt log-probabilities take many rows of logits, in groups; rank 0 returns all of them. */
Test(tp, prompt_logprobs_are_rank_0s)
{
	struct tp_case c = {"llama3", 4};
	struct bus_load load = load_of(&c);
	struct driver d;
	struct params p;
	uint32_t tokens[100];
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
	params_init(&p);
	p.prompt_logprobs = 2;
	p.logprobs = 0;
	p.temperature = 0;
	for (uint32_t i = 0; i < 100; i++)
		tokens[i] = (i * 17 + 3) % 331;
	cr_assert_eq(driver_prompt(&d, tokens, 100, 128, 100, &p), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_logprobs, 100);
	for (uint32_t i = 0; i < 99; i++)
		cr_expect(d.result.logprobs[i].prompt && d.result.logprobs[i].token == tokens[i + 1] &&
			  d.result.logprobs[i].logprob <= 0 && d.result.logprobs[i].n_top == 2);
	for (uint32_t r = 1; r < 4; r++)
		cr_expect_eq(d.peers[r - 1].result.n_logprobs + d.peers[r - 1].result.n_tokens, 0);
	driver_close(&d);
}
