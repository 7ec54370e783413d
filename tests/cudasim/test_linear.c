/* The CUDA linear layers in the emulator: against double precision, and their bits against each
 * other, whatever the number of rows and whoever computes them. */
#include "tests/cudasim/cuda_test.h"
#include "tests/cudasim/linear_plan.h"

struct kind {
	enum kern_dtype dtype;
	int group;
};

static const struct kind kinds[] = {
	{KERN_F16, 0},   {KERN_BF16, 0},   {KERN_F32, 0},  {KERN_AWQ4, 32},
	{KERN_AWQ4, 64}, {KERN_AWQ4, 128}, {KERN_AWQ4, 0},
};
/* A real device has the time for more. */
#ifdef QUERN_CUDASIM
enum { N_KINDS = sizeof kinds / sizeof kinds[0], MAX_ROWS = 300 };
#else
enum { N_KINDS = sizeof kinds / sizeof kinds[0], MAX_ROWS = 4096 };
#endif

/* ---- a device and its memory ---- */

static struct kt sim_open(bool bf16)
{
	char why[256] = "";
	const struct kern_open_args a = {
		.index = 0,
		.compute = bf16 ? KERN_COMPUTE_BF16 : KERN_COMPUTE_F32,
		.max_rows = MAX_ROWS,
		.max_seqs = 1,
		.max_logits = 1,
		.max_context = 16,
		.max_blocks_per_seq = 1,
	};
	struct kt t = {.ops = &kern_cuda_ops, .isa = bf16 ? "cuda bf16" : "cuda f16"};
	int e = t.ops->open(&t.dev, &a, why, sizeof why);
	cr_assert(e == 0, "%s", why);
	t.s = t.ops->stream_new(t.dev);
	return t;
}

struct dev_mem {
	void *p;
	size_t bytes;
};

static struct dev_mem dev_new(struct kt *t, size_t bytes, const void *from)
{
	struct dev_mem m = {.p = t->ops->mem_new(t->dev, bytes), .bytes = bytes};
	cr_assert(m.p);
	if (from) {
		cr_assert_eq(t->ops->upload(t->s, m.p, from, bytes), 0);
		cr_assert_eq(t->ops->stream_sync(t->s), 0);
	}
	return m;
}

static void dev_free(struct kt *t, struct dev_mem m)
{
	t->ops->mem_free(t->dev, m.p, m.bytes);
}

