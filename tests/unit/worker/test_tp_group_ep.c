/* Experts distributed over the ranks of a group: a row's bits do not depend on the batch, and stay the same
 * within a numerics class. test_tp.c compares with transformers. */
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>

enum { PROMPT = 37, NEW = 4, TOKENS = 48, OTHERS = 3, VOCAB_MAX = 512 };

struct ep_case {
	char model[24];
	uint32_t n_ranks;
	char compute[8];
};

struct trace {
	uint32_t tokens[NEW];
	float logits[NEW][VOCAB_MAX];
	char numerics[256];
};

/* A way to compute the same prompt. */
struct way {
	const char *name;
	uint32_t chunk, others, n_threads;
};

static struct bus_load load_of(const char *model, uint32_t n_ranks, bool ep)
{
	const char *dir = tiny_model(model);
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	struct bus_load load = driver_load(dir);
	load.max_rows = 64;
	load.max_slots = load.max_runs = OTHERS + 1;
	load.max_context = 64;
	load.n_ranks = n_ranks;
	load.ep = ep;
	load.n_threads = 1;
	return load;
}

/* Generate token by token, with `others` sequences of other lengths in the batch. */
static void generate(const struct ep_case *c, bool ep, const struct way *w, struct trace *out)
{
	struct driver d;
	struct params p;
	uint32_t tokens[TOKENS], pos[OTHERS + 1] = {0}, at = 0, n = 0;
	struct bus_load load = load_of(c->model, c->n_ranks, ep);
	snprintf(load.compute, sizeof load.compute, "%s", c->compute);
	load.n_threads = w->n_threads;
	params_init(&p);
	p.temperature = 0;
	memset(out, 0, sizeof *out);
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
	snprintf(out->numerics, sizeof out->numerics, "%s", d.ready.numerics);
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = (i * i * 31 + i * 7 + 5) % 330;
	driver_seq(&d, 0, tokens, PROMPT, PROMPT, 64, &p);
	for (uint32_t s = 1; s <= w->others; s++)
		driver_seq(&d, s, tokens + s, 1, 1, 64, &p);
	while (n < NEW) {
		const uint32_t rows = at >= PROMPT ? 1 : PROMPT - at < w->chunk ? PROMPT - at : w->chunk;
		for (uint32_t s = 1; s <= w->others; s++)
			driver_add_run(&d, s, pos[s]++, 1, true);
		driver_add_run(&d, 0, at, rows, at + rows >= PROMPT);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
		at += rows;
		if (at < PROMPT)
			continue;
		cr_assert_eq(step_logits(d.step, w->others, out->logits[n]), 0);
		out->tokens[n++] = d.result.tokens[w->others];
	}
	driver_close(&d);
}

ParameterizedTestParameters(ep, the_bits_of_a_row_are_its_own)
{
	/* On the emulated GPU. */
	static struct ep_case gpu_cases[] = {{"qwen2-moe", 2, "f32"}, {"qwen3-moe-awq", 2, "f32"}};
	static struct ep_case cases[] = {
		{"qwen2-moe", 2, "f32"},     {"qwen2-moe", 4, "int8"},   {"qwen3-moe-awq", 2, "int16"},
		{"qwen3-moe-awq", 4, "f32"}, {"gpt-oss-tp", 4, "int16"}, {"glm4-moe", 2, "bf16"},
	};
	if (strncmp(driver_device(), "cpu", 3) != 0)
		return cr_make_param_array(struct ep_case, gpu_cases, sizeof gpu_cases / sizeof gpu_cases[0]);
	return cr_make_param_array(struct ep_case, cases, sizeof cases / sizeof cases[0]);
}

ParameterizedTest(struct ep_case *c, ep, the_bits_of_a_row_are_its_own)
{
	static const struct way ways[] = {{"in chunks", 5, 0, 1},
					  {"among others", 17, OTHERS, 1},
					  {"by more threads", PROMPT, 0, 3},
					  {"a second time", PROMPT, 0, 1}};
	static struct trace want, got;
	generate(c, true, &(struct way){"", PROMPT, 0, 1}, &want);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		generate(c, true, &ways[i], &got);
		cr_expect(!memcmp(&want, &got, sizeof got), "%s of %u ranks in %s: %s", c->model, c->n_ranks,
			  c->compute, ways[i].name);
	}
}

