/* The integer modes: compare every kernel with sums in plain C, bit for bit, and with double precision. */
#include <float.h>

#include "kernels/cpu/cpu.h"
#include "tests/kernels/emulated.h"
#include "tests/kernels/kern_test.h"

/* ---- codes of every kind ---- */

struct made_codes {
	struct codes c;
	uint8_t *code;
	int16_t *offset, *scale;
	float *d, *dmin;
};

static void codes_from(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct made_codes *from = c->from[0];
	const size_t n = (size_t)(n1 - n0), k = (size_t)c->k, g = (size_t)codes_groups(c),
		     s = (size_t)codes_supers(c), at = (size_t)n0;
	memcpy(out->code, from->code + at * k, n * k);
	memcpy(out->scale, from->scale + at * g, n * g * 2);
	memcpy(out->offset, from->offset + at * g, n * g * 2);
	memcpy(out->d, from->d + at * s, n * s * 4);
	if (c->minimums)
		memcpy(out->dmin, from->dmin + at * s, n * s * 4);
}

struct format {
	const char *name;
	int bits, group, per_super; /* values per group; 0: one group per row */
	int zero;                   /* -1: one per group; -2: one per group, some beyond a signed byte */
	bool minimums;
	enum codes_float d_type;
};

static const struct format formats[] = {
	{"4 bits, zeros, 128", 4, 128, 1, -1, false, CODES_F16},
	{"4 bits, zeros, 32", 4, 32, 1, -1, false, CODES_F16},
	{"4 bits, zeros, 96", 4, 96, 1, -1, false, CODES_F16},
	{"4 bits, zeros, rows", 4, 0, 1, -1, false, CODES_F16},
	{"4 bits, zeros to 200, 128", 4, 128, 1, -2, false, CODES_F16},
	{"3 bits, symmetric, 64", 3, 64, 1, 4, false, CODES_F16},
	{"4 bits, minimums, 32 in 256", 4, 32, 8, -1, true, CODES_F16},
	{"8 bits, symmetric, 32", 8, 32, 1, 128, false, CODES_F32},
	{"8 bits, symmetric, 64", 8, 64, 1, 128, false, CODES_F32},
	{"8 bits, symmetric, 128", 8, 128, 1, 128, false, CODES_F32},
	{"8 bits, symmetric, rows", 8, 0, 1, 128, false, CODES_F32},
	{"8 bits, zero 100, 64", 8, 64, 1, 100, false, CODES_F32},
	{"4 bits, zero 200, 64", 4, 64, 1, 200, false, CODES_F16},
	{"5 bits, minimums, 32", 5, 32, 1, -1, true, CODES_F32},
	{"6 bits, zero 32, 16 in 256", 6, 16, 16, 32, false, CODES_F16},
	{"2 bits, minimums, 16 in 256", 2, 16, 16, -1, true, CODES_F16},
	{"3 bits, zero 4, 16 in 256", 3, 16, 16, 4, false, CODES_F16},
	{"4 bits, zero 8, 32", 4, 32, 1, 8, false, CODES_F16},
	{"8 bits, zero 128, 32", 8, 32, 1, 128, false, CODES_F16},
	{"5 bits, minimums, 32 in 256", 5, 32, 8, -1, true, CODES_F16},
	{"6 bits, zero 32, 48 in 96", 6, 48, 2, 32, false, CODES_F16},
	{"6 bits, zero 32, rows", 6, 0, 1, 32, false, CODES_F32},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* Make random codes. Some whole groups are at the ends of their range, which gives the largest possible
 * sums. */
static struct made_codes *codes_new(const struct format *f, int k, int n)
{
	struct made_codes *c = xcalloc(1, sizeof *c);
	const int group = f->group && f->group < k ? f->group : k;
	c->c = (struct codes){.n = n,
			      .k = k,
			      .bits = f->bits,
			      .group = group,
			      .super = group * f->per_super,
			      .minimums = f->minimums,
			      .zero = f->zero < 0 ? -1 : f->zero,
			      .d_type = f->d_type,
			      .read = codes_from,
			      .from = {c}};
	const int top = (1 << f->bits) - 1, g = codes_groups(&c->c), s = codes_supers(&c->c);
	c->code = xmalloc((size_t)(n * k));
	c->scale = xmalloc((size_t)(n * g) * 2);
	c->offset = xmalloc((size_t)(n * g) * 2);
	c->d = xmalloc((size_t)(n * s) * 4);
	c->dmin = xmalloc((size_t)(n * s) * 4);
	for (int i = 0; i < n * k; i++)
		c->code[i] = (uint8_t)(i / k % 5 == 3 ? top : (int)(kt_rand() % (unsigned)(top + 1)));
	for (int i = 0; i < n * g; i++) {
		c->scale[i] = (int16_t)(f->per_super > 1 ? 1 + (int)(kt_rand() % 63) : 1);
		c->offset[i] = (int16_t)(f->zero >= 0 ? f->zero : (int)(kt_rand() % (unsigned)(top + 1)));
		if (f->zero == -2 && i % g % 3 == 1)
			c->offset[i] = 200;
	}
	for (int i = 0; i < n * s; i++) {
		c->d[i] = half_from_f16(kt_half(KERN_F16) & 0x7fff);
		c->dmin[i] = half_from_f16(kt_half(KERN_F16) & 0x7fff);
	}
	return c;
}

static void codes_free(struct made_codes *c)
{
	free(c->code);
	free(c->scale);
	free(c->offset);
	free(c->d);
	free(c->dmin);
	free(c);
}

static double weight(const struct made_codes *c, int n, int i)
{
	const int g = n * codes_groups(&c->c) + i / c->c.group, s = n * codes_supers(&c->c) + i / c->c.super;
	const double d = (double)c->d[s] * c->scale[g], q = c->code[n * c->c.k + i];
	return c->c.minimums ? d * q - (double)c->dmin[s] * c->offset[g] : d * (q - c->offset[g]);
}

/* ---- kernels ---- */

typedef const struct cpu_dot *dot_fn(void);
static dot_fn *const dots[] = {cpu_dot_plain, cpu_dot_avx2,     cpu_dot_avxvnni,     cpu_dot_avx512vnni,
			       cpu_dot_amx,   emulated_avxvnni, emulated_avx512vnni, emulated_amx};
enum { N_DOTS = sizeof dots / sizeof dots[0] };

static const struct cpu_dot *dot_at(int i)
{
	const bool emulated = i >= N_DOTS - 3;
	return emulated && !cpu_dot_avx2() ? NULL : dots[i]();
}

static struct kern_dev *device(enum kern_compute compute, int threads, int rows)
{
	struct kern_open_args a = {.index = -1,
				   .compute = compute,
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

static struct kern_linear *load(struct kern_dev *d, const struct kern_linear_part *p, int k)
{
	struct kern_linear_src src = {.name = "test", .k = k, .group = k, .n_parts = 1, .parts = {*p}};
	struct kern_linear *w;
	struct why why = {""};
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), 0, "%s", why.text);
	return w;
}

/* Make rows with one channel 100 times the others, a row of zeros, and a row of the largest values. */
static float *activations(int rows, int k)
{
	float *x = kt_floats((size_t)rows * (size_t)k);
	for (int r = 0; r < rows; r++)
		for (int i = 0; i < k; i++) {
			x[r * k + i] *= i % 50 == 7 ? 100.0f : 1.0f;
			if (r % 7 == 2)
				x[r * k + i] = 0;
			if (r % 7 == 4)
				x[r * k + i] = r % 2 ? 3e30f : -3e30f;
		}
	return x;
}

static void run(struct kern_dev *d, const struct kern_linear *w, const float *x, int rows, float *y)
{
	struct kern_stream s = {.dev = d};
	unsigned char *in = aligned_alloc(64, (cpu_operand_bytes(d, rows, w->k) + 63) / 64 * 64);
	cpu_quantize(d, in, x, rows, w->k);
	cr_assert_eq(kern_cpu_ops.linear(&s, w, y, in, rows, true), 0);
	free(in);
}

/* Compute y of the quantized inputs in double precision, and its tolerance. */
static void reference(const struct kern_dev *d, const struct made_codes *c, const float *x, int rows,
		      double *y, double *tol)
{
	const int k = c->c.k, n = c->c.n;
	const struct cpu_operand op = cpu_operand(d, k);
	unsigned char *row = aligned_alloc(64, op.row);
	float *v = xmalloc((size_t)rows * (size_t)op.k_pad * sizeof *v);
	double *w = xmalloc((size_t)k * sizeof *w);
	for (int r = 0; r < rows; r++) {
		d->dot->quantize(row, x + (size_t)r * (size_t)k, &op);
		for (int k0 = 0; k0 < k; k0 += ACT_GROUP)
			cpu_dequantize(v + (size_t)r * (size_t)op.k_pad + k0, row, &op, k0,
				       k - k0 < ACT_GROUP ? k - k0 : ACT_GROUP);
	}
	for (int o = 0; o < n; o++) {
		for (int i = 0; i < k; i++)
			w[i] = weight(c, o, i);
		for (int r = 0; r < rows; r++) {
			const float *in = v + (size_t)r * (size_t)op.k_pad;
			double sum = 0, size = 0;
			for (int i = 0; i < k; i++) {
				const double p = (double)in[i] * w[i];
				sum += p;
				size += fabs(p) + fabs((double)in[i]) * fabs((double)c->d[0]);
			}
			y[r * n + o] = sum;
			tol[r * n + o] = size * 4e-6 + 1e-9;
		}
	}
	free(row);
	free(v);
	free(w);
}

static void check_format(enum kern_compute compute, const struct format *f, int k, int n, int rows)
{
	struct made_codes *c = codes_new(f, k, n);
	const size_t all = (size_t)rows * (size_t)n;
	float *x = activations(rows, k), *want = NULL, *y = xmalloc(all * sizeof *y);
	double *ref = xmalloc(all * sizeof *ref), *tol = xmalloc(all * sizeof *tol);
	char what[160];
	for (int i = 0; i < N_DOTS; i++) {
		if (!dot_at(i))
			continue;
		struct kern_dev *d = device(compute, 2, rows);
		d->dot = dot_at(i);
		const struct kern_linear_part p = {.dtype = KERN_CODES, .n = n, .w = &c->c};
		struct kern_linear *w = load(d, &p, k);
		snprintf(what, sizeof what, "%s %s%s: %s, %d rows, %d x %d",
			 compute == KERN_COMPUTE_INT8 ? "int8" : "int16", d->dot->name,
			 i >= N_DOTS - 3 ? " (emulated)" : "", f->name, rows, k, n);
		run(d, w, x, rows, y);
		if (!want) {
			reference(d, c, x, rows, ref, tol);
			kt_near(y, ref, tol, all, what);
			want = xmemdup(y, all * sizeof *y);
		}
		kt_same(y, want, all, what);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
	}
	codes_free(c);
	free(x);
	free(want);
	free(y);
	free(ref);
	free(tol);
}

static void check_formats(enum kern_compute compute)
{
	static const struct {
		int k, n, rows;
	} shapes[] = {
		{512, 136, 1},  {256, 72, 5},   {384, 64, 16},  {200, 40, 3},   {640, 33, 37},
		{72, 16, 70},   {2176, 16, 66}, {328, 520, 75}, {256, 256, 40},  /* tasks of 4 and 2 tiles */
		{512, 520, 1},  {256, 520, 2},                                   /* few rows, 4 tiles */
		{648, 520, 17}, {512, 256, 23}, {384, 520, 32}, {512, 520, 53}}; /* one pass, and two */
	for (size_t f = 0; f < N_FORMATS; f++)
		for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
			check_format(compute, &formats[f], shapes[s].k, shapes[s].n, shapes[s].rows);
	/* Many rows with more segments than the scratch memory holds, in groups of 16 and of 128. */
	for (size_t f = 0; f < N_FORMATS; f++)
		if (formats[f].group == 16 && !formats[f].minimums)
			check_format(compute, &formats[f], 1280, 256, 40);
	check_format(compute, &formats[0], 4352, 520, 40);
}

Test(dot, int8_has_the_same_bits_in_every_kernel)
{
	check_formats(KERN_COMPUTE_INT8);
}

Test(dot, int16_has_the_same_bits_in_every_kernel)
{
	check_formats(KERN_COMPUTE_INT16);
}

/* ---- a row's bits ---- */

Test(dot, a_rows_bits_depend_on_nothing_but_the_row)
{
	enum { K = 416, N = 200, ROWS = 70 };
	static const struct format *const kinds[] = {&formats[0], &formats[7], &formats[6]};
	for (int compute = KERN_COMPUTE_INT16; compute <= KERN_COMPUTE_INT8; compute++)
		for (int f = 0; f < 3; f++)
			for (int i = 0; i < N_DOTS; i++) {
				struct made_codes *c = codes_new(kinds[f], K, N);
				float *x = activations(ROWS, K), *all = kt_floats(ROWS * N),
				      *y = kt_floats(ROWS * N);
				const struct kern_linear_part p = {.dtype = KERN_CODES, .n = N, .w = &c->c};
				for (int threads = 1; dot_at(i) && threads <= 3; threads++) {
					struct kern_dev *d =
						device((enum kern_compute)compute, threads, ROWS);
					d->dot = dot_at(i);
					struct kern_linear *w = load(d, &p, K);
					if (threads == 1)
						run(d, w, x, ROWS, all);
					for (int m = 1; m <= ROWS; m += m < 8 ? 1 : 17) {
						const int r0 = m * 37 % (ROWS - m + 1);
						run(d, w, x + r0 * K, m, y);
						kt_same(y, all + r0 * N, (size_t)(m * N), d->dot->name);
					}
					kern_cpu_ops.linear_free(w);
					kern_cpu_ops.close(d);
				}
				codes_free(c);
				free(x);
				free(all);
				free(y);
			}
}

/* ---- activations ---- */

/* Return the root mean square error relative to the outputs, for the kinds of activations in
 * docs/performance/cpu.md. */
static double error_of(enum kern_compute compute, const float *x, int rows, const struct made_codes *c)
{
	const int k = c->c.k, n = c->c.n;
	const struct kern_linear_part p = {.dtype = KERN_CODES, .n = n, .w = &c->c};
	struct kern_dev *d = device(compute, 1, rows);
	struct kern_linear *w = load(d, &p, k);
	float *y = kt_floats((size_t)(rows * n));
	double off = 0, size = 0;
	run(d, w, x, rows, y);
	for (int r = 0; r < rows; r++)
		for (int o = 0; o < n; o++) {
			double sum = 0;
			for (int i = 0; i < k; i++)
				sum += (double)x[r * k + i] * weight(c, o, i);
			off += ((double)y[r * n + o] - sum) * ((double)y[r * n + o] - sum);
			size += sum * sum;
		}
	free(y);
	kern_cpu_ops.linear_free(w);
	kern_cpu_ops.close(d);
	return sqrt(off / size);
}

/* Covers AWQ's groups: 128, 32, 96 and whole rows. */
Test(dot, int16_errs_by_less_than_a_five_thousandth)
{
	enum { K = 1152, N = 64, ROWS = 8 };
	for (int f = 0; f < 4; f++) {
		struct made_codes *c = codes_new(&formats[f], K, N);
		for (int kind = 0; kind < 3; kind++) {
			float *x = kt_floats(ROWS * K);
			for (int i = 0; i < ROWS * K; i++)
				x[i] *= kind == 1 && i % K % 100 == 3   ? 20.0f
					: kind == 2 && i % K % 500 == 3 ? 100.0f
									: 1;
			const double e16 = error_of(KERN_COMPUTE_INT16, x, ROWS, c);
			const double e8 = error_of(KERN_COMPUTE_INT8, x, ROWS, c);
			cr_assert(e16 < 2e-4 && e16 > 0, "%s, kind %d: int16 errs by %g", formats[f].name,
				  kind, e16);
			cr_assert(e8 < 4e-2 && e8 > e16, "%s, kind %d: int8 errs by %g", formats[f].name,
				  kind, e8);
			free(x);
		}
		codes_free(c);
	}
}

Test(dot, activations_are_quantized_alike_by_every_kernel)
{
	enum { K = 520 };
	float *x = activations(8, K);
	x[0] = INFINITY;
	x[K + 200] = NAN;
	x[5 * K] = 1e-35f;
	for (int wide = 0; wide < 2; wide++) {
		struct kern_dev *d = device(wide ? KERN_COMPUTE_INT16 : KERN_COMPUTE_INT8, 1, 8);
		const struct cpu_operand op = cpu_operand(d, K);
		unsigned char *want = xcalloc(8, op.row), *got = xcalloc(8, op.row);
		for (int r = 0; r < 8; r++)
			cpu_dot_plain()->quantize(want + (size_t)r * op.row, x + r * K, &op);
		for (int i = 1; i < N_DOTS; i++) {
			if (!dot_at(i))
				continue;
			for (int r = 0; r < 8; r++)
				dot_at(i)->quantize(got + (size_t)r * op.row, x + r * K, &op);
			cr_assert_eq(memcmp(got, want, 8 * op.row), 0, "%s", dot_at(i)->name);
		}
		free(want);
		free(got);
		kern_cpu_ops.close(d);
	}
	free(x);
}

/* A non-finite value changes every output of its row, and no other row's outputs. */
Test(dot, a_value_that_is_not_finite_reaches_every_output_of_its_row_only)
{
	enum { K = 256, N = 40, ROWS = 3 };
	struct made_codes *c = codes_new(&formats[0], K, N);
	const struct kern_linear_part p = {.dtype = KERN_CODES, .n = N, .w = &c->c};
	float *x = kt_floats(ROWS * K), y[ROWS * N];
	x[K + 130] = INFINITY;
	struct kern_dev *d = device(KERN_COMPUTE_INT8, 1, ROWS);
	struct kern_linear *w = load(d, &p, K);
	run(d, w, x, ROWS, y);
	for (int i = 0; i < ROWS * N; i++)
		cr_assert_eq(y[i] == y[i], i / N != 1, "output %d of row %d: %g", i % N, i / N, (double)y[i]);
	kern_cpu_ops.linear_free(w);
	kern_cpu_ops.close(d);
	codes_free(c);
	free(x);
}

/* ---- formats that the kernels do not read ---- */

Test(dot, codes_that_no_kernel_reads_become_floats)
{
	enum { ROWS = 3, K = 400, N = 24 };
	static const struct format odd[] = {{"groups of 40", 4, 40, 1, -1, false, CODES_F16},
					    {"8 bits, groups of 40", 8, 40, 1, 100, false, CODES_F32}};
	float *x = kt_floats(ROWS * K), *floats = kt_floats(N * K), y[ROWS * N], want[ROWS * N];
	for (int i = 0; i < 2; i++) {
		struct made_codes *c = codes_new(&odd[i], K, N);
		const struct kern_linear_part codes = {.dtype = KERN_CODES, .n = N, .w = &c->c};
		const struct kern_linear_part dense = {.dtype = KERN_F32, .n = N, .w = floats};
		struct kern_dev *d = device(KERN_COMPUTE_INT16, 1, ROWS);
		codes_floats(&c->c, 0, N, floats);
		struct kern_linear *w = load(d, &codes, K), *v = load(d, &dense, K);
		run(d, w, x, ROWS, y);
		run(d, v, x, ROWS, want);
		cr_expect_arr_eq(y, want, sizeof y, "%s", odd[i].name);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.linear_free(v);
		kern_cpu_ops.close(d);
		codes_free(c);
	}
	free(x);
	free(floats);
}

/* ---- refused layers ---- */

Test(dot, codes_of_another_number_of_outputs_are_refused)
{
	struct made_codes *c = codes_new(&formats[0], 256, 48);
	struct kern_dev *d = device(KERN_COMPUTE_INT8, 1, 1);
	struct why why;
	for (int n = 32; n <= 64; n += 8) {
		struct kern_linear_src src = {.name = "layers.1.mlp.up", .k = 256, .n_parts = 1};
		struct kern_linear *w;
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = n, .w = &c->c};
		cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), n == 48 ? 0 : -EINVAL);
		kern_cpu_ops.linear_free(w);
	}
	kern_cpu_ops.close(d);
	codes_free(c);
}

