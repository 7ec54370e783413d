/* linear_codes.cuh - weights in groups of 16 or 32 inputs, as GGUF stores them: shared device code.
 *
 * A group is at most half a unit, so its sum is scaled as soon as it is complete; no second set of sums is
 * kept.  Scales are read once for a chunk of 128 inputs, a word for each half of a unit:
 *
 *     kind   code             sum of a group g of super-block S, in this order
 *     Q4_0   4 bits, zero 8   y += d_g * sum (q - 8) x                      g: 32 inputs
 *     Q8_0   8 bits           y += d_g * sum (q - 128) x                    32
 *     Q4_K   4 bits           y += d_S s_g * sum q x; y -= dmin_S m_g * X_g  32, super-block of 256
 *     Q6_K   6 bits           y += d_S s_g * sum (q - 32) x                  16, super-block of 256
 *     MXFP4  E2M1             y += d_g * sum 2 q x                          32
 *
 * Products of d and s are exact in F32.  X_g, the sum of a row's inputs, is a chain of two mma with ones for
 * weights.  With few rows, each warp computes X_g next to its sums; with many, the block computes it once, a
 * unit ahead.
 *
 * Q4_0 and Q8_0 take any layer of 4 bits with zero 8, or of 8 bits with zero 128, in groups of a multiple of
 * 32 inputs or in whole rows; a group's scale is then stored several times.  For MXFP4 (OCP Microscaling
 * Formats 1.0), d is half the block's scale, a power of two.  The bits of a code are those of a small float:
 * shifted into a float's fields, they give its value times a power of two.
 *
 * The inputs of a step are those of linear.cuh.  The steps of Q6_K are its groups, so a lane has 8 bytes of
 * each:
 *
 *     half of a unit   |0     4     8     12    |16    20    24    28
 *     lane             t=0   t=1   t=2   t=3    t=0   t=1   t=2   t=3        4 inputs each: b0 b1
 *                      step 2h                  step 2h + 1
 *
 * Weights, [column][unit] of 512 bytes, Q8_0 1024 and Q6_K 768.  r: register of operand A (0 to 3); x, y:
 * first and second of its pair:
 *
 *     Q4_0, Q4_K, MXFP4  [lane] uint4, as AWQ
 *     Q8_0        [half][lane] uint4; words 2 p, 2 p + 1 = step p
 *                 bytes r0.x r1.x r0.y r1.y, r2.x r3.x r2.y r3.y
 *                 F16: the code; BF16: the code less 128, in two's complement
 *     Q6_K        [lane] uint4 of low bits, as AWQ; then [lane] uint2 of high bits: word h
 *                 bits 2 (4 p + r) and the next of the low half: x, of the high half: y
 *
 * Scales, [column][chunk][g] uint4; a word holds those of half a unit:
 *
 *     Q4_0, Q8_0  F16 of place 2g, of 2g + 1; MXFP4: BF16
 *     Q4_K        bytes s of 2g, s of 2g + 1, m of 2g, m of 2g + 1
 *     Q6_K        bytes s + 128 of 2g, of 2g + 1, of the first step, then of the second
 *
 * Heads of Q4_K and Q6_K, [column][super-block][g] uint2: F16 d of places 2g and 2g + 1, then dmin of
 * both. */
#ifndef QUERN_KERNELS_CUDA_LINEAR_CODES_CUH
#define QUERN_KERNELS_CUDA_LINEAR_CODES_CUH

#include "kernels/cuda/linear.cuh"

enum { CODE_CHUNK = 128 }; /* inputs */

/* A row of LIN_CODE_KINDS. */
struct lin_code_kind {
	int bits, group, super, zero;
	bool e2m1;
	int unit_bytes;
};

static constexpr struct lin_code_kind lin_code_kinds[LIN_KINDS] = {
	{16, 0, 0, 0, false, 2 * LIN_COL *LIN_UNIT},
	{4, 0, 0, 0, false, 512},
#define LIN_ROW(name, ...) {__VA_ARGS__},
	LIN_CODE_KINDS(LIN_ROW)
#undef LIN_ROW
};

