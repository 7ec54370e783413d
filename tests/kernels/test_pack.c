/* Weights with their own packed formats: 8-bit floats, tables, reordered inputs. Each result is compared bit
 * for bit with the same weights in a format that other tests compare with double precision. */
#include "kernels/cpu/cpu.h"
#include "tests/kernels/kern_test.h"

static const char *const isas[] = {"avx512", "avx2", "plain"};
enum { N_ISAS = 3, ROWS = 19 };

/* Open a device; NULL if this machine lacks the instruction set. */
static struct kern_dev *device(enum kern_compute compute, const char *isa)
{
	struct kern_open_args a = {.index = -1,
				   .compute = compute,
				   .isa = isa,
				   .n_threads = 2,
				   .max_rows = ROWS,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 1,
				   .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct why why;
	return kern_cpu_ops.open(&d, &a, &why) ? NULL : d;
}

static struct kern_linear *load(struct kern_dev *d, enum kern_dtype dtype, const void *const *parts,
				int n_parts, int n, int k)
{
	struct kern_linear_src src = {.name = "test", .k = k, .n_parts = n_parts};
	struct kern_linear *w;
	struct why why = {""};
	for (int i = 0; i < n_parts; i++)
		src.parts[i] = (struct kern_linear_part){.dtype = dtype, .n = n, .w = parts[i]};
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), 0, "%s", why.text);
	return w;
}

static struct kern_linear *load_codes(struct kern_dev *d, const struct codes *c)
{
	return load(d, KERN_CODES, (const void *[]){c}, 1, c->n, c->k);
}

/* Load the weights that the codes represent, as floats. */
static struct kern_linear *load_floats(struct kern_dev *d, const struct codes *c)
{
	float *f = xmalloc((size_t)c->n * (size_t)c->k * sizeof *f);
	codes_floats(c, 0, c->n, f);
	struct kern_linear *w = load(d, KERN_F32, (const void *[]){f}, 1, c->n, c->k);
	free(f);
	return w;
}

static unsigned char *operands(struct kern_dev *d, const float *x, int rows, int k)
{
	unsigned char *in = aligned_alloc(64, (cpu_operand_bytes(d, rows, k) + 63) / 64 * 64);
	if (cpu_has_operands(d))
		cpu_quantize(d, in, x, rows, k);
	else
		memcpy(in, x, (size_t)rows * (size_t)k * sizeof *x);
	return in;
}

static void run(struct kern_dev *d, const struct kern_linear *w, const float *x, int rows, float *y)
{
	struct kern_stream s = {.dev = d};
	unsigned char *in = operands(d, x, rows, w->k);
	cr_assert_eq(kern_cpu_ops.linear(&s, w, y, in, rows, true), 0);
	free(in);
}

/* Compare both layers on 1 to ROWS rows. */
static void check_same(struct kern_dev *d, const struct kern_linear *w, const struct kern_linear *v,
		       const char *what)
{
	const size_t n = (size_t)ROWS * (size_t)w->n;
	float *x = kt_floats((size_t)ROWS * (size_t)w->k), *y = xmalloc(n * 4), *want = xmalloc(n * 4);
	for (int rows = 1; rows <= ROWS; rows += 6) {
		run(d, w, x, rows, y);
		run(d, v, x, rows, want);
		kt_same(y, want, (size_t)rows * (size_t)w->n, what);
	}
	free(x);
	free(y);
	free(want);
}

/* ---- floats of 8 bits ---- */

static float e4m3[256];

static void fill_e4m3(void)
{
	for (int i = 0; i < 256; i++) {
		const int e = i >> 3 & 15, m = i & 7;
		const double size = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
		e4m3[i] = (i & 127) == 127 ? NAN : (float)(i < 128 ? size : -size);
	}
}

/* Read all codes except the NaN codes. */
static void read_e4m3(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	kt_codes_read(c, n0, n1, out);
	for (size_t i = 0; i < (size_t)(n1 - n0) * (size_t)c->k; i++)
		if ((out->code[i] & 127) == 127)
			out->code[i] ^= 1;
	for (size_t i = 0; i < (size_t)(n1 - n0) * (size_t)codes_groups(c); i++)
		out->offset[i] = 0;
	for (size_t i = 0; c->d_type != CODES_F16 && i < (size_t)(n1 - n0) * (size_t)codes_supers(c); i++)
		out->d[i] *= c->d_type == CODES_F32 ? 1.0000001f : 0x1p-40f;
}

