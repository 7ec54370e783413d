/* linear_tile.cu - linear layers of more than 16 rows: tiles of columns x rows.
 *
 * Rows and weights come through a ring of shared-memory stages (cp.async), one unit of 64 inputs
 * each; a warp holds N_COLS columns x N_T8 blocks of 8 rows of sums in registers.
 *
 *     stage: rows    [row][8 slots of 16 bytes]    slot s lies at s ^ tile_swizzle(row)
 *            weights AWQ: [column][lane] uint4; F16, BF16: [column][place q][8 slots], swizzled alike
 *
 * A fragment load takes slot t (or t + 4) of 8 rows, g = 0..7, or of the 8 places 2g or 2g + 1: the
 * eight lanes of a quarter warp must find different banks in two rows, hence the swizzle.
 *
 * A block that runs several slices keeps the sum of those before in shared memory, each thread its
 * own fragments.  With `splits` a block runs a part of the slices, each slice's sums go to the
 * workspace, and the last block of a tile adds them. */
#include "kernels/cuda/linear.cuh"

#include <assert.h>

static __device__ __forceinline__ int tile_swizzle(int row)
{
	return ((row ^ row >> 1) & 1) << 2;
}

template <bool AWQ, int N_COLS, int N_T8, int WARPS_N, int WARPS_M, int STAGES> struct tile_shape {
	static constexpr int threads = WARPS_N * WARPS_M * 32;
	static constexpr int cols = WARPS_N * N_COLS;
	static constexpr int rows = WARPS_M * N_T8 * 8;
	static constexpr int x_bytes = rows * LIN_UNIT * 2;
	static constexpr int w_bytes = cols * (AWQ ? 512 : LIN_COL * LIN_UNIT * 2);
	static constexpr int stage_bytes = x_bytes + w_bytes;
	static constexpr int ring_bytes = STAGES * stage_bytes;
	static constexpr int sum_bytes = threads * N_COLS * N_T8 * 16;
};

/* Copies of units into stages; a thread has the same places in each. */
template <bool AWQ, class SHAPE> struct tile_loader {
	static constexpr int n_x = SHAPE::rows * 8 / SHAPE::threads;
	static constexpr int n_w = SHAPE::w_bytes / 16 / SHAPE::threads;
	const uint16_t *x[n_x];
	uint32_t x_valid;
	const uint16_t *row[AWQ ? 1 : n_w];
	const uint4 *w[AWQ ? n_w : 1];

	__device__ __forceinline__ void open(const struct lin_args &a, int col0, int row0)
	{
		const int tid = (int)threadIdx.x;
		x_valid = 0;
#pragma unroll
		for (int i = 0; i < n_x; i++) {
			const int r = row0 + (tid + i * SHAPE::threads) / 8;
			x[i] = a.x + (size_t)min(r, a.m - 1) * (size_t)a.ldx;
			x_valid |= (uint32_t)(r < a.m) << i;
		}
#pragma unroll
		for (int i = 0; i < n_w; i++) {
			const int at = tid + i * SHAPE::threads;
			if (AWQ) {
				const int col = min(col0 + at / 32, a.seg.n_cols - 1);
				w[AWQ ? i : 0] = a.seg.w + (size_t)col * (size_t)a.seg.units * 32 + at % 32;
			} else {
				const int col = min(col0 + at / (8 * LIN_COL), a.seg.n_cols - 1);
				row[AWQ ? 0 : i] = lin_row(a.seg, col, at / 8 % LIN_COL);
			}
		}
	}

	__device__ __forceinline__ void load(const struct lin_args &a, unsigned char *stage, int u) const
	{
		const int tid = (int)threadIdx.x, k = u * LIN_UNIT + 8 * (tid & 7);
		const bool in = k < a.seg.k;
#pragma unroll
		for (int i = 0; i < n_x; i++) {
			const int r = (tid + i * SHAPE::threads) / 8;
			cp_async_16(stage + r * 128 + ((tid & 7) ^ tile_swizzle(r)) * 16, x[i] + (in ? k : 0),
				    in && (x_valid >> i & 1));
		}
		stage += SHAPE::x_bytes;
#pragma unroll
		for (int i = 0; i < n_w; i++) {
			const int at = tid + i * SHAPE::threads, r = at / 8;
			if (AWQ)
				cp_async_16(stage + at * 16, w[AWQ ? i : 0] + (size_t)u * 32);
			else
				cp_async_16(stage + r * 128 + ((tid & 7) ^ tile_swizzle(r)) * 16,
					    row[AWQ ? 0 : i] + (in ? k : 0), in);
		}
	}
};