template <int KIND> struct code_shape {
	static constexpr struct lin_code_kind of = lin_code_kinds[KIND];
	static constexpr int bits = of.bits;
	static constexpr bool supers = of.super > 0;
	static constexpr bool sixteens = of.group == 16;
	static constexpr bool minimums = of.zero < 0;
	static constexpr int zero = of.zero > 0 ? of.zero : 0;
	static constexpr bool e2m1 = of.e2m1;
	static constexpr int unit_bytes = of.unit_bytes;
	static constexpr int unit_pieces = unit_bytes / 16; /* 16-byte pieces of a column's unit */
};

/* Call f(tag) with the kind as the constant tag.kind, which selects its kernels' templates. */
template <int KIND> struct lin_tag {
	static constexpr int kind = KIND;
};

template <class F> static inline int lin_by_kind(enum lin_kind kind, F f)
{
	switch (kind) {
	case LIN_AWQ:
		return f(lin_tag<LIN_AWQ>());
#define LIN_CASE(name, ...)                                                                                  \
	case LIN_##name:                                                                                     \
		return f(lin_tag<LIN_##name>());
		LIN_CODE_KINDS(LIN_CASE)
#undef LIN_CASE
	default:
		return f(lin_tag<LIN_DENSE>());
	}
}

/* A lane's share of a column's unit. */
template <int KIND> struct code_unit {
	uint4 w, more; /* 8 bits: both halves; 6 bits: high bits in more.x and more.y; others: only w */

	__device__ __forceinline__ void read(const unsigned char *unit)
	{
		w = *(const uint4 *)(const void *)(unit + 16 * lane_id());
		if constexpr (code_shape<KIND>::bits == 8)
			more = *(const uint4 *)(const void *)(unit + 512 + 16 * lane_id());
		if constexpr (code_shape<KIND>::bits == 6) {
			const uint2 high = *(const uint2 *)(const void *)(unit + 512 + 8 * lane_id());
			more.x = high.x;
			more.y = high.y;
		}
	}
};

/* Unpack 8-bit codes, four in each of two words, to a step's operand A: code - 128. */
template <bool BF16>
static __device__ __forceinline__ void code_unpack8(uint32_t a[4], uint32_t w0, uint32_t w1)
{
#pragma unroll
	for (int r = 0; r < 4; r++) {
		const uint32_t w = (r < 2 ? w0 : w1) >> 8 * (r & 1);
		if (BF16) /* 128 + the low 7 bits, minus 128, or minus 256 for a negative code */
			a[r] = bf16x2_fma(lop3<0xea>(w, 0x007f007fu, 0x43004300u), 0x3f803f80u,
					  lop3<0xea>(w, 0x00800080u, 0xc300c300u));
		else
			a[r] = f16x2_sub(lop3<0xea>(w, 0x00ff00ffu, 0x64006400u), 0x64806480u);
	}
}

/* Unpack the low bits of step P in w and the high bits of both steps: code - 32. */
template <bool BF16, int P>
static __device__ __forceinline__ void code_unpack6(uint32_t a[4], uint32_t w, uint32_t high)
{
	if (BF16) {
#pragma unroll
		for (int r = 0; r < 4; r++) {
			const int low_at = r == 0 ? 0 : r == 2 ? 4 : r == 1 ? 8 : 12, at = 2 * (4 * P + r);
			const uint32_t h = at < 4 ? high << (4 - at) : high >> (at < 4 ? 0 : at - 4);
			const uint32_t v = lop3<0xea>(w >> low_at, 0x000f000fu, 0x43004300u);
			a[r] = bf16x2_fma(lop3<0xea>(h, 0x00300030u, v), 0x3f803f80u, 0xc320c320u);
		}
	} else { /* in place: bits 4 and 5 above the low nibble, 8 and 9 above the high nibble */
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const int at = 2 * (4 * P + r);
			const uint32_t h = at < 4 ? high << (4 - at) : high >> (at < 4 ? 0 : at - 4);
			const uint32_t v0 = lop3<0xea>(w >> 8 * r, 0x000f000fu, 0x64006400u);
			const uint32_t v1 = lop3<0xea>(w >> 8 * r, 0x00f000f0u, 0x64006400u);
			a[r] = f16x2_sub(lop3<0xea>(h, 0x00300030u, v0), 0x64206420u);
			a[r + 2] = f16x2_fma(lop3<0xea>(h, 0x03000300u, v1), 0x2c002c00u, 0xd600d600u);
		}
	}
}

/* Unpack a step's word of E2M1 to operand A: twice the values, exact.  The two exponent bits and the mantissa
 * bit of a code become the lowest exponent bits and the highest mantissa bit of a float.  A subnormal code
 * gives a subnormal float. */
