/* linear.cuh - internals of the linear layers: layouts, index algebra, shared device code.
 *
 * linear.cu         layers, and which kernel computes them
 * linear_pack.cu    converts stored weights to the layout that the kernels read
 * linear_codes.*    weights in small groups: LIN_CODE_KINDS
 * linear_stream.cu  few rows: the weights are streamed past them
 * linear_tile.cu    many rows: tiles of rows x outputs
 * linear_fast.cu    many rows with --fast: plain weights and cuBLAS
 * moe.cu            several layers of one shape in one launch: experts
 *
 * Every kernel computes Y^T = W X^T: the weights are the 16-row operand A of mma.m16n8k16, the rows of the
 * batch are its n = 8.  For one row, 128 bits of weights per lane feed the tensor cores without passing
 * through shared memory.  For many rows, a fragment of weights is unpacked once and used with 4 or 8
 * fragments of rows.
 *
 * Index names: column = 16 outputs, unit = 64 inputs, t8 = 8 rows; g = lane / 4, t = lane % 4.
 *
 * A row's bits do not depend on the kernel, block or warp that computes it.  A layer's inputs are cut into
 * `slices`; K, N and the architecture decide their number (linear.cu).  Within a slice, one chain of mma per
 * output runs k16 by k16.  AWQ keeps a chain per group; its sum is scaled in F32 and added (one fma) to the
 * slice's sum.  Slices are added in ascending order, then the bias.  With few rows each slice has its own
 * warp; with many, one block runs the slices one after another.
 *
 * Inputs of a k16 step.  mma only requires that A and B agree.  The order is chosen so that a lane's inputs
 * are adjacent in a plain row, and 16-byte loads give whole fragments:
 *
 *     unit   |0       8       16      24      |32      40      48      56      | 63
 *     slot    t=0     t=1     t=2     t=3      t=0     t=1     t=2     t=3         16 bytes each
 *             |                                |
 *             half 0: steps 0 and 1            half 1: steps 2 and 3
 *
 *     a slot: k+0 k+1 | k+2 k+3 | k+4 k+5 | k+6 k+7
 *             b0        b1        b0        b1
 *             step 2h             step 2h + 1
 *
 * Outputs of a column's 16 operand rows.  Place q = 2g is operand row g, place q = 2g + 1 is row g + 8, so
 * that a lane holds adjacent outputs and stores them together.  Place q of a plain column is output 16 c + q
 * of its part.  A paired layer has two parts of one type and size (gate and up): place 2g is output 8 c + g
 * of the first part, and place 2g + 1 is the same output of the second.  A lane then holds both operands of
 * SwiGLU.
 *
 * Weights.  F16 and BF16: rows as stored, [n][ldw].  AWQ, one 16-byte load of a lane = 4 steps:
 *
 *     w      [column][unit][lane] uint4; word j = step j; nibbles from the least significant:
 *            b0.x of row g, b1.x of g, b0.x of g+8, b1.x of g+8, b0.y of g, ... (x, y: first, second)
 *     scales [column][quad][g] uint4: 4 groups x (F16 of place 2g, of 2g + 1)
 *     zeros  [column][quad][g] uint32: 4 groups x (4 bits of place 2g, of 2g + 1) */
#ifndef QUERN_KERNELS_CUDA_LINEAR_CUH
#define QUERN_KERNELS_CUDA_LINEAR_CUH

#include "kernels/cuda/cuda.cuh"

enum {
	LIN_COL = 16,  /* outputs of a column */
	LIN_UNIT = 64, /* inputs of a unit */
	/* most rows with slices spread over blocks, for a layer with few outputs and for any other */
	LIN_PARTIAL_ROWS = 256,
	LIN_PARTIAL_ROWS_WIDE = 128,
	LIN_SLICES_MAX = 8,
};

/* Kinds of codes that the kernels compute as they are stored; linear_codes.cuh unpacks them.
 *
 *     KIND(name, bits, group, super, zero, e2m1, unit_bytes)
 *
 * super 0: a scale per group of a multiple of 32 inputs; zero -1: minimums; unit_bytes: of a column's
 * unit. */