static void dev_get(struct kt *t, void *to, struct dev_mem m, size_t bytes)
{
	cr_assert_eq(t->ops->download(t->s, to, m.p, bytes), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
}

static bool is_bf16(const struct kt *t)
{
	return t->isa[5] == 'b';
}

static float widen(const struct kt *t, uint16_t h)
{
	return is_bf16(t) ? half_from_bf16(h) : half_from_f16(h);
}

/* ---- rows, and what they give ---- */

struct rows {
	int n, k;
	uint16_t *h; /* operand type */
	float *f;    /* the same */
	struct dev_mem dev;
};

static struct rows rows_new(struct kt *t, int n, int k)
{
	const size_t all = (size_t)n * (size_t)k;
	struct rows x = {.n = n, .k = k, .h = xmalloc(all * 2), .f = xmalloc(all * sizeof(float))};
	for (size_t i = 0; i < all; i++) {
		x.h[i] = kt_half(is_bf16(t) ? KERN_BF16 : KERN_F16);
		x.f[i] = widen(t, x.h[i]);
	}
	x.dev = dev_new(t, all * 2, x.h);
	return x;
}

static void rows_free(struct kt *t, struct rows *x)
{
	free(x->h);
	free(x->f);
	dev_free(t, x->dev);
}

static const void *row_at(const struct rows *x, int r)
{
	return (const uint16_t *)x->dev.p + (size_t)r * (size_t)x->k;
}

/* How far a weight of the layer may be from the one that was given: it is kept in the operand type. */
static double weight_error(const struct kt *t, enum kern_dtype d)
{
	if (d == KERN_AWQ4 || (d == KERN_BF16) == is_bf16(t) ? d != KERN_F32 : false)
		return 0;
	return is_bf16(t) ? 0x1p-8 : 0x1p-11;
}

/* y = x w^T + bias in double, and how far it may be off. */
static void reference(struct kt *t, const struct kt_part *p, const struct rows *x, double *y, double *tol)
{
	const double off = weight_error(t, p->part.dtype) + 2e-6;
	for (int r = 0; r < x->n; r++)
		for (int c = 0; c < p->part.n; c++) {
			double sum = p->bias ? (double)((const float *)p->bias)[c] : 0, size = fabs(sum);
			for (int i = 0; i < x->k; i++) {
				double v = (double)x->f[r * x->k + i] *
					   (double)p->f[(size_t)c * (size_t)x->k + (size_t)i];
				sum += v;
				size += fabs(v);
			}
			y[r * p->part.n + c] = sum;
			tol[r * p->part.n + c] = size * off + 1e-9;
		}
}

static void run(struct kt *t, const struct kern_linear *w, struct dev_mem out, const void *in, int rows)
{
	cr_assert_eq(t->ops->linear(t->s, w, out.p, in, rows, true), 0);
}

/* ---- against double precision ---- */

static void check_reference(struct kt *t, struct kind kind, int k, int n, int rows)
{
	char what[128];
	const int group = kind.group ? kind.group : k;
	const size_t all = (size_t)rows * (size_t)n;
	struct kt_part p = kt_part(kind.dtype, k, n, group, (k + rows) % 2);
	struct kern_linear *w = kt_load(t, k, group, &(struct kt_part *){&p}, 1);
	struct rows x = rows_new(t, rows, k);
	struct dev_mem out = dev_new(t, all * sizeof(float), NULL);
	float *y = xmalloc(all * sizeof *y);
	double *ref = xmalloc(all * sizeof *ref), *tol = xmalloc(all * sizeof *tol);
	run(t, w, out, x.dev.p, rows);
	dev_get(t, y, out, out.bytes);
	reference(t, &p, &x, ref, tol);
	snprintf(what, sizeof what, "%s: %s group %d, %d rows, %d x %d", t->isa, kt_dtype_name(kind.dtype),
		 group, rows, k, n);
	kt_near(y, ref, tol, all, what);
	cr_assert(t->ops->linear_bytes(w) > 0);
	t->ops->linear_free(w);
	dev_free(t, out);
	rows_free(t, &x);
	kt_part_fini(&p);
	free(y);
	free(ref);
	free(tol);
}

static void check_shapes(bool bf16)
{
	static const int shapes[][2] = {{1, 8},     {7, 16},    {64, 64},  {172, 176}, {200, 40},
					{256, 136}, {296, 264}, {600, 72}, {1088, 24}};
	static const int rows[] = {1, 3, 8, 9, 16, 17, 31, 33, 64, 70, 129};
	struct kt t = sim_open(bf16);
	for (int d = 0; d < N_KINDS; d++)
		for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
			for (size_t r = (s + (size_t)d) % 4; r < sizeof rows / sizeof rows[0]; r += 4)
				check_reference(&t, kinds[d], shapes[s][0], shapes[s][1], rows[r]);
	kt_close(&t);
}

Test(cuda_linear, matches_a_double_precision_reference_in_f16)
{
	check_shapes(false);
}

Test(cuda_linear, matches_a_double_precision_reference_in_bf16)
{
	check_shapes(true);
}

Test(cuda_linear, takes_odd_numbers_of_inputs_and_outputs)
{
	static const int outputs[] = {1, 3, 15, 17, 33, 65, 129};
	static const int inputs[] = {1, 5, 37, 63, 65, 135};
	struct kt t = sim_open(false);
	for (size_t o = 0; o < sizeof outputs / sizeof outputs[0]; o++)
		for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
			check_reference(&t, kinds[(o + i) % 3], inputs[i], outputs[o], 1 + 7 * (int)(o + i));
	kt_close(&t);
}

Test(cuda_linear, takes_groups_that_end_inside_a_unit_or_a_slice)
{
	struct kt t = sim_open(false);
	check_reference(&t, (struct kind){KERN_AWQ4, 96}, 600, 40, 5);
	check_reference(&t, (struct kind){KERN_AWQ4, 96}, 608, 40, 40);
	check_reference(&t, (struct kind){KERN_AWQ4, 256}, 1088, 40, 20);
	check_reference(&t, (struct kind){KERN_AWQ4, 64}, 72, 40, 3);
	check_reference(&t, (struct kind){KERN_AWQ4, 32}, 3000, 8, 3);
	kt_close(&t);
}

/* ---- bits ---- */

/* The first rows_all rows, then every number of rows in steps, from another first row each time. */
static void check_rows(struct kt *t, struct kind kind, int k, int n, int step)
{
	char what[128];
	const int group = kind.group ? kind.group : k;
	const size_t all = (size_t)MAX_ROWS * (size_t)n;
	struct kt_part p = kt_part(kind.dtype, k, n, group, true);
	struct kern_linear *w = kt_load(t, k, group, &(struct kt_part *){&p}, 1);
	struct rows x = rows_new(t, MAX_ROWS, k);
	struct dev_mem out = dev_new(t, all * sizeof(float), NULL);
	float *want = xmalloc(all * sizeof *want), *got = xmalloc(all * sizeof *got);
	run(t, w, out, x.dev.p, MAX_ROWS);
	dev_get(t, want, out, out.bytes);
	for (int m = 1; m < MAX_ROWS; m += m < 18 ? 1 : step) {
		const int r0 = (m * 37) % (MAX_ROWS - m + 1);
		cudasim_seed((uint64_t)m);
		run(t, w, out, row_at(&x, r0), m);
		dev_get(t, got, out, (size_t)m * (size_t)n * sizeof *got);
		snprintf(what, sizeof what, "%s: %s group %d, %d x %d, %d slices, %d rows from %d", t->isa,
			 kt_dtype_name(kind.dtype), group, k, n, linear_slices(w), m, r0);
		kt_same(got, want + (size_t)r0 * (size_t)n, (size_t)m * (size_t)n, what);
	}
	t->ops->linear_free(w);
	dev_free(t, out);
	rows_free(t, &x);
	kt_part_fini(&p);
	free(want);
	free(got);
}

Test(cuda_linear, a_rows_bits_depend_on_nothing_but_the_row)
{
	struct kt t = sim_open(false);
	check_rows(&t, kinds[0], 516, 24, 13);
	check_rows(&t, kinds[3], 600, 40, 17);
	check_rows(&t, kinds[4], 328, 72, 19);
	check_rows(&t, kinds[5], 1096, 24, 23);
	check_rows(&t, kinds[6], 712, 40, 29);
	kt_close(&t);
	t = sim_open(true);
	check_rows(&t, kinds[1], 520, 40, 31);
	check_rows(&t, kinds[5], 648, 40, 31);
	kt_close(&t);
}

#ifndef QUERN_CUDASIM
/* Layers of Qwen3-8B, 1 to 4,096 rows. */
Test(cuda_linear, a_rows_bits_depend_on_nothing_but_the_row_in_real_shapes)
{
	struct kt t = sim_open(false);
	check_rows(&t, kinds[5], 4096, 6144, 191);
	check_rows(&t, kinds[5], 12288, 4096, 257);
	check_rows(&t, kinds[0], 4096, 4096, 307);
	kt_close(&t);
	t = sim_open(true);
	check_rows(&t, kinds[1], 4096, 4096, 307);
	check_rows(&t, kinds[5], 4096, 4096, 307);
	kt_close(&t);
}
#endif

/* Every way to compute them that the kernels have. */
static const struct linear_plan plans[] = {
	{false, 1, 8, 4, 1},  {false, 1, 8, 8, 1}, {false, 2, 8, 4, 1},  {false, 1, 16, 8, 1},
	{false, 2, 16, 4, 1}, {false, 1, 8, 4, 8}, {false, 2, 8, 4, 2},  {false, 1, 16, 2, 4},
	{false, 2, 16, 8, 4}, {true, 0, 32, 0, 1}, {true, 0, 64, 0, 1},  {true, 0, 128, 0, 1},
	{true, 0, 32, 0, 2},  {true, 0, 64, 0, 8}, {true, 0, 128, 0, 4},
};
enum { N_PLANS = sizeof plans / sizeof plans[0] };

static void check_plans(struct kt *t, struct kt_part *const *parts, int n_parts, int k, int group,
			bool swiglu)
{
	static const int rows[] = {1, 7, 16, 45, 128};
	char what[128];
	struct kern_linear *w = kt_load(t, k, group, parts, n_parts);
	struct rows x = rows_new(t, 128, k);
	size_t n = 0;
	for (int i = 0; i < (swiglu ? 1 : n_parts); i++)
		n += (size_t)parts[i]->part.n;
	const size_t each = swiglu ? 2 : sizeof(float);
	struct dev_mem out = dev_new(t, 128 * n * each, NULL);
	unsigned char *want = xmalloc(out.bytes), *got = xmalloc(out.bytes);
	cr_assert(linear_slices(w) > 1);
	cr_assert_eq(linear_planned(t->s, w, out.p, x.dev.p, 128, swiglu, &plans[11]), 0);
	dev_get(t, want, out, out.bytes);
	for (int p = 0; p < N_PLANS; p++)
		for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
			const size_t bytes = (size_t)rows[r] * n * each;
			cudasim_seed((uint64_t)(p * 10) + r);
			memset(got, 0xee, bytes);
			cr_assert_eq(t->ops->upload(t->s, out.p, got, bytes), 0);
			cr_assert_eq(linear_planned(t->s, w, out.p, x.dev.p, rows[r], swiglu, &plans[p]), 0);
			dev_get(t, got, out, bytes);
			snprintf(what, sizeof what, "%s group %d, %d inputs, %d slices, plan %d, %d rows",
				 kt_dtype_name(parts[0]->part.dtype), group, k, linear_slices(w), p, rows[r]);
			cr_assert(!memcmp(got, want, bytes), "%s: other bits", what);
		}
	t->ops->linear_free(w);
	dev_free(t, out);
	rows_free(t, &x);
	free(want);
	free(got);
}

