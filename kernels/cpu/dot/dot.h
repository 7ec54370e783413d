/* dot.h - linear layers of the integer modes: products of bytes, exact sums, scaled in one order.
 *
 * Activations are quantized per row and group of 128 inputs (dots.h).  Weights are codes with a scale per
 * group.  A segment is a run of inputs with the same scales: it ends where a group of either kind ends.
 *
 *     y = fma(s * a, (float)sum, y)           for every segment, ascending; y begins as 0
 *     y = fma(m * a, (float)-sum of x, y)     then, if the weights have minimums m
 *     sum = sum of q x - zero * sum of x      an exact int32
 *
 * An exact sum has no order, so every instruction set and every shape of a kernel gives the same bits: plain
 * C, AVX2, VNNI of 256 and 512 bits, and AMX are one numerics class.
 *
 * Weights, a block of `tiles` tiles of 16 outputs:
 *
 *     [super-group][ [tiles] super-head | [group][ [tiles] head | line: [tiles][64 bytes] ] ]
 *
 *     4 bits: a line is 8 k, words as drawn in isa.h; 8 bits: a line is 4 k, [16 outputs][4 k] bytes
 *     6 bits: three lines are 16 k: two of the low halves, like 4 bits, and one of pairs of high bits, in
 *             bytes as for 8 bits: bits 0 and 1 belong to k 0 to 3, bits 2 and 3 to k 4 to 7, and so on
 *     HEADS_AWQ     head, 64 bytes:  scales F16 [16], zeros uint8 [16], 16 unused
 *     HEADS_F16     head, 32 bytes:  scales F16 [16]                              one zero per part
 *     HEADS_F32     head, 64 bytes:  scales F32 [16]                              one zero per part
 *                   or 128 bytes:    scales F32 [16], minimums F32 [16]
 *     HEADS_SUPER   super-head, 32:  d F16 [16]; head, 16: scales int8 [16]       one zero per part
 *                   or 64 and 32:    d, dmin F16 [2][16]; scales int8 [16], minimums uint8 [16]
 *
 * Only HEADS_SUPER has super-groups.  Its scales are d times the integer, which is exact in F32.
 *
 * An operand, a row of k values (k_pad: k rounded up to 128):
 *     int8     q int8 [k_pad]                      | a F32 [k_pad / 128] | sums uint32 [k_pad / 16 + 1]
 *     int16    high int8 [k_pad], low int8 [k_pad] | a, sums as for int8       value = a * (256 high + low)
 *
 * sums[i] is the sum of the first 16 i values, modulo 2^32: the sum over any segment is one subtraction. */
#ifndef QUERN_KERNELS_CPU_DOT_DOT_H
#define QUERN_KERNELS_CPU_DOT_DOT_H

#include "kernels/cpu/isa.h"

enum {
	ACT_GROUP = 128,              /* activations that share a scale */
	ACT_SUM = 16,                 /* values in a partial sum; segments begin at multiples of it */
	DOT_SCRATCH = BLOCK_N * 4096, /* bytes: 4096 k of a block, one byte per code */
};

/* Offsets in an operand's row. */
struct cpu_operand {
	int k, k_pad;
	bool wide;           /* int16 */
	size_t scales, sums; /* bytes from the start of the row; the low bytes are at k_pad */
	size_t row;          /* bytes, a multiple of 64 */
};

struct cpu_dot_tile {
	const unsigned char *w; /* the block */
	int tiles;              /* tiles in the block */
	int t0, tn;             /* tiles wanted: tn is 1, 2 or 4 */
	int k;
	struct cpu_codes codes; /* group: a multiple of ACT_SUM, or k */
	const unsigned char *x;
	const struct cpu_operand *op;
	int n_rows;             /* <= ROWS_MAX */
	size_t ahead;           /* prefetch distance in bytes; 0: none */
	const float *next;      /* memory written next, a line of tn * 16 per row, to prefetch; NULL: none */
	size_t next_stride;     /* floats from a row to the next */
	unsigned char *scratch; /* [DOT_SCRATCH], 64-byte aligned */
	float *c;               /* out [n_rows][tn * 16] */
};

struct cpu_dot {
	const char *name;
	void (*quantize)(unsigned char *row, const float *x, const struct cpu_operand *op);
	/* quantize() in chunks: quantize_group() for each group of ACT_GROUP values (x: values from k0 on, a
	 * multiple of ACT_GROUP), in any order and by any threads, which leaves sums within the group; then,
	 * when all groups are done, add_up() once. */
	void (*quantize_group)(unsigned char *row, const float *x, const struct cpu_operand *op, int k0);
	void (*add_up)(unsigned char *row, const struct cpu_operand *op);
	void (*tile)(const struct cpu_dot_tile *t);
};

/* NULL if not built, or not supported by this CPU. */
const struct cpu_dot *cpu_dot_amx(void);
const struct cpu_dot *cpu_dot_avx512vnni(void);
const struct cpu_dot *cpu_dot_avxvnni(void);
const struct cpu_dot *cpu_dot_avx2(void);
const struct cpu_dot *cpu_dot_plain(void);

#endif
