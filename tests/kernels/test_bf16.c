/* Mode bf16: compare every kernel with the sums that bf16.h defines, in plain C, bit for bit, and with double
 * precision. Compare the instructions with their emulation. */
#include "kernels/cpu/cpu.h"
#include "tests/kernels/emulated.h"
#include "tests/kernels/kern_test.h"

/* ---- the sums that bf16.h defines ---- */

/* Replace a denormal with 0. Operands and results (after rounding) of the fused multiply-add are flushed. */
static float flush(float f)
{
	return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}

static float chain(float x, float w, float acc)
{
	return flush(fmaf(flush(x), flush(w), flush(acc)));
}

static float bf16(float f)
{
	return half_from_bf16(half_to_bf16(f));
}

struct matrix {
	int n, k, group; /* group 0: plain floats */
	enum kern_dtype dtype;
	void *stored; /* floats */
	/* w: plain floats, or code - zero; scale: one per group of codes */
	float *w, *scale;
	/* stored codes */
	struct codes c;
	uint8_t *code;
	int16_t *offset;
};

static float expected(const struct matrix *m, const float *x, int o)
{
	const int group = m->group ? m->group : m->k;
	float y = 0, c = 0;
	for (int g0 = 0; g0 < m->k; g0 += group) {
		const int g1 = m->k - g0 < group ? m->k : g0 + group;
		c = 0;
		for (int s = g0; s < g1; s += 32) {
			float even = 0, odd = 0;
			for (int i = s; i < s + 32; i += 2) {
				const float w0 = i < g1 ? m->w[o * m->k + i] : 0,
					    x0 = i < g1 ? bf16(x[i]) : 0;
				const float w1 = i + 1 < g1 ? m->w[o * m->k + i + 1] : 0,
					    x1 = i + 1 < g1 ? bf16(x[i + 1]) : 0;
				even = chain(x0, w0, even);
				odd = chain(x1, w1, odd);
			}
			c = flush(c + flush(even + odd));
		}
		if (m->group)
			y = chain(m->scale[o * ((m->k + group - 1) / group) + g0 / group], c, y);
	}
	return m->group ? y : c;
}

/* ---- matrices ---- */

static void read_codes(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct matrix *m = c->from[0];
	const size_t n = (size_t)(n1 - n0), k = (size_t)m->k, g = (size_t)codes_groups(c), at = (size_t)n0;
	memcpy(out->code, m->code + at * k, n * k);
	memcpy(out->offset, m->offset + at * g, n * g * 2);
	memcpy(out->d, m->scale + at * g, n * g * 4);
	for (size_t i = 0; i < n * g; i++)
		out->scale[i] = 1;
}

static struct matrix *floats_new(enum kern_dtype dtype, int n, int k)
{
	struct matrix *m = xcalloc(1, sizeof *m);
	const size_t all = (size_t)(n * k);
	*m = (struct matrix){.n = n, .k = k, .dtype = dtype, .w = kt_floats(all)};
	uint16_t *half = xmalloc(all * 2);
	for (size_t i = 0; i < all; i++) {
		half[i] = kt_half(dtype);
		if (dtype != KERN_F32)
			m->w[i] = half_load(half, dtype, i);
	}
	m->stored = dtype == KERN_F32 ? xmemdup(m->w, all * 4) : xmemdup(half, all * 2);
	for (size_t i = 0; i < all; i++)
		m->w[i] = bf16(m->w[i]);
	free(half);
	return m;
}

