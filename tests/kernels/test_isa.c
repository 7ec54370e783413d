/* Compare the F32 kernels for AVX-512 with plain C, bit for bit. They are emulated, so that the test also
 * runs without AVX-512. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/attention/kvtype.h"
#include "tests/kernels/emulated.h"
#include "tests/kernels/kern_test.h"

static const struct cpu_isa *emulated(void)
{
	if (!cpu_isa_avx2())
		cr_skip_test("the emulation needs AVX2");
	return emulated_avx512();
}

/* ---- linear ---- */

/* Make a weight block in the layout that isa.h draws. */
static unsigned char *block_new(enum kern_dtype dtype, int tiles, int k, int group)
{
	const size_t lanes = (size_t)tiles * LANES_N;
	if (dtype == KERN_F32)
		return (unsigned char *)kt_floats((size_t)k * lanes);
	if (dtype != KERN_AWQ4) {
		uint16_t *w = xmalloc((size_t)k * lanes * sizeof *w);
		for (size_t i = 0; i < (size_t)k * lanes; i++)
			w[i] = kt_half(dtype);
		return (unsigned char *)w;
	}
	unsigned char *w = xcalloc((size_t)(k / 8 + 2 * k / group + 4), lanes * 4), *p = w;
	for (int k0 = 0; k0 < k; k0 += group) {
		const int len = k - k0 < group ? k - k0 : group;
		for (int t = 0; t < tiles; t++, p += AWQ_HEAD)
			for (int i = 0; i < LANES_N; i++) {
				const uint16_t scale = kt_half(KERN_F16);
				memcpy(p + i * 2, &scale, 2);
				p[32 + i] = (unsigned char)(kt_rand() % 16);
			}
		for (size_t i = 0; i < (size_t)((len + 7) / 8) * lanes * 4; i++)
			*p++ = (unsigned char)(kt_rand() >> 8);
	}
	return w;
}

/* Run a linear layer on rows in the table's layout: blocks of [k][m]. */
static void linear_by(const struct cpu_isa *isa, struct cpu_tile t, const float *x, float *c)
{
	const int n = (t.n_rows + isa->rows_max - 1) / isa->rows_max;
	float *packed = xmalloc((size_t)t.n_rows * (size_t)t.k * sizeof *packed), *to = packed;
	for (int b = 0, r0 = 0; b < n; b++) {
		const int m = t.n_rows / n + (b < t.n_rows % n);
		for (int k = 0; k < t.k; k++)
			for (int r = 0; r < m; r++)
				*to++ = x[(r0 + r) * t.k + k];
		r0 += m;
	}
	t.x = packed;
	t.n_row_blocks = n;
	t.c = c;
	isa->linear_tile(&t);
	free(packed);
}

static void check_linear(enum kern_dtype dtype, int tiles, int k, int group)
{
	static const int rows[] = {1, 2, 3, 4, 5, 7, 10, 11, 23};
	unsigned char *w = block_new(dtype, tiles, k, group);
	char what[96];
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (int tn = 1; tn <= tiles; tn *= 2)
			for (int t0 = 0; t0 < tiles; t0 += tn) {
				const size_t n = (size_t)rows[i] * (size_t)tn * LANES_N;
				float *x = kt_floats((size_t)rows[i] * (size_t)k), *got = kt_floats(n),
				      *want = kt_floats(n);
				const struct cpu_tile t = {.dtype = dtype,
							   .w = w,
							   .tiles = tiles,
							   .t0 = t0,
							   .tn = tn,
							   .k = k,
							   .codes.group = group,
							   .n_rows = rows[i]};
				linear_by(emulated(), t, x, got);
				linear_by(cpu_isa_plain(), t, x, want);
				snprintf(what, sizeof what, "type %d, tiles %d to %d of %d, k %d, %d rows",
					 (int)dtype, t0, t0 + tn, tiles, k, rows[i]);
				kt_same(got, want, n, what);
				free(x);
				free(got);
				free(want);
			}
	free(w);
}

Test(isa, avx512_multiplies_as_plain_c_does)
{
	static const enum kern_dtype dtypes[] = {KERN_F32, KERN_F16, KERN_BF16, KERN_AWQ4};
	emulated();
	for (int d = 0; d < 4; d++)
		for (int tiles = 1; tiles <= BLOCK_TILES; tiles *= 2) {
			check_linear(dtypes[d], tiles, 40, 40);
			check_linear(dtypes[d], tiles, 141, 32);
		}
}