static struct codes e4m3_codes(int n, int k, int group, enum codes_float d_type)
{
	return (struct codes){.n = n,
			      .k = k,
			      .bits = 8,
			      .group = group < k ? group : k,
			      .super = group < k ? group : k,
			      .d_type = d_type,
			      .table = e4m3,
			      .read = read_e4m3};
}

Test(pack, floats_of_8_bits_have_the_bits_of_their_floats)
{
	static const struct {
		int n, k, group;
		enum codes_float d_type;
	} of[] = {{70, 300, 128, CODES_F32},
		  {64, 256, 128, CODES_BF16},
		  {129, 96, 32, CODES_F16},
		  {48, 320, 999, CODES_F16},
		  {5, 37, 16, CODES_F32}};
	static const enum kern_compute modes[] = {KERN_COMPUTE_F32, KERN_COMPUTE_INT16};
	fill_e4m3();
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		for (int mode = 0; mode < 2; mode++)
			for (int isa = 0; isa < N_ISAS; isa++) {
				struct kern_dev *d = device(modes[mode], isas[isa]);
				if (!d)
					continue;
				const struct codes c =
					e4m3_codes(of[i].n, of[i].k, of[i].group, of[i].d_type);
				struct kern_linear *w = load_codes(d, &c), *v = load_floats(d, &c);
				check_same(d, w, v, isas[isa]);
				kern_cpu_ops.linear_free(w);
				kern_cpu_ops.linear_free(v);
				kern_cpu_ops.close(d);
			}
}

/* Output 3 has NaN codes of both signs, as in a damaged file. */
static void read_e4m3_with_nan(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	read_e4m3(c, n0, n1, out);
	if (n0 <= 3 && n1 > 3) {
		out->code[(size_t)(3 - n0) * (size_t)c->k + 1] = 0x7f;
		out->code[(size_t)(3 - n0) * (size_t)c->k + 20] = 0xff;
	}
}

Test(pack, floats_of_8_bits_that_are_nan_stay_nan)
{
	static const enum kern_compute modes[] = {KERN_COMPUTE_F32, KERN_COMPUTE_INT16};
	float x[64], y[48];
	fill_e4m3();
	for (int i = 0; i < 64; i++)
		x[i] = 1;
	for (int mode = 0; mode < 2; mode++)
		for (int isa = 0; isa < N_ISAS; isa++) {
			struct kern_dev *d = device(modes[mode], isas[isa]);
			struct codes c = e4m3_codes(48, 64, 32, CODES_F16);
			c.read = read_e4m3_with_nan;
			if (!d)
				continue;
			struct kern_linear *w = load_codes(d, &c);
			run(d, w, x, 1, y);
			for (int i = 0; i < 48; i++)
				cr_expect_eq(isnan(y[i]) != 0, i == 3, "%s: output %d is %g", isas[isa], i,
					     y[i]);
			kern_cpu_ops.linear_free(w);
			kern_cpu_ops.close(d);
		}
}

Test(pack, floats_of_8_bits_take_a_byte_each)
{
	static const double bits[] = {[KERN_COMPUTE_F32] = 8.25,
				      [KERN_COMPUTE_BF16] = 16,
				      [KERN_COMPUTE_INT16] = 8.25,
				      [KERN_COMPUTE_INT8] = 8.25};
	fill_e4m3();
	for (int mode = KERN_COMPUTE_F32; mode <= KERN_COMPUTE_INT8; mode++) {
		struct kern_dev *d = device((enum kern_compute)mode, NULL);
		const struct codes c = e4m3_codes(128, 1024, 128, CODES_F32);
		struct kern_linear *w = load_codes(d, &c);
		cr_expect_eq((double)kern_cpu_ops.linear_bytes(w), bits[mode] * 128 * 1024 / 8, "%s",
			     kern_compute_name((enum kern_compute)mode));
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.close(d);
	}
}

/* ---- tables ---- */

Test(pack, codes_of_a_table_of_16_have_the_bits_of_their_floats)
{
	static const float table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
					1,    13,   25,  38,  53,  69,  89,  113};
	for (int k = 96; k <= 288; k += 192)
		for (int isa = 0; isa < N_ISAS; isa++) {
			struct kern_dev *d = device(KERN_COMPUTE_F32, isas[isa]);
			const struct codes c = {.n = 70,
						.k = k,
						.bits = 4,
						.group = 32,
						.super = 96,
						.d_type = CODES_F16,
						.table = table,
						.read = kt_codes_read};
			if (!d)
				continue;
			struct kern_linear *w = load_codes(d, &c), *v = load_floats(d, &c);
			cr_expect_lt(kern_cpu_ops.linear_bytes(w), kern_cpu_ops.linear_bytes(v) / 3);
			check_same(d, w, v, isas[isa]);
			kern_cpu_ops.linear_free(w);
			kern_cpu_ops.linear_free(v);
			kern_cpu_ops.close(d);
		}
}