template <bool BF16> static __device__ __forceinline__ void code_unpack_e2m1(uint32_t a[4], uint32_t w)
{
	constexpr uint32_t sign = 0x80008000u, size = BF16 ? 0x01c001c0u : 0x0e000e00u;
#pragma unroll
	for (int r = 0; r < 4; r++) { /* to the highest nibble of each half; r = 3 is there */
		const uint32_t v = r == 0 ? w << 12 : r == 1 ? w << 4 : r == 2 ? w << 8 : w;
		const uint32_t h = lop3<0xea>(v >> (BF16 ? 6 : 3), size, v & sign);
		a[r] = BF16 ? bf16x2_fma(h, 0x7f007f00u, sign) : f16x2_mul(h, 0x78007800u); /* 2^127, 2^15 */
	}
}

/* Unpack half H of a unit to operands A of its two steps: integers, exact. */
template <bool BF16, int KIND, int H>
static __device__ __forceinline__ void code_unpack(uint32_t a[2][4], const code_unit<KIND> &u)
{
	using shape = code_shape<KIND>;
	if constexpr (shape::bits == 8) {
		const uint4 w = H ? u.more : u.w;
		code_unpack8<BF16>(a[0], w.x, w.y);
		code_unpack8<BF16>(a[1], w.z, w.w);
	} else if constexpr (shape::bits == 6) {
		const uint32_t high = H ? u.more.y : u.more.x;
		code_unpack6<BF16, 0>(a[0], lin_word(u.w, 2 * H), high);
		code_unpack6<BF16, 1>(a[1], lin_word(u.w, 2 * H + 1), high);
	} else if constexpr (shape::e2m1) {
		code_unpack_e2m1<BF16>(a[0], lin_word(u.w, 2 * H));
		code_unpack_e2m1<BF16>(a[1], lin_word(u.w, 2 * H + 1));
	} else {
		constexpr uint32_t zero = shape::zero;
		constexpr uint32_t lo = (BF16 ? 0xc300u | zero : 0x6400u | zero) * 0x00010001u;
		constexpr uint32_t hi = (0xd400u | zero << 4) * 0x00010001u;
		lin_unpack<BF16>(a[0], lin_word(u.w, 2 * H), lo, hi, lo, hi);
		lin_unpack<BF16>(a[1], lin_word(u.w, 2 * H + 1), lo, hi, lo, hi);
	}
}

/* Return byte I of w. */
template <int I> static __device__ __forceinline__ float code_byte(uint32_t w)
{
	return f32_add_rn(f32_from_bits((int)prmt<0x7540 | I>(w, 0x4b000000u)), -8388608.0f);
}

/* Factors of a half unit's sums, for this lane's two places. */
struct code_scales {
	float of[2][2]; /* [step][place]; groups of 32: of[0] */
	float minus[2]; /* -(dmin m) */
};

/* A column's scales: those of the current chunk, and those of the next, in flight. */
template <int KIND> struct code_head {
	uint4 s, s_next;
	uint2 d, d_next;

	__device__ __forceinline__ void load(const struct lin_seg &seg, int col, int chunk)
	{
		const size_t c = (size_t)min(chunk, seg.quads - 1), g = (size_t)(lane_id() >> 2);
		ld_global_128_if(s_next, seg.scales + ((size_t)col * (size_t)seg.quads + c) * 8 + g, true);
		if constexpr (code_shape<KIND>::supers)
			ld_global_64_if(d_next,
					seg.heads + ((size_t)col * (size_t)(seg.quads / 2) + c / 2) * 8 + g,
					true);
	}

	__device__ __forceinline__ void take()
	{
		s = s_next;
		d = d_next;
	}

	__device__ __forceinline__ void open(const struct lin_seg &seg, int col, int chunk)
	{
		s_next = make_uint4(0, 0, 0, 0);
		d_next = make_uint2(0, 0);
		load(seg, col, chunk);
		take();
		load(seg, col, chunk + 1);
	}

	/* word: the half's word of s */
	__device__ __forceinline__ struct code_scales scales(uint32_t word) const
	{
		struct code_scales v;
		if constexpr (!code_shape<KIND>::supers) {
			const uint16_t d0 = (uint16_t)word, d1 = (uint16_t)(word >> 16);
			v.of[0][0] = code_shape<KIND>::e2m1 ? f32_of_bf16(d0) : f32_of_f16(d0);
			v.of[0][1] = code_shape<KIND>::e2m1 ? f32_of_bf16(d1) : f32_of_f16(d1);
			return v;
		}
		const float d0 = f32_of_f16((uint16_t)d.x), d1 = f32_of_f16((uint16_t)(d.x >> 16));
		const float zero = code_shape<KIND>::minimums ? 0.0f : -128.0f; /* scales have a sign */
		v.of[0][0] = f32_mul_rn(d0, f32_add_rn(code_byte<0>(word), zero));
		v.of[0][1] = f32_mul_rn(d1, f32_add_rn(code_byte<1>(word), zero));
		if constexpr (code_shape<KIND>::sixteens) {
			v.of[1][0] = f32_mul_rn(d0, f32_add_rn(code_byte<2>(word), zero));
			v.of[1][1] = f32_mul_rn(d1, f32_add_rn(code_byte<3>(word), zero));
		} else {
			v.minus[0] = f32_mul_rn(f32_of_f16((uint16_t)d.y), -code_byte<2>(word));
			v.minus[1] = f32_mul_rn(f32_of_f16((uint16_t)(d.y >> 16)), -code_byte<3>(word));
		}
		return v;
	}
};

