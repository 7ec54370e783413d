/* Host experts with an emulated GPU: each placement gives one result whatever else is in the batch, and all
 * placements give nearly the same. */
#include "formats/place/packed.h"
#include "tests/unit/worker/placed.h"

#include <criterion/parameterized.h>
#include <errno.h>

TestSuite(host_experts, .init = emulate, .timeout = 240);

ParameterizedTestParameters(host_experts, each_placement_gives_one_result)
{
	static struct placed cases[] = {
		/* Every second layer has a shared expert with a gate. */
		{"qwen2-moe", "layers.2-3.experts=cpu", "f32", 5e-3f},
		{"qwen3-moe-awq", "layers.1.experts=cpu", "int16", 5e-3f},
		/* A shared expert, expert groups, BF16. */
		{"glm4-moe", "layers.0-1.experts=cuda,*.experts=cpu", "int8", 5e-2f},
	};
	return cr_make_param_array(struct placed, cases, sizeof cases / sizeof cases[0]);
}

ParameterizedTest(struct placed *c, host_experts, each_placement_gives_one_result)
{
	enum { ON_GPU, ON_CPU, SOME, HOT, SOME_HOT, PLACES };
	static struct trace want[PLACES], got;
	const char *const places[] = {NULL, PLACEMENT_EXPERTS_CPU, c->place, PLACEMENT_EXPERTS_CPU, c->place};
	struct bus_ready as[PLACES];
	struct hot_options hot = {.given = true};
	char counts[64];
	driver_experts_compute = c->compute;
	write_counts(c->model, counts, sizeof counts);
	hot.counts = counts;
	for (int i = 0; i < PLACES; i++) {
		driver_hot = i >= HOT ? &hot : NULL;
		if (i >= HOT) /* half of the experts' bytes, and one byte that is of no use */
			hot.bytes =
				(int64_t)(as[ON_GPU].weights_bytes - as[i - HOT + ON_CPU].weights_bytes) / 2 +
				1;
		generate(c, places[i], PROMPT, 0, &want[i]);
		as[i] = ready;
		generate(c, places[i], 5, 0, &got);
		cr_expect(!memcmp(&want[i], &got, sizeof got), "placement %d: in chunks", i);
		generate(c, places[i], 17, OTHERS, &got);
		cr_expect(!memcmp(&want[i], &got, sizeof got), "placement %d: among others", i);
		for (int k = 0; k < i; k++) {
			check_near(&want[i], &want[k], c->tolerance);
			cr_expect_str_neq(want[i].numerics, want[k].numerics);
		}
		if (i < HOT)
			continue;
		const struct bus_ready *without = &as[i - HOT + ON_CPU];
		cr_expect(ready.weights_bytes > without->weights_bytes &&
			  ready.weights_bytes <= without->weights_bytes + (uint64_t)hot.bytes);
		cr_expect(ready.host_weights_bytes > 0 &&
			  ready.host_weights_bytes < without->host_weights_bytes);
		cr_expect(strstr(want[i].numerics, " hot="), "%s", want[i].numerics);
	}
	unlink(counts);
}

Test(host_experts, rows_of_hot_experts_are_counted_too)
{
	static const struct placed c = {"qwen2-moe", "layers.1.experts=cpu", "f32", 0};
	static struct trace t;
	char counts[64];
	write_counts(c.model, counts, sizeof counts);
	/* 2 of the layer's 5 experts, each with 3 matrices of 64 x 56 in 16 bits. */
	const struct hot_options hot = {true, 2 * 3 * 64 * 56 * 2, counts};
	driver_hot = &hot;
	generate(&c, c.place, PROMPT, 0, &t);
	cr_expect(strstr(t.numerics, " hot=2:"), "%s", t.numerics);
	cr_expect_eq(atomic_load(&driver_experts.rows), 2 * (PROMPT + NEW - 1) * 3);
	unlink(counts);
}

Test(host_experts, hot_experts_that_cannot_be_are_refused)
{
	struct driver d = {0};
	char counts[64];
	write_counts("qwen2-moe", counts, sizeof counts);
	struct bus_load load = driver_load(tiny_model("qwen2-moe"));
	struct hot_options hot = {true, (int64_t)1 << 50, counts};
	struct step_args a = {.device = "cuda:0", .load = &load, .place = PLACEMENT_EXPERTS_CPU, .hot = &hot};
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "of the device: give less"), "%s", d.why.text);
	hot.bytes = 2 * 5 * 3 * 64 * 56 * 2;
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "room for all experts"), "%s", d.why.text);
	hot.bytes = 100;
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "one expert takes 21504 on the device"), "%s", d.why.text);
	hot.bytes = 1 << 16;
	write_counts("glm4-moe", counts, sizeof counts);
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "another model"), "%s", d.why.text);
	unlink(counts);
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -ENOENT);
	cr_expect(strstr(d.why.text, counts), "%s", d.why.text);
	a.place = NULL;
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "--experts cpu or --place"), "%s", d.why.text);
}