static struct matrix *codes_new(int bits, int group, int zero, int n, int k)
{
	struct matrix *m = xcalloc(1, sizeof *m);
	group = group && group < k ? group : k;
	*m = (struct matrix){.n = n, .k = k, .group = group, .dtype = KERN_CODES};
	m->c = (struct codes){.n = n,
			      .k = k,
			      .bits = bits,
			      .group = group,
			      .super = group,
			      .zero = zero,
			      .d_type = bits > 4 ? CODES_F32 : CODES_F16,
			      .read = read_codes,
			      .from = {m}};
	const int groups = codes_groups(&m->c), top = (1 << bits) - 1;
	m->code = xmalloc((size_t)(n * k));
	m->offset = xmalloc((size_t)(n * groups) * 2);
	m->scale = kt_floats((size_t)(n * groups));
	m->w = kt_floats((size_t)(n * k));
	for (int i = 0; i < n * groups; i++) {
		m->offset[i] = (int16_t)(zero >= 0 ? zero : (int)(kt_rand() % (unsigned)(top + 1)));
		if (bits <= 4)
			m->scale[i] = half_from_f16(kt_half(KERN_F16));
	}
	for (int i = 0; i < n * k; i++) {
		m->code[i] = (uint8_t)(i / k % 5 == 3 ? top : (int)(kt_rand() % (unsigned)(top + 1)));
		m->w[i] = (float)(m->code[i] - m->offset[i / k * groups + i % k / group]);
	}
	return m;
}

static void matrix_free(struct matrix *m)
{
	free(m->stored);
	free(m->w);
	free(m->scale);
	free(m->code);
	free(m->offset);
	free(m);
}

enum { N_KINDS = 12 };

static struct matrix *kind(int i, int n, int k, char *name, size_t size)
{
	static const struct {
		int bits, group, zero;
	} kinds[] = {{4, 128, -1}, {4, 32, -1},  {4, 96, -1},   {4, 0, -1}, {3, 64, 4},
		     {8, 32, 128}, {8, 64, 128}, {8, 256, 128}, {8, 0, 128}};
	static const enum kern_dtype types[] = {KERN_F32, KERN_F16, KERN_BF16};
	if (i < 3) {
		snprintf(name, size, "floats of type %d", (int)types[i]);
		return floats_new(types[i], n, k);
	}
	snprintf(name, size, "%d bits, groups of %d", kinds[i - 3].bits, kinds[i - 3].group);
	return codes_new(kinds[i - 3].bits, kinds[i - 3].group, kinds[i - 3].zero, n, k);
}

/* ---- kernels ---- */

typedef const struct cpu_bf16 *table_fn(void);
static table_fn *const tables[] = {cpu_bf16_plain,      cpu_bf16_avx2,    cpu_bf16_avx512,
				   cpu_bf16_avx512bf16, cpu_bf16_amx,     emulated_bf16_avx512,
				   emulated_bf16_vdp,   emulated_bf16_amx};
enum { N_TABLES = sizeof tables / sizeof tables[0] };

static const struct cpu_bf16 *table_at(int i)
{
	const bool emulated = i >= N_TABLES - 3;
	return emulated && !cpu_bf16_avx2() ? NULL : tables[i]();
}

static struct kern_dev *device(int threads, int rows, enum kern_head head)
{
	struct kern_open_args a = {.index = -1,
				   .compute = KERN_COMPUTE_BF16,
				   .head = head,
				   .n_threads = threads,
				   .max_rows = rows,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 1,
				   .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct why why;
	cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
	return d;
}

static struct kern_linear *load(struct kern_dev *d, const struct matrix *m)
{
	struct kern_linear_src src = {.name = "test", .k = m->k, .group = m->k, .n_parts = 1};
	src.parts[0] = (struct kern_linear_part){
		.dtype = m->dtype, .n = m->n, .w = m->group ? (const void *)&m->c : m->stored};
	struct kern_linear *w;
	struct why why = {""};
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), 0, "%s", why.text);
	return w;
}

static void run(struct kern_dev *d, const struct kern_linear *w, const float *x, int rows, float *y)
{
	struct kern_stream s = {.dev = d};
	unsigned char *in = aligned_alloc(64, (cpu_operand_bytes(d, rows, w->k) + 63) / 64 * 64);
	cpu_quantize(d, in, x, rows, w->k);
	cr_assert_eq(kern_cpu_ops.linear(&s, w, y, in, rows, true), 0);
	free(in);
}

/* Make rows with channels 100 times the others, denormals, values with denormal products, and a row of
 * zeros. */
