/* dot.h - linear layers of the integer modes: products of bytes, exact sums, scaled in one order.
 *
 * Activations are quantized per row and group of 128 inputs (dots.h), weights are codes with a scale per
 * group.  A segment is what shares both scales: the inputs between two ends of groups of either kind.
 *
 *     y = fma(s * a, (float)sum, y)           for every segment, ascending; y begins as 0
 *     y = fma(m * a, (float)-sum of x, y)     then, where the weights have minimums m
 *     sum = sum of q x - zero * sum of x      an exact int32
 *
 * An exact sum has no order, so every instruction set and every shape of a kernel gives the same bits: one
 * numerics class for plain C, AVX2, VNNI of 256 and 512 bits, and AMX.
 *
 * Weights, a block of `tiles` tiles of 16 outputs:
 *
 *     [super-group][ [tiles] super-head | [group][ [tiles] head | line: [tiles][64 bytes] ] ]
 *
 *     4 bits: a line is 8 k, as isa.h draws its words; 8 bits: a line is 4 k, [16 outputs][4 k] bytes
 *     6 bits: three lines are 16 k: two of the low halves, like 4 bits, and one of pairs of high bits, bytes
 *             as of 8 bits: bits 0 and 1 belong to k 0 to 3, bits 2 and 3 to k 4 to 7, and so on
 *     HEADS_AWQ     head, 64 bytes:  scales F16 [16], zeros uint8 [16], 16 unused
 *     HEADS_F16     head, 32 bytes:  scales F16 [16]                              one zero for the whole part
 *     HEADS_F32     head, 64 bytes:  scales F32 [16]                              likewise
 *                   or 128 bytes:    scales F32 [16], minimums F32 [16]
 *     HEADS_SUPER   super-head, 32:  d F16 [16]; head, 16: scales int8 [16]       likewise
 *                   or 64 and 32:    d, dmin F16 [2][16]; scales int8 [16], minimums uint8 [16]
 * Only HEADS_SUPER has super-groups.  Its scales are d times the integer, which is exact in F32.
 *
 * An operand, a row of k values (k_pad: k rounded up to 128):
 *     int8     q int8 [k_pad]                     | a F32 [k_pad / 128] | sums uint32 [k_pad / 16 + 1]
 *     int16    high int8 [k_pad], low int8 [k_pad] | likewise              value = a * (256 high + low)
 * sums[i]: of the first 16 i values, modulo 2^32, so that the sum over any segment is one subtraction. */
#ifndef QUERN_KERNELS_CPU_DOT_DOT_H
#define QUERN_KERNELS_CPU_DOT_DOT_H

#include "kernels/cpu/isa.h"

enum {
	ACT_GROUP = 128,              /* activations that share a scale */
	ACT_SUM = 16,                 /* values of a partial sum; segments begin at multiples of it */
	DOT_SCRATCH = BLOCK_N * 4096, /* bytes: of one code each, 4096 k of a block */
};

/* Where the pieces of an operand's row are. */
struct cpu_operand {
	int k, k_pad;
	bool wide;           /* int16 */
	size_t scales, sums; /* bytes from the row's begin; low bytes at k_pad */
	size_t row;          /* bytes, a multiple of 64 */
};

struct cpu_dot_tile {
	const unsigned char *w; /* the block */
	int tiles;              /* of the block */
	int t0, tn;             /* tiles wanted: tn is 1, 2 or 4 */
	int k;
	struct cpu_codes codes; /* groups of a multiple of ACT_SUM, or k */
	const unsigned char *x;
	const struct cpu_operand *op;
	int n_rows;             /* <= ROWS_MAX */
	size_t ahead;           /* bytes from a line that is read to the one that is prefetched; 0: none */
	const float *next;      /* what is written next, a line of tn * 16 per row: fetched; NULL: none */
	size_t next_stride;     /* floats from a row to the next */
	unsigned char *scratch; /* [DOT_SCRATCH], 64-byte aligned */
	float *c;               /* out [n_rows][tn * 16] */
};

struct cpu_dot {
	const char *name;
	void (*quantize)(unsigned char *row, const float *x, const struct cpu_operand *op);
	/* The same in pieces, in any order, by any threads: each group of ACT_GROUP values (x: those from k0
	 * on, k0 a multiple of it), which leaves sums of that group alone; then, when all are done, once. */
	void (*quantize_group)(unsigned char *row, const float *x, const struct cpu_operand *op, int k0);
	void (*add_up)(unsigned char *row, const struct cpu_operand *op);
	void (*tile)(const struct cpu_dot_tile *t);
};

/* NULL where the compiler could not build it or this CPU lacks it. */
const struct cpu_dot *cpu_dot_amx(void);
const struct cpu_dot *cpu_dot_avx512vnni(void);
const struct cpu_dot *cpu_dot_avxvnni(void);
const struct cpu_dot *cpu_dot_avx2(void);
const struct cpu_dot *cpu_dot_plain(void);

#endif
