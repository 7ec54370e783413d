/* Host experts streamed to the emulated GPU for steps of many rows give the bits of GPU-resident experts;
 * below the threshold, those of the CPU. */
#include "worker/experts/prefetch.h"
#include "tests/cudasim/cudasim.h"
#include "tests/kernels/experts_test.h"
#include "tests/unit/worker/placed.h"

#include <criterion/parameterized.h>
#include <limits.h>

TestSuite(prefetch, .init = emulate, .timeout = 240);

/* ---- single layers ---- */

enum { LAYERS = 5, STEPS = 3, ROWS = 20, CHOSEN = 2, HIDDEN = 128 };

/* Layers of different kinds, sizes and numbers of experts; the last is not the largest. */
static void layers_new(struct xt_set *sets)
{
	static const struct xt_kind kinds[LAYERS] = {{KERN_AWQ4, 32, false, KERN_SILU},
						     {KERN_F16, 0, true, KERN_SILU},
						     {KERN_CODES, KT_Q8_0, false, KERN_SILU},
						     {KERN_F16, 0, false, KERN_GELU_TANH},
						     {KERN_CODES, KT_Q4_0, true, KERN_SILU}};
	for (int i = 0; i < LAYERS; i++)
		xt_set_new(&sets[i], 4 + i % 3, kinds[i], HIDDEN, i % 2 ? 96 : 64);
	xt_set_kind(&sets[3], 2, kinds[0]);
}

/* The input rows of all layers, on the device. Each row uses two of a layer's four experts. */
static struct kern_moe_args rows_put(struct kt *t, struct xt_rows *r, const struct xt_set *s)
{
	const size_t picks = (size_t)ROWS * CHOSEN * 4;
	xt_rows_new(t, r, s, ROWS, CHOSEN, XT_EVEN);
	return (struct kern_moe_args){.in = r->op,
				      .expert = kt_put(t, r->expert, picks),
				      .weight = kt_put(t, r->weight, picks),
				      .begin = kt_put(t, r->begin, (size_t)ROWS * HIDDEN * 4),
				      .begin_by = kt_put(t, r->begin_by, (size_t)ROWS * 4)};
}

static void open_table(struct kt *t)
{
	kt_open_any(t, 0, (struct kt_size){.rows = ROWS});
}

static const struct kern_ops *real;
static struct kern_stream *step_stream; /* NULL: a copy runs when the step waits for it */

/* Copies run as early as possible: finished when they are queued, with their dependencies. */
static int record_early(struct kern_event *e, struct kern_stream *s)
{
	int rc = real->event_record(e, s);
	return rc || !step_stream || s == step_stream ? rc : real->stream_sync(s);
}