#define LIN_CODE_KINDS(KIND)                                                                                 \
	KIND(Q4_0, 4, 32, 0, 8, false, 512)                                                                  \
	KIND(Q8_0, 8, 32, 0, 128, false, 1024)                                                               \
	KIND(Q4_K, 4, 32, 256, -1, false, 512)                                                               \
	KIND(Q6_K, 6, 16, 256, 32, false, 768)                                                               \
	KIND(MXFP4, 4, 32, 0, 0, true, 512)

/* Type of a segment's weights.  DENSE: F16 or BF16, like the operands. */
enum lin_kind {
	LIN_DENSE,
	LIN_AWQ,
#define LIN_KIND(name, ...) LIN_##name,
	LIN_CODE_KINDS(LIN_KIND) LIN_KINDS
#undef LIN_KIND
};

static __host__ __device__ constexpr bool lin_is_codes(int kind)
{
	return kind > LIN_AWQ;
}

enum lin_out { LIN_OUT_OPERAND, LIN_OUT_F32, LIN_OUT_SWIGLU };

/* Activation of gate and up (kern.h). */
struct lin_act {
	enum kern_act act;
	float limit, up_plus; /* for KERN_GELU_SIGMOID; limit INFINITY: no limit */
};

struct lin_part {
	const void *w; /* F16, BF16: [n][ldw] */
	int n;
	int n0;   /* first output within the layer */
	int col0; /* first column within the segment */
};

/* Parts of one kind, computed by one launch. */
struct lin_seg {
	enum lin_kind kind;
	bool paired;
	int n_parts;
	struct lin_part parts[3];
	int n_cols;
	int slices;
	int k, units; /* units: of 64 inputs, the last one padded with zeros */
	int quantum;  /* each slice begins at a multiple of this many units */
	int ldw;      /* F16, BF16: stride of a row in inputs, a multiple of 8 */
	/* AWQ and codes */
	const uint4 *w;
	const uint4 *scales;
	int quads; /* quads of a column's scales, 16 bytes per lane each */
	/* AWQ */
	const uint32_t *zeros;
	int group32; /* group size in steps of 32 inputs */
	/* codes with super-blocks */
	const uint2 *heads;
	/* --fast */
	int fast_above; /* batches with more rows use cuBLAS; INT_MAX: none do */
	int fast_cols;  /* columns of a cuBLAS tile */
};

/* Properties that all layers of a stack share, apart from their shape. */
struct lin_signature {
	enum lin_kind kind;
	int group; /* AWQ: inputs per group; else 0 */
	bool bias;
};

struct kern_linear {
	struct kern_dev *dev;
	int k, n;
	int n_parts;
	int part_n[3];
	struct lin_act act;
	int n_segs;
	struct lin_seg segs[3];
	float *bias; /* [n] or NULL */
	struct cuda_buf owned[10];
	int n_owned;
	/* Stack of experts: the number of layers, all of one shape.  Their columns follow one another in a
	 * segment, each buffer holds all layers, and `layer` is the one being packed.  0: a single layer. */
	int n_layers, layer;
	struct lin_signature signature; /* stack: its likeness */
	struct cuda_buf stage[10];      /* stack, while packing: data copied from the host */
	float *exact;                   /* router only: [n][k] F32; a router has no segments */
};

/* Arguments of a launch.  The kernels document which blocks they need. */
struct lin_args {
	struct lin_seg seg;
	const uint16_t *x; /* [m][ldx], 16-byte aligned, ldx a multiple of 8 */
	int ldx, m;
	void *out; /* [m][ldo] of the type that `to` selects */
	int ldo;
	enum lin_out to;
	struct lin_act act; /* for LIN_OUT_SWIGLU */
	bool wide;          /* adjacent outputs may be stored together */
	const float *bias;  /* [n of the layer] or NULL */
	int block_slices;   /* stream: slices per block */
	int splits;         /* blocks that share the slices of an output; 1: none */
	float4 *partial;    /* [slice][column][t8][lane] */
	int *counts;        /* [block of outputs and rows], zero between launches */
};