/* ---- inputs in another order ---- */

enum { K = 320, N = 72 };

/* GPTQ formats: a zero per group, one zero for all, and 8 bits with one group per row. */
static const struct codes orders[] = {
	{.bits = 4, .group = 64, .super = 64, .zero = -1, .d_type = CODES_F16},
	{.bits = 4, .group = 32, .super = 32, .zero = 8, .d_type = CODES_F16},
	{.bits = 8, .group = K, .super = K, .zero = 128, .d_type = CODES_F16},
};
enum { N_ORDERS = sizeof orders / sizeof *orders };

static void read_ordered(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	kt_codes_read(c, n0, n1, out);
	for (size_t i = 0; i < (size_t)(n1 - n0) * (size_t)codes_groups(c); i++)
		if (c->zero < 0)
			out->offset[i] = (int16_t)(i * 7 % 16);
}

static struct codes ordered(int i, const int32_t *perm)
{
	struct codes c = orders[i];
	c.n = N;
	c.k = K;
	c.perm = perm;
	c.read = read_ordered;
	return c;
}

static const int32_t *shuffled(void)
{
	static int32_t perm[K];
	for (int i = 0; i < K; i++)
		perm[i] = i * 77 % K; /* 77 and K have no common divisor */
	return perm;
}

/* Quantize rows as the operands of d, convert them back to floats, and permute their values by perm. */
static void reorder(struct kern_dev *d, const float *x, int rows, const int32_t *perm, float *out)
{
	for (int r = 0; r < rows; r++) {
		float row[(K + ACT_GROUP - 1) / ACT_GROUP * ACT_GROUP];
		unsigned char *in = operands(d, x + (size_t)r * K, 1, K);
		const struct cpu_operand op = cpu_operand(d, K);
		if (d->bf16)
			cpu_bf16_floats(d->bf16, row, in, K);
		else if (cpu_is_integer(d))
			for (int k0 = 0; k0 < K; k0 += ACT_GROUP)
				cpu_dequantize(row + k0, in, &op, k0,
					       K - k0 < ACT_GROUP ? K - k0 : ACT_GROUP);
		else
			memcpy(row, x + (size_t)r * K, K * sizeof *row);
		for (int i = 0; i < K; i++)
			out[r * K + i] = row[perm[i]];
		free(in);
	}
}

/* In int8, reordered values become 16-bit operands, so that they are not rounded twice. */
static void check_order(enum kern_compute mode, const char *isa, int i)
{
	struct kern_dev *d = device(mode, isa), *same;
	if (!d)
		return;
	const int32_t *perm = shuffled();
	const struct codes c = ordered(i, perm), plain = ordered(i, NULL);
	same = device(mode == KERN_COMPUTE_INT8 ? KERN_COMPUTE_INT16 : mode, isa);
	struct kern_linear *w = load_codes(d, &c), *v = load_codes(same, &plain);
	float *x = kt_floats(ROWS * K), *z = xmalloc(ROWS * K * sizeof *z);
	float *y = xmalloc(ROWS * N * sizeof *y), *want = xmalloc(ROWS * N * sizeof *want);
	reorder(d, x, ROWS, perm, z);
	run(same, v, z, ROWS, want);
	for (int rows = 1; rows <= ROWS; rows += 6) {
		run(d, w, x, rows, y);
		kt_same(y, want, (size_t)(rows * N), kern_compute_name(mode));
	}
	cr_expect_eq(kern_cpu_ops.linear_bytes(w), kern_cpu_ops.linear_bytes(v) + 4 * K, "%s",
		     kern_compute_name(mode));
	kern_cpu_ops.linear_free(w);
	kern_cpu_ops.linear_free(v);
	kern_cpu_ops.close(d);
	kern_cpu_ops.close(same);
	free(x);
	free(z);
	free(y);
	free(want);
}