/* Steps are queued at once: each layer's experts are present from their copy to their computation. */
Test(prefetch, layers_take_turns_in_two_slots)
{
	enum { BYTES = ROWS * HIDDEN * 4 };
	static struct xt_set sets[LAYERS];
	static float want[LAYERS][ROWS * HIDDEN], got[ROWS * HIDDEN];
	struct kt t;
	struct xt_rows r;
	struct kern_info before, after;
	void *out[STEPS][LAYERS];
	open_table(&t);
	layers_new(sets);
	struct kern_moe_args a = rows_put(&t, &r, &sets[0]);
	struct kern_ops ops = *t.ops;
	real = t.ops;
	ops.event_record = record_early;
	for (int i = 0; i < STEPS * LAYERS; i++)
		out[i / LAYERS][i % LAYERS] = kt_new(&t, BYTES);
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct prefetch *p;
		const struct kern_experts *x;
		struct why why = {""};
		int place;
		kt_seed(seed);
		step_stream = seed % 2 ? NULL : t.s;
		t.ops->info(t.dev, &before);
		cr_assert_eq(prefetch_open(&p, &ops, t.dev, LAYERS, &why), 0, "%s", why.text);
		for (int i = 0; i < LAYERS; i++) {
			struct kern_experts *loaded = xt_load(&t, &sets[i], CHOSEN);
			xt_run(&t, loaded, &r, ROWS, CHOSEN, want[i]);
			cr_assert_eq(prefetch_add(p, &loaded, &place, &why), 0, "%s", why.text);
			cr_assert(place == i && !loaded);
		}
		cr_assert_eq(prefetch_ready(p, &why), 0, "%s", why.text);
		for (int n = 0; n < STEPS; n++) {
			cr_assert_eq(prefetch_begin(p), 0);
			for (int i = 0; i < LAYERS; i++) {
				a.out = out[n][i];
				cr_assert_eq(prefetch_take(p, t.s, i, &x), 0);
				cr_assert_eq(t.ops->moe(t.s, x, &a, ROWS), 0);
				cr_assert_eq(prefetch_give(p, t.s, i), 0);
			}
		}
		for (int i = 0; i < STEPS * LAYERS; i++) {
			kt_get(&t, got, out[i / LAYERS][i % LAYERS], BYTES);
			kt_same(got, want[i % LAYERS], ROWS * HIDDEN, "a layer that took its turn");
		}
		prefetch_close(p);
		t.ops->info(t.dev, &after);
		cr_expect_leq(after.bytes_used - before.bytes_used, 8 << 20, "scratch of the first alone");
	}
	for (int i = 0; i < LAYERS; i++)
		xt_set_fini(&sets[i]);
	xt_rows_fini(&t, &r);
	kt_close(&t);
}

static bool no_host, no_device;

static void *host_new(struct kern_dev *d, size_t bytes)
{
	return no_host ? NULL : real->host_new(d, bytes);
}

static void *mem_new(struct kern_dev *d, size_t bytes)
{
	return no_device ? NULL : real->mem_new(d, bytes);
}

Test(prefetch, memory_that_is_short_is_named)
{
	struct kt t;
	struct xt_set s;
	struct prefetch *p;
	struct why why = {""};
	int place;
	open_table(&t);
	real = t.ops;
	struct kern_ops ops = *real;
	ops.host_new = host_new;
	ops.mem_new = mem_new;
	xt_set_new(&s, 4, (struct xt_kind){KERN_F16, 0, false, KERN_SILU}, HIDDEN, 64);
	cr_assert_eq(prefetch_open(&p, &ops, t.dev, 2, &why), 0);
	struct kern_experts *x = xt_load(&t, &s, CHOSEN);
	no_host = true;
	cr_expect_eq(prefetch_add(p, &x, &place, &why), -ENOMEM);
	cr_expect(strstr(why.text, "196608 bytes of pinned memory"), "%s", why.text);
	cr_expect_null(x);
	no_host = false;
	x = xt_load(&t, &s, CHOSEN);
	cr_assert_eq(prefetch_add(p, &x, &place, &why), 0, "%s", why.text);
	cr_expect_eq(prefetch_host_bytes(p), 196608);
	no_device = true;
	cr_expect_eq(prefetch_ready(p, &why), -ENOMEM);
	cr_expect(strstr(why.text, "1 x 196608 bytes on the device"), "%s",
		  why.text); /* one layer takes one slot */
	prefetch_close(p);
	xt_set_fini(&s);
	kt_close(&t);
}

Test(prefetch_figures, host_memory_has_room_for_both_copies)
{
	struct prefetch_room r = {100 << 20, 50 << 20, 150 << 20, 293};
	struct why why = {""};
	cr_expect_eq(prefetch_check_room(&r, &why), 0, "%s", why.text);
	r.free--;
	cr_expect_eq(prefetch_check_room(&r, &why), -ENOMEM);
	cr_expect(strstr(why.text,
			 "take 100 MiB, and 50 MiB of pinned memory for the copy that --fast streams to "
			 "the GPU in steps of more than 293 rows") &&
			  strstr(why.text, "but only 149 are free") &&
			  strstr(why.text, "--send-experts-above 0"),
		  "%s", why.text);
}