Test(cuda_linear, slices_give_the_same_bits_whoever_computes_them)
{
	struct kt t = sim_open(false);
	struct kt_part a = kt_part(KERN_AWQ4, 1064, 152, 128, true), b = kt_part(KERN_F16, 1064, 35, 0, true),
		       c = kt_part(KERN_AWQ4, 520, 24, 32, true);
	check_plans(&t, &(struct kt_part *){&a}, 1, 1064, 128, false);
	check_plans(&t, &(struct kt_part *){&b}, 1, 1064, 128, false);
	check_plans(&t, (struct kt_part *[]){&c, &c, &c}, 3, 520, 32, false);
	kt_part_fini(&a);
	kt_part_fini(&b);
	kt_part_fini(&c);
	kt_close(&t);
}

Test(cuda_linear, gate_and_up_give_the_same_bits_whoever_computes_them)
{
	struct kt t = sim_open(false);
	struct kt_part g = kt_part(KERN_AWQ4, 520, 88, 64, true), u = kt_part(KERN_AWQ4, 520, 88, 64, false);
	check_plans(&t, (struct kt_part *[]){&g, &u}, 2, 520, 64, true);
	check_plans(&t, (struct kt_part *[]){&g, &u}, 2, 520, 64, false);
	kt_part_fini(&g);
	kt_part_fini(&u);
	kt_close(&t);
}

