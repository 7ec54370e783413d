/* The decoder compared with other implementations: tiny models with Hugging Face transformers
 * (tests/golden/models.json), trained and random models of the test data with a float64 reference. */
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>

/* Tolerance for logits of about 1, with operands of F32, or of F16 or BF16 on a GPU. */
static float tolerance(const struct driver *d)
{
	char compute[256], *kv;
	snprintf(compute, sizeof compute, "%s", d->ready.numerics);
	if ((kv = strstr(compute, " kv-")))
		*kv++ = '\0';
	/* Random weights are the worst case for int8: a layer's error is 1 to 2%. */
	if (strstr(compute, "int8"))
		return 0.45f;
	if (strstr(compute, "bf16"))
		return 0.2f;
	if (kv)
		return strstr(kv, "kv-int8") ? 0.2f : strstr(kv, "kv-bf16") ? 0.1f : 0.02f;
	if (strstr(compute, "int16"))
		return 2e-3f;
	if (strstr(d->ready.numerics, "fast"))
		return 2e-2f;
	return strstr(d->ready.numerics, "f16") ? 3e-2f : 2e-3f;
}

/* Tolerance for a model on which float16 transformers errs by f16 (0: not known). A device that rounds to F16
 * may err by twice that, since it rounds other steps. */
static float tolerance_of(const struct driver *d, double f16)
{
	const char *numerics = d->ready.numerics;
	const bool rounds = strncmp(numerics, "cuda", 4) == 0 && strstr(numerics, " f16");
	return rounds ? fmaxf(tolerance(d), (float)(2 * f16)) : tolerance(d);
}

/* Below this margin, rounding may change a greedy choice and all later tokens. */
static double margin_min(const struct driver *d)
{
	return 2.5 * (double)tolerance(d);
}

/* Modes of the CPU; a GPU has only the first, with its own types. */
static const struct {
	const char *compute, *kv;
} modes[] = {{"f32", "auto"},  {"int16", "f32"}, {"int16", "auto"}, {"int8", "auto"},
	     {"bf16", "auto"}, {"f32", "bf16"},  {"f32", "int16"},  {"f32", "int8"}};
enum { MODES = sizeof modes / sizeof modes[0] };

struct golden_case {
	int model, mode;
};

enum { CASES_MAX = 400, STORY_TOKENS = 48, BRIEF_TOKENS = 12 };

/* Return true if tests must take fewer steps: on the emulated device, and with AddressSanitizer, which looks
 * for faults of memory and not of values. */
static bool brief(void)
{
#ifdef __SANITIZE_ADDRESS__
	return !getenv("QUERN_TEST_LONG");
#else
	return driver_brief();
#endif
}

static uint32_t story_tokens(void)
{
	return brief() ? BRIEF_TOKENS : STORY_TOKENS;
}

static void check_row(struct driver *d, const json_t *expected, int stride, float most_off, const char *name,
		      const char *what)
{
	int n_vocab = step_config(d->step)->n_vocab;
	float *logits = malloc((size_t)n_vocab * sizeof *logits);
	size_t worst = 0;
	float most = 0;
	cr_assert_eq(step_logits(d->step, 0, logits), 0);
	cr_assert_eq((int)json_array_size(expected), (n_vocab + stride - 1) / stride, "%s", name);
	for (size_t i = 0; i < json_array_size(expected); i++) {
		float e = fabsf(logits[i * (size_t)stride] -
				(float)json_number_value(json_array_get(expected, i)));
		if (!(e <= most)) {
			most = e;
			worst = i;
		}
	}
	cr_expect(most <= most_off, "%s, %s: logit %zu differs by %g", name, what, worst * (size_t)stride,
		  most);
	free(logits);
}

/* Compare greedy tokens, one step each, until the reference itself is undecided; return the number
 * compared. */
static uint32_t check_greedy(struct driver *d, uint32_t at, const json_t *ids, const json_t *margins,
			     const char *name)
{
	uint32_t n;
	uint32_t *want = json_ids(ids, &n);
	if (brief() && n > BRIEF_TOKENS)
		n = BRIEF_TOKENS;
	for (uint32_t i = 0; i < n; i++) {
		double margin = margins ? json_number_value(json_array_get(margins, i)) : 2;
		if (margin < margin_min(d)) {
			n = i;
			break;
		}
		cr_assert_eq(d->result.n_tokens, 1);
		cr_assert_eq(d->result.tokens[0], want[i], "%s: token %u is %u, not %u (margin %g)", name, i,
			     d->result.tokens[0], want[i], margin);
		if (i + 1 == n)
			break;
		driver_add_run(d, 0, at + i, 1, true);
		cr_assert_eq(driver_step(d), 0, "%s: %s", name, d->why.text);
	}
	free(want);
	return n;
}

