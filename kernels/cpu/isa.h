/* isa.h - the inner kernels of one instruction set, as a table.
 * Layout, planning and threads are in neutral files.  Code that runs once per weight or per token is behind
 * this table: written once, in inner.h, and compiled for each instruction set in isa_*.c.  All tables give
 * the same bits: the unit is always a row of 16 lanes, every sum has one order, every multiply-add is fused.
 * No inline functions here: a neutral file must never share code with an ISA file. */
#ifndef QUERN_KERNELS_CPU_ISA_H
#define QUERN_KERNELS_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codes.h"
#include "kernels/kern.h"

enum {
	LANES_N = 16,    /* outputs of a tile */
	BLOCK_TILES = 4, /* tiles in a block of weights */
	BLOCK_N = LANES_N * BLOCK_TILES,
	ROWS_MAX = 256, /* most rows in one linear_tile() call */
	CHUNK = 256,    /* tokens of an attention chunk, aligned to positions */
	CHUNK_TILES = CHUNK / LANES_N,
	AWQ_HEAD = 64,    /* bytes before a group's nibbles: 16 F16 scales, 16 zeros, 16 unused */
	CODES_SLICE = 64, /* inputs (k) of codes that are widened to floats at once */
	CODES_SCRATCH = CODES_SLICE * BLOCK_N * 4,
	SUM_BLOCK = 4096, /* logits that are summed by lanes; the sums of blocks are then added in order */
};

/* Packed weights.  Outputs are stored in tiles of 16.  A block has up to four adjacent tiles (the last
 * block of a part has 1, 2 or 4), so that one vector holds 16 outputs at one k:
 *   F32, F16, BF16   block: [k][tiles][16]
 *   AWQ4             block: [group][ [tiles] head | line k/8: [tiles][16] uint32 ]
 *                    head: scales F16 [16], zeros uint8 [16]
 *
 *     nibble of a word, from the least significant     0   1   2   3   4   5   6   7
 *     q at k +                                         0   4   1   5   2   6   3   7
 *
 * A block is read as one ascending stream, since the lines of its tiles are adjacent.  (As four streams, one
 * per tile, it was read at half the speed.) The low nibbles of a word's bytes are four consecutive k, the
 * high nibbles the next four, as a dot product of bytes needs them.  Packed rows: row block b holds rows
 * r0..r0+m as [k][m]. */
/* Contents of the heads of a block of codes (drawn in dot.h). */
enum cpu_heads {
	HEADS_AWQ,   /* per group: scales F16 and zeros */
	HEADS_F16,   /* per group: scales F16 */
	HEADS_F32,   /* per group: scales F32, and minimums F32 if any */
	HEADS_SUPER, /* per super-group: d, dmin F16; per group: scales int8, and minimums uint8 */
};
struct cpu_codes {
	int group, super; /* inputs; super is 0 except for HEADS_SUPER */
	int bits;         /* 4, 6 or 8; 0: not codes but floats */
	enum cpu_heads heads;
	int head, super_head; /* bytes of a tile's head of a group, and of a super-group */
	bool minimums;
	bool e4m3; /* codes of 8 bits are E4M3 floats; a line is then [4 k][16 outputs] */
	int zero;  /* zero of all groups, except for HEADS_AWQ */
};

struct cpu_tile {
	enum kern_dtype dtype;
	const unsigned char *w; /* the block */
	int tiles;              /* tiles in the block */
	int t0, tn;             /* tiles wanted: tn is 1, 2 or 4 */
	int k;
	struct cpu_codes codes; /* for AWQ4 and CODES */
	unsigned char *scratch; /* for CODES: [CODES_SCRATCH], 64-byte aligned */
	const float *x;         /* packed rows */
	int n_rows;             /* <= ROWS_MAX */
	int n_row_blocks;       /* blocks of rows, as even as possible */
	float *c;               /* out [n_rows][tn * 16] */
};