Test(dot, a_bias_of_no_known_type_is_refused)
{
	struct made_codes *c = codes_new(&formats[0], 256, 48);
	struct kern_dev *d = device(KERN_COMPUTE_INT8, 1, 1);
	struct kern_linear_src src = {.name = "layers.1.mlp.up", .k = 256, .n_parts = 1};
	struct kern_linear *w;
	struct why why;
	src.parts[0] = (struct kern_linear_part){
		.dtype = KERN_CODES, .n = 48, .w = &c->c, .bias = c->d, .bias_dtype = KERN_AWQ4};
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), -EINVAL);
	cr_assert(strstr(why.text, "bias"), "%s", why.text);
	kern_cpu_ops.close(d);
	codes_free(c);
}

/* The header of a super-group holds d in F16 and one-byte integers. Scales that do not fit are refused. */
Test(dot, scales_that_no_head_holds_are_refused)
{
	static const struct format f = {"6 bits", 6, 16, 16, 32, false, CODES_F16},
				   m = {"4 bits", 4, 32, 8, -1, true, CODES_F16};
	for (int i = 0; i < 8; i++) {
		struct made_codes *c = codes_new(i < 5 ? &f : &m, 512, 48);
		struct kern_dev *d = device(i % 2 ? KERN_COMPUTE_INT8 : KERN_COMPUTE_F32, 1, 1);
		struct kern_linear_src src = {.name = "layers.1.mlp.up", .k = 512, .n_parts = 1};
		struct kern_linear *w;
		struct why why = {""};
		c->scale[40] = (int16_t)(i == 0 ? 127 : i == 1 ? -128 : i == 2 ? 128 : i == 3 ? -129 : 1);
		c->offset[40] = (int16_t)(i == 5 ? 255 : i == 6 ? 256 : i == 7 ? -1 : 0);
		c->d[3] = i == 4 ? 1.0f / 3 : 1;
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = 48, .w = &c->c};
		const int e = kern_cpu_ops.linear_load(d, &src, &w, &why);
		cr_expect_eq(e, i < 2 || i == 5 ? 0 : -EINVAL, "%d: %d", i, e);
		cr_expect(!e || (strstr(why.text, "layers.1.mlp.up") &&
				 strstr(why.text, i < 5 ? "output 1" : "output 2")),
			  "%d: %s", i, why.text);
		if (!e)
			kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
		codes_free(c);
	}
}

