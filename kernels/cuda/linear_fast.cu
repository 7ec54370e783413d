/* linear_fast.cu - linear layers of many rows with --fast: plain weights and cuBLAS.
 *
 * F16 and BF16 are stored as cuBLAS reads them.  AWQ is first unpacked into a workspace that all layers
 * share: (q - z) * scale, rounded to the operand type, which the default path never does.  A layer is
 * computed by tiles of columns.  A tile of a paired layer has as many outputs of gate as of up:
 *
 *     weights  [outputs of the tile][ldw]     paired: [gate][up]
 *     gate_up  [rows][gate, up]               operand type: SwiGLU's input
 *
 * The bias is written to the outputs before the product is added to them.  Codes in small groups
 * (linear_codes.cuh) take the default path for any number of rows. */
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/linear.cuh"

#include <limits.h>

enum {
	FAST_THREADS = 256,
	FAST_UNITS = 4, /* units per warp: 16-byte loads of a lane that are in flight */
	/* Built-in crossovers, for devices without a measurement (`quern bench kernels --tune`).  Estimated:
	 * unpacking costs 2.5 bytes of traffic per weight, which pays off from about 100 rows on. */
	FAST_AWQ_ABOVE = 128,
	FAST_DENSE_ABOVE = 64,
	FAST_COLS_STEP = 8, /* 128 outputs: whole tiles of cuBLAS */
	FAST_COLS_MIN = 64,
};

/* ---- kernels ---- */

struct fast_weights {
	struct lin_seg seg;
	int col0;   /* first column of the tile */
	int first;  /* first output of the tile */
	int n_gate; /* paired: the tile's outputs of each part */
	int ldw;
	uint16_t *to;
};

template <bool BF16> static __device__ __forceinline__ uint32_t fast_scale(uint32_t pair, float scale)
{
	return op2_of_f32<BF16>(f32_mul_rn(op_f32<BF16>((uint16_t)pair), scale),
				f32_mul_rn(op_f32<BF16>((uint16_t)(pair >> 16)), scale));
}

/* Unpack FAST_UNITS units of a column per warp.  A lane stores 8 inputs of two outputs at a time.
 * grid: (columns, blocks of units) */
template <bool BF16>
static __global__ void __launch_bounds__(FAST_THREADS) linear_fast_unpack_kernel(const struct fast_weights a)
{
	const struct lin_seg &s = a.seg;
	const int g = lane_id() >> 2, t = lane_id() & 3;
	const int col = a.col0 + (int)blockIdx.x;
	const int u0 = ((int)blockIdx.y * (FAST_THREADS / 32) + warp_id()) * FAST_UNITS;
	const int p = lin_part_of(s, col);
	const int i = s.paired ? 8 * col + g : LIN_COL * (col - s.parts[p].col0) + 2 * g;
	const bool in[2] = {i < s.parts[p].n, s.paired ? i < s.parts[1].n : i + 1 < s.parts[p].n};
	const int row0 = (s.paired ? i : s.parts[p].n0 - s.parts[0].n0 + i) - a.first;
	const int row[2] = {row0, s.paired ? a.n_gate + row0 : row0 + 1};
	const uint4 *w = s.w + ((size_t)col * (size_t)s.units + (size_t)u0) * 32 + lane_id();
	const size_t groups = (size_t)col * (size_t)s.quads;
	uint4 q[FAST_UNITS];
#pragma unroll
	for (int j = 0; j < FAST_UNITS; j++) {
		q[j] = make_uint4(0, 0, 0, 0);
		ld_global_128_if(q[j], w + 32 * j, u0 + j < s.units);
	}
#pragma unroll
	for (int j = 0; j < 2 * FAST_UNITS; j++) { /* half units */
		const int u = u0 + j / 2, k = LIN_UNIT * u + 32 * (j & 1) + 8 * t;
		if (u >= s.units || k >= a.ldw)
			continue;
		const int group = (2 * u + (j & 1)) / s.group32;
		const size_t at = (groups + (size_t)(group >> 2)) * 8 + (size_t)g;
		const uint32_t scales = ((const uint32_t *)(const void *)(s.scales + at))[group & 3];
		lin_group<BF16> z;
		uint32_t b[2][4];
		z.z = s.zeros[at] >> 8 * (group & 3);
		z.constants();
		z.unpack(b[0], lin_word(q[j / 2], 2 * (j & 1)));
		z.unpack(b[1], lin_word(q[j / 2], 2 * (j & 1) + 1));
#pragma unroll
		for (int o = 0; o < 2; o++) {
			const float scale = f32_of_f16((uint16_t)(scales >> 16 * o));
			if (in[o])
				st_global_128(a.to + (size_t)row[o] * (size_t)a.ldw + k,
					      make_uint4(fast_scale<BF16>(b[0][o], scale),
							 fast_scale<BF16>(b[0][o + 2], scale),
							 fast_scale<BF16>(b[1][o], scale),
							 fast_scale<BF16>(b[1][o + 2], scale)));
		}
	}
}