static float *activations(int rows, int k)
{
	float *x = kt_floats((size_t)rows * (size_t)k);
	for (int r = 0; r < rows; r++)
		for (int i = 0; i < k; i++) {
			x[r * k + i] *= i % 50 == 7 ? 100.0f : 1.0f;
			if (r % 7 == 2)
				x[r * k + i] = 0;
			if (r % 7 == 4)
				x[r * k + i] *= i % 3 ? 0x1p-122f : 0x1p-128f;
		}
	return x;
}

static void check_kind(int kind_at, int n, int k, int rows)
{
	char name[64], what[160];
	struct matrix *m = kind(kind_at, n, k, name, sizeof name);
	const size_t all = (size_t)(rows * n);
	float *x = activations(rows, k), *want = xmalloc(all * 4), *y = xmalloc(all * 4);
	for (int r = 0; r < rows; r++)
		for (int o = 0; o < n; o++)
			want[r * n + o] = expected(m, x + r * k, o);
	for (int i = 0; i < N_TABLES; i++) {
		if (!table_at(i))
			continue;
		struct kern_dev *d = device(2, rows, KERN_HEAD_MODE);
		d->bf16 = table_at(i);
		struct kern_linear *w = load(d, m);
		snprintf(what, sizeof what, "%s%s: %s, %d rows, %d x %d", d->bf16->name,
			 i >= N_TABLES - 3 ? " (emulated)" : "", name, rows, k, n);
		run(d, w, x, rows, y);
		kt_same(y, want, all, what);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
	}
	matrix_free(m);
	free(x);
	free(want);
	free(y);
}

Test(bf16, every_kernel_has_the_bits_that_the_header_says)
{
	static const struct {
		int n, k, rows;
	} shapes[] = {{136, 512, 1}, {72, 256, 5}, {64, 384, 16}, {40, 200, 3}, {33, 672, 37}, {16, 72, 70}};
	for (int i = 0; i < N_KINDS; i++)
		for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
			check_kind(i, shapes[s].n, shapes[s].k, shapes[s].rows);
}

/* Inputs longer than any kernel's segment, and as many rows as one task takes. */
Test(bf16, long_rows_and_many_of_them)
{
	for (int i = 0; i < N_KINDS; i += 3) {
		check_kind(i, 16, 1312, 4);
		check_kind(i + 1, 40, 1056, 52);
	}
}

Test(bf16, a_rows_bits_depend_on_nothing_but_the_row)
{
	enum { K = 416, N = 200, ROWS = 70 };
	char name[64];
	for (int f = 2; f < N_KINDS; f += 2)
		for (int i = 0; i < N_TABLES; i++) {
			struct matrix *c = kind(f, N, K, name, sizeof name);
			float *x = activations(ROWS, K), *all = kt_floats(ROWS * N), *y = kt_floats(ROWS * N);
			for (int threads = 1; table_at(i) && threads <= 3; threads++) {
				struct kern_dev *d = device(threads, ROWS, KERN_HEAD_MODE);
				d->bf16 = table_at(i);
				struct kern_linear *w = load(d, c);
				if (threads == 1)
					run(d, w, x, ROWS, all);
				for (int m = 1; m <= ROWS; m += m < 4 ? 1 : 13) {
					const int r0 = m * 37 % (ROWS - m + 1);
					run(d, w, x + r0 * K, m, y);
					kt_same(y, all + r0 * N, (size_t)(m * N), d->bf16->name);
				}
				kern_cpu_ops.linear_free(w);
				kern_cpu_ops.close(d);
			}
			matrix_free(c);
			free(x);
			free(all);
			free(y);
		}
}

/* ---- operands ---- */

Test(bf16, rounds_to_the_nearest_ties_to_even)
{
	static const struct {
		uint32_t f;
		uint16_t h;
	} cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
		     {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, {0x7f7f7fff, 0x7f7f}, {0x7f800000, 0x7f80},
		     {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}, {0x00000001, 0x0000},
		     {0x807fffff, 0x8000}, {0x00800000, 0x0080}, {0x80000000, 0x8000}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		float f;
		memcpy(&f, &cases[i].f, 4);
		cr_assert_eq(half_to_bf16(f), cases[i].h, "%08x is %04x and not %04x", cases[i].f,
			     half_to_bf16(f), cases[i].h);
	}
}