/* ---- tiny models ---- */

static json_t *golden_of(const char *file)
{
	struct why why;
	json_t *all = NULL;
	cr_assert_eq(json_read(repofile(file), 4 << 20, &all, &why), 0, "%s", why.text);
	return all;
}

static json_t *golden(void)
{
	return golden_of("tests/golden/models.json");
}

static void run_model(const json_t *c, const char *dir)
{
	const char *name = json_string_value(json_get(c, "name"));
	const int stride = (int)json_integer_value(json_get(c, "stride"));
	const uint32_t cut = (uint32_t)json_integer_value(json_get(c, "cut"));
	struct driver d;
	struct bus_load load = driver_load(dir);
	load.max_context = (uint32_t)json_integer_value(json_get(c, "context"));
	const int rc = driver_open(&d, &load);
	cr_assert_eq(rc, 0, "%s: %s", name, d.why.text);
	const float most_off = tolerance_of(&d, json_number_value(json_object_get(c, "f16")));
	struct params p;
	params_init(&p);
	p.temperature = 0;
	uint32_t n;
	uint32_t *prompt = json_ids(json_get(c, "prompt"), &n);
	cr_assert_eq(driver_prompt(&d, prompt, cut, cut + 1, cut, &p), 0, "%s: %s", name, d.why.text);
	check_row(&d, json_get(c, "logits_cut"), stride, most_off, name, "first tokens");
	cr_assert_eq(driver_prompt(&d, prompt, n, load.max_context, 23, &p), 0, "%s: %s", name, d.why.text);
	check_row(&d, json_get(c, "logits"), stride, most_off, name, "prompt");
	check_greedy(&d, n, json_get(c, "greedy"), json_get(c, "margins"), name);
	free(prompt);
	driver_close(&d);
}

static void run_case(const json_t *c)
{
	const char *dir = tiny_model(json_string_value(json_get(c, "name")));
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	run_model(c, dir);
}

ParameterizedTestParameters(model, agrees_with_transformers)
{
	static struct golden_case cases[CASES_MAX];
	json_t *all = golden();
	size_t n = 0;
	for (size_t i = 0; i < json_array_size(all); i++)
		for (size_t m = 0; m < (strcmp(driver_device(), "cpu") ? 1 : MODES); m++)
			/* Types of the KV cache do not depend on the family: a model has one of the four. */
			if (modes[m].kv[0] == 'a' || (i + m) % 4 == 0 || getenv("QUERN_TEST_LONG"))
				cases[n++] = (struct golden_case){(int)i, (int)m};
	json_decref(all);
	return cr_make_param_array(struct golden_case, cases, n);
}

ParameterizedTest(struct golden_case *c, model, agrees_with_transformers)
{
	json_t *all = golden();
	driver_compute = modes[c->mode].compute;
	driver_kv = modes[c->mode].kv;
	run_case(json_array_get(all, (size_t)c->model));
	json_decref(all);
}

/* Quantized weights: the reference dequantizes them with the packages that write them. */
ParameterizedTestParameters(model, quantized_weights_agree_with_transformers)
{
	static struct golden_case cases[CASES_MAX];
	json_t *all = golden_of("tests/golden/quant.json");
	size_t n = 0;
	for (size_t i = 0; i < json_array_size(all); i++)
		for (size_t m = 0; m < (strcmp(driver_device(), "cpu") ? 1 : MODES); m++)
			if (modes[m].kv[0] == 'a')
				cases[n++] = (struct golden_case){(int)i, (int)m};
	json_decref(all);
	return cr_make_param_array(struct golden_case, cases, n);
}

ParameterizedTest(struct golden_case *c, model, quantized_weights_agree_with_transformers)
{
	json_t *all = golden_of("tests/golden/quant.json");
	driver_compute = modes[c->mode].compute;
	driver_kv = modes[c->mode].kv;
	run_case(json_array_get(all, (size_t)c->model));
	json_decref(all);
}

