/* bf16.h - linear layers of mode bf16: products of BF16 values, summed in FP32 in one order.
 *
 * Activations are rounded to BF16 (half_to_bf16()).  Weights stored as floats are rounded too, at load.  For
 * quantized weights, code - zero is an integer that BF16 holds exactly; the scale is applied in FP32.
 *
 *     a step is 32 inputs, 16 pairs (i ascending, both chains from 0):
 *         even = fma(x[2 i], w[2 i], even)
 *         odd  = fma(x[2 i + 1], w[2 i + 1], odd)
 *     C = C + (even + odd)             for every step of a group, ascending, from 0
 *     y = fma(scale, C, y)             for every group, ascending, from 0
 *     y = C                            for floats: the whole row is one group
 *
 * Every operation rounds to the nearest, ties to even; a denormal counts as 0, both as operand and as result.
 * TDPBF16PS (AMX) computes exactly this.  VDPBF16PS adds the product of the odd values and then that of the
 * even values to one chain, so it is given pairs of one chain: (x[2], x[0]) and (x[3], x[1]) of four.
 * Multiply-adds that flush denormals compute it too.  So AMX, AVX-512 BF16, AVX-512, AVX2 and plain C are one
 * numerics class (on x86; elsewhere plain C keeps denormals).
 *
 * Weights, a block of `tiles` tiles of 16 outputs; K and groups are padded with zeros to whole steps:
 *     floats   [step][tiles] brick, 1024 bytes: [16 pairs][16 outputs][2] BF16
 *     codes    [group][ [tiles] head | [step][tiles] brick ]
 *              4 bits: brick, 256 bytes: [4][16 outputs] uint32, 8 values each: nibble i is value 2 i,
 *                      nibble i + 4 value 2 i + 1
 *              8 bits: brick, 512 bytes: [8][16 outputs] uint32, 4 values each: bytes 0, 2, 1, 3
 *     head, 64 bytes: scales F16 [16], zeros uint8 [16], 16 unused;
 *                     or scales F32 [16], and one zero for the whole part
 * The values of a step are its inputs, in the table's order.
 *
 * An operand is a row of K values, also padded, in BF16 or F32, in the table's order. */
#ifndef QUERN_KERNELS_CPU_BF16_BF16_H
#define QUERN_KERNELS_CPU_BF16_BF16_H

#include "kernels/cpu/isa.h"

enum {
	BF16_STEP = 32,
	BF16_BRICK = BF16_STEP * LANES_N * 2,
	BF16_GROUP_MAX = 256, /* most inputs in a group that is not the whole row */
	BF16_SCRATCH = 64 << 10,
};

struct cpu_bf16_tile {
	const unsigned char *w; /* the block */
	int tiles;              /* tiles in the block */
	int t0, tn;             /* tiles wanted: tn is 1, 2 or 4 */
	int k, group;           /* group: a multiple of BF16_STEP up to BF16_GROUP_MAX, or at least k */
	int bits;               /* 4 or 8; 0: floats */
	bool f32_scales;
	int zero;               /* with F32 scales */
	const unsigned char *x; /* operands */
	size_t row;             /* bytes of an operand */
	int n_rows;             /* <= ROWS_MAX */
	unsigned char *scratch; /* [BF16_SCRATCH], 64-byte aligned */
	float *c;               /* out [n_rows][tn * 16] */
};

struct cpu_bf16 {
	const char *name;
	bool chains; /* inputs are in the order 2, 0, 3, 1 of every four; else ascending */
	bool floats; /* operands are F32 */
	void (*round)(void *row, const float *x, int k);
	void (*weights)(void *row, const float *x, int k); /* converts to the operand of a table that has
							      BF16 */
	void (*tile)(const struct cpu_bf16_tile *t);
};

/* NULL if not built, or not supported by this CPU. */
const struct cpu_bf16 *cpu_bf16_amx(void);
const struct cpu_bf16 *cpu_bf16_avx512bf16(void);
const struct cpu_bf16 *cpu_bf16_avx512(void);
const struct cpu_bf16 *cpu_bf16_avx2(void);
const struct cpu_bf16 *cpu_bf16_plain(void);

/* Return the best table that an instruction set allows ("avx512", "avx2", "plain"). */
const struct cpu_bf16 *cpu_bf16_choose(const char *isa);

/* Operands of k values: bytes, from floats, to floats. */
size_t cpu_bf16_row(const struct cpu_bf16 *b, int k); /* bytes */
void cpu_bf16_round(const struct cpu_bf16 *b, void *row, const float *x, int k);
void cpu_bf16_floats(const struct cpu_bf16 *b, float *x, const void *row, int k);

/* Packing of tiles: kernels/cpu/pack.c calls these for the tiles of a block. */
struct codes;
struct code_rows;
struct pack_rows;
size_t cpu_bf16_tile_bytes(int k, int group, int bits);
/* Pack outputs 0 to n - 1 (at most BLOCK_N) of a block of `tiles` tiles: stored floats w [n][k], values of
 * codes, or codes. */
void cpu_bf16_pack_floats(const struct cpu_bf16 *b, unsigned char *out, const void *w, enum kern_dtype dtype,
			  int n, int k, int tiles);
void cpu_bf16_pack_values(const struct cpu_bf16 *b, unsigned char *out, const struct codes *c,
			  const struct code_rows *r, codes_group_fn *floats, int n, int tiles);
void cpu_bf16_pack_codes(const struct cpu_bf16 *b, unsigned char *out, const struct codes *c,
			 const struct pack_rows *r, bool f32_scales, int n, int tiles);
/* Read output n of a block of floats. */
void cpu_bf16_unpack(const struct cpu_bf16 *b, float *out, const unsigned char *block, int tiles, int n,
		     int k);

#endif