template <bool BF16, bool AWQ, int N_COLS, int N_T8> struct tile_sum : lin_sum<BF16, AWQ, N_COLS, N_T8> {
	/* x: this lane's row 0 of the warp; w: the warp's first column. */
	__device__ __forceinline__ void add(const struct lin_seg &s, const unsigned char *x,
					    const unsigned char *w)
	{
		const int lane = lane_id(), q = lane >> 2, t = lane & 3;
		uint4 wq[AWQ ? N_COLS : 1];
		if (AWQ) {
#pragma unroll
			for (int i = 0; i < N_COLS; i++)
				wq[AWQ ? i : 0] = *(const uint4 *)(const void *)(w + i * 512 + lane * 16);
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint4 b[N_T8];
#pragma unroll
			for (int n = 0; n < N_T8; n++)
				b[n] = *(const uint4 *)(const void *)(x + (n * 8 + q) * 128 +
								      ((t + 4 * h) ^ tile_swizzle(q)) * 16);
#pragma unroll
			for (int i = 0; i < N_COLS; i++) {
				uint4 r0, r1;
				if (!AWQ) {
					const int p0 = i * LIN_COL + 2 * q, p1 = p0 + 1;
					r0 = *(const uint4 *)(const void *)(w + p0 * 128 +
									    ((t + 4 * h) ^ tile_swizzle(p0)) *
										    16);
					r1 = *(const uint4 *)(const void *)(w + p1 * 128 +
									    ((t + 4 * h) ^ tile_swizzle(p1)) *
										    16);
				}
#pragma unroll
				for (int p = 0; p < 2; p++) {
					uint32_t a[4];
					if (AWQ) {
						this->group[AWQ ? i : 0].unpack(
							a, lin_word(wq[AWQ ? i : 0], 2 * h + p));
					} else {
						a[0] = lin_word(r0, 2 * p);
						a[1] = lin_word(r1, 2 * p);
						a[2] = lin_word(r0, 2 * p + 1);
						a[3] = lin_word(r1, 2 * p + 1);
					}
#pragma unroll
					for (int n = 0; n < N_T8; n++)
						this->step(i, n, a, lin_word(b[n], 2 * p),
							   lin_word(b[n], 2 * p + 1));
				}
			}
			this->group_step(s);
		}
	}
};

/* A warp's outputs from the slices of all blocks, two fragments at a time: the second is of the same
 * column. */
template <bool BF16, int N_COLS, int N_T8>
static __device__ __forceinline__ void tile_fold(const struct lin_args &a, int col0, int t8)
{
	static_assert(N_T8 % 2 == 0, "");
	const int last = (a.m + 7) / 8 - 1;
#pragma unroll 1
	for (int f = 0; f < N_COLS * N_T8; f += 2) {
		const int col = col0 + f / N_T8, at = t8 + f % N_T8;
		uint4 v[2][LIN_SLICES_MAX];
		if (col >= a.seg.n_cols || at > last)
			continue;
		lin_partial_load(a, col, at, v[0]);
		lin_partial_load(a, col, min(at + 1, last), v[1]);
		lin_store<BF16>(a, col, at, lin_partial_sum(a, v[0]));
		if (at < last)
			lin_store<BF16>(a, col, at + 1, lin_partial_sum(a, v[1]));
	}
}