Test(ep, is_a_numerics_class_of_its_own)
{
	static const struct ep_case c = {"qwen2-moe", 2, "f32"};
	static const struct way once = {"", PROMPT, 0, 1};
	static struct trace columns, whole;
	generate(&c, false, &once, &columns);
	generate(&c, true, &once, &whole);
	cr_expect(strstr(whole.numerics, " tp=2 ep"), "%s", whole.numerics);
	cr_expect(strstr(columns.numerics, " tp=2") && !strstr(columns.numerics, " ep"), "%s",
		  columns.numerics);
	cr_expect_arr_eq(columns.tokens, whole.tokens, sizeof whole.tokens);
	cr_expect(memcmp(columns.logits, whole.logits, sizeof whole.logits),
		  "sums of columns have the bits of sums of experts: are these dealt out?");
}

Test(ep, ranks_hold_their_experts_and_nothing_of_the_others)
{
	struct driver whole, cut;
	struct bus_load load = load_of("qwen2-moe", 2, true);
	cr_assert_eq(driver_open(&whole, &load), 0, "%s", whole.why.text);
	load.ep = false;
	cr_assert_eq(driver_open(&cut, &load), 0, "%s", cut.why.text);
	/* Two layers of 5 experts, of which the ranks have 3 and 2. Stored in F32: 3 matrices of 64 x 56. */
	const uint64_t expert = 2 * 3 * 64 * 56 * 4;
	const struct bus_ready *r = &whole.peers[0].ready;
	const struct bus_ready *even = &cut.peers[0].ready; /* equals rank 0 but for the vocabulary */
	cr_expect_eq(whole.ready.stored_bytes - r->stored_bytes,
		     expert + cut.ready.stored_bytes - even->stored_bytes);
	cr_expect_geq(whole.ready.weights_bytes - r->weights_bytes, /* 16 bits on a GPU */
		      expert / 2 + cut.ready.weights_bytes - even->weights_bytes);
	cr_expect_eq(whole.ready.stored_bytes + r->stored_bytes, cut.ready.stored_bytes + even->stored_bytes);
	driver_close(&whole);
	driver_close(&cut);
}

/* ---- refused loads ---- */

static void refused(const char *model, uint32_t n_ranks, const char *reason)
{
	struct bus_load load = load_of(model, n_ranks, true);
	const struct step_args a = {.device = driver_device(), .load = &load};
	struct step *s;
	struct why why = {""};
	cr_expect_eq(step_open(&s, &a, NULL, &why), -EINVAL, "%s", why.text);
	cr_expect(strstr(why.text, reason), "\"%s\" does not say \"%s\"", why.text, reason);
}

Test(ep, what_cannot_be_is_refused_by_name)
{
	refused("llama3", 2, "the model is no mixture of experts");
	refused("qwen2-moe", 1, "give --tp N");
	refused("mixtral", 8, "--tp 8 --ep");
}

/* One rank has whole experts, the other has parts of all. Sums of both would lack some experts and count
 * others twice. */
Test(ep, ranks_of_both_kinds_form_no_group)
{
	struct bus_load loads[2] = {load_of("qwen2-moe", 2, true), load_of("qwen2-moe", 2, false)};
	struct driver peer = {0}, d = {.peers = &peer, .n_ranks = 2};
	struct driver_rank ranks[2];
	struct tp_group_rendezvous *mine;
	cr_assert_eq(tp_group_rendezvous_new(&mine, driver_device(), loads[0].rendezvous, &d.why), 0);
	for (uint32_t i = 0; i < 2; i++) {
		memcpy(loads[i].rendezvous, loads[0].rendezvous, sizeof loads[i].rendezvous);
		loads[i].rank = i;
		ranks[i] = (struct driver_rank){.load = loads[i], .mine = i ? NULL : &mine};
	}
	cr_expect_eq(driver_all(&d, ranks), -EINVAL);
	cr_expect(strstr(d.why.text, "must be alike") && strstr(d.why.text, " ep"), "%s", d.why.text);
	tp_group_rendezvous_free(mine);
	cr_expect(step_serves(d.step, &loads[0]) && !step_serves(d.peers[0].step, &loads[0]));
	loads[0].ep = false;
	cr_expect(!step_serves(d.step, &loads[0]));
	step_close(peer.step);
	d.n_ranks = 0;
	d.peers = NULL;
	driver_close(&d);
}
