/* avx512bf16.c - the kernels of mode bf16 for AVX-512 BF16: two products for 16 outputs in one instruction.
 * Lines of a brick belong alternately to the even and the odd chain (bf16.h).  Tests compile it with
 * BF16_EMULATED. */
#include "kernels/cpu/bf16/bf16.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(BF16_EMULATED)

#include "kernels/cpu/bf16/avx512.h"

#define WALK_BEGIN(t)
#define WALK_END(t)
#define WALK_SELF(t) false
#include "kernels/cpu/bf16/round.h"
#include "kernels/cpu/bf16/walk.h"

#ifndef BF16_EMULATED
/* Asm rather than the builtin: no compiler has to support the extension, or adds copies around it. */
VFN vf vdpbf16ps512(vf acc, __m512i x, __m512i w)
{
	__asm__("vdpbf16ps %2,%1,%0" : "+v"(acc) : "v"(x), "v"(w));
	return acc;
}
#endif

enum {
	VDP_TILES = 2,
	VDP_ROWS = 4,
	VDP_SLICE = 512,
	VDP_FEW = 4, /* up to this many rows, a segment should stay in the first-level cache */
	VDP_FEW_SLICE = 256,
};

static int walk_slice(const struct cpu_bf16_tile *t)
{
	return t->n_rows <= VDP_FEW ? VDP_FEW_SLICE : VDP_SLICE;
}

struct vdp_args {
	const unsigned char *w;
	size_t step;
	const unsigned char *x; /* first row */
	size_t row;
	int n_steps;
	const unsigned char *heads; /* scales for C before it is added to c; NULL: C continues the sum in c */
	const struct cpu_bf16_tile *t;
	float *c;
};

VFN __m512i vdp_x(const unsigned char *p)
{
	int32_t d;
	memcpy(&d, p, 4);
	return _mm512_set1_epi32(d);
}

VFN void vdp_steps(const int tn, const int m, const struct vdp_args *a)
{
	const size_t c_row = (size_t)a->t->tn * LANES_N;
	const unsigned char *w = a->w, *x = a->x;
	vf c[VDP_TILES][VDP_ROWS];
	UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++) c[v][r] =
		a->heads ? v_zero() : v_load(a->c + (size_t)r * c_row + v * LANES_N);
	for (int s = 0; s < a->n_steps; s++, w += a->step) {
		vf even[VDP_TILES][VDP_ROWS], odd[VDP_TILES][VDP_ROWS];
		UNROLL for (int v = 0; v < tn; v++) UNROLL for (int r = 0; r < m; r++) even[v][r] =
			odd[v][r] = v_zero();
		for (int i = 0; i < BF16_BRICK; i += 128, x += 8)
			UNROLL for (int v = 0; v < tn; v++)
			{
				const __m512i w0 = _mm512_loadu_si512(w + v * BF16_BRICK + i),
					      w1 = _mm512_loadu_si512(w + v * BF16_BRICK + i + 64);
				UNROLL for (int r = 0; r < m; r++)
				{
					const unsigned char *xr = x + (size_t)r * a->row;
					even[v][r] = vdpbf16ps512(even[v][r], vdp_x(xr), w0);
					odd[v][r] = vdpbf16ps512(odd[v][r], vdp_x(xr + 4), w1);
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

#define VDP_FN(tn)                                                                                           \
	static void vdp_rows_##tn(int m, const struct vdp_args *a)                                           \
	{                                                                                                    \
		switch (m) {                                                                                 \
		case 1:                                                                                      \
			vdp_steps(tn, 1, a);                                                                 \
			break;                                                                               \
		case 2:                                                                                      \
			vdp_steps(tn, 2, a);                                                                 \
			break;                                                                               \
		case 3:                                                                                      \
			vdp_steps(tn, 3, a);                                                                 \
			break;                                                                               \
		case 4:                                                                                      \
			vdp_steps(tn, 4, a);                                                                 \
			break;                                                                               \
		}                                                                                            \
	}
VDP_FN(1)
VDP_FN(2)

static void vdp_group(const struct seg *s, int step0, int n_steps, const unsigned char *heads)
{
	const struct cpu_bf16_tile *t = s->t;
	const int tn = t->tn < VDP_TILES ? t->tn : VDP_TILES;
	const int blocks = (t->n_rows + VDP_ROWS - 1) / VDP_ROWS;
	for (int v = 0; v < t->tn; v += tn)
		for (int b = 0, r0 = 0; b < blocks; b++) {
			const int m = t->n_rows / blocks + (b < t->n_rows % blocks);
			const struct vdp_args a = {
				.w = s->w + (size_t)step0 * s->step + (size_t)v * BF16_BRICK,
				.step = s->step,
				.x = t->x + (size_t)r0 * t->row + (s->k0 + (size_t)(step0 * BF16_STEP)) * 2,
				.row = t->row,
				.n_steps = n_steps,
				.heads = heads ? heads + v * AWQ_HEAD : NULL,
				.t = t,
				.c = t->c + (size_t)(r0 * t->tn + v) * LANES_N,
			};
			if (tn == 2)
				vdp_rows_2(m, &a);
			else
				vdp_rows_1(m, &a);
			r0 += m;
		}
}

static void walk_rows(const struct seg *s)
{
	if (!s->group_steps) {
		vdp_group(s, 0, s->n_steps, NULL);
		return;
	}
	const unsigned char *heads = s->heads;
	for (int at = 0; at < s->n_steps; at += s->group_steps, heads += s->group)
		vdp_group(s, at, s->n_steps - at < s->group_steps ? s->n_steps - at : s->group_steps, heads);
}

static const struct cpu_bf16 vdp_table = {.name = "avx512bf16",
					  .chains = true,
					  .round = round_chains,
					  .weights = round_chains,
					  .tile = walk_tile};

#ifdef BF16_EMULATED

const struct cpu_bf16 *BF16_EMULATED(void)
{
	return &vdp_table;
}

#else

#include <cpuid.h>

const struct cpu_bf16 *cpu_bf16_avx512bf16(void)
{
	unsigned a, b, c, d;
	bool ok = cpu_isa_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
	return ok ? &vdp_table : NULL;
}

#endif

#else

const struct cpu_bf16 *cpu_bf16_avx512bf16(void)
{
	return NULL;
}

#endif