/* ---- parts ---- */

static void check_parts(struct kt *t, struct kt_part *const *parts, int n_parts, int k, int group)
{
	struct kern_linear *w = kt_load(t, k, group, parts, n_parts);
	int n = 0;
	for (int i = 0; i < n_parts; i++)
		n += parts[i]->part.n;
	for (int rows = 1; rows <= 40; rows += 13) {
		struct rows x = rows_new(t, rows, k);
		const size_t all = (size_t)rows * (size_t)n;
		struct dev_mem out = dev_new(t, all * sizeof(float), NULL);
		float *y = xmalloc(all * sizeof *y), *got = xmalloc(all * sizeof *got);
		double *ref = xmalloc(all * sizeof *ref), *tol = xmalloc(all * sizeof *tol);
		run(t, w, out, x.dev.p, rows);
		dev_get(t, y, out, out.bytes);
		for (int i = 0, n0 = 0; i < n_parts; n0 += parts[i++]->part.n) {
			const int pn = parts[i]->part.n;
			for (int r = 0; r < rows; r++)
				memcpy(got + r * pn, y + r * n + n0, (size_t)pn * sizeof *got);
			reference(t, parts[i], &x, ref, tol);
			kt_near(got, ref, tol, (size_t)(rows * pn), kt_dtype_name(parts[i]->part.dtype));
		}
		free(y);
		free(got);
		free(ref);
		free(tol);
		dev_free(t, out);
		rows_free(t, &x);
	}
	t->ops->linear_free(w);
}