/* Set every row of out [m][n] to the bias. */
template <bool BF16, bool F32>
static __global__ void __launch_bounds__(FAST_THREADS)
	linear_fast_bias_kernel(void *out, const float *bias, int m, int n, int ldo)
{
	const size_t at = (size_t)blockIdx.x * FAST_THREADS + threadIdx.x;
	const size_t row = at / (size_t)n, i = at % (size_t)n, to = row * (size_t)ldo + i;
	if (row >= (size_t)m)
		return;
	if (F32)
		((float *)out)[to] = bias[i];
	else
		((uint16_t *)out)[to] = op_of_f32<BF16>(bias[i]);
}

/* Clamp to F16's range.  A value beyond it would be infinite, and infinity times 0 is not a number.  The
 * default path sums in F32 and has a number there. */
template <bool BF16> static __device__ __forceinline__ float fast_finite(uint16_t h)
{
	const float v = op_f32<BF16>(h), most = 65504;
	return BF16 ? v : v > most ? most : v < -most ? -most : v;
}

/* out [m][ldo] = act(gate) * up for n outputs, from gate_up [m][2 n].  N: outputs per thread. */
template <bool BF16, int N>
static __global__ void __launch_bounds__(FAST_THREADS)
	linear_fast_swiglu_kernel(uint16_t *out, const uint16_t *gate_up, struct lin_act act, int m, int n,
				  int ldo)
{
	const size_t at = ((size_t)blockIdx.x * FAST_THREADS + threadIdx.x) * N;
	const size_t row = at / (size_t)n, i = at % (size_t)n;
	if (row >= (size_t)m)
		return;
	const uint16_t *gate = gate_up + row * 2 * (size_t)n + i, *up = gate + n;
	out += row * (size_t)ldo + i;
	if constexpr (N == 8) {
		const uint4 g = ld_global_128(gate), u = ld_global_128(up);
		uint32_t v[4];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const uint32_t gj = lin_word(g, j), uj = lin_word(u, j);
			v[j] = op2_of_f32<BF16>(lin_glu(act, fast_finite<BF16>((uint16_t)gj),
							fast_finite<BF16>((uint16_t)uj)),
						lin_glu(act, fast_finite<BF16>((uint16_t)(gj >> 16)),
							fast_finite<BF16>((uint16_t)(uj >> 16))));
		}
		st_global_128(out, make_uint4(v[0], v[1], v[2], v[3]));
	} else {
		out[0] = op_of_f32<BF16>(lin_glu(act, fast_finite<BF16>(gate[0]), fast_finite<BF16>(up[0])));
	}
}

/* ---- load ---- */

static int outputs_of(const struct lin_seg *s)
{
	int n = 0;
	for (int i = 0; i < s->n_parts; i++)
		n += s->parts[i].n;
	return n;
}

static int crossover(const struct kern_dev *d, const struct lin_seg *s)
{
	const enum kern_dtype type = s->kind == LIN_AWQ ? KERN_AWQ4 : d->operand;
	const int n = outputs_of(s);
	int above = s->kind == LIN_AWQ ? FAST_AWQ_ABOVE : FAST_DENSE_ABOVE;
	for (int i = 0; i < d->n_crossovers; i++) {
		const struct kern_crossover *c = &d->crossovers[i];
		if (c->dtype != type)
			continue;
		if (c->k == s->k && c->n == n)
			return c->rows;
		if (!c->k && !c->n)
			above = c->rows;
	}
	return above;
}

/* Return the columns of a tile: as many as fit the workspaces, in tiles of nearly equal size. */
static int tile_cols(const struct kern_dev *d, const struct lin_seg *s)
{
	size_t most = (size_t)s->n_cols;
	if (s->kind == LIN_AWQ)
		most = min(most, d->fast_bytes / ((size_t)LIN_COL * (size_t)s->ldw * 2));
	if (s->paired)
		most = min(most, d->fast_bytes / ((size_t)LIN_COL * (size_t)d->args.max_rows * 2));
	int cols = max((int)most, min(s->n_cols, (int)FAST_COLS_MIN));
	const int tiles = (s->n_cols + cols - 1) / cols;
	cols = (s->n_cols + tiles - 1) / tiles;
	return (cols + FAST_COLS_STEP - 1) / FAST_COLS_STEP * FAST_COLS_STEP;
}

