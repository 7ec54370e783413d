/* fma.h - the kernels of bf16.h on multiply-adds of 16 lanes, for machines without dot products of BF16.
 * Included once by each of plain.c, avx2.c and avx512.c, which define
 *   FMA_NAME              the table's name
 *   FMA_TILES, FMA_ROWS   tiles and rows at once; three accumulators for each pair must fit the registers
 *
 * Weights are widened to F32 first: a segment in the scratch is [value][tn][16 outputs]. */
#include "kernels/cpu/bf16/bf16.h"

typedef vf walk_zero;

/* A code in the low bits under the exponent of 2^23 reads as 2^23 + code. */
VFN vf walk_zeros(const struct cpu_bf16_tile *t, const unsigned char *head)
{
	return v_add(v_set1(8388608), t->f32_scales ? v_set1((float)t->zero) : v_load_u8(head + 32));
}

VFN void walk_codes(unsigned char *out, const unsigned char *codes, vf zeros, int v, const int tn,
		    const int bits)
{
	static const int nibbles[8] = {0, 2, 4, 6, 1, 3, 5, 7}, bytes[4] = {0, 2, 1, 3};
	const vq mask = vq_set1(bits == 4 ? 15 : 255), magic = vq_set1(0x4b000000);
	const int n = 32 / bits;
	float *to = (float *)(void *)out + v * LANES_N;
	for (int line = 0; line < bits; line++) {
		vq q = vq_load(codes + line * 64);
		for (int i = 0; i < n; i++) {
			const int p = line * n + (bits == 4 ? nibbles[i] : bytes[i]);
			v_store(to + p * tn * LANES_N, v_sub(vq_nibble(q, mask, magic), zeros));
			q = bits == 4 ? vq_shr4(q) : vq_shr8(q);
		}
	}
}

#define WALK_BRICK (2 * BF16_BRICK)
#define WALK_BEGIN(t)
#define WALK_END(t)
#define WALK_SELF(t) false
#include "kernels/cpu/bf16/round.h"
#include "kernels/cpu/bf16/walk.h"

enum { FMA_SLICE = BF16_GROUP_MAX };

static int walk_slice(const struct cpu_bf16_tile *t)
{
	(void)t;
	return FMA_SLICE;
}

/* Widen bricks of floats to F32. */
static void fma_widen(const struct seg *s)
{
	const int tn = s->t->tn;
	float *to = (float *)(void *)s->t->scratch;
	for (int step = 0; step < s->n_steps; step++)
		for (int i = 0; i < BF16_STEP / 2; i++, to += 2 * tn * LANES_N)
			for (int v = 0; v < tn; v++) {
				uint32_t pair[LANES_N], odd[LANES_N];
				memcpy(pair, s->w + (size_t)step * s->step + (size_t)v * BF16_BRICK + i * 64,
				       sizeof pair);
				for (int l = 0; l < LANES_N; l++)
					odd[l] = pair[l] & 0xffff0000;
				for (int l = 0; l < LANES_N; l++)
					pair[l] <<= 16;
				memcpy(to + v * LANES_N, pair, sizeof pair);
				memcpy(to + (tn + v) * LANES_N, odd, sizeof odd);
			}
}

struct fma_args {
	const float *w; /* [value][w_row] */
	size_t w_row;
	const float *x; /* first row */
	size_t x_row;   /* values from a row to the next */
	int n_steps;
	const unsigned char *heads; /* scales for C before it is added to c; NULL: C continues the sum in c */
	const struct cpu_bf16_tile *t;
	float *c;
};