Test(pack, codes_of_reordered_inputs_stay_codes_and_have_the_bits_of_reordered_rows)
{
	for (int mode = KERN_COMPUTE_F32; mode <= KERN_COMPUTE_INT8; mode++)
		for (int isa = 0; isa < N_ISAS; isa++)
			for (int i = 0; i < N_ORDERS; i++)
				check_order((enum kern_compute)mode, isas[isa], i);
}

/* q, k and v keep their codes if they share one input order; otherwise each becomes floats. */
Test(pack, parts_of_two_orders_become_floats)
{
	static int32_t other[K];
	for (int i = 0; i < K; i++)
		other[i] = K - 1 - i;
	const struct codes a = ordered(0, shuffled()), b = ordered(0, other), c = ordered(0, NULL);
	const struct codes *pairs[][2] = {{&a, &b}, {&a, &c}, {&c, &a}, {&a, &a}};
	for (int i = 0; i < 4; i++) {
		struct kern_dev *d = device(KERN_COMPUTE_F32, NULL);
		struct kern_linear *w = load(d, KERN_CODES, (const void *const *)pairs[i], 2, N, K);
		struct kern_linear *one[2] = {load_floats(d, pairs[i][0]), load_floats(d, pairs[i][1])};
		float *x = kt_floats(K), y[2 * N], want[2 * N];
		run(d, w, x, 1, y);
		run(d, one[0], x, 1, want);
		run(d, one[1], x, 1, want + N);
		for (int n = 0; n < 2 * N; n++)
			cr_expect_float_eq(y[n], want[n], 1e-4f + fabsf(want[n]) * 1e-4f, "%d: %g, %g", n,
					   (double)y[n], (double)want[n]);
		cr_expect_eq(w->order != NULL, i == 3);
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.linear_free(one[0]);
		kern_cpu_ops.linear_free(one[1]);
		kern_cpu_ops.close(d);
		free(x);
	}
}

Test(pack, gate_and_up_of_reordered_inputs_give_an_operand)
{
	const struct codes c = ordered(1, shuffled()), plain = ordered(1, NULL);
	for (int mode = KERN_COMPUTE_F32; mode <= KERN_COMPUTE_INT16; mode++) {
		struct kern_dev *d = device((enum kern_compute)mode, NULL);
		struct kern_linear *w = load(d, KERN_CODES, (const void *[]){&c, &c}, 2, N, K);
		struct kern_linear *v = load(d, KERN_CODES, (const void *[]){&plain, &plain}, 2, N, K);
		struct kern_stream s = {.dev = d};
		const size_t bytes = cpu_operand_bytes(d, ROWS, N);
		float *x = kt_floats(ROWS * K), *z = xmalloc(ROWS * K * sizeof *z);
		unsigned char *got = aligned_alloc(64, (bytes + 63) / 64 * 64),
			      *want = aligned_alloc(64, (bytes + 63) / 64 * 64);
		reorder(d, x, ROWS, c.perm, z);
		unsigned char *in = operands(d, x, ROWS, K), *moved = operands(d, z, ROWS, K);
		memset(got, 0, bytes);
		memset(want, 0, bytes);
		cr_assert_eq(kern_cpu_ops.gateup_swiglu(&s, w, got, in, ROWS), 0);
		cr_assert_eq(kern_cpu_ops.gateup_swiglu(&s, v, want, moved, ROWS), 0);
		cr_expect_arr_eq(got, want, bytes, "%s", kern_compute_name((enum kern_compute)mode));
		kern_cpu_ops.linear_free(w);
		kern_cpu_ops.linear_free(v);
		kern_cpu_ops.close(d);
		free(x);
		free(z);
		free(in);
		free(moved);
		free(got);
		free(want);
	}
}

Test(pack, an_order_that_is_none_is_refused)
{
	int32_t twice[K], beyond[K];
	memcpy(twice, shuffled(), sizeof twice);
	memcpy(beyond, twice, sizeof beyond);
	twice[7] = twice[8];
	beyond[9] = K;
	const int32_t *bad[] = {twice, beyond};
	for (int i = 0; i < 2; i++) {
		struct kern_dev *d = device(KERN_COMPUTE_INT8, NULL);
		const struct codes c = ordered(0, bad[i]);
		struct kern_linear_src src = {.name = "layers.2.mlp.up", .k = K, .n_parts = 1};
		struct kern_linear *w;
		struct why why = {""};
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = N, .w = &c};
		cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), -EINVAL);
		cr_expect(strstr(why.text, "layers.2.mlp.up") && strstr(why.text, "order"), "%s", why.text);
		kern_cpu_ops.close(d);
	}
}