/* GGUF files of the families that llama.cpp's code treats differently. */
ParameterizedTestParameters(model, families_in_gguf_agree_with_transformers)
{
	static struct golden_case cases[CASES_MAX];
	json_t *all = golden_of("tests/golden/gguf_family.json");
	size_t n = 0;
	for (size_t i = 0; i < json_array_size(all); i++)
		for (size_t m = 0; m < (strcmp(driver_device(), "cpu") ? 1 : MODES); m++)
			if (modes[m].kv[0] == 'a')
				cases[n++] = (struct golden_case){(int)i, (int)m};
	json_decref(all);
	return cr_make_param_array(struct golden_case, cases, n);
}

ParameterizedTest(struct golden_case *c, model, families_in_gguf_agree_with_transformers)
{
	json_t *all = golden_of("tests/golden/gguf_family.json");
	const json_t *one = json_array_get(all, (size_t)c->model);
	const char *path = tiny_gguf(json_string_value(json_get(one, "name")));
	if (!path)
		cr_skip_test("tiny models need Python with numpy");
	driver_compute = modes[c->mode].compute;
	driver_kv = modes[c->mode].kv;
	run_model(one, path);
	json_decref(all);
}

/* Classes of transformers that have no other model in the tests. */
ParameterizedTestParameters(model, classes_agree_with_transformers)
{
	static struct golden_case cases[CASES_MAX];
	json_t *all = golden_of("tests/golden/classes.json");
	size_t n = 0;
	for (size_t i = 0; i < json_array_size(all); i++)
		for (size_t m = 0; m < (strcmp(driver_device(), "cpu") ? 1 : MODES); m++)
			if (modes[m].kv[0] == 'a')
				cases[n++] = (struct golden_case){(int)i, (int)m};
	json_decref(all);
	return cr_make_param_array(struct golden_case, cases, n);
}

ParameterizedTest(struct golden_case *c, model, classes_agree_with_transformers)
{
	json_t *all = golden_of("tests/golden/classes.json");
	const json_t *one = json_array_get(all, (size_t)c->model);
	const char *dir = tiny_class(json_string_value(json_get(one, "name")));
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	driver_compute = modes[c->mode].compute;
	driver_kv = modes[c->mode].kv;
	run_model(one, dir);
	json_decref(all);
}

/* Every GGUF type and every format of quantized checkpoints in three families, in F32: logits within 1e-4 of
 * the largest, and all 64 tokens. `make check` runs each type or format once. */
static const char *const exact_files[] = {"tests/golden/gguf_models.json", "tests/golden/quant_forms.json"};

ParameterizedTestParameters(model, every_type_and_form_is_exact_in_f32)
{
	static struct golden_case cases[CASES_MAX];
	const bool all_families = getenv("QUERN_TEST_LONG") != NULL;
	if (strcmp(driver_device(), "cpu")) /* skipped there, and the goldens may be missing */
		return cr_make_param_array(struct golden_case, cases, 1);
	size_t n = 0;
	for (int file = 0; file < 2; file++) {
		json_t *all = golden_of(exact_files[file]);
		const int n_cases = (int)json_array_size(all);
		cr_assert(n_cases == (file ? 111 : 69));
		for (int i = 0; i < n_cases; i++)
			if (all_families || i % 3 == i / 3 % 3)
				cases[n++] = (struct golden_case){i, file};
		json_decref(all);
	}
	return cr_make_param_array(struct golden_case, cases, n);
}

static float largest_off(const struct driver *d, const json_t *expected, int stride, float *largest)
{
	const int n_vocab = step_config(d->step)->n_vocab;
	float *logits = malloc((size_t)n_vocab * sizeof *logits), off = 0;
	cr_assert_eq(step_logits(d->step, 0, logits), 0);
	cr_assert_eq((int)json_array_size(expected), (n_vocab + stride - 1) / stride);
	*largest = 0;
	for (int i = 0; i < n_vocab; i++)
		*largest = fmaxf(*largest, fabsf(logits[i]));
	for (int i = 0; i * stride < n_vocab; i++) {
		const float e = fabsf(logits[i * stride] -
				      (float)json_number_value(json_array_get(expected, (size_t)i)));
		off = !(e <= off) ? e : off;
	}
	free(logits);
	return off;
}