Test(isa, avx512_stores_as_plain_c_does)
{
	enum { ROWS = 3, WIDE = 64 };
	const struct cpu_isa *a = emulated(), *b = cpu_isa_plain();
	float *c = kt_floats(ROWS * WIDE), *up = kt_floats(ROWS * WIDE), *bias = kt_floats(2 * WIDE);
	for (int i = 0; i < ROWS * WIDE; i += 7)
		c[i] *= 200;
	for (int n = 1; n <= WIDE; n++)
		for (int with = 0; with < 2; with++) {
			float got[ROWS * WIDE] = {0}, want[ROWS * WIDE] = {0};
			const float *b0 = with ? bias : NULL, *b1 = with ? bias + WIDE : NULL;
			a->store_rows(got, WIDE, c, WIDE, b0, ROWS, n);
			b->store_rows(want, WIDE, c, WIDE, b0, ROWS, n);
			kt_same(got, want, ROWS * WIDE, "store_rows");
			const enum kern_act acts[] = {KERN_SILU, KERN_GELU_TANH, KERN_GELU_SIGMOID};
			for (int act = 0; act < 3; act++) {
				struct cpu_glu g = {.act = acts[act],
						    .limit = 0.5f,
						    .plus = 1,
						    .out = got,
						    .out_stride = WIDE,
						    .gate = c,
						    .up = up,
						    .c_stride = WIDE,
						    .gate_bias = b0,
						    .up_bias = b1,
						    .n_rows = ROWS,
						    .n = n};
				a->store_glu(&g);
				g.out = want;
				b->store_glu(&g);
				kt_same(got, want, ROWS * WIDE, "store_glu");
			}
			a->softcap(got, n, 0.75f);
			b->softcap(want, n, 0.75f);
			kt_same(got, want, ROWS * WIDE, "softcap");
		}
	free(c);
	free(up);
	free(bias);
}

/* ---- norm, rotation ---- */

Test(isa, avx512_norms_and_rotates_as_plain_c_does)
{
	enum { MAX = 80 };
	const struct cpu_isa *a = emulated(), *b = cpu_isa_plain();
	float *x = kt_floats(MAX), *add = kt_floats(MAX), *w = kt_floats(MAX), *rope = kt_floats(MAX);
	for (int n = 1; n <= MAX; n++) {
		float xa[MAX], xb[MAX], got[MAX] = {0}, want[MAX] = {0};
		memcpy(xa, x, sizeof xa);
		memcpy(xb, x, sizeof xb);
		a->rmsnorm(got, xa, n % 2 ? add : NULL, w, n, 1e-6f);
		b->rmsnorm(want, xb, n % 2 ? add : NULL, w, n, 1e-6f);
		kt_same(xa, xb, MAX, "rmsnorm's sum");
		kt_same(got, want, MAX, "rmsnorm");
		if (n % 2)
			continue;
		struct cpu_head h = {.src = x,
				     .dim = n,
				     .norm = n % 4 ? w : NULL,
				     .eps = 1e-6f,
				     .rope = rope,
				     .rope_dim = n / 4 * 2,
				     .style = n % 3 ? KERN_ROPE_HALVES : KERN_ROPE_PAIRS};
		h.dst = got;
		a->head(&h);
		h.dst = want;
		b->head(&h);
		kt_same(got, want, MAX, "head");
	}
	free(x);
	free(add);
	free(w);
	free(rope);
}

/* ---- attention ---- */

enum { DIM = 72, PAD = 80, HEADS = 5, QUERIES = 23 };

struct attn_out {
	float max[HEADS * QUERIES], sum[HEADS * QUERIES], o[HEADS * QUERIES * PAD],
		out[HEADS * QUERIES * PAD];
};

struct queries {
	const float *q; /* [heads][m][DIM] */
	int heads, m;
	const int *from, *to; /* [m] tokens that each sees */
};

/* Attend to stored tiles with type's kernels and isa's merge: one instruction set reads tiles that another
 * stored. */
static void attn_by(const struct cpu_isa *isa, const struct cpu_kv_type *type, const unsigned char *tiles,
		    const struct queries *q, struct attn_out *out)
{
	const int heads = q->heads, m = q->m, *from = q->from, *to = q->to;
	const size_t kb = type->k_bytes(DIM), vb = type->v_bytes(DIM), stride = type->q_bytes(DIM, m);
	unsigned char *prepared = alloc_big(stride * (size_t)heads);
	unsigned char *work = alloc_big(type->work_bytes(DIM, heads, m));
	struct cpu_kv_chunk a = {.n_heads = heads,
				 .m = m,
				 .dim = DIM,
				 .dim_pad = PAD,
				 .scale = 0.3f,
				 .q = prepared,
				 .q_stride = stride,
				 .k_bytes = kb,
				 .v_bytes = vb,
				 .from = from,
				 .to = to,
				 .work = work,
				 .max = out->max,
				 .sum = out->sum,
				 .o = out->o};
	for (int h = 0; h < heads; h++) {
		const float *at[QUERIES];
		for (int i = 0; i < m; i++)
			at[i] = q->q + (h * m + i) * DIM;
		type->queries(prepared + (size_t)h * stride, at, m, DIM, a.scale);
	}
	for (int t = 0; t < CHUNK_TILES; t++) {
		a.k[t] = tiles + (size_t)t * HEADS * (kb + vb);
		a.v[t] = a.k[t] + HEADS * kb;
	}
	type->chunk(&a);
	for (int r = 1; r < m; r++)
		if (from[r] < to[r] && from[0] < to[0])
			isa->attn_merge(&out->max[0], &out->sum[0], out->o, out->max[r], out->sum[r],
					out->o + r * PAD, PAD);
	for (int r = 0; r < m; r++)
		if (from[r] < to[r])
			isa->attn_out(out->out + r * PAD, out->o + r * PAD, out->sum[r], DIM - r);
	alloc_big_free(prepared, stride * (size_t)heads);
	alloc_big_free(work, type->work_bytes(DIM, heads, m));
}