Test(bf16, an_operand_keeps_its_values_in_every_order)
{
	for (int k = 1; k < 140; k += 3)
		for (int i = 0; i < N_TABLES; i++) {
			const struct cpu_bf16 *b = table_at(i);
			if (!b)
				continue;
			float *x = kt_floats((size_t)k), *y = kt_floats((size_t)k);
			unsigned char *row = xmalloc(cpu_bf16_row(b, k));
			memset(row, 0xee, cpu_bf16_row(b, k));
			cpu_bf16_round(b, row, x, k);
			cpu_bf16_floats(b, y, row, k);
			for (int j = 0; j < k; j++)
				cr_assert_eq(y[j], bf16(x[j]), "%s: value %d of %d", b->name, j, k);
			free(row);
			free(x);
			free(y);
		}
}

Test(bf16, embeddings_are_rounded_and_found_again)
{
	enum { V = 150, H = 72 };
	struct why why;
	for (int i = 0; i < N_TABLES; i++) {
		if (!table_at(i))
			continue;
		struct kern_dev *d = device(1, 4, KERN_HEAD_MODE);
		struct kern_embed *e;
		float *table = kt_floats(V * H), row[H];
		d->bf16 = table_at(i);
		cr_assert_eq(kern_cpu_ops.embed_load(d, &(struct kern_embed_src){table, KERN_F32, V, H, true},
						     &e, &why),
			     0);
		for (int t = 0; t < V; t++) {
			cpu_unpack_row(&e->linear, t, row);
			for (int j = 0; j < H; j++)
				cr_assert_eq(row[j], bf16(table[t * H + j]));
		}
		kern_cpu_ops.embed_free(e);
		kern_cpu_ops.close(d);
		free(table);
	}
}

/* The root mean square error relative to the outputs is that of rounding activations to BF16's 8 bits; the
 * codes add none. */
Test(bf16, codes_err_by_what_their_activations_lose)
{
	enum { K = 1024, N = 64, ROWS = 8 };
	struct matrix *m = codes_new(4, 128, -1, N, K);
	float *x = kt_floats(ROWS * K), *y = kt_floats(ROWS * N);
	struct kern_dev *d = device(1, ROWS, KERN_HEAD_MODE);
	struct kern_linear *w = load(d, m);
	double off = 0, size = 0;
	run(d, w, x, ROWS, y);
	for (int r = 0; r < ROWS; r++)
		for (int o = 0; o < N; o++) {
			double sum = 0;
			for (int i = 0; i < K; i++)
				sum += (double)x[r * K + i] * m->w[o * K + i] *
				       m->scale[o * (K / 128) + i / 128];
			off += (y[r * N + o] - sum) * (y[r * N + o] - sum);
			size += sum * sum;
		}
	const double error = sqrt(off / size);
	cr_assert(error > 5e-4 && error < 2.2e-3, "errs by %g", error);
	kern_cpu_ops.linear_free(w);
	kern_cpu_ops.close(d);
	matrix_free(m);
	free(x);
	free(y);
}

/* An INT8 head reads BF16 activations as two bytes each. */
Test(bf16, a_head_in_int8_takes_the_same_operands)
{
	enum { V = 100, H = 256, ROWS = 3 };
	struct why why;
	float *table = kt_floats(V * H), *x = kt_floats(ROWS * H), want[ROWS * V], y[ROWS * V];
	for (int i = 0, first = 1; i < N_TABLES; i++) {
		if (!table_at(i))
			continue;
		struct kern_dev *d = device(2, ROWS, KERN_HEAD_INT8);
		struct kern_embed *e;
		d->bf16 = table_at(i);
		cr_assert_eq(kern_cpu_ops.embed_load(d, &(struct kern_embed_src){table, KERN_F32, V, H, true},
						     &e, &why),
			     0);
		run(d, kern_cpu_ops.embed_linear(e), x, ROWS, first ? want : y);
		if (!first)
			kt_same(y, want, ROWS * V, d->bf16->name);
		first = 0;
		kern_cpu_ops.embed_free(e);
		kern_cpu_ops.close(d);
	}
	for (int r = 0; r < ROWS; r++)
		for (int o = 0; o < V; o++) {
			double sum = 0, size = 0;
			for (int j = 0; j < H; j++) {
				sum += (double)x[r * H + j] * table[o * H + j];
				size += fabs((double)x[r * H + j] * table[o * H + j]);
			}
			cr_assert(fabs(want[r * V + o] - sum) < size * 0.01, "%g for %g", want[r * V + o],
				  sum);
		}
	free(table);
	free(x);
}