ParameterizedTest(struct golden_case *g, model, every_type_and_form_is_exact_in_f32)
{
	if (strcmp(driver_device(), "cpu"))
		cr_skip_test("a mode of the CPU");
	json_t *all = golden_of(exact_files[g->mode]);
	const json_t *c = json_array_get(all, (size_t)g->model);
	const char *name = json_string_value(json_get(c, "name"));
	const char *path = g->mode ? tiny_model(name) : tiny_gguf(name);
	const int stride = (int)json_integer_value(json_get(c, "stride"));
	struct driver d;
	struct params p;
	float largest;
	uint32_t n, n_tokens;
	if (!path)
		cr_skip_test("tiny models need Python with numpy");
	driver_compute = "f32";
	struct bus_load load = driver_load(path);
	load.max_context = (uint32_t)json_integer_value(json_get(c, "context"));
	cr_assert_eq(driver_open(&d, &load), 0, "%s: %s", name, d.why.text);
	params_init(&p);
	p.temperature = 0;
	uint32_t *prompt = json_ids(json_get(c, "prompt"), &n);
	uint32_t *tokens = json_ids(json_get(c, "greedy"), &n_tokens);
	cr_assert_eq(driver_prompt(&d, prompt, n, load.max_context, 23, &p), 0, "%s: %s", name, d.why.text);
	const float off = largest_off(&d, json_get(c, "logits"), stride, &largest);
	cr_expect(off <= 1e-4f * largest, "%s: off by %g of %g", name, off, largest);
	cr_expect_eq(n_tokens, 64);
	for (uint32_t i = 0; i < n_tokens; i++) {
		cr_assert_eq(d.result.tokens[0], tokens[i], "%s: token %u", name, i);
		driver_add_run(&d, 0, n + i, 1, true);
		cr_assert_eq(driver_step(&d), 0, "%s: %s", name, d.why.text);
	}
	free(prompt);
	free(tokens);
	driver_close(&d);
	json_decref(all);
}

Test(model, agrees_with_transformers_with_a_head_in_int8)
{
	json_t *all = golden();
	size_t n = json_array_size(all);
	if (strcmp(driver_device(), "cpu"))
		cr_skip_test("a type of the CPU");
	driver_head = "int8";
	for (size_t i = 0; i < n; i += getenv("QUERN_TEST_LONG") ? 1 : 4)
		run_case(json_array_get(all, i));
	json_decref(all);
}

Test(model, golden_cases_cover_every_family_and_scaling)
{
	json_t *all = golden();
	cr_expect_geq(json_array_size(all), 32);
	json_decref(all);
}

/* ---- families of the test data, as transformers saves them ---- */

enum { FAMILIES_MAX = 200 };

/* Return the number of directories with a model below `root`, sorted by name; names: at most FAMILIES_MAX. */
static int family_dirs(const char *root, char (*names)[64])
{
	struct dirent **entries;
	const int all = scandir(root, &entries, NULL, alphasort);
	int n = 0;
	for (int i = 0; i < all; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s/reference.json", root, entries[i]->d_name);
		if (n < FAMILIES_MAX && access(path, R_OK) == 0)
			snprintf(names[n++], sizeof names[0], "%.63s", entries[i]->d_name);
		free(entries[i]);
	}
	if (all >= 0)
		free(entries);
	return n;
}

/* QUERN_TEST_FAMILIES names another directory of such models, for F32 only. */
static const char *families_root(void)
{
	const char *set = getenv("QUERN_TEST_FAMILIES");
	return set && set[0] ? set : testdata("families");
}

/* Families that quern does not read yet: each is refused by name. */
static const char *const refused_families[] = {
	"deepseek_v3",      "falcon_h1",   "gemma3n",   "gemma4",   "glm4_moe_lite",
	"granitemoehybrid", "kimi_linear", "lfm2",      "lfm2_moe", "nemotron_h",
	"qwen3_5",          "qwen3_5_moe", "qwen3_next"};

static bool is_refused_family(const char *name)
{
	for (size_t i = 0; i < sizeof refused_families / sizeof *refused_families; i++)
		if (strcmp(name, refused_families[i]) == 0)
			return true;
	return false;
}

ParameterizedTestParameters(model, families_give_the_tokens_of_transformers)
{
	static struct golden_case cases[FAMILIES_MAX * MODES];
	static char names[FAMILIES_MAX][64];
	const char *root = families_root();
	const int n_dirs = root ? family_dirs(root, names) : 0;
	size_t n = 0;
	const bool one = strcmp(driver_device(), "cpu") != 0 || getenv("QUERN_TEST_FAMILIES");
	for (int i = 0; i < n_dirs; i++)
		for (size_t m = 0; m < (one ? 1 : MODES); m++)
			if (modes[m].kv[0] == 'a')
				cases[n++] = (struct golden_case){i, (int)m};
	return cr_make_param_array(struct golden_case, cases, n ? n : 1);
}