Test(cuda_linear, parts_lie_side_by_side_and_keep_their_types)
{
	enum { K = 160 };
	struct kt t = sim_open(false);
	struct kt_part a = kt_part(KERN_AWQ4, K, 136, 32, true), b = kt_part(KERN_F16, K, 21, 0, false),
		       c = kt_part(KERN_BF16, K, 64, 0, true), d = kt_part(KERN_AWQ4, K, 40, 32, false),
		       e = kt_part(KERN_F16, K, 21, 0, true), f = kt_part(KERN_AWQ4, K, 40, 32, true);
	check_parts(&t, (struct kt_part *[]){&a, &b, &c}, 3, K, 32);
	check_parts(&t, (struct kt_part *[]){&b, &a, &c}, 3, K, 32);
	check_parts(&t, (struct kt_part *[]){&a, &d, &f}, 3, K, 32);
	check_parts(&t, (struct kt_part *[]){&d, &f}, 2, K, 32);
	check_parts(&t, (struct kt_part *[]){&b, &e}, 2, K, 32);
	check_parts(&t, (struct kt_part *[]){&b, &c}, 2, K, 32);
	kt_part_fini(&a);
	kt_part_fini(&b);
	kt_part_fini(&c);
	kt_part_fini(&d);
	kt_part_fini(&e);
	kt_part_fini(&f);
	kt_close(&t);
}

static void check_swiglu(struct kt *t, struct kt_part *g, struct kt_part *u, int k, int group)
{
	static const int rows[] = {1, 6, 14, 29, 50, 70, 131};
	const int n = g->part.n;
	struct kern_linear *w = kt_load(t, k, group, (struct kt_part *[]){g, u}, 2);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const size_t all = (size_t)rows[i] * (size_t)n;
		struct rows x = rows_new(t, rows[i], k);
		struct dev_mem out = dev_new(t, all * 2, NULL);
		uint16_t *h = xmalloc(all * 2);
		float *y = xmalloc(all * sizeof *y);
		double *rg = xmalloc(all * 8), *tg = xmalloc(all * 8), *ru = xmalloc(all * 8),
		       *tu = xmalloc(all * 8);
		cr_assert_eq(t->ops->gateup_swiglu(t->s, w, out.p, x.dev.p, rows[i]), 0);
		dev_get(t, h, out, out.bytes);
		reference(t, g, &x, rg, tg);
		reference(t, u, &x, ru, tu);
		for (size_t j = 0; j < all; j++) {
			double silu = rg[j] / (1 + exp(-rg[j]));
			y[j] = widen(t, h[j]);
			tg[j] = fabs(ru[j]) * (tg[j] * 1.2 + fabs(silu) * 1e-6) + fabs(silu) * tu[j] +
				fabs(silu * ru[j]) * (is_bf16(t) ? 0x1p-8 : 0x1p-10) + 1e-7;
			rg[j] = silu * ru[j];
		}
		kt_near(y, rg, tg, all, t->isa);
		free(h);
		free(y);
		free(rg);
		free(tg);
		free(ru);
		free(tu);
		dev_free(t, out);
		rows_free(t, &x);
	}
	t->ops->linear_free(w);
}