/* grid: (blocks of rows, blocks of columns, splits): blocks that share weights run together */
template <bool BF16, bool AWQ, int N_COLS, int N_T8, int WARPS_N, int WARPS_M, int STAGES>
static __global__ void __launch_bounds__(WARPS_N *WARPS_M * 32) linear_tile_kernel(const struct lin_args a)
{
	using shape = tile_shape<AWQ, N_COLS, N_T8, WARPS_N, WARPS_M, STAGES>;
	const struct lin_seg &seg = a.seg;
	const int warp_n = warp_id() % WARPS_N, warp_m = warp_id() / WARPS_N;
	const int block_col = (int)blockIdx.y * shape::cols, col0 = block_col + warp_n * N_COLS;
	const int block_row = (int)blockIdx.x * shape::rows, t8 = block_row / 8 + warp_m * N_T8;
	const int slice0 = seg.slices * (int)blockIdx.z / a.splits;
	const int slice1 = seg.slices * ((int)blockIdx.z + 1) / a.splits;
	const int u0 = lin_slice_unit(seg, slice0), u1 = lin_slice_unit(seg, slice1);
	unsigned char *ring = kern_smem();
	float4 *before = (float4 *)(void *)(ring + shape::ring_bytes) + threadIdx.x; /* [fragment][thread] */
	const int x_at = warp_m * N_T8 * 8 * 128;
	const int w_at = shape::x_bytes + warp_n * N_COLS * (AWQ ? 512 : LIN_COL * 128);

	tile_loader<AWQ, shape> loader;
	loader.open(a, block_col, block_row);
#pragma unroll
	for (int i = 0; i < STAGES - 1; i++) {
		if (u0 + i < u1)
			loader.load(a, ring + i * shape::stage_bytes, u0 + i);
		cp_async_commit();
	}
	tile_sum<BF16, AWQ, N_COLS, N_T8> s;
	s.open(seg, col0, u0);
	int slice = slice0, slice_end = lin_slice_unit(seg, slice0 + 1), stage = 0;
	for (int u = u0; u < u1; u++) {
		cp_async_wait<STAGES - 2>();
		block_sync(); /* the unit is there for all, and all are done with the one before */
		const int free_stage = stage == 0 ? STAGES - 1 : stage - 1;
		if (u + STAGES - 1 < u1)
			loader.load(a, ring + free_stage * shape::stage_bytes, u + STAGES - 1);
		cp_async_commit();
		const unsigned char *at = ring + stage * shape::stage_bytes;
		stage = stage == STAGES - 1 ? 0 : stage + 1;
		s.template ahead<true>(seg, col0);
		s.add(seg, at + x_at, at + w_at);
		if (u + 1 < slice_end)
			continue;
		if (AWQ)
			s.scale();
		if (a.splits > 1) {
#pragma unroll
			for (int f = 0; f < N_COLS * N_T8; f++)
				lin_partial_store(a, slice, col0 + f / N_T8, t8 + f % N_T8,
						  s.sum[f / N_T8][f % N_T8]);
			s.clear();
		} else if (seg.slices > 1) {
#pragma unroll
			for (int f = 0; f < N_COLS * N_T8; f++) {
				const float *v = s.sum[f / N_T8][f % N_T8];
				const float4 now = make_float4(v[0], v[1], v[2], v[3]);
				float4 *b = before + f * shape::threads;
				*b = slice ? lin_add(*b, now) : now;
			}
			s.clear();
		}
		slice_end = lin_slice_unit(seg, min(++slice + 1, seg.slices));
	}
	cp_async_wait<0>();

	float4 *sums = seg.slices > 1 ? before : (float4 *)(void *)ring + threadIdx.x;
	static_assert(shape::sum_bytes <= shape::ring_bytes, "");
	if (a.splits > 1) {
		if (cuda_last_block(a.counts + blockIdx.y * gridDim.x + blockIdx.x, a.splits))
			tile_fold<BF16, N_COLS, N_T8>(a, col0, t8);
		return;
	}
	if (seg.slices == 1) {
		block_sync(); /* the ring is free */
#pragma unroll
		for (int f = 0; f < N_COLS * N_T8; f++) {
			const float *v = s.sum[f / N_T8][f % N_T8];
			sums[f * shape::threads] = make_float4(v[0], v[1], v[2], v[3]);
		}
	}
#pragma unroll 1
	for (int f = 0; f < N_COLS * N_T8; f++) {
		const int col = col0 + f / N_T8;
		if (col < seg.n_cols && (t8 + f % N_T8) * 8 < a.m)
			lin_store<BF16>(a, col, t8 + f % N_T8, sums[f * shape::threads]);
	}
}