int lin_fast_reserve(struct kern_linear *w)
{
	struct kern_dev *d = w->dev;
	const size_t rows = (size_t)d->args.max_rows;
	int e = 0;
	for (int i = 0; i < w->n_segs && !e; i++) {
		struct lin_seg *s = &w->segs[i];
		s->fast_above = d->blas && !lin_is_codes(s->kind) ? crossover(d, s) : INT_MAX;
		s->fast_cols = s->n_cols;
		if (d->args.max_rows <= s->fast_above)
			continue;
		if (s->kind == LIN_AWQ || s->paired)
			s->fast_cols = tile_cols(d, s);
		const size_t outputs = (size_t)LIN_COL * (size_t)min(s->fast_cols, s->n_cols);
		if (s->kind == LIN_AWQ)
			e = cuda_ws_reserve(d, CUDA_WS_WEIGHTS, outputs * (size_t)s->ldw * 2);
		if (s->paired && !e)
			e = cuda_ws_reserve(d, CUDA_WS_GATE_UP, outputs * rows * 2);
	}
	return e;
}

/* ---- run ---- */

/* Outputs that are adjacent in the weights and in the result. */
struct fast_piece {
	const uint16_t *w;
	int n;
	int n0;  /* place of their bias: index among the layer's outputs */
	int out; /* place in a row of the result */
};

struct fast_tile {
	int col0, cols;
	int first, n; /* outputs of the segment, or of each part of a paired segment */
	struct fast_piece pieces[3];
	int n_pieces;
};

/* Return the first output of a column, in the segment or in each part of a paired segment. */
static int first_output(const struct lin_seg *s, int col)
{
	int p = 0;
	if (s->paired)
		return min(8 * col, s->parts[0].n);
	while (p + 1 < s->n_parts && col >= s->parts[p + 1].col0)
		p++;
	return s->parts[p].n0 - s->parts[0].n0 + min(LIN_COL * (col - s->parts[p].col0), s->parts[p].n);
}

static void add_piece(const struct lin_seg *s, struct fast_tile *t, struct fast_piece p)
{
	struct fast_piece *last = t->n_pieces ? &t->pieces[t->n_pieces - 1] : NULL;
	if (last && last->w + (size_t)last->n * (size_t)s->ldw == p.w && last->n0 + last->n == p.n0 &&
	    last->out + last->n == p.out)
		last->n += p.n;
	else
		t->pieces[t->n_pieces++] = p;
}

/* Cut a tile into pieces.  awq: the tile's unpacked weights; NULL: use the stored weights.  Gate and up are
 * adjacent in gate_up but their biases are not, so they become one piece only without a bias. */
static void make_pieces(const struct kern_linear *w, const struct lin_seg *s, struct fast_tile *t,
			const uint16_t *awq, bool gate_up)
{
	for (int i = 0; i < (s->paired ? 2 : awq ? 1 : s->n_parts); i++) {
		const struct lin_part *part = &s->parts[i];
		const size_t from = (size_t)(s->paired ? t->first : 0) * (size_t)s->ldw;
		const size_t in_tile = (size_t)i * (size_t)t->n * (size_t)s->ldw;
		struct fast_piece p;
		p.w = awq ? awq + in_tile : (const uint16_t *)part->w + from;
		p.n = s->paired || awq ? t->n : part->n;
		p.out = gate_up ? i * t->n : part->n0 + (s->paired || awq ? t->first : 0);
		p.n0 = gate_up && !w->bias ? p.out : part->n0 + (s->paired || awq ? t->first : 0);
		add_piece(s, t, p);
	}
}

static unsigned blocks_of(size_t threads)
{
	return (unsigned)((threads + FAST_THREADS - 1) / FAST_THREADS);
}

static int unpack(struct kern_stream *s, const struct lin_seg *seg, const struct fast_tile *t, uint16_t *to)
{
	const int per_block = FAST_THREADS / 32 * FAST_UNITS;
	const dim3 grid((unsigned)t->cols, (unsigned)((seg->units + per_block - 1) / per_block));
	const struct fast_weights a = {*seg, t->col0, t->first, t->n, seg->ldw, to};
	if (cuda_is_bf16(s->dev))
		return KERN_LAUNCH(linear_fast_unpack_kernel<true>, grid, dim3(FAST_THREADS), 0, s->s, a);
	return KERN_LAUNCH(linear_fast_unpack_kernel<false>, grid, dim3(FAST_THREADS), 0, s->s, a);
}