Test(cuda_linear, gate_and_up_meet_in_swiglu)
{
	enum { K = 136, N = 88 };
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct kt t = sim_open(bf16);
		struct kt_part a = kt_part(KERN_AWQ4, K, N, 64, false),
			       b = kt_part(KERN_AWQ4, K, N, 64, true), c = kt_part(KERN_F16, K, N, 0, true),
			       d = kt_part(KERN_BF16, K, N, 0, false), e = kt_part(KERN_F16, K, 13, 0, true),
			       f = kt_part(KERN_F16, K, 13, 0, false);
		check_swiglu(&t, &a, &b, K, 64);
		check_swiglu(&t, &c, &d, K, 64);
		check_swiglu(&t, &a, &c, K, 64);
		check_swiglu(&t, &e, &f, K, 64);
		kt_part_fini(&a);
		kt_part_fini(&b);
		kt_part_fini(&c);
		kt_part_fini(&d);
		kt_part_fini(&e);
		kt_part_fini(&f);
		kt_close(&t);
	}
}

/* ---- outputs, tables, refusals ---- */

Test(cuda_linear, an_output_of_operand_type_is_the_f32_one_rounded)
{
	enum { K = 72, ROWS = 37 };
	static const int outputs[] = {40, 41};
	for (int i = 0; i < 4; i++) {
		struct kt t = sim_open(i & 1);
		const int n = outputs[i >> 1];
		const size_t all = ROWS * (size_t)n;
		struct kt_part p = kt_part(KERN_F16, K, n, 0, true);
		struct kern_linear *w = kt_load(&t, K, K, &(struct kt_part *){&p}, 1);
		struct rows x = rows_new(&t, ROWS, K);
		struct dev_mem out = dev_new(&t, all * 4, NULL);
		float *y = xmalloc(all * 4);
		uint16_t *h = xmalloc(all * 2);
		run(&t, w, out, x.dev.p, ROWS);
		dev_get(&t, y, out, all * 4);
		cr_assert_eq(t.ops->linear(t.s, w, out.p, x.dev.p, ROWS, false), 0);
		dev_get(&t, h, out, all * 2);
		for (size_t j = 0; j < all; j++)
			cr_assert_eq(h[j], ct_to_op(is_bf16(&t), y[j]), "%s: %zu: %04x of %.9g", t.isa, j,
				     (unsigned)h[j], (double)y[j]);
		t.ops->linear_free(w);
		dev_free(&t, out);
		rows_free(&t, &x);
		kt_part_fini(&p);
		free(y);
		free(h);
		kt_close(&t);
	}
}