VFN void fma_steps(const int tn, const int m, const struct fma_args *a)
{
	const size_t c_row = (size_t)a->t->tn * LANES_N;
	const float *w = a->w, *x = a->x;
	vf c[FMA_TILES][FMA_ROWS];
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++) c[v][r] =
		a->heads ? v_zero() : v_load(a->c + (size_t)r * c_row + v * LANES_N);
	for (int s = 0; s < a->n_steps; s++) {
		vf even[FMA_TILES][FMA_ROWS], odd[FMA_TILES][FMA_ROWS];
		UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++) even[v][r] =
			odd[v][r] = v_zero();
		for (int i = 0; i < BF16_STEP; i += 2, w += 2 * a->w_row, x += 2)
			UNROLL for (int r = 0; r < m; r++)
			{
				const vf x0 = v_set1(x[(size_t)r * a->x_row]),
					 x1 = v_set1(x[(size_t)r * a->x_row + 1]);
				UNROLL for (int v = 0; v < tn; v++)
				{
					even[v][r] = v_fma(x0, v_load(w + v * LANES_N), even[v][r]);
					odd[v][r] = v_fma(x1, v_load(w + a->w_row + v * LANES_N), odd[v][r]);
				}
			}
		UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++) c[v][r] =
			v_add(c[v][r], v_add(even[v][r], odd[v][r]));
	}
	UNROLL for (int v = 0; v < tn; v++)
	{
		const vf scale = a->heads ? walk_scale(a->t, a->heads + (size_t)v * AWQ_HEAD) : v_zero();
		UNROLL for (int r = 0; r < m; r++)
		{
			float *to = a->c + (size_t)r * c_row + v * LANES_N;
			v_store(to, a->heads ? v_fma(scale, c[v][r], v_load(to)) : c[v][r]);
		}
	}
}

#define FMA_CASE(tn, n)                                                                                      \
	case n: {                                                                                            \
		enum { M = (n) <= FMA_ROWS ? (n) : 1, TN = (tn) <= FMA_TILES ? (tn) : 1 };                   \
		fma_steps(TN, M, a);                                                                         \
		break;                                                                                       \
	}

static void fma_rows_1(int m, const struct fma_args *a)
{
	switch (m) {
		FMA_CASE(1, 1)
		FMA_CASE(1, 2)
		FMA_CASE(1, 3)
		FMA_CASE(1, 4)
	}
}

static void fma_rows_2(int m, const struct fma_args *a)
{
	switch (m) {
		FMA_CASE(2, 1)
		FMA_CASE(2, 2)
		FMA_CASE(2, 3)
		FMA_CASE(2, 4)
	}
}

static void fma_group(const struct seg *s, int step0, int n_steps, const unsigned char *heads)
{
	const struct cpu_bf16_tile *t = s->t;
	const int tn = t->tn < FMA_TILES ? t->tn : FMA_TILES;
	const size_t w_row = (size_t)t->tn * LANES_N;
	const int blocks = (t->n_rows + FMA_ROWS - 1) / FMA_ROWS;
	for (int b = 0, r0 = 0; b < blocks; b++) {
		const int m = t->n_rows / blocks + (b < t->n_rows % blocks);
		for (int v = 0; v < t->tn; v += tn) {
			const struct fma_args a = {
				.w = (const float *)(const void *)t->scratch +
				     (size_t)(step0 * BF16_STEP) * w_row + (size_t)(v * LANES_N),
				.w_row = w_row,
				.x = (const float *)(const void *)(t->x + (size_t)r0 * t->row) + s->k0 +
				     (size_t)(step0 * BF16_STEP),
				.x_row = t->row / sizeof(float),
				.n_steps = n_steps,
				.heads = heads ? heads + v * AWQ_HEAD : NULL,
				.t = t,
				.c = t->c + (size_t)(r0 * t->tn + v) * LANES_N,
			};
			if (tn == 2)
				fma_rows_2(m, &a);
			else
				fma_rows_1(m, &a);
		}
		r0 += m;
	}
}

static void walk_rows(const struct seg *s)
{
	if (!s->t->bits)
		fma_widen(s);
	if (!s->group_steps) {
		fma_group(s, 0, s->n_steps, NULL);
		return;
	}
	const unsigned char *heads = s->heads;
	for (int at = 0; at < s->n_steps; at += s->group_steps, heads += s->group)
		fma_group(s, at, s->n_steps - at < s->group_steps ? s->n_steps - at : s->group_steps, heads);
}

static const struct cpu_bf16 fma_table = {
	.name = FMA_NAME, .floats = true, .round = round_floats, .weights = round_pairs, .tile = walk_tile};