/* The three sizes: 32 rows are bound by memory, so narrow blocks, several to a multiprocessor; 64
 * and 128 rows by the tensor cores, so large tiles of a warp, each weight unpacked for 64 rows. */
#define TILE_32  2, 4, 4, 1, (AWQ ? 6 : 4)
#define TILE_64  2, 8, 4, 1, (AWQ ? 5 : 3)
#define TILE_128 2, 8, 4, 2, 4

enum { TILE_COLS = 8 }; /* of a block, in all three */

template <bool AWQ> static int tile_smem(int rows, bool all_slices)
{
	using s32 = tile_shape<AWQ, TILE_32>;
	using s64 = tile_shape<AWQ, TILE_64>;
	using s128 = tile_shape<AWQ, TILE_128>;
	static_assert(s32::cols == TILE_COLS && s64::cols == TILE_COLS && s128::cols == TILE_COLS, "");
	/* The smallest device that this is built for has 99 KB. */
	static_assert(s32::ring_bytes + s32::sum_bytes <= 99 * 1024, "");
	static_assert(s32::rows == 32 && s64::rows == 64 && s128::rows == 128, "");
	if (rows == 32)
		return s32::ring_bytes + (all_slices ? s32::sum_bytes : 0);
	if (rows == 64)
		return s64::ring_bytes + (all_slices ? s64::sum_bytes : 0);
	return s128::ring_bytes + (all_slices ? s128::sum_bytes : 0);
}

int lin_tile_smem(int rows, bool awq, bool all_slices)
{
	return awq ? tile_smem<true>(rows, all_slices) : tile_smem<false>(rows, all_slices);
}

int lin_tile_cols(int rows)
{
	(void)rows;
	return TILE_COLS;
}

template <bool BF16, bool AWQ> static int tile_allow(int smem_max)
{
	int e = 0;
	const int most[3] = {min(smem_max, tile_smem<AWQ>(32, true)), min(smem_max, tile_smem<AWQ>(64, true)),
			     min(smem_max, tile_smem<AWQ>(128, true))};
	e = e ? e : cuda_smem_allow((const void *)linear_tile_kernel<BF16, AWQ, TILE_32>, most[0]);
	e = e ? e : cuda_smem_allow((const void *)linear_tile_kernel<BF16, AWQ, TILE_64>, most[1]);
	e = e ? e : cuda_smem_allow((const void *)linear_tile_kernel<BF16, AWQ, TILE_128>, most[2]);
	return e;
}

int lin_tile_allow(int smem_max, bool bf16)
{
	int e = bf16 ? tile_allow<true, true>(smem_max) : tile_allow<false, true>(smem_max);
	if (!e)
		e = bf16 ? tile_allow<true, false>(smem_max) : tile_allow<false, false>(smem_max);
	return e;
}

template <bool BF16, bool AWQ>
static int tile_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p)
{
	const size_t smem = (size_t)tile_smem<AWQ>(p->rows, p->splits == 1 && a->seg.slices > 1);
	const dim3 grid((unsigned)((a->m + p->rows - 1) / p->rows),
			(unsigned)((a->seg.n_cols + TILE_COLS - 1) / TILE_COLS), (unsigned)p->splits);
	if (p->rows == 32)
		return KERN_LAUNCH((linear_tile_kernel<BF16, AWQ, TILE_32>), grid, dim3(128), smem, s->s, *a);
	if (p->rows == 64)
		return KERN_LAUNCH((linear_tile_kernel<BF16, AWQ, TILE_64>), grid, dim3(128), smem, s->s, *a);
	return KERN_LAUNCH((linear_tile_kernel<BF16, AWQ, TILE_128>), grid, dim3(256), smem, s->s, *a);
}

int lin_tile_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p, bool bf16)
{
	assert(p->rows == 32 || p->rows == 64 || p->rows == 128);
	if (a->seg.awq)
		return bf16 ? tile_launch<true, true>(s, a, p) : tile_launch<false, true>(s, a, p);
	return bf16 ? tile_launch<true, false>(s, a, p) : tile_launch<false, false>(s, a, p);
}