/* ---- rows of several layers in one launch ---- */

/* Rows of one layer that one block computes. */
struct lin_entry {
	int layer;
	int first, n; /* range of (row, layer) pairs: indices into `from` and `to` */
};

/* A launch with entries that are made on the device. */
struct lin_list {
	struct lin_args a;               /* seg covers all layers; m, partial and counts are not used */
	int n_layers, cols, n;           /* cols, n: columns of one layer, outputs of one of its parts */
	const struct lin_entry *entries; /* NULL: entry i is pair i alone, of layer layer[i] */
	const int *n_entries;
	const int32_t *layer;
	const int32_t *from, *to; /* [pair] row of x, row of out; NULL: the pair's index */
};

/* A block's rows and the destination of its outputs.  For a single layer, rows are taken in order. */
struct lin_rows {
	static constexpr bool listed = false;
	const struct lin_args &a;

	__device__ __forceinline__ int m() const
	{
		return a.m;
	}

	__device__ __forceinline__ int cols() const
	{
		return a.seg.n_cols;
	}

	__device__ __forceinline__ int n(int part) const
	{
		return a.seg.parts[part].n;
	}

	/* Return the column within the segment. */
	__device__ __forceinline__ int col(int c) const
	{
		return c;
	}

	__device__ __forceinline__ const uint16_t *x(int row) const
	{
		return a.x + (size_t)row * (size_t)a.ldx;
	}

	__device__ __forceinline__ int out(int row) const
	{
		return row;
	}

	__device__ __forceinline__ const float *bias() const
	{
		return a.bias;
	}
};

/* Rows of a list's entry. */
struct lin_listed {
	static constexpr bool listed = true;
	const struct lin_list &l;
	const struct lin_args &a;
	struct lin_entry e;

	__device__ __forceinline__ lin_listed(const struct lin_list &list, int entry) : l(list), a(list.a)
	{
		if (!list.entries)
			e = {list.layer[entry], entry, 1};
		else if (entry < *list.n_entries)
			e = list.entries[entry];
		else
			e = {0, 0, 0};
	}

	__device__ __forceinline__ int m() const
	{
		return e.n;
	}

	__device__ __forceinline__ int cols() const
	{
		return l.cols;
	}

	__device__ __forceinline__ int n(int) const
	{
		return l.n;
	}

	__device__ __forceinline__ int col(int c) const
	{
		return e.layer * l.cols + c;
	}

	__device__ __forceinline__ const uint16_t *x(int row) const
	{
		const int pair = e.first + row;
		return a.x + (size_t)(l.from ? l.from[pair] : pair) * (size_t)a.ldx;
	}

	__device__ __forceinline__ int out(int row) const
	{
		const int pair = e.first + row;
		return l.to ? l.to[pair] : pair;
	}

	__device__ __forceinline__ const float *bias() const
	{
		return a.bias ? a.bias + (size_t)e.layer * (size_t)(a.seg.n_parts * l.n) : NULL;
	}
};

/* ---- launch plans ---- */

enum lin_kernel { LIN_STREAM, LIN_TILE };

/* A launch plan.  It does not affect the results' bits. */
struct lin_plan {
	enum lin_kernel kernel;
	int cols;   /* stream: columns per warp, 1 or 2 */
	int rows;   /* per block: stream 8 or 16, tile 32, 64 or 128 */
	int warps;  /* stream: warps per block */
	int splits; /* blocks that share an output's slices; divides their number */
};

struct lin_plan lin_plan_for(const struct kern_dev *d, const struct lin_seg *seg, int m);
/* Run a linear operation of the table.  force: a plan for every segment (tests, tuning), or NULL.  A forced
 * split is ignored for more rows than the layer splits. */
int lin_run(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
	    enum lin_out to, const struct lin_plan *force);

