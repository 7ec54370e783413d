/* Linear layers against a double-precision reference, and their bits against each other. */
#include "tests/kernels/kern_test.h"

struct shape {
	int k, n;
};

struct kind {
	enum kern_dtype dtype;
	int group;
};

static const struct kind kinds[] = {
	{KERN_F32, 0},   {KERN_F16, 0},    {KERN_BF16, 0}, {KERN_AWQ4, 32},
	{KERN_AWQ4, 64}, {KERN_AWQ4, 128}, {KERN_AWQ4, 0},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* y = x w^T + bias in double, and how far F32 sums may be from it */
static void reference(const struct kt_part *p, const float *x, int rows, int k, double *y, double *tol)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < p->part.n; c++) {
			const float *b = p->bias;
			double sum = b ? (double)b[c] : 0, size = fabs(sum);
			for (int i = 0; i < k; i++) {
				double v = (double)x[r * k + i] *
					   (double)p->f[(size_t)c * (size_t)k + (size_t)i];
				sum += v;
				size += fabs(v);
			}
			y[r * p->part.n + c] = sum;
			tol[r * p->part.n + c] = size * 1e-6 + 1e-12;
		}
}

static void check_against_reference(struct kt *t, struct kind kind, struct shape z, int rows)
{
	char what[128];
	const int group = kind.group ? kind.group : z.k;
	struct kt_part p = kt_part(kind.dtype, z.k, z.n, group, (z.k + rows) % 2);
	struct kern_linear *w = kt_load(t, z.k, group, &(struct kt_part *){&p}, 1);
	size_t n = (size_t)rows * (size_t)z.n;
	float *x = kt_floats((size_t)rows * (size_t)z.k), *y = kt_floats(n);
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	t->ops->linear(t->s, w, y, x, rows, true);
	reference(&p, x, rows, z.k, ref, tol);
	snprintf(what, sizeof what, "%s %s group %d, %d rows, %d x %d", t->isa, kt_dtype_name(kind.dtype),
		 group, rows, z.k, z.n);
	kt_near(y, ref, tol, n, what);
	t->ops->linear_free(w);
	kt_part_fini(&p);
	free(x);
	free(y);
	free(ref);
	free(tol);
}

Test(linear, matches_a_double_precision_reference)
{
	static const struct shape shapes[] = {{1, 8},    {7, 16},    {64, 64},  {172, 176},
					      {200, 40}, {256, 136}, {300, 264}};
	static const int rows[] = {1, 2, 3, 5, 8, 13, 17, 29};
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 2, .rows = 32}))
			continue;
		for (int d = 0; d < N_KINDS; d++)
			for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
				for (size_t r = (s + (size_t)d) % 2; r < sizeof rows / sizeof rows[0]; r += 2)
					check_against_reference(&t, kinds[d], shapes[s], rows[r]);
		kt_close(&t);
	}
}

Test(linear, takes_odd_numbers_of_outputs)
{
	static const int outputs[] = {1, 3, 15, 17, 33, 47, 63, 65, 100, 172};
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 1, .rows = 32}))
			continue;
		for (size_t o = 0; o < sizeof outputs / sizeof outputs[0]; o++)
			for (int d = 0; d < 3; d++)
				check_against_reference(&t, kinds[d], (struct shape){37, outputs[o]},
							1 + (int)o * 3);
		kt_close(&t);
	}
}

Test(linear, takes_more_rows_than_one_round)
{
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 2, .rows = 600}))
			continue;
		check_against_reference(&t, (struct kind){KERN_AWQ4, 32}, (struct shape){64, 72}, 523);
		check_against_reference(&t, (struct kind){KERN_F16, 0}, (struct shape){64, 72}, 257);
		kt_close(&t);
	}
}