/* A thread's scratch memory must be large enough for INT8 heads too. */
Test(bf16, a_thread_has_scratch_for_the_mode_and_for_the_head)
{
	for (int head = KERN_HEAD_MODE; head <= KERN_HEAD_INT8; head++) {
		struct kern_dev *d = device(2, 4, (enum kern_head)head);
		const size_t room = (size_t)((unsigned char *)d->scratch[1].c - d->scratch[0].lines);
		cr_assert(room >= BF16_SCRATCH && (!d->dot || room >= DOT_SCRATCH), "%zu bytes", room);
		kern_cpu_ops.close(d);
	}
}

/* ---- formats that the kernels do not read ---- */

Test(bf16, groups_that_are_no_whole_steps_become_floats)
{
	enum { N = 24, K = 1024, ROWS = 2 };
	static const int groups[] = {40, 288, 512};
	float *x = kt_floats(ROWS * K), *floats = kt_floats(N * K), y[ROWS * N], want[ROWS * N];
	for (int i = 0; i < 3; i++) {
		struct matrix *m = codes_new(4, groups[i], -1, N, K);
		struct kern_dev *d = device(1, ROWS, KERN_HEAD_MODE);
		struct kern_linear_src src = {.name = "layers.1.mlp.up", .k = K, .n_parts = 1};
		struct kern_linear *w = load(d, m), *v;
		struct why why;
		codes_floats(&m->c, 0, N, floats);
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_F32, .n = N, .w = floats};
		cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &v, &why), 0, "%s", why.text);
		run(d, w, x, ROWS, y);
		run(d, v, x, ROWS, want);
		cr_expect_arr_eq(y, want, sizeof y, "groups of %d", groups[i]);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.linear_free(v);
		kern_cpu_ops.close(d);
		matrix_free(m);
	}
	free(x);
	free(floats);
}

/* Zeros and scales of a file are accepted if they can be represented exactly, and refused otherwise. */
Test(bf16, zeros_and_scales_that_are_not_held_are_refused)
{
	enum { AT = 70, N = 80, K = 256 };
	static const struct {
		int offset;
		float scale;
		int result;
	} cases[] = {{16, 0.5f, 0},       {17, 0.5f, -EINVAL},       {255, 0.5f, -EINVAL},
		     {-1, 0.5f, -EINVAL}, {8, 0x1.002p-3f, -EINVAL}, {8, 1e9f, -EINVAL},
		     {0, 0x1.ffcp-3f, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct matrix *m = codes_new(4, 64, -1, N, K);
		struct kern_dev *d = device(2, 1, KERN_HEAD_MODE);
		struct kern_linear_src src = {.name = "layers.1.mlp.up", .k = K, .n_parts = 1};
		struct kern_linear *w;
		struct why why = {""};
		m->offset[AT * 4 + 3] = (int16_t)cases[i].offset;
		m->scale[AT * 4 + 3] = cases[i].scale;
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = N, .w = &m->c};
		cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), cases[i].result, "%s", why.text);
		if (cases[i].result)
			cr_assert(strstr(why.text, "layers.1.mlp.up") && strstr(why.text, "output 70"), "%s",
				  why.text);
		else
			kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
		matrix_free(m);
	}
}

/* ---- the instructions ---- */

#if defined(__x86_64__)
#include <immintrin.h>