/* The threshold at 4 bits; it grows with more threads and wider weights. */
Test(prefetch_figures, rows_that_pay_follow_from_the_shape)
{
	const struct prefetch_shape m = {128, 8, 0.52, 16, false};
	struct prefetch_shape o = m;
	cr_expect_eq(prefetch_crossover(&m), 293); /* 18.3 rows per expert */
	o.n_threads = 32;
	cr_expect_eq(prefetch_crossover(&o), 586);
	o = m;
	o.weight_bytes = 2;
	cr_expect_eq(prefetch_crossover(&o), 1127);
	o = m;
	o.n_chosen = 16;
	cr_expect_eq(prefetch_crossover(&o), 147);
	o = m;
	o.amx = true;
	cr_expect_eq(prefetch_crossover(&o), 1265);
	o.weight_bytes = 1e12;
	cr_expect_eq(prefetch_crossover(&o), INT_MAX);
}

/* ---- models ---- */

ParameterizedTestParameters(prefetch, long_prompts_have_the_bits_of_the_gpu)
{
	static struct placed cases[] = {
		{"qwen2-moe", "layers.3.experts=cpu", "f32", 5e-3f},
		{"qwen3-moe-awq", "layers.1.experts=cpu", "int16", 5e-3f},
		{"glm4-moe", "layers.2.experts=cpu", "int8", 5e-2f},
		{"gpt-oss", PLACEMENT_EXPERTS_CPU, "f32", 5e-2f},
	};
	return cr_make_param_array(struct placed, cases, sizeof cases / sizeof cases[0]);
}

/* Compare the logits after the prompt. */
static void check_first(const struct trace *a, const struct trace *b, const char *what)
{
	cr_expect(!memcmp(a->logits[0], b->logits[0], sizeof a->logits[0]), "%s", what);
}

static void check_all(const struct trace *a, const struct trace *b, const char *what)
{
	cr_expect(!memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
			  !memcmp(a->logits, b->logits, sizeof a->logits),
		  "%s", what);
}

ParameterizedTest(struct placed *c, prefetch, long_prompts_have_the_bits_of_the_gpu)
{
	static struct trace gpu, cpu, got;
	driver_experts_compute = c->compute;
	generate(c, NULL, PROMPT, 0, &gpu);
	for (int i = 0; i < 2; i++) {
		const char *place = i ? c->place : PLACEMENT_EXPERTS_CPU;
		placed_fast = false;
		generate(c, place, PROMPT, 0, &cpu);
		cr_expect_eq(placed_sent, 0);
		placed_fast = true;
		driver_send_above = PROMPT - 1;
		generate(c, place, PROMPT, 0, &got);
		cr_expect_eq(placed_sent, 1);
		check_first(&got, &gpu, "a prompt of more rows");
		check_near(&got, &cpu, c->tolerance);
		cr_expect(strstr(got.numerics, " fast ") && !strstr(cpu.numerics, " fast "), "%s",
			  got.numerics);
		driver_send_above = PROMPT;
		generate(c, place, PROMPT, 0, &got);
		cr_expect_eq(placed_sent, 0);
		check_all(&got, &cpu, "a prompt of as many rows");
		/* Chunks of 16, 16 and 5 rows, each with 3 rows of others. */
		driver_send_above = 18;
		generate(c, place, 16, OTHERS, &got);
		cr_expect_eq(placed_sent, 2);
		check_close(&got, &cpu, c->tolerance); /* only the last layer: its result enters no K or V */
		driver_send_above = -1;
		generate(c, place, PROMPT, 0, &got);
		check_all(&got, &cpu, "never");
	}
}