Test(cuda_linear, a_table_on_the_device_serves_as_the_head)
{
	static const int shapes[][2] = {{64, 301}, {36, 77}, {520, 50}};
	struct kt t = sim_open(false);
	for (int i = 0; i < 3; i++) {
		const int k = shapes[i][0], n = shapes[i][1];
		struct kt_part p = kt_part(KERN_F16, k, n, 0, false);
		struct dev_mem table = dev_new(&t, (size_t)k * (size_t)n * 2, p.w);
		struct kern_linear *w = NULL, *own = kt_load(&t, k, k, &(struct kt_part *){&p}, 1);
		cr_assert_eq(linear_of_table(t.dev, table.p, n, k, &w), 0);
		for (int rows = 1; rows < 60; rows += 19) {
			const size_t all = (size_t)rows * (size_t)n;
			struct rows x = rows_new(&t, rows, k);
			struct dev_mem out = dev_new(&t, all * 4, NULL);
			float *a = xmalloc(all * 4), *b = xmalloc(all * 4);
			run(&t, w, out, x.dev.p, rows);
			dev_get(&t, a, out, all * 4);
			run(&t, own, out, x.dev.p, rows);
			dev_get(&t, b, out, all * 4);
			kt_same(a, b, all, "the table and a layer of its own");
			free(a);
			free(b);
			dev_free(&t, out);
			rows_free(&t, &x);
		}
		t.ops->linear_free(w);
		t.ops->linear_free(own);
		dev_free(&t, table);
		kt_part_fini(&p);
	}
	kt_close(&t);
}

/* The AutoAWQ order by hand: column c of eight in nibble {0,4,1,5,2,6,3,7}[c]. */
Test(cuda_linear, awq_nibbles_stand_in_autoawq_order)
{
	const uint32_t q = 0x75316420; /* columns 0..7 hold 0..7 */
	const uint32_t zero = 0x11111111;
	const uint16_t one = 0x3c00;
	uint16_t scale[8];
	float y[8];
	for (int c = 0; c < 8; c++)
		scale[c] = one;
	struct kt t = sim_open(false);
	struct kt_part p = {.part = {.dtype = KERN_AWQ4, .n = 8, .w = &q, .qzeros = &zero, .scales = scale}};
	struct kern_linear *w = kt_load(&t, 1, 1, &(struct kt_part *){&p}, 1);
	struct dev_mem x = dev_new(&t, 2, &one), out = dev_new(&t, sizeof y, NULL);
	run(&t, w, out, x.p, 1);
	dev_get(&t, y, out, sizeof y);
	for (int c = 0; c < 8; c++)
		cr_assert(y[c] == (float)(c - 1), "column %d: %g", c, (double)y[c]);
	t.ops->linear_free(w);
	dev_free(&t, x);
	dev_free(&t, out);
	kt_close(&t);
}

Test(cuda_linear, what_cannot_be_packed_is_refused_with_its_name)
{
	char why[256];
	const uint32_t q[256] = {0};
	struct kt t = sim_open(false);
	struct kern_linear *w;
	struct kern_linear_src src = {.name = "layers.3.mlp.down", .k = 4, .group = 4, .n_parts = 1};
	src.parts[0] =
		(struct kern_linear_part){.dtype = KERN_AWQ4, .n = 12, .w = q, .qzeros = q, .scales = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -EINVAL);
	cr_assert(strstr(why, "layers.3.mlp.down"), "%s", why);
	src.parts[0].n = 8;
	src.k = 48;
	src.group = 24;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "24"), "%s", why);
	src.parts[0] = (struct kern_linear_part){.dtype = (enum kern_dtype)9, .n = 8, .w = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -ENOTSUP);
	src.k = 0;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -EINVAL);
	kt_close(&t);
}

#ifdef QUERN_CUDASIM
Test(cuda_linear, no_device_memory_is_left_behind)
{
	struct kt t = sim_open(false);
	struct kt_part p = kt_part(KERN_AWQ4, 128, 48, 32, true);
	struct kern_linear *w = kt_load(&t, 128, 32, &(struct kt_part *){&p}, 1);
	const uint64_t before = cudasim_stats().live_pieces;
	struct kern_linear *again = kt_load(&t, 128, 32, &(struct kt_part *){&p}, 1);
	cr_assert_gt(cudasim_stats().live_pieces, before);
	t.ops->linear_free(again);
	cr_assert_eq(cudasim_stats().live_pieces, before);
	t.ops->linear_free(w);
	kt_part_fini(&p);
	kt_close(&t);
}
#endif