/* All rows at once on the first table is what every other way must give. */
static void check_bits(struct kind kind, struct shape z)
{
	enum { ROWS = 70 };
	char what[128];
	const int group = kind.group ? kind.group : z.k;
	const size_t stride = (size_t)z.n;
	struct kt_part p = kt_part(kind.dtype, z.k, z.n, group, true);
	float *x = kt_floats((size_t)ROWS * (size_t)z.k);
	float *want = NULL, *got = kt_floats(ROWS * stride);
	for (int i = 0; i < KT_ISAS; i++)
		for (int threads = 1; threads <= 3; threads++) {
			struct kt t;
			if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = threads, .rows = ROWS}))
				break;
			struct kern_linear *w = kt_load(&t, z.k, group, &(struct kt_part *){&p}, 1);
			const bool plain = i == KT_ISAS - 1;
			for (int m = ROWS; m >= 1; m -= plain || threads > 1 ? 7 : 1) {
				int r0 = (ROWS - m) / 2;
				memset(got, 0, ROWS * stride * sizeof *got);
				t.ops->linear(t.s, w, got, x + (size_t)r0 * (size_t)z.k, m, true);
				if (!want)
					want = xmemdup(got, ROWS * stride * sizeof *got);
				snprintf(what, sizeof what, "%s %s group %d, %d x %d, %d rows, %d threads",
					 t.isa, kt_dtype_name(kind.dtype), group, z.k, z.n, m, threads);
				kt_same(got, want + (size_t)r0 * stride, (size_t)m * stride, what);
			}
			t.ops->linear_free(w);
			kt_close(&t);
		}
	kt_part_fini(&p);
	free(x);
	free(want);
	free(got);
}

Test(linear, a_rows_bits_depend_on_nothing_but_the_row)
{
	for (int d = 0; d < N_KINDS; d++) {
		check_bits(kinds[d], (struct shape){172, 200});
		check_bits(kinds[d], (struct shape){288, 72});
	}
}

Test(linear, parts_lie_side_by_side_and_keep_their_types)
{
	enum { K = 96, ROWS = 20 };
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 2, .rows = ROWS}))
			continue;
		struct kt_part q = kt_part(KERN_AWQ4, K, 136, 32, true),
			       k = kt_part(KERN_F16, K, 21, 0, false), v = kt_part(KERN_BF16, K, 64, 0, true);
		struct kt_part *parts[] = {&q, &k, &v};
		struct kern_linear *w = kt_load(&t, K, 32, parts, 3);
		float *x = kt_floats(ROWS * K), *y = kt_floats(ROWS * 221);
		for (int rows = 1; rows <= ROWS; rows += 19) {
			t.ops->linear(t.s, w, y, x, rows, true);
			for (int part = 0, n0 = 0; part < 3; n0 += parts[part++]->part.n) {
				int n = parts[part]->part.n;
				float got[ROWS * 136];
				double ref[ROWS * 136], tol[ROWS * 136];
				for (int r = 0; r < rows; r++)
					memcpy(got + r * n, y + r * 221 + n0, (size_t)n * sizeof *got);
				reference(parts[part], x, rows, K, ref, tol);
				kt_near(got, ref, tol, (size_t)(rows * n), t.isa);
			}
		}
		cr_assert(t.ops->linear_bytes(w) > 0);
		t.ops->linear_free(w);
		free(x);
		free(y);
		kt_part_fini(&q);
		kt_part_fini(&k);
		kt_part_fini(&v);
		kt_close(&t);
	}
}

Test(linear, gate_and_up_meet_in_swiglu)
{
	enum { K = 64, N = 88, ROWS = 25 };
	float *want = NULL;
	struct kt_part g = kt_part(KERN_AWQ4, K, N, 64, false), u = kt_part(KERN_F16, K, N, 0, true);
	struct kt_part *parts[] = {&g, &u};
	float *x = kt_floats(ROWS * K), *y = kt_floats(ROWS * N);
	double rg[ROWS * N], ru[ROWS * N], tg[ROWS * N], tu[ROWS * N];
	reference(&g, x, ROWS, K, rg, tg);
	reference(&u, x, ROWS, K, ru, tu);
	for (int i = 0; i < ROWS * N; i++) {
		double silu = rg[i] / (1 + exp(-rg[i]));
		tg[i] = fabs(ru[i]) * (tg[i] * 1.2 + fabs(silu) * 1e-6) + fabs(silu) * tu[i] + 1e-9;
		rg[i] = silu * ru[i];
	}
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 2, .rows = ROWS}))
			continue;
		struct kern_linear *w = kt_load(&t, K, 64, parts, 2);
		for (int rows = 1; rows <= ROWS; rows += 3) {
			t.ops->gateup_swiglu(t.s, w, y, x, rows);
			kt_near(y, rg, tg, (size_t)rows * N, t.isa);
			if (want)
				kt_same(y, want, (size_t)rows * N, t.isa);
		}
		if (!want)
			want = xmemdup(y, sizeof(float) * ROWS * N);
		t.ops->linear_free(w);
		kt_close(&t);
	}
	kt_part_fini(&g);
	kt_part_fini(&u);
	free(x);
	free(y);
	free(want);
}