/* Return the sums of a half unit's inputs for rows 2t and 2t + 1, out of 8 rows.  b: a slot. */
template <bool BF16> static __device__ __forceinline__ float2 code_inputs(const uint4 &b)
{
	const uint32_t one = BF16 ? 0x3f803f80u : 0x3c003c00u, a[4] = {one, one, one, one};
	float v[4] = {0, 0, 0, 0};
	lin_mma<BF16>(v, a, b.x, b.y);
	lin_mma<BF16>(v, a, b.z, b.w);
	return make_float2(v[0], v[1]);
}

/* The sums of one slice that a warp holds, like lin_sum. */
template <bool BF16, int KIND, int N_COLS, int N_T8> struct code_sum {
	float sum[N_COLS][N_T8][4];
	code_head<KIND> head[N_COLS];
	int chunk;

	__device__ __forceinline__ void clear()
	{
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
#pragma unroll
			for (int n = 0; n < N_T8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sum[i][n][e] = 0;
	}

	__device__ __forceinline__ void open(const struct lin_seg &s, int col0, int u0)
	{
		clear();
		chunk = u0 / 2;
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
			head[i].open(s, min(col0 + i, s.n_cols - 1), chunk);
	}

	/* Advance to the next chunk. */
	__device__ __forceinline__ void next(const struct lin_seg &s, int col0)
	{
		chunk++;
#pragma unroll
		for (int i = 0; i < N_COLS; i++) {
			head[i].take();
			head[i].load(s, min(col0 + i, s.n_cols - 1), chunk + 1);
		}
	}

	/* Add half H of a unit of column i.  b: its slots, 8 rows each; x: the sums of their inputs; word: of
	 * the column's scales. */
	template <int H>
	__device__ __forceinline__ void half_unit(int i, const code_unit<KIND> &u, uint32_t word,
						  const uint4 b[N_T8], const float2 x[N_T8])
	{
		uint32_t a[2][4];
		code_unpack<BF16, KIND, H>(a, u);
		const struct code_scales by = head[i].scales(word);
#pragma unroll
		for (int n = 0; n < N_T8; n++) {
			float part[4] = {0, 0, 0, 0}, *to = sum[i][n];
			lin_mma<BF16>(part, a[0], b[n].x, b[n].y);
			if constexpr (code_shape<KIND>::sixteens) {
#pragma unroll
				for (int e = 0; e < 4; e++) {
					to[e] = f32_fma_rn(part[e], by.of[0][e >> 1], to[e]);
					part[e] = 0;
				}
			}
			lin_mma<BF16>(part, a[1], b[n].z, b[n].w);
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float scale = by.of[code_shape<KIND>::sixteens ? 1 : 0][e >> 1];
				to[e] = f32_fma_rn(part[e], scale, to[e]);
				if constexpr (code_shape<KIND>::minimums)
					to[e] = f32_fma_rn(e & 1 ? x[n].y : x[n].x, by.minus[e >> 1], to[e]);
			}
		}
	}
};

#endif