struct cpu_head {
	float *dst;       /* [dim] */
	const float *src; /* [dim] */
	int dim;
	const float *norm; /* [dim] or NULL */
	const float *bias; /* of a layer norm: [dim] or NULL */
	bool layer;        /* a layer norm, else an RMS norm */
	bool after;        /* norm after the rotation, else before */
	float clip;        /* > 0: limit of the values before the rotation */
	float scale;       /* factor of the result; 0: 1 */
	float by;          /* > 0: factor of the norm; 0: 1 / sqrt(mean(src^2) + eps) */
	float eps;
	const float *rope; /* [rope_dim/2][2] for the row's position */
	int rope_dim;
	enum kern_rope_style style;
};

/* A gated activation: out[r * out_stride + i] = act(gate) * up, where gate and up are [r * c_stride + i] plus
 * their bias, i < n.  KERN_GELU_SIGMOID limits gates to at most `limit` and ups to -limit .. limit, then adds
 * `plus` to ups. */
struct cpu_glu {
	enum kern_act act; /* KERN_SILU, KERN_GELU_TANH or KERN_GELU_SIGMOID */
	float limit, plus;
	float *out;
	size_t out_stride;
	const float *gate, *up;
	size_t c_stride;
	const float *gate_bias, *up_bias; /* NULL or padded to 16 */
	int n_rows, n;
};

struct cpu_kv_type;

struct cpu_isa {
	const char *name;
	int rows_max; /* most rows in a row block */

	void (*linear_tile)(const struct cpu_tile *t);
	/* out[r * out_stride + i] = c[r * c_stride + i] + bias[i], i < n; bias: NULL or padded to 16. */
	void (*store_rows)(float *out, size_t out_stride, const float *c, size_t c_stride, const float *bias,
			   int n_rows, int n);
	void (*store_glu)(const struct cpu_glu *g);
	/* x += add (or NULL); out = x / sqrt(mean(x^2) + eps) * w */
	void (*rmsnorm)(float *out, float *x, const float *add, const float *w, int n, float eps);
	/* x += add (or NULL); out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b (or NULL) */
	void (*layernorm)(float *out, float *x, const float *add, const float *w, const float *b, int n,
			  float eps);
	float (*square_sum)(const float *x, int n);
	void (*softcap)(float *x, int n, float cap); /* x = cap * tanh(x / cap) */
	void (*head)(const struct cpu_head *h);      /* norm and rotation of one head */
	const struct cpu_kv_type *kv_f32, *kv_bf16;  /* for these, see attention/kvtype.h */
	const struct cpu_kv_type *kv_dots;           /* see attention/bf16.h */
	/* Merge one more chunk's (cmax, csum, c) into a query's (max, sum, o); n is a multiple of 16. */
	void (*attn_merge)(float *max, float *sum, float *o, float cmax, float csum, const float *c, int n);
	void (*attn_out)(float *out, const float *o, float sum, int n); /* out = o / sum */
	/* For at most SUM_BLOCK logits.  max_block: the largest (NaN and -inf: -inf).  exp_block: the sum of
	 * p = exp((x - max) * inv_t), with p stored if p is not NULL. */
	float (*max_block)(const float *x, int n);
	float (*exp_block)(float *p, const float *x, int n, float max, float inv_t);
	uint64_t (*weigh_block)(const float *p, int n); /* sum of draw_weight() of draw.h */
	/* out[i] = x[i] if bit i % 32 of mask[i / 32] is set, else other; out may be x. */
	void (*mask_block)(float *out, const float *x, const uint32_t *mask, int n, float other);
	void (*map_codes)(uint8_t *code, size_t n, const uint8_t table[16]); /* code = table[code & 15] */
	codes_group_fn *code_floats;
};

/* NULL if not built, or not supported by this CPU. */
const struct cpu_isa *cpu_isa_avx512(void);
/* Request AMX's tiles: Linux lets a process use them only on request.  False: no tiles, or no AVX-512. */
bool cpu_isa_amx(void);
const struct cpu_isa *cpu_isa_avx2(void);
const struct cpu_isa *cpu_isa_plain(void);

#endif