Test(linear, every_16_bit_float_is_widened_exactly)
{
	uint16_t *all = xmalloc(65536 * 2);
	float *y = kt_floats(65536);
	const float one = 1;
	for (int i = 0; i < 65536; i++)
		all[i] = (uint16_t)i;
	for (int i = 0; i < KT_ISAS; i++)
		for (int d = KERN_F16; d <= KERN_BF16; d++) {
			struct kt t;
			if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 1, .rows = 1}))
				break;
			struct kt_part p = {.part = {.dtype = (enum kern_dtype)d, .n = 65536, .w = all}};
			struct kern_linear *w = kt_load(&t, 1, 1, &(struct kt_part *){&p}, 1);
			t.ops->linear(t.s, w, y, &one, 1, true);
			for (int v = 0; v < 65536; v++) {
				float f = d == KERN_F16 ? half_from_f16((uint16_t)v)
							: half_from_bf16((uint16_t)v);
				cr_assert(f == y[v] || (f != f && y[v] != y[v]),
					  "%s %s %04x: %g, expected %g", t.isa,
					  kt_dtype_name((enum kern_dtype)d), (unsigned)v, (double)y[v],
					  (double)f);
			}
			t.ops->linear_free(w);
			kt_close(&t);
		}
	free(all);
	free(y);
}

/* The AutoAWQ order by hand: column c of eight in nibble {0,4,1,5,2,6,3,7}[c]. */
Test(linear, awq_nibbles_stand_in_autoawq_order)
{
	const uint32_t q = 0x75316420; /* columns 0..7 hold 0..7 */
	const uint32_t zero = 0x11111111;
	uint16_t scale[8];
	const float one = 1;
	float y[8];
	struct kt t;
	for (int c = 0; c < 8; c++)
		scale[c] = 0x3c00; /* 1 */
	cr_assert(kt_open(&t, "plain", (struct kt_size){.threads = 1, .rows = 1}));
	struct kt_part p = {.part = {.dtype = KERN_AWQ4, .n = 8, .w = &q, .qzeros = &zero, .scales = scale}};
	struct kern_linear *w = kt_load(&t, 1, 1, &(struct kt_part *){&p}, 1);
	t.ops->linear(t.s, w, y, &one, 1, true);
	for (int c = 0; c < 8; c++)
		cr_assert(y[c] == (float)(c - 1), "column %d: %g", c, (double)y[c]);
	t.ops->linear_free(w);
	kt_close(&t);
}

Test(linear, what_cannot_be_packed_is_refused_with_its_name)
{
	char why[256];
	struct kt t;
	struct kern_linear *w;
	const uint32_t q[4] = {0};
	cr_assert(kt_open(&t, "plain", (struct kt_size){.threads = 1, .rows = 1}));
	struct kern_linear_src src = {.name = "layers.3.mlp.down", .k = 4, .group = 4, .n_parts = 1};
	src.parts[0] =
		(struct kern_linear_part){.dtype = KERN_AWQ4, .n = 12, .w = q, .qzeros = q, .scales = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -EINVAL);
	cr_assert(strstr(why, "layers.3.mlp.down"), "%s", why);
	src.parts[0].n = 0;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -EINVAL);
	src.parts[0] = (struct kern_linear_part){.dtype = (enum kern_dtype)9, .n = 8, .w = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, why, sizeof why), -ENOTSUP);
	kt_close(&t);
}