Test(prefetch, hot_experts_stay_and_the_others_come)
{
	static const struct placed c = {"qwen2-moe", "layers.1.experts=cpu", "f32", 5e-3f};
	static struct trace gpu, got;
	char counts[64];
	generate(&c, NULL, PROMPT, 0, &gpu);
	write_counts(c.model, counts, sizeof counts);
	const struct hot_options hot = {true, 2 * 3 * 64 * 56 * 2, counts};
	driver_hot = &hot;
	placed_fast = true;
	driver_send_above = 30;
	generate(&c, c.place, PROMPT, 0, &got);
	cr_expect_eq(placed_sent, 1);
	cr_expect(strstr(got.numerics, " hot=2:"), "%s", got.numerics);
	/* Both sums are computed on the GPU, from different parts. */
	check_close(&got, &gpu, 1e-5f);
	unlink(counts);
}

/* A prompt in two plans, the second begun before the first is done: both stream experts, or only the
 * first. */
Test(prefetch, steps_begun_ahead_give_the_same)
{
	enum { FIRST = 20 };
	static const struct placed c = {"qwen3-moe", PLACEMENT_EXPERTS_CPU, "f32", 0};
	static struct trace want;
	static float got[VOCAB_MAX];
	const int above[] = {10, FIRST - 1};
	driver_experts_compute = c.compute;
	placed_fast = true;
	for (int i = 0; i < 2; i++) {
		struct driver d;
		struct params p;
		params_init(&p);
		driver_send_above = above[i];
		generate(&c, c.place, FIRST, 0, &want);
		open_placed(&d, c.model, c.place);
		driver_seq(&d, 0, prompt, PROMPT, PROMPT, 64, &p);
		for (uint32_t at = 0; at < PROMPT; at += FIRST) {
			const uint32_t rows = PROMPT - at < FIRST ? PROMPT - at : FIRST;
			driver_add_run(&d, 0, at, rows, at + rows == PROMPT);
			d.plan.epoch = driver_epoch;
			d.plan.number = ++d.number;
			cr_assert_eq(step_begin(d.step, &d.plan, &d.why), 0, "%s", d.why.text);
			plan_reset(&d.plan);
		}
		cr_expect_eq(step_in_flight(d.step), 2);
		while (step_in_flight(d.step))
			cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
		cr_assert_eq(step_logits(d.step, 0, got), 0);
		cr_expect(!memcmp(got, want.logits[0], sizeof got), "above %d", above[i]);
		cr_expect_eq(step_sent(d.step), i ? 1 : 2);
		driver_close(&d);
	}
}

/* Threshold by the shape: 2 bytes per weight, 2 threads, 3 of 5 experts. */
Test(prefetch, steps_of_more_rows_than_the_shape_says_send_experts)
{
	static const struct placed c = {"qwen2-moe", "", "f32", 0};
	static struct trace t;
	placed_fast = true;
	driver_experts_compute = "f32";
	generate(&c, PLACEMENT_EXPERTS_CPU, 15, 0, &t);
	cr_expect_eq(placed_sent, 0);
	generate(&c, PLACEMENT_EXPERTS_CPU, 16, 0, &t);
	cr_expect_eq(placed_sent, 2);
}

/* Host memory has a second copy, the device has slots for two layers; without steps of enough rows there is
 * neither. */
Test(prefetch, copies_and_slots_are_accounted_for)
{
	enum { LAYER = 5 * 3 * 64 * 56 * 2 };
	struct driver d[3];
	placed_fast = true;
	for (int i = 0; i < 3; i++) {
		driver_send_above = i == 0 ? -1 : i == 1 ? 39 : 40;
		open_placed(&d[i], "qwen2-moe", PLACEMENT_EXPERTS_CPU);
	}
	const uint64_t copies = d[1].ready.host_weights_bytes - d[0].ready.host_weights_bytes,
		       slots = d[1].ready.scratch_bytes - d[0].ready.scratch_bytes;
	cr_expect(copies >= 2 * LAYER && copies <= 3 * LAYER, "%llu", (unsigned long long)copies);
	cr_expect(slots >= 2 * LAYER, "%llu", (unsigned long long)slots);
	cr_expect_eq(d[1].ready.weights_bytes, d[0].ready.weights_bytes);
	cr_expect_eq(d[2].ready.host_weights_bytes, d[0].ready.host_weights_bytes);
	for (int i = 0; i < 3; i++)
		driver_close(&d[i]);
}