/* Check the counts of a CPU layer and of a GPU layer; the device of each counts its rows. */
static void check_counts(const char *place)
{
	static const struct placed c = {"qwen2-moe", "", "f32", 0};
	static struct trace t;
	const uint64_t rows0 = atomic_load(&driver_experts.rows), reads0 = atomic_load(&driver_experts.reads),
		       busiest0 = atomic_load(&driver_experts.busiest);
	generate(&c, place, PROMPT, 0, &t);
	const uint64_t rows = atomic_load(&driver_experts.rows) - rows0,
		       reads = atomic_load(&driver_experts.reads) - reads0,
		       busiest = atomic_load(&driver_experts.busiest) - busiest0;
	const struct expert_cells *cells = atomic_load(&driver_experts.cells);
	uint64_t of_layers[4] = {0};
	cr_assert(cells && cells->n == 4 * 5 && cells->n_experts == 5);
	for (uint32_t i = 0; i < cells->n; i++)
		of_layers[i / 5] += atomic_load(&cells->rows[i]);
	/* Rows of the worker's trial steps and null rows of a graph are not counted. */
	cr_expect_eq(rows, 2 * (PROMPT + NEW - 1) * 3);
	cr_expect(of_layers[1] == rows / 2 && of_layers[3] == rows / 2, "%s", place);
	cr_expect_eq(of_layers[0] + of_layers[1] + of_layers[2] + of_layers[3], rows);
	cr_expect(reads >= 2 * NEW * 3 && reads <= 2 * (5 + (NEW - 1) * 3), "%llu",
		  (unsigned long long)reads);
	cr_expect(busiest >= rows / 5 && busiest <= 2 * (PROMPT + NEW - 1), "%llu",
		  (unsigned long long)busiest);
}

Test(host_experts, rows_of_experts_are_counted_wherever_they_are)
{
	check_counts("layers.1.experts=cpu");
	check_counts("*.experts=cpu");
	check_counts("*.experts=cuda");
}

Test(host_experts, host_memory_holds_the_experts_and_not_the_gpu)
{
	struct driver d[2];
	open_placed(&d[0], "qwen2-moe", NULL);
	open_placed(&d[1], "qwen2-moe", PLACEMENT_EXPERTS_CPU);
	/* 2 layers of 5 experts, each with 3 matrices of 64 x 56, which the GPU keeps in 16 bits. */
	const uint64_t experts = 2 * 5 * 3 * 64 * 56;
	cr_expect_geq(d[0].ready.weights_bytes - d[1].ready.weights_bytes, 2 * experts);
	cr_expect_geq(d[1].ready.host_weights_bytes, experts);
	cr_expect_eq(d[0].ready.host_weights_bytes, 0);
	driver_close(&d[0]);
	driver_close(&d[1]);
}

/* The worker compares this size with the free memory before it loads the experts. */
Test(host_experts, what_experts_take_is_known_before_they_are_loaded)
{
	static const char *const models[] = {"qwen2-moe", "qwen3-moe-awq", "glm4-moe"};
	for (int i = 0; i < 3; i++)
		for (int m = 0; m < PACKED_MODES; m++) {
			const char *dir = tiny_model(models[i]);
			struct model_config c;
			struct weights *w;
			struct driver d;
			int64_t bytes = 0;
			driver_experts_compute = packed_mode_name((enum packed_mode)m);
			open_placed(&d, models[i], PLACEMENT_EXPERTS_CPU);
			cr_assert_eq(model_config_load(dir, &c, NULL), 0);
			cr_assert_eq(weights_open(dir, &c, &w, NULL), 0);
			for (int l = 0; l < w->n_layers; l++)
				bytes += packed_experts(&w->layers[l], NULL, (enum packed_mode)m);
			cr_expect_eq((int64_t)d.ready.host_weights_bytes, bytes, "%s in %s: %lld, not %lld",
				     models[i], driver_experts_compute, (long long)bytes,
				     (long long)d.ready.host_weights_bytes);
			weights_close(w);
			model_config_fini(&c);
			driver_close(&d);
		}
}

Test(host_experts, what_cannot_be_is_refused)
{
	struct driver d = {0};
	struct bus_load load = driver_load(tiny_model("llama3"));
	struct step_args a = {.device = "cuda:0", .load = &load, .place = PLACEMENT_EXPERTS_CPU};
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "no mixture of experts"), "%s", d.why.text);
	load = driver_load(tiny_model("qwen2-moe"));
	load.n_ranks = 2;
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -ENOTSUP);
	cr_expect(strstr(d.why.text, "--tp"), "%s", d.why.text);
	load.n_ranks = 1;
	strcpy(load.experts_compute, "int4");
	cr_expect_eq(step_open(&d.step, &a, &d.ready, &d.why), -EINVAL);
	cr_expect(strstr(d.why.text, "experts on the CPU: compute mode int4"), "%s", d.why.text);
}
