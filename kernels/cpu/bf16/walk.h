/* walk.h - walks a tile of bf16.h in segments: chunks of K that are unpacked to bricks, then multiplied by
 * all rows.  Included by each kernel, which first includes its vec_*.h, and defines
 *   WALK_BRICK     bytes of a brick as walk_codes() writes it (before this header)
 *   WALK_BEGIN(t), WALK_END(t)   run around a tile (before this header)
 *   WALK_SELF(t)   true if the kernel has computed the tile itself (before this header)
 *   walk_slice()   values of K in a segment, at least BF16_GROUP_MAX, so that its bricks fit the scratch
 *   walk_zero, walk_zeros(), walk_codes()   unpack a brick of codes (before this header)
 *   walk_rows()    multiplies all rows by a segment */
#ifndef QUERN_KERNELS_CPU_BF16_WALK_H
#define QUERN_KERNELS_CPU_BF16_WALK_H

#include <string.h>

#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/bf16/flush.h"

#define PRAGMA(x) _Pragma(#x)
#ifdef BF16_EMULATED
#define UNROLL
#elif defined(__clang__)
#define UNROLL PRAGMA(clang loop unroll(full))
#else
#define UNROLL PRAGMA(GCC unroll 16)
#endif

struct seg {
	const struct cpu_bf16_tile *t;
	const unsigned char *w; /* first brick of these tiles; their bricks are contiguous */
	size_t step;            /* bytes from a step to the next */
	int n_steps;
	int group_steps;            /* steps in a group (the last may have fewer); 0: C continues in c */
	const unsigned char *heads; /* heads of the first group; AWQ_HEAD apart */
	size_t group;               /* bytes from a group's heads to the next group's */
	size_t k0;                  /* first value */
	const unsigned char *next;  /* memory that the next segment reads, about next_bytes */
	size_t next_bytes;
};

static int walk_slice(const struct cpu_bf16_tile *t);
static void walk_rows(const struct seg *s);

VFN vf walk_scale(const struct cpu_bf16_tile *t, const unsigned char *head)
{
	return t->f32_scales ? v_load((const float *)(const void *)head)
			     : v_load_f16((const uint16_t *)(const void *)head);
}

static void walk_floats(const struct cpu_bf16_tile *t)
{
	const int n = (t->k + BF16_STEP - 1) / BF16_STEP, slice = walk_slice(t) / BF16_STEP;
	const size_t step = (size_t)t->tiles * BF16_BRICK;
	for (int s = 0; s < n; s += slice)
		walk_rows(&(struct seg){
			.t = t,
			.w = t->w + (size_t)s * step + (size_t)t->t0 * BF16_BRICK,
			.step = step,
			.n_steps = n - s < slice ? n - s : slice,
			.k0 = (size_t)s * BF16_STEP,
			.next = t->w + (size_t)(n - s < slice ? n : s + slice) * step,
			.next_bytes = (size_t)slice * step,
		});
}

VFN unsigned char *walk_bricks(const int tn, const int bits, const struct cpu_bf16_tile *t, unsigned char *to,
			       const unsigned char *codes, const unsigned char *heads, int n_steps)
{
	walk_zero zeros[4];
	UNROLL for (int v = 0; v < tn; v++) zeros[v] = walk_zeros(t, heads + (size_t)v * AWQ_HEAD);
	for (int s = 0; s < n_steps; s++, to += tn * WALK_BRICK, codes += (size_t)(t->tiles * bits) * 64)
		UNROLL for (int v = 0; v < tn; v++)
			walk_codes(to, codes + v * bits * 64, zeros[v], v, tn, bits);
	return to;
}

/* Unpack n steps of codes, all with the same heads, to bricks at `to`. */
static unsigned char *walk_unpack(const struct cpu_bf16_tile *t, unsigned char *to,
				  const unsigned char *codes, const unsigned char *heads, int n)
{
	heads += (size_t)t->t0 * AWQ_HEAD;
	codes += (size_t)(t->t0 * t->bits) * 64;
	if (t->bits == 8)
		return t->tn == 4   ? walk_bricks(4, 8, t, to, codes, heads, n)
		       : t->tn == 2 ? walk_bricks(2, 8, t, to, codes, heads, n)
				    : walk_bricks(1, 8, t, to, codes, heads, n);
	return t->tn == 4   ? walk_bricks(4, 4, t, to, codes, heads, n)
	       : t->tn == 2 ? walk_bricks(2, 4, t, to, codes, heads, n)
			    : walk_bricks(1, 4, t, to, codes, heads, n);
}

/* Groups of whole rows: one chain over all slices, scaled at the end. */
static void walk_row_codes(const struct cpu_bf16_tile *t)
{
	const int n = (t->k + BF16_STEP - 1) / BF16_STEP, slice = walk_slice(t) / BF16_STEP;
	const unsigned char *codes = t->w + (size_t)t->tiles * AWQ_HEAD;
	const size_t brick = (size_t)t->bits * 64;
	for (int s = 0; s < n; s += slice) {
		const int n_steps = n - s < slice ? n - s : slice;
		walk_unpack(t, t->scratch, codes + (size_t)(s * t->tiles) * brick, t->w, n_steps);
		walk_rows(&(struct seg){
			.t = t,
			.w = t->scratch,
			.step = (size_t)t->tn * WALK_BRICK,
			.n_steps = n_steps,
			.k0 = (size_t)s * BF16_STEP,
		});
	}
	for (int r = 0; r < t->n_rows; r++)
		for (int v = 0; v < t->tn; v++) {
			float *c = t->c + (r * t->tn + v) * LANES_N;
			v_store(c, v_fma(walk_scale(t, t->w + (size_t)(t->t0 + v) * AWQ_HEAD), v_load(c),
					 v_zero()));
		}
}

static void walk_group_codes(const struct cpu_bf16_tile *t)
{
	const int per_group = t->group / BF16_STEP, groups = walk_slice(t) / t->group;
	const size_t heads = (size_t)t->tiles * AWQ_HEAD;
	const size_t group = heads + (size_t)(per_group * t->tiles * t->bits) * 64;
	for (int k0 = 0; k0 < t->k; k0 += groups * t->group) {
		const unsigned char *w = t->w + (size_t)(k0 / t->group) * group;
		struct seg s = {
			.t = t,
			.w = t->scratch,
			.step = (size_t)t->tn * WALK_BRICK,
			.group_steps = per_group,
			.heads = w + (size_t)t->t0 * AWQ_HEAD,
			.group = group,
			.k0 = (size_t)k0,
			.next = w + (size_t)groups * group,
			.next_bytes = (size_t)groups * group,
		};
		unsigned char *to = t->scratch;
		for (int g = 0; g < groups && k0 + g * t->group < t->k; g++, w += group) {
			const int left = t->k - k0 - g * t->group;
			const int n = left < t->group ? (left + BF16_STEP - 1) / BF16_STEP : per_group;
			to = walk_unpack(t, to, w + heads, w, n);
			s.n_steps += n;
		}
		walk_rows(&s);
	}
}

static void walk_tile(const struct cpu_bf16_tile *t)
{
	const unsigned was = flush_begin();
	WALK_BEGIN(t);
	memset(t->c, 0, (size_t)t->n_rows * (size_t)t->tn * LANES_N * sizeof *t->c);
	if (WALK_SELF(t))
		; /* done */
	else if (!t->bits)
		walk_floats(t);
	else if (t->group >= t->k)
		walk_row_codes(t);
	else
		walk_group_codes(t);
	WALK_END(t);
	flush_end(was);
}

#endif