Test(prefetch, the_pool_has_what_the_slots_leave)
{
	enum { LAYER = 5 * 3 * 64 * 56 * 2 };
	uint64_t pool[2];
	placed_fast = placed_unsized = true;
	for (int i = 0; i < 2; i++) {
		struct driver d;
		driver_send_above = i ? 20 : -1;
		open_placed(&d, "qwen2-moe", PLACEMENT_EXPERTS_CPU);
		pool[i] = d.ready.kv_bytes;
		cr_expect_eq(step_sent(d.step), 0, "steps that were tried are not counted");
		driver_close(&d);
	}
	cr_expect(pool[0] - pool[1] >= 2 * LAYER && pool[0] - pool[1] < 20 * LAYER, "%llu and %llu",
		  (unsigned long long)pool[0], (unsigned long long)pool[1]);
}

/* Whichever allocation fails: there is a reason, and nothing stays allocated. */
Test(prefetch, a_device_that_is_too_small_is_refused)
{
	struct cudasim_counters (*stats)(void);
	void (*memory)(uint64_t, uint64_t);
	void *so = dlopen(getenv("QUERN_CUDA_LIBRARY"), RTLD_NOW);
	cr_assert(so);
	*(void **)&stats = dlsym(so, "cudasim_stats");
	*(void **)&memory = dlsym(so, "cudasim_memory");
	cr_assert(stats && memory);
	struct bus_load load = driver_load(tiny_model("qwen2-moe"));
	const struct step_args a = {
		.device = "cuda:0", .load = &load, .place = PLACEMENT_EXPERTS_CPU, .stream_above_rows = 30};
	struct driver d = {0};
	int named = 0, refused = 0;
	load.fast = true;
	load.max_rows = 40;
	load.max_slots = load.max_runs = 4;
	load.max_context = 64;
	load.kv_bytes = 1 << 20;
	cr_assert_eq(step_open(&d.step, &a, &d.ready, &d.why), 0, "%s", d.why.text);
	const uint64_t all = stats().live_bytes;
	step_close(d.step);
	const uint64_t none = stats().live_bytes;
	for (uint64_t less = 900 << 10; less < 1900 << 10; less += 48 << 10) {
		memory(all - less, 0);
		d.why.text[0] = 0;
		if (step_open(&d.step, &a, &d.ready, &d.why) == 0) {
			step_close(d.step);
		} else {
			refused++;
			named += strstr(d.why.text, "to the GPU for steps of more than 30 rows") != NULL;
			cr_expect(d.why.text[0]);
		}
		cr_expect_eq(stats().live_bytes, none);
	}
	cr_expect(named > 0 && refused > named, "%d of %d", named, refused);
}

/* Rows are counted in steps that stream experts and in steps that do not. */
Test(prefetch, rows_of_experts_that_come_are_counted_too)
{
	static const struct placed c = {"qwen2-moe", "", "f32", 0};
	static struct trace t;
	placed_fast = true;
	driver_send_above = 9;
	generate(&c, "layers.1.experts=cpu", 15, 0, &t);
	cr_expect_eq(placed_sent, 2);
	cr_expect_eq(atomic_load(&driver_experts.rows), 2 * (PROMPT + NEW - 1) * 3);
	const struct expert_cells *cells = atomic_load(&driver_experts.cells);
	uint64_t of_layers[4] = {0};
	for (uint32_t i = 0; i < cells->n; i++)
		of_layers[i / 5] += atomic_load(&cells->rows[i]);
	cr_expect_eq(of_layers[1], of_layers[3]);
	cr_expect_eq(of_layers[1] + of_layers[3], 2 * (PROMPT + NEW - 1) * 3);
}