int lin_stream_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p, bool bf16);
int lin_tile_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p, bool bf16);
/* Raise the kernels' shared memory limits, to at most smem_max: 0, -EIO. */
int lin_stream_allow(enum lin_kind kind, bool bf16);
int lin_tile_allow(enum lin_kind kind, int smem_max, bool bf16);
int lin_tile_cols(int rows); /* columns per block */
/* Return the shared memory of a 128-row block, the only block that does not fit on some devices.  all_slices:
 * the block itself runs more than one slice. */
int lin_tile_128_smem(enum lin_kind kind, bool all_slices);

/* Launch a list of at most n entries, each of at most p->rows rows (stream 8 or 16, tile 32 or 64).  A block
 * runs all slices of its outputs. */
int lin_stream_list(struct kern_stream *s, const struct lin_list *l, int n, const struct lin_plan *p,
		    bool bf16);
int lin_tile_list(struct kern_stream *s, const struct lin_list *l, int n, const struct lin_plan *p,
		  bool bf16);
int lin_stream_list_allow(enum lin_kind kind, bool bf16);
int lin_tile_list_allow(enum lin_kind kind, int smem_max, bool bf16);

/* Load layer `layer` of a stack of n layers of one shape and likeness, in ascending order.  The first call
 * makes *w; call lin_stage_free() after the last. */
int lin_stack_load(struct kern_dev *d, const struct kern_linear_src *src, int layer, int n,
		   struct kern_linear **w, struct why *why);
/* Get the likeness that a stack must have to hold src: 0, or lin_stack_load()'s error with the reason. */
int lin_stack_signature(const struct kern_linear_src *src, struct lin_signature *out, struct why *why);
static inline bool lin_same_signature(const struct lin_signature *a, const struct lin_signature *b)
{
	return a->kind == b->kind && a->group == b->group && a->bias == b->bias;
}
/* Set l's segment and sizes to those of all layers of the stack; the caller fills the rest of *l. */
void lin_stack_list(const struct kern_linear *w, struct lin_list *l);

/* ---- linear_fast.cu ---- */

/* Choose fast_above and fast_cols of w's segments and make the workspaces large enough: 0, -ENOMEM. */
int lin_fast_reserve(struct kern_linear *w);
/* Compute a segment's part of the operation, for a->m rows: 0, -EIO. */
int lin_fast_run(struct kern_stream *s, const struct kern_linear *w, const struct lin_seg *seg,
		 const struct lin_args *a);

/* ---- linear_pack.cu ---- */

/* Fill seg's parts from src's parts first .. first + seg->n_parts - 1; w->owned gets the memory.  -ENOMEM,
 * -EIO with why. */
int lin_pack(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src, int first,
	     struct why *why);
/* Queue a device copy of row-major 16-bit rows of k inputs to rows of ldw, with zeros after k. */
int lin_pad_rows(cudaStream_t s, void *dst, int ldw, const void *src, int k, int rows);
/* Allocate device memory that the layer owns, or return NULL.  For a stack: bytes of one layer. */
void *lin_own(struct kern_linear *w, size_t bytes);
void lin_stage_free(struct kern_linear *w);

/* ---- linear_codes.cu ---- */

/* Return the kind that computes with these codes directly, or LIN_KINDS if there is none. */
enum lin_kind lin_kind_of_codes(const struct codes *c);
/* Pack a segment of codes, as lin_pack() does; also -ENOTSUP if a scale or a minimum does not fit its
 * byte. */
int lin_pack_codes(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src, int first,
		   struct why *why);

/* ---- shared device code ---- */

/* Return the first unit of a slice. */
static __host__ __device__ __forceinline__ int lin_slice_unit(const struct lin_seg &s, int slice)
{
	const int quanta = (s.units + s.quantum - 1) / s.quantum;
	return min((int)((int64_t)quanta * slice / s.slices) * s.quantum, s.units);
}