/* Return whether the first logits of a prompt and its greedy tokens are those of transformers; if they must
 * be, their difference is a failure.  Chunks of 23 tokens cross blocks and windows. */
static bool check_family(struct driver *d, const json_t *c, const char *name, bool must)
{
	struct params p;
	uint32_t n, n_ids;
	uint32_t *prompt = json_ids(json_get(c, "prompt"), &n), *ids = json_ids(json_get(c, "ids"), &n_ids);
	const bool exact = strcmp(driver_compute, "f32") == 0 && strcmp(driver_device(), "cpu") == 0;
	float largest = 0, most = 0;
	float *logits = malloc((size_t)step_config(d->step)->n_vocab * sizeof *logits);
	params_init(&p);
	p.temperature = 0;
	cr_assert_eq(driver_prompt(d, prompt, n, n + n_ids, 23, &p), 0, "%s: %s", name, d->why.text);
	cr_assert_eq(step_logits(d->step, 0, logits), 0);
	const json_t *first = json_get(c, "first_logits");
	for (size_t i = 0; i < json_array_size(first); i++) {
		const float want = (float)json_number_value(json_array_get(first, i));
		largest = fmaxf(largest, fabsf(want));
		most = fmaxf(most, fabsf(logits[i] - want));
	}
	free(logits);
	/* The tolerance is for logits of about 4, as the tiny models have. */
	const float allowed = tolerance(d) * fmaxf(1, largest / 4);
	bool good = most <= allowed;
	cr_expect(good || !must, "%s, %s: a prompt of %u tokens: a logit of at most %g differs by %g", name,
		  driver_compute, n, (double)largest, (double)most);
	if (brief() && n_ids > BRIEF_TOKENS)
		n_ids = BRIEF_TOKENS;
	for (uint32_t i = 0; i < n_ids; i++) {
		const double margin = json_number_value(json_array_get(json_get(c, "margins"), i));
		if (d->result.tokens[0] != ids[i]) {
			const bool close = margin < (exact ? 0.002 : 2.5 * (double)allowed);
			cr_expect(close || !must,
				  "%s, %s: a prompt of %u tokens: token %u is %u, not %u (margin %g)", name,
				  driver_compute, n, i, d->result.tokens[0], ids[i], margin);
			good = good && close;
			break;
		}
		driver_add_run(d, 0, n + i, 1, true);
		cr_assert_eq(driver_step(d), 0, "%s: %s", name, d->why.text);
	}
	free(prompt);
	free(ids);
	return good;
}

ParameterizedTest(struct golden_case *c, model, families_give_the_tokens_of_transformers)
{
	static char names[FAMILIES_MAX][64];
	const char *root = families_root();
	struct why why;
	char dir[4096], path[4200];
	struct driver d;
	json_t *all;
	if (!root || c->model >= family_dirs(root, names))
		cr_skip_test("families is not here");
	const char *name = names[c->model];
	snprintf(dir, sizeof dir, "%s/%s", root, name);
	snprintf(path, sizeof path, "%s/reference.json", dir);
	driver_compute = modes[c->mode].compute;
	driver_kv = modes[c->mode].kv;
	struct bus_load load = driver_load(dir);
	load.max_context = 256;
	const int rc = driver_open(&d, &load);
	if (is_refused_family(name)) {
		cr_assert_eq(rc, -ENOTSUP, "%s is not refused (%d): %s", name, rc, d.why.text);
		return;
	}
	cr_assert_eq(rc, 0, "%s: %s", name, d.why.text);
	cr_assert_eq(json_read(path, 4 << 20, &all, &why), 0, "%s", why.text);
	/* In a mode of lower precision a row of a mixture may get other experts, and then other logits. */
	const bool f32 = strcmp(driver_compute, "f32") == 0, must = f32 || !step_config(d.step)->experts.n;
	size_t n = 0, n_good = 0;
	/* The other modes have the second of each two prompts, the longer one. */
	for (size_t i = !f32; i < json_array_size(all) && (n < 2 || !brief()); i += f32 ? 1 : 2, n++)
		n_good += check_family(&d, json_array_get(all, i), name, must);
	cr_expect(2 * n_good >= n, "%s, %s: %zu of %zu prompts are those of transformers", name,
		  driver_compute, n_good, n);
	json_decref(all);
	driver_close(&d);
}