/* ---- sizes ---- */

/* The GGUF types take 18 and 34 bytes per 32 values, and 144, 176 and 210 bytes per 256 values in a file. */
Test(dot, codes_take_about_what_they_take_in_a_file)
{
	static const struct {
		struct format f;
		double bits, file;
	} types[] = {{{"Q4_0", 4, 32, 1, 8, false, CODES_F16}, 4.5, 4.5},
		     {{"Q8_0", 8, 32, 1, 128, false, CODES_F16}, 8.5, 8.5},
		     {{"Q4_K", 4, 32, 8, -1, true, CODES_F16}, 4.625, 4.5},
		     {{"Q5_K", 5, 32, 8, -1, true, CODES_F16}, 6.625, 5.5},
		     {{"Q6_K", 6, 16, 16, 32, false, CODES_F16}, 6.5625, 6.5625}};
	enum { K = 1024, N = 128 };
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		struct made_codes *c = codes_new(&types[i].f, K, N);
		struct kern_dev *d = device(KERN_COMPUTE_INT16, 1, 1);
		const struct kern_linear_part p = {.dtype = KERN_CODES, .n = N, .w = &c->c};
		struct kern_linear *w = load(d, &p, K);
		cr_expect_eq((double)kern_cpu_ops.linear_bytes(w), types[i].bits * K * N / 8, "%s",
			     types[i].f.name);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
		codes_free(c);
	}
}