static int put_bias(struct kern_stream *s, void *out, const float *bias, int m, int n, int ldo, bool f32)
{
	const dim3 grid(blocks_of((size_t)m * (size_t)n)), block(FAST_THREADS);
	if (f32)
		return KERN_LAUNCH((linear_fast_bias_kernel<false, true>), grid, block, 0, s->s, out, bias, m,
				   n, ldo);
	if (cuda_is_bf16(s->dev))
		return KERN_LAUNCH((linear_fast_bias_kernel<true, false>), grid, block, 0, s->s, out, bias, m,
				   n, ldo);
	return KERN_LAUNCH((linear_fast_bias_kernel<false, false>), grid, block, 0, s->s, out, bias, m, n,
			   ldo);
}

static int multiply(struct kern_stream *s, const struct kern_linear *w, const struct lin_seg *seg,
		    const struct lin_args *a, const struct fast_piece *p, void *out, int ldo)
{
	const bool f32 = a->to == LIN_OUT_F32;
	struct blas_gemm g = {};
	g.w = p->w;
	g.x = a->x;
	g.out = (unsigned char *)out + (size_t)p->out * (f32 ? 4 : 2);
	g.m = a->m;
	g.n = p->n;
	g.k = seg->k;
	g.ldw = seg->ldw;
	g.ldx = a->ldx;
	g.ldo = ldo;
	g.out_f32 = f32;
	g.add = w->bias != NULL;
	int e = g.add ? put_bias(s, g.out, w->bias + p->n0, a->m, p->n, ldo, f32) : 0;
	return e ? e : cuda_blas_gemm(s, &g);
}

static int swiglu(struct kern_stream *s, const struct lin_args *a, const struct fast_tile *t,
		  const uint16_t *gate_up)
{
	uint16_t *out = (uint16_t *)a->out + t->first;
	const bool wide = t->n % 8 == 0 && a->ldo % 8 == 0 && (uintptr_t)out % 16 == 0;
	const dim3 grid(blocks_of((size_t)a->m * (size_t)t->n / (wide ? 8 : 1))), block(FAST_THREADS);
	const bool bf16 = cuda_is_bf16(s->dev);
	if (wide && bf16)
		return KERN_LAUNCH((linear_fast_swiglu_kernel<true, 8>), grid, block, 0, s->s, out, gate_up,
				   a->act, a->m, t->n, a->ldo);
	if (wide)
		return KERN_LAUNCH((linear_fast_swiglu_kernel<false, 8>), grid, block, 0, s->s, out, gate_up,
				   a->act, a->m, t->n, a->ldo);
	if (bf16)
		return KERN_LAUNCH((linear_fast_swiglu_kernel<true, 1>), grid, block, 0, s->s, out, gate_up,
				   a->act, a->m, t->n, a->ldo);
	return KERN_LAUNCH((linear_fast_swiglu_kernel<false, 1>), grid, block, 0, s->s, out, gate_up, a->act,
			   a->m, t->n, a->ldo);
}

static int run_tile(struct kern_stream *s, const struct kern_linear *w, const struct lin_seg *seg,
		    const struct lin_args *a, struct fast_tile *t)
{
	uint16_t *weights = seg->kind == LIN_AWQ ? (uint16_t *)w->dev->ws[CUDA_WS_WEIGHTS].p : NULL;
	const bool gate_up = a->to == LIN_OUT_SWIGLU;
	uint16_t *sums = (uint16_t *)w->dev->ws[CUDA_WS_GATE_UP].p;
	int e = seg->kind == LIN_AWQ ? unpack(s, seg, t, weights) : 0;
	make_pieces(w, seg, t, weights, gate_up);
	for (int i = 0; i < t->n_pieces && !e; i++)
		e = multiply(s, w, seg, a, &t->pieces[i], gate_up ? (void *)sums : a->out,
			     gate_up ? 2 * t->n : a->ldo);
	return !e && gate_up ? swiglu(s, a, t, sums) : e;
}

int lin_fast_run(struct kern_stream *s, const struct kern_linear *w, const struct lin_seg *seg,
		 const struct lin_args *a)
{
	int e = 0;
	for (int c = 0; c < seg->n_cols && !e; c += seg->fast_cols) {
		struct fast_tile t = {};
		t.col0 = c;
		t.cols = min(seg->fast_cols, seg->n_cols - c);
		t.first = first_output(seg, c);
		const int end = c + t.cols == seg->n_cols ? outputs_of(seg) / (seg->paired ? 2 : 1)
							  : first_output(seg, c + t.cols);
		t.n = end - t.first;
		e = run_tile(s, w, seg, a, &t);
	}
	return e;
}