/* ---- references of the test data ---- */

static json_t *reference(const char *file)
{
	const char *path = testdata(file);
	struct why why;
	json_t *o = NULL;
	if (!path)
		cr_skip_test("%s is not here", file);
	cr_assert_eq(json_read(path, 4 << 20, &o, &why), 0, "%s", why.text);
	return o;
}

static uint32_t run_reference(const char *dir, const json_t *c, const char *logits, const json_t *margins)
{
	struct driver d;
	const char *path = testdata(dir);
	if (!path)
		cr_skip_test("%s is not here", dir);
	struct bus_load load = driver_load(path);
	cr_assert_eq(driver_open(&d, &load), 0, "%s: %s", dir, d.why.text);
	struct params p;
	params_init(&p);
	p.temperature = 0;
	uint32_t n;
	uint32_t *prompt = json_ids(json_get(c, "prompt_ids"), &n);
	cr_assert_eq(driver_prompt(&d, prompt, n, n + 64, 256, &p), 0, "%s: %s", dir, d.why.text);
	check_row(&d, json_get(c, logits), 1, tolerance(&d), dir, "prompt");
	uint32_t compared = check_greedy(&d, n, json_get(c, "greedy_ids"), margins, dir);
	free(prompt);
	driver_close(&d);
	return compared;
}

Test(model, stories_f32_tells_the_reference_story)
{
	json_t *o = reference("weights/stories260K-reference.json");
	cr_expect_eq(run_reference("weights/stories260K-hf-f32", json_get(o, "hf-f32"), "first_logits", NULL),
		     story_tokens());
	json_decref(o);
}

Test(model, stories_f32_tells_the_reference_story_in_int16)
{
	if (strcmp(driver_device(), "cpu"))
		cr_skip_test("a mode of the CPU");
	driver_compute = "int16";
	driver_kv = "f32";
	json_t *o = reference("weights/stories260K-reference.json");
	cr_expect_eq(run_reference("weights/stories260K-hf-f32", json_get(o, "hf-f32"), "first_logits", NULL),
		     story_tokens());
	json_decref(o);
}

Test(model, stories_bf16_tells_the_reference_story_in_bf16)
{
	if (strcmp(driver_device(), "cpu"))
		cr_skip_test("a mode of the CPU");
	driver_compute = "bf16";
	json_t *o = reference("weights/stories260K-reference.json");
	run_reference("weights/stories260K-hf-bf16", json_get(o, "hf-bf16"), "first_logits", NULL);
	json_decref(o);
}

Test(model, stories_bf16_tells_the_reference_story)
{
	json_t *o = reference("weights/stories260K-reference.json");
	cr_expect_eq(
		run_reference("weights/stories260K-hf-bf16", json_get(o, "hf-bf16"), "first_logits", NULL),
		story_tokens());
	json_decref(o);
}

/* GGUF files of the story model; references computed from the dequantized weights. */
Test(model, stories_in_gguf_tell_the_reference_stories)
{
	static const char *const types[] = {"f32", "f16", "q8_0", "q4_0"};
	json_t *o = reference("weights/stories260K-reference.json");
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		char path[128];
		snprintf(path, sizeof path, "weights/stories260K-gguf/stories260K-%s.gguf", types[i]);
		cr_expect_eq(run_reference(path, json_get(o, types[i]), "first_logits", NULL),
			     story_tokens());
	}
	json_decref(o);
}

static void run_tiny_references(const char *name, const char *dir)
{
	json_t *o = reference("weights/tiny-reference.json");
	const json_t *list = json_get(o, name);
	cr_assert_geq(json_array_size(list), 3);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *c = json_array_get(list, i);
		run_reference(dir, c, "logits_after_prompt", json_get(c, "margins"));
	}
	json_decref(o);
}

Test(model, tiny_qwen3_agrees_with_float64)
{
	run_tiny_references("tiny_qwen3", "weights/tiny-random/tiny_qwen3");
}

Test(model, tiny_llama3_agrees_with_float64)
{
	run_tiny_references("tiny_llama3", "weights/tiny-random/tiny_llama3");
}

Test(model, tiny_mistral_agrees_with_float64)
{
	run_tiny_references("tiny_mistral", "weights/tiny-random/tiny_mistral");
}

Test(model, tiny_qwen3_awq_agrees_with_float64)
{
	run_tiny_references("tiny_qwen3-awq-w4g32", "weights/tiny_qwen3-awq-w4g32");
}