/* The output head may read more rows than a batch has. Its packing buffer must hold all of them. */
Test(dot, floats_take_as_many_rows_as_there_are_logits)
{
	enum { K = 4096, N = 8, LOGITS = 40 };
	struct kern_open_args a = {.index = -1,
				   .n_threads = 1,
				   .max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = LOGITS,
				   .max_context = 1,
				   .max_blocks_per_seq = 1};
	float *f = kt_floats(N * K), *x = kt_floats(LOGITS * K), y[LOGITS * N], alone[N];
	struct kern_linear_part p = {.dtype = KERN_F32, .n = N, .w = f};
	for (int int16 = 0; int16 < 2; int16++) {
		struct kern_dev *d;
		struct why why;
		a.compute = int16 ? KERN_COMPUTE_INT16 : KERN_COMPUTE_F32;
		cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
		struct kern_stream s = {.dev = d};
		struct kern_linear *w = load(d, &p, K);
		const size_t row = cpu_operand_bytes(d, 1, K);
		unsigned char *in = aligned_alloc(64, LOGITS * row);
		if (int16)
			cpu_quantize(d, in, x, LOGITS, K);
		else
			memcpy(in, x, LOGITS * row);
		cr_assert_eq(kern_cpu_ops.linear(&s, w, y, in, LOGITS, true), 0);
		cr_assert_eq(kern_cpu_ops.linear(&s, w, alone, in + (LOGITS - 1) * row, 1, true), 0);
		kt_same(y + (LOGITS - 1) * N, alone, N, "the last row");
		free(in);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
	}
	free(f);
	free(x);
}

/* ---- floats to INT8 ---- */

Test(dot, the_largest_weights_are_not_lost)
{
	float weights[3][32] = {{0}, {0}, {0}};
	weights[0][3] = -FLT_MAX;
	weights[1][3] = INFINITY;
	weights[2][3] = 2;
	const struct kern_linear_part p = {.dtype = KERN_F32, .n = 3, .w = weights};
	struct codes c;
	struct code_rows r;
	codes_dense(&c, &p, 32);
	codes_rows_new(&r, &c, 3);
	c.read(&c, 0, 3, &r);
	cr_assert(r.code[3] == 1 && r.d[0] == FLT_MAX / 127);
	cr_assert(r.d[1] == INFINITY);
	cr_assert(r.code[64 + 3] == 255 && r.code[64] == 128 && r.d[2] == 2.0f / 127);
	codes_rows_free(&r);
}