/* Return the rows of weights that a stack's layer has for each part (F16, BF16): whole columns. */
static __host__ __device__ __forceinline__ int lin_stack_rows(const struct lin_seg &layer)
{
	return layer.n_cols * (layer.paired ? LIN_COL / 2 : LIN_COL);
}

/* Return the part that a column belongs to. */
static __device__ __forceinline__ int lin_part_of(const struct lin_seg &s, int col)
{
	int p = 0;
	if (!s.paired) {
		if (s.n_parts > 1 && col >= s.parts[1].col0)
			p = 1;
		if (s.n_parts > 2 && col >= s.parts[2].col0)
			p = 2;
	}
	return p;
}

/* Return the output at place q of a column and set its part; -1: padding. */
static __device__ __forceinline__ int lin_output(const struct lin_seg &s, int col, int q, int *part)
{
	const int p = s.paired ? q & 1 : lin_part_of(s, col);
	const int i = s.paired ? 8 * col + (q >> 1) : LIN_COL * (col - s.parts[p].col0) + q;
	*part = p;
	return i < s.parts[p].n ? i : -1;
}

/* Return the row of weights at place q of a column (F16, BF16).  Past the end this is the last row; its sum
 * is not stored. */
static __device__ __forceinline__ const uint16_t *lin_row(const struct lin_seg &s, int col, int q)
{
	int p = s.paired ? q & 1 : lin_part_of(s, col);
	int i = s.paired ? 8 * col + (q >> 1) : LIN_COL * (col - s.parts[p].col0) + q;
	const struct lin_part &part = s.parts[p];
	return (const uint16_t *)part.w + (size_t)min(i, part.n - 1) * (size_t)s.ldw;
}

template <bool BF16>
static __device__ __forceinline__ void lin_mma(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
	const uint32_t b[2] = {b0, b1};
	if (BF16)
		mma_m16n8k16_bf16(d, a, b);
	else
		mma_m16n8k16_f16(d, a, b);
}