static uint16_t special(int how)
{
	static const uint16_t values[16] = {0,      0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x7f81,
					    0xffc1, 1,      0x8001, 0x7f,   0x80,   0x8080, 0x7f7f, 0xff7f};
	const uint16_t r = (uint16_t)kt_rand(), sign = (uint16_t)(kt_rand() << 15), low = r & 0x7f;
	switch (how) {
	case 0:
		return r;
	case 1:
		return values[r % 16];
	case 2:
		return sign | (uint16_t)(r % 20 << 7) | low; /* mix denormals and normals */
	case 3:
		return sign | (uint16_t)((58 + r % 7) << 7) | low; /* products are denormal */
	case 4:
		return sign | (uint16_t)((185 + r % 12) << 7) | low; /* products overflow */
	default:
		return sign | (uint16_t)((110 + r % 30) << 7) | low; /* plain values */
	}
}

/* Compute the expected bits as bf16.h defines them, for one block of floats. C accumulates onto c. */
static void expect_brick(const uint16_t *x, const uint16_t *w, float *c)
{
	const unsigned was = _mm_getcsr();
	_mm_setcsr(was | 0x8040);
	for (int n = 0; n < 16; n++) {
		float even = 0, odd = 0;
		for (int i = 0; i < 16; i++) {
			even = fmaf(half_from_bf16(x[2 * i]), half_from_bf16(w[(i * 16 + n) * 2]), even);
			odd = fmaf(half_from_bf16(x[2 * i + 1]), half_from_bf16(w[(i * 16 + n) * 2 + 1]),
				   odd);
		}
		c[n] += even + odd;
	}
	_mm_setcsr(was);
}

/* Run every native or emulated table on one step of special values. All NaNs count as equal. */
Test(bf16, special_values_have_the_same_bits_in_every_kernel)
{
	enum { ROWS = 20, TRIES = 200 };
	if (!cpu_bf16_avx2())
		cr_skip_test("fmaf() without the instruction is too slow");
	for (int how = 0; how < 6; how++)
		for (int try = 0; try < TRIES; try++) {
			uint16_t x[ROWS][32], w[512];
			float want[ROWS][16] = {{0}};
			for (int i = 0; i < ROWS * 32; i++)
				x[i / 32][i % 32] = special(how);
			for (int i = 0; i < 512; i++)
				w[i] = special(how);
			for (int r = 0; r < ROWS; r++)
				expect_brick(x[r], w, want[r]);
			for (int i = 0; i < N_TABLES; i++) {
				const struct cpu_bf16 *b = table_at(i);
				_Alignas(64) static unsigned char brick[BF16_BRICK], rows[ROWS * 64 * 3],
					scratch[BF16_SCRATCH];
				float values[32], stored[16][32], got[ROWS][16];
				if (!b)
					continue;
				const size_t row = cpu_bf16_row(b, 32);
				cr_assert(row * ROWS <= sizeof rows);
				for (int r = 0; r < ROWS; r++) {
					for (int j = 0; j < 32; j++)
						values[j] = half_from_bf16(x[r][j]);
					cpu_bf16_round(b, rows + (size_t)r * row, values, 32);
				}
				for (int n = 0; n < 16; n++)
					for (int j = 0; j < 32; j++)
						stored[n][j] =
							half_from_bf16(w[(j / 2 * 16 + n) * 2 + j % 2]);
				cpu_bf16_pack_floats(b, brick, stored, KERN_F32, 16, 32, 1);
				const struct cpu_bf16_tile t = {.w = brick,
								.tiles = 1,
								.tn = 1,
								.k = 32,
								.x = rows,
								.row = row,
								.n_rows = ROWS,
								.scratch = scratch,
								.c = got[0]};
				b->tile(&t);
				for (int j = 0; j < ROWS * 16; j++) {
					const float a = got[j / 16][j % 16], e = want[j / 16][j % 16];
					cr_assert(!memcmp(&a, &e, 4) || (isnan(a) && isnan(e)),
						  "%s, values %d: %a and not %a", b->name, how, a, e);
				}
			}
		}
}

#endif