static unsigned char *stored_chunk(const struct cpu_kv_type *type, size_t *bytes)
{
	const size_t kb = type->k_bytes(DIM), vb = type->v_bytes(DIM);
	*bytes = CHUNK_TILES * HEADS * (kb + vb);
	unsigned char *tiles = alloc_big(*bytes);
	for (int t = 0; t < CHUNK; t++)
		for (int h = 0; h < HEADS; h++) {
			unsigned char *tile = tiles + (size_t)(t / KV_TILE) * HEADS * (kb + vb);
			float *kv = kt_floats(2 * DIM);
			type->store(tile + (size_t)h * kb, tile + HEADS * kb + (size_t)h * vb, t % KV_TILE,
				    kv, kv + DIM, DIM);
			free(kv);
		}
	return tiles;
}

static void check_type(const struct cpu_kv_type *got_type, const struct cpu_kv_type *want_type, int heads,
		       int m)
{
	struct attn_out *got = xmalloc(sizeof *got), *want = xmalloc(sizeof *want);
	float *q = kt_floats(HEADS * QUERIES * DIM);
	size_t bytes;
	unsigned char *tiles = stored_chunk(got_type, &bytes);
	for (int round = 0; round < 6; round++) {
		int from[QUERIES], to[QUERIES];
		const struct queries seen = {q, heads, m, from, to};
		for (int r = 0; r < m; r++) {
			from[r] = round % 2 ? (r ? from[r - 1] : 0) + (int)(kt_rand() % 9) : 0;
			to[r] = round == 5 ? CHUNK : (r ? to[r - 1] : 5) + (int)(kt_rand() % 10);
		}
		memset(got, 0, sizeof *got);
		memset(want, 0, sizeof *want);
		attn_by(emulated(), got_type, tiles, &seen, got);
		attn_by(cpu_isa_plain(), want_type, tiles, &seen, want);
		for (int i = 0; i < heads * m; i++) {
			if (from[i % m] >= to[i % m])
				continue;
			kt_same(&got->max[i], &want->max[i], 1, "max");
			kt_same(&got->sum[i], &want->sum[i], 1, "sum");
			kt_same(&got->o[i * PAD], &want->o[i * PAD], PAD, "chunk");
		}
		kt_same(got->out, want->out, (size_t)(m * PAD), "attn_out");
	}
	alloc_big_free(tiles, bytes);
	free(q);
	free(got);
	free(want);
}

Test(isa, avx512_attends_as_plain_c_does)
{
	static const int heads[] = {1, 1, 1, 1, 1, 1, 1, 1, 5, 5, 5, 3, 2, 5},
			 m[] = {1, 2, 3, 5, 9, 10, 11, 23, 1, 2, 3, 5, 6, 11};
	for (size_t i = 0; i < sizeof m / sizeof m[0]; i++) {
		check_type(emulated()->kv_f32, cpu_isa_plain()->kv_f32, heads[i], m[i]);
		check_type(emulated()->kv_bf16, cpu_isa_plain()->kv_bf16, heads[i], m[i]);
	}
}

/* ---- sampler ---- */

Test(isa, avx512_weighs_logits_as_plain_c_does)
{
	enum { MAX = 200 };
	const struct cpu_isa *a = emulated(), *b = cpu_isa_plain();
	float *x = kt_floats(MAX);
	for (int i = 0; i < MAX; i++)
		x[i] *= 60;
	x[3] = x[77] = NAN;
	x[18] = -INFINITY;
	for (int n = 1; n <= MAX; n++) {
		float got[MAX] = {0}, want[MAX] = {0}, max[2] = {a->max_block(x, n), b->max_block(x, n)};
		kt_same(&max[0], &max[1], 1, "max_block");
		float sum[2] = {a->exp_block(got, x, n, max[0], 1.25f),
				b->exp_block(want, x, n, max[0], 1.25f)};
		kt_same(&sum[0], &sum[1], 1, "exp_block's sum");
		kt_same(got, want, MAX, "exp_block");
		cr_assert_eq(a->weigh_block(got, n), b->weigh_block(want, n));
		const uint32_t mask[] = {kt_rand(), kt_rand(), kt_rand(), 0, ~0u, kt_rand(), kt_rand()};
		a->mask_block(got, x, mask, n, -2);
		b->mask_block(want, x, mask, n, -2);
		for (int i = 0; i < n; i++)
			cr_assert(mask[i / 32] >> i % 32 & 1 ? !memcmp(&want[i], &x[i], 4) : want[i] == -2);
		kt_same(got, want, MAX, "mask_block");
	}
	free(x);
}