static __device__ __forceinline__ uint32_t lin_word(const uint4 &v, int j) /* j is a compile-time constant */
{
	return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

/* Unpack a step's word of 4-bit codes to operand A: integers q - z, exact.  Constants as in lin_group. */
template <bool BF16>
static __device__ __forceinline__ void lin_unpack(uint32_t a[4], uint32_t w, uint32_t lo0, uint32_t hi0,
						  uint32_t lo1, uint32_t hi1)
{
	if (BF16) {
		/* BF16 has 8 bits of precision: 128 + q fits, 128 + 16 q does not. */
		const uint32_t one = 0x3f803f80u, base = 0x43004300u, mask = 0x000f000fu;
		a[0] = bf16x2_fma(lop3<0xea>(w, mask, base), one, lo0);
		a[2] = bf16x2_fma(lop3<0xea>(w >> 4, mask, base), one, lo0);
		a[1] = bf16x2_fma(lop3<0xea>(w >> 8, mask, base), one, lo1);
		a[3] = bf16x2_fma(lop3<0xea>(w >> 12, mask, base), one, lo1);
	} else {
		const uint32_t base = 0x64006400u, low = 0x000f000fu, high = 0x00f000f0u;
		const uint32_t sixteenth = 0x2c002c00u;
		a[0] = f16x2_sub(lop3<0xea>(w, low, base), lo0);
		a[2] = f16x2_fma(lop3<0xea>(w, high, base), sixteenth, hi0);
		w >>= 8;
		a[1] = f16x2_sub(lop3<0xea>(w, low, base), lo1);
		a[3] = f16x2_fma(lop3<0xea>(w, high, base), sixteenth, hi1);
	}
}

/* The scales and zeros of a column that this lane needs.  Those of the current group are kept as constants,
 * later groups' as loaded: four groups at a time, with the next four in flight. */
template <bool BF16> struct lin_group {
	uint32_t lo0, hi0, lo1, hi1; /* F16: 1024 + z; -(64 + z).  BF16: -(128 + z), in lo */
	uint4 s, s_next;
	uint32_t z, z_next;

	__device__ __forceinline__ void load(const struct lin_seg &seg, int col, int quad, bool pred)
	{
		size_t i = ((size_t)col * (size_t)seg.quads + (size_t)min(quad, seg.quads - 1)) * 8 +
			   (size_t)(lane_id() >> 2);
		ld_global_128_if(s_next, seg.scales + i, pred);
		ld_global_32_if(z_next, seg.zeros + i, pred);
	}

	__device__ __forceinline__ void take()
	{
		s = s_next;
		z = z_next;
	}

	__device__ __forceinline__ void shift()
	{
		s.x = s.y;
		s.y = s.z;
		s.z = s.w;
		z >>= 8;
	}

	__device__ __forceinline__ void constants()
	{
		const uint32_t z0 = (z & 15) * 0x00010001u, z1 = (z >> 4 & 15) * 0x00010001u;
		if (BF16) {
			lo0 = z0 | 0xc300c300u;
			lo1 = z1 | 0xc300c300u;
		} else {
			lo0 = z0 | 0x64006400u;
			hi0 = z0 << 4 | 0xd400d400u;
			lo1 = z1 | 0x64006400u;
			hi1 = z1 << 4 | 0xd400d400u;
		}
	}

	__device__ __forceinline__ void open(const struct lin_seg &seg, int col, int group)
	{
		s_next = make_uint4(0, 0, 0, 0);
		z_next = 0;
		load(seg, col, group >> 2, true);
		take();
		load(seg, col, (group >> 2) + 1, (group & 3) != 0);
		for (int i = 0; i < (group & 3); i++)
			shift();
		constants();
	}

	/* Advance to `group`, the one after the current group. */
	__device__ __forceinline__ void next(int group)
	{
		if (group & 3)
			shift();
		else
			take();
		constants();
	}

	/* Unpack a step's word to operand A: integers q - z, exact. */
	__device__ __forceinline__ void unpack(uint32_t a[4], uint32_t w) const
	{
		lin_unpack<BF16>(a, w, lo0, hi0, lo1, hi1);
	}

	/* Add scale * part to sum and clear part, the group's sum. */
	__device__ __forceinline__ void scale(float sum[4], float part[4]) const
	{
		const float s0 = f32_of_f16((uint16_t)s.x), s1 = f32_of_f16((uint16_t)(s.x >> 16));
		sum[0] = f32_fma_rn(part[0], s0, sum[0]);
		sum[1] = f32_fma_rn(part[1], s0, sum[1]);
		sum[2] = f32_fma_rn(part[2], s1, sum[2]);
		sum[3] = f32_fma_rn(part[3], s1, sum[3]);
		part[0] = part[1] = part[2] = part[3] = 0;
	}
};

/* The sums of one slice that a warp holds: N_COLS columns x N_T8 blocks of 8 rows.  AWQ accumulates the
 * current group separately, in part; scale() folds it into sum.  linear_stream.cu and linear_tile.cu derive
 * from this struct and differ in where the operands come from. */
template <bool BF16, bool AWQ, int N_COLS, int N_T8> struct lin_sum {
	float sum[N_COLS][N_T8][4];
	float part[AWQ ? N_COLS : 1][AWQ ? N_T8 : 1][4]; /* sums of the current group */
	lin_group<BF16> group[AWQ ? N_COLS : 1];
	int g, left; /* index of the group; steps of 32 inputs left in it */
	bool want;   /* the next four groups' scales have not been requested */

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

	/* Start at unit u0 of the columns from col0 on. */
	__device__ __forceinline__ void open(const struct lin_seg &s, int col0, int u0)
	{
		clear();
		if (AWQ) {
			g = 2 * u0 / s.group32;
			want = (g & 3) == 0;
			left = s.group32 - 2 * u0 % s.group32;
#pragma unroll
			for (int i = 0; i < N_COLS; i++) {
				group[AWQ ? i : 0].open(s, min(col0 + i, s.n_cols - 1), g);
#pragma unroll
				for (int n = 0; n < N_T8; n++)
#pragma unroll
					for (int e = 0; e < 4; e++)
						part[AWQ ? i : 0][AWQ ? n : 0][e] = 0;
			}
		}
	}

	/* Fold the group's sums so far into the slice's. */
	__device__ __forceinline__ void scale()
	{
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
#pragma unroll
			for (int n = 0; n < N_T8; n++)
				group[AWQ ? i : 0].scale(sum[i][n], part[AWQ ? i : 0][AWQ ? n : 0]);
	}

	/* Before a unit: request the scales of the next four groups, once the current four are taken.
	 * PREDICATED: without a branch. */
	template <bool PREDICATED> __device__ __forceinline__ void ahead(const struct lin_seg &s, int col0)
	{
		if (AWQ && (PREDICATED || want)) {
#pragma unroll
			for (int i = 0; i < N_COLS; i++)
				group[AWQ ? i : 0].load(s, min(col0 + i, s.n_cols - 1), (g >> 2) + 1, want);
			want = false;
		}
	}

	/* Multiply a step's operands of column i and row block n: one mma. */
	__device__ __forceinline__ void step(int i, int n, const uint32_t a[4], uint32_t b0, uint32_t b1)
	{
		lin_mma<BF16>(AWQ ? part[AWQ ? i : 0][AWQ ? n : 0] : sum[i][n], a, b0, b1);
	}

	/* After 32 inputs: at the end of a group, advance to the next one. */
	__device__ __forceinline__ void group_step(const struct lin_seg &s)
	{
		if (AWQ && --left == 0) {
			scale();
			left = s.group32;
			g++;
			want = want || (g & 3) == 1;
#pragma unroll
			for (int i = 0; i < N_COLS; i++)
				group[AWQ ? i : 0].next(g);
		}
	}
};

static __device__ __forceinline__ float4 lin_add(float4 a, float4 b)
{
	return make_float4(f32_add_rn(a.x, b.x), f32_add_rn(a.y, b.y), f32_add_rn(a.z, b.z),
			   f32_add_rn(a.w, b.w));
}

/* Return act(gate) * (up + up_plus), as kern.h defines it. */
static __device__ __forceinline__ float lin_glu(const struct lin_act &f, float gate, float up)
{
	float a = gate;
	if (f.act == KERN_GELU_SIGMOID) {
		gate = gate > f.limit ? f.limit : gate;
		up = up > f.limit ? f.limit : up < -f.limit ? -f.limit : up;
		up = f32_add_rn(up, f.up_plus);
		a = f32_mul_rn(gate, 1.702f);
	} else if (f.act == KERN_GELU_TANH) {
		a = f32_mul_rn(gate, f32_fma_rn(f32_mul_rn(gate, gate), 0.0713548162726f, 1.5957691216057f));
	}
	return f32_mul_rn(f32_div_rn(gate, f32_add_rn(1.0f, expf(-a))), up);
}

template <bool BF16>
static __device__ __forceinline__ void lin_put(const struct lin_args &a, int row, int n, float v)
{
	size_t i = (size_t)row * (size_t)a.ldo + (size_t)n;
	if (a.to == LIN_OUT_F32)
		((float *)a.out)[i] = v;
	else
		((uint16_t *)a.out)[i] = BF16 ? bf16_of_f32(v) : f16_of_f32(v);
}

/* Store outputs n and n + 1. */
template <bool BF16>
static __device__ __forceinline__ void lin_put2(const struct lin_args &a, int row, int n, float v0, float v1)
{
	size_t i = (size_t)row * (size_t)a.ldo + (size_t)n;
	if (a.to == LIN_OUT_F32)
		*(float2 *)((float *)a.out + i) = make_float2(v0, v1);
	else
		*(uint32_t *)((uint16_t *)a.out + i) = BF16 ? bf16x2_of_f32(v0, v1) : f16x2_of_f32(v0, v1);
}

/* Add the bias, apply SwiGLU, round and store one fragment: the sums of a column and of 8 rows. */
template <bool BF16, class ROWS>
static __device__ __forceinline__ void lin_store(const ROWS &rows, int col, int t8, float4 v)
{
	const int g = lane_id() >> 2, t = lane_id() & 3;
	const int row = t8 * 8 + 2 * t;
	const struct lin_args &a = rows.a;
	const struct lin_seg &s = a.seg;
	const int p = lin_part_of(s, col);
	const int i = s.paired ? 8 * col + g : LIN_COL * (col - s.parts[p].col0) + 2 * g;
	const int left = rows.n(p) - i; /* outputs of the part from i on */
	const int n = s.parts[p].n0 + i, n1 = s.paired ? s.parts[1].n0 + i : n + 1;
	if (row >= rows.m() || left <= 0)
		return;
	const bool two = row + 1 < rows.m();
	const int r0 = rows.out(row), r1 = two ? rows.out(row + 1) : 0;
	if (a.bias) {
		const float *bias = rows.bias();
		float b0 = bias[n], b1 = s.paired || left > 1 ? bias[n1] : 0;
		v = lin_add(v, make_float4(b0, b0, b1, b1));
	}
	if (a.to == LIN_OUT_SWIGLU) {
		lin_put<BF16>(a, r0, i, lin_glu(a.act, v.x, v.z));
		if (two)
			lin_put<BF16>(a, r1, i, lin_glu(a.act, v.y, v.w));
	} else if (a.wide && !s.paired && left > 1) {
		lin_put2<BF16>(a, r0, n, v.x, v.z);
		if (two)
			lin_put2<BF16>(a, r1, n, v.y, v.w);
	} else {
		const bool both = s.paired || left > 1;
		lin_put<BF16>(a, r0, n, v.x);
		if (both)
			lin_put<BF16>(a, r0, n1, v.z);
		if (two) {
			lin_put<BF16>(a, r1, n, v.y);
			if (both)
				lin_put<BF16>(a, r1, n1, v.w);
		}
	}
}

/* Return the address of this lane's share of a slice's partial fragment. */
static __device__ __forceinline__ float4 *lin_partial(const struct lin_args &a, int slice, int col, int t8)
{
	const size_t n_t8 = (size_t)((a.m + 7) / 8);
	return a.partial + (((size_t)slice * (size_t)a.seg.n_cols + (size_t)col) * n_t8 + (size_t)t8) * 32 +
	       lane_id();
}

static __device__ __forceinline__ void lin_partial_store(const struct lin_args &a, int slice, int col, int t8,
							 const float v[4])
{
	if (col >= a.seg.n_cols || t8 * 8 >= a.m)
		return;
	st_global_128(lin_partial(a, slice, col, t8),
		      make_uint4((uint32_t)f32_bits(v[0]), (uint32_t)f32_bits(v[1]), (uint32_t)f32_bits(v[2]),
				 (uint32_t)f32_bits(v[3])));
}

/* Load all slices of a fragment.  All loads are issued before the first is awaited: a round trip to L2 takes
 * longer than the additions. */
static __device__ __forceinline__ void lin_partial_load(const struct lin_args &a, int col, int t8,
							uint4 v[LIN_SLICES_MAX])
{
#pragma unroll
	for (int s = 0; s < LIN_SLICES_MAX; s++) {
		v[s] = make_uint4(0, 0, 0, 0);
		ld_cg_128_if(v[s], lin_partial(a, s, col, t8), s < a.seg.slices);
	}
}

/* Return the sum of all slices of a fragment, added in order. */
static __device__ __forceinline__ float4 lin_partial_sum(const struct lin_args &a,
							 const uint4 v[LIN_SLICES_MAX])
{
	float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
	for (int s = 0; s < LIN_SLICES_MAX; s++) {
		const float4 f = make_float4(f32_from_bits((int)v[s].x), f32_from_bits((int)v[s].y),
					     f32_from_bits((int)v[s].z), f32_from_bits((int)v[s].w));
		if (s < a.seg.slices)
			sum = s ? lin_add(sum, f) : f;
	}
	return sum;
}

#endif
