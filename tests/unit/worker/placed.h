/* placed.h - generates with a mixture of experts: attention runs on the emulated GPU, and an option places
 * the experts. For the tests of host_experts.h and prefetch.h. */
#ifndef QUERN_TESTS_UNIT_WORKER_PLACED_H
#define QUERN_TESTS_UNIT_WORKER_PLACED_H

#include "formats/place/hot.h"
#include "formats/place/placement.h"
#include "tests/driver.h"

#include <math.h>

enum { PROMPT = 37, NEW = 5, TOKENS = 48, OTHERS = 3, VOCAB_MAX = 512 };

struct placed {
	char model[24];
	char place[48]; /* a placement with one of the two expert layers on the CPU */
	char compute[8];
	float tolerance; /* relative to the largest logit */
};

struct trace {
	uint32_t tokens[NEW];
	float logits[NEW][VOCAB_MAX];
	char numerics[256];
};

static uint32_t prompt[TOKENS];
static bool placed_unsized __attribute__((unused));  /* the KV pool takes the remaining memory */
static bool placed_fast __attribute__((unused));     /* --fast, for steps opened from now on */
static uint64_t placed_sent __attribute__((unused)); /* step_sent() of the last generate() */
static struct bus_ready ready;                       /* of the last opened step */

/* Called before the first model: a process opens the table once. */
DRIVER_FN void emulate(void)
{
	const char *library = builtfile("lib/libquern-cudasim.so");
	if (access(library, R_OK))
		cr_skip_test("the emulated CUDA device is not built; make cudasim-tests");
	setenv("QUERN_CUDA_LIBRARY", library, 1);
	setenv("QUERN_TEST_DEVICE", "cuda:0", 1);
	for (uint32_t i = 0; i < TOKENS; i++)
		prompt[i] = (i * i * 31 + i * 7 + 5) % 330;
}

DRIVER_FN void open_placed(struct driver *d, const char *model, const char *place)
{
	const char *dir = tiny_model(model);
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	struct bus_load load = driver_load(dir);
	load.max_rows = 40;
	load.kv_bytes = placed_unsized ? 0 : load.kv_bytes;
	load.fast = placed_fast;
	load.max_slots = load.max_runs = OTHERS + 1;
	load.max_context = 64;
	driver_place = place;
	cr_assert_eq(driver_open(d, &load), 0, "%s", d->why.text);
	ready = d->ready;
}

/* Write expert counts as a service of the model would: every expert of a layer has rows, the last one
 * most. */
DRIVER_FN void write_counts(const char *model, char *path, size_t n)
{
	struct model_config c;
	cr_assert_eq(model_config_load(tiny_model(model), &c, NULL), 0);
	snprintf(path, n, "/tmp/quern-test-counts-%d", (int)getpid());
	FILE *f = fopen(path, "w");
	cr_assert(f);
	for (int l = 0; l < c.n_layers; l++)
		for (int e = 0; c.layers[l].sparse && e < c.experts.n; e++)
			fprintf(f,
				"quern:expert_layer_rows_total{model_name=\"m\",layer=\"%d\",expert=\"%d\"} "
				"%d\n",
				l, e, 10 * e + l);
	fclose(f);
	model_config_fini(&c);
}

DRIVER_FN void note(struct driver *d, struct trace *t, uint32_t n, uint32_t i)
{
	cr_assert_eq(step_logits(d->step, i, t->logits[n]), 0);
	t->tokens[n] = d->result.tokens[i];
}

/* Generate from the prompt in chunks, then token by token, with `others` sequences of other lengths in the
 * batch. */
DRIVER_FN void generate(const struct placed *c, const char *place, uint32_t chunk, uint32_t others,
			struct trace *out)
{
	struct driver d;
	struct params p;
	uint32_t tokens[TOKENS], pos[OTHERS + 1] = {0}, at = 0, n = 0;
	params_init(&p);
	p.temperature = 0;
	open_placed(&d, c->model, place);
	memset(out, 0, sizeof *out);
	snprintf(out->numerics, sizeof out->numerics, "%s", d.ready.numerics);
	memcpy(tokens, prompt, sizeof tokens);
	driver_seq(&d, 0, tokens, PROMPT, PROMPT, 64, &p);
	for (uint32_t s = 1; s <= others; s++)
		driver_seq(&d, s, prompt + s, 1, 1, 64, &p);
	while (n < NEW) {
		const uint32_t rows = at >= PROMPT ? 1 : PROMPT - at < chunk ? PROMPT - at : chunk;
		for (uint32_t s = 1; s <= others; s++)
			driver_add_run(&d, s, pos[s]++, 1, true);
		driver_add_run(&d, 0, at, rows, at + rows >= PROMPT);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
		at += rows;
		if (at >= PROMPT)
			note(&d, out, n++, others);
	}
	placed_sent = step_sent(d.step);
	driver_close(&d);
}

/* Compare the first logits; return the largest difference. */
DRIVER_FN float check_close(const struct trace *a, const struct trace *b, float tolerance)
{
	float most = 0, off = 0;
	for (uint32_t i = 0; i < VOCAB_MAX; i++) {
		most = fmaxf(most, fabsf(a->logits[0][i]));
		off = fmaxf(off, fabsf(a->logits[0][i] - b->logits[0][i]));
	}
	cr_expect(off <= tolerance * most, "logits up to %g differ by %g", (double)most, (double)off);
	return off;
}

DRIVER_FN void check_near(const struct trace *a, const struct trace *b, float tolerance)
{
	cr_expect(check_close(a, b, tolerance) > 0,
		  "the CPU's experts have the bits of the GPU's: are they used?");
}

#endif
