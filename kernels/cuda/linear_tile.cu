/* linear_tile.cu - linear layers of more than 16 rows: tiles of columns x rows.
 *
 * Rows and weights pass through a ring of shared-memory stages (cp.async), one unit of 64 inputs each.  A
 * warp holds the sums of N_COLS columns x N_T8 blocks of 8 rows in registers.
 *
 *     stage: rows    [row][8 slots of 16 bytes]    slot s is at s ^ tile_swizzle(row)
 *            weights AWQ, codes: [column], as in memory
 *                    F16, BF16: [column][place q][8 slots], with the same swizzle
 *
 * A fragment load takes slot t (or t + 4) of 8 rows, g = 0..7, or of the 8 places 2g or 2g + 1.  The swizzle
 * lets the eight lanes of a quarter warp, which span two rows, read from different banks.
 *
 * A block that runs several slices keeps the sum of the previous slices in shared memory, where each thread
 * keeps its own fragments.  With `splits`, a block runs some of the slices, each slice's sums go to the
 * workspace, and the last block of a tile adds them. */
#include "kernels/cuda/linear_codes.cuh"

#include <assert.h>

static __device__ __forceinline__ int tile_swizzle(int row)
{
	return ((row ^ row >> 1) & 1) << 2;
}

/* Swizzle of rows that are loaded by 8 bytes of slots 2 j and 2 j + 1 (groups of 16): half a warp loads four
 * rows, which need different pairs of slots. */
template <int KIND> static __device__ __forceinline__ int tile_x_swizzle(int row)
{
	return code_shape<KIND>::sixteens ? (row & 3) << 1 : tile_swizzle(row);
}

template <int KIND, int N_COLS, int N_T8, int WARPS_N, int WARPS_M, int STAGES> struct tile_shape {
	static constexpr int threads = WARPS_N * WARPS_M * 32;
	static constexpr int cols = WARPS_N * N_COLS;
	static constexpr int rows = WARPS_M * N_T8 * 8;
	static constexpr int col_bytes = code_shape<KIND>::unit_bytes;
	static constexpr int x_bytes = rows * LIN_UNIT * 2;
	static constexpr int w_bytes = cols * col_bytes;
	static constexpr int stage_bytes = x_bytes + w_bytes;
	/* follows the ring, for minimums: the sums of a unit's inputs, [unit & 1][half][row] */
	static constexpr int inputs_bytes = code_shape<KIND>::minimums ? 2 * 2 * rows * 4 : 0;
	static constexpr int ring_bytes = STAGES * stage_bytes + inputs_bytes;
	static constexpr int sum_bytes = threads * N_COLS * N_T8 * 16;

	/* Return the shared memory in bytes; all_slices: including the sum of the previous slices. */
	static constexpr int smem(bool all_slices)
	{
		return ring_bytes + (all_slices ? sum_bytes : 0);
	}
};

/* Copies units into stages; a thread's places are the same in each stage. */
template <int KIND, class SHAPE> struct tile_loader {
	static constexpr bool DENSE = KIND == LIN_DENSE;
	static constexpr int n_x = SHAPE::rows * 8 / SHAPE::threads;
	static constexpr int w_pieces = SHAPE::w_bytes / 16, of_col = SHAPE::col_bytes / 16;
	static constexpr int n_w = (w_pieces + SHAPE::threads - 1) / SHAPE::threads;
	const uint16_t *x[n_x];
	uint32_t x_valid;
	const uint16_t *row[DENSE ? n_w : 1];
	const uint4 *w[DENSE ? 1 : n_w];

	/* col0: column within the segment */
	template <class ROWS> __device__ __forceinline__ void open(const ROWS &rows, int col0, int row0)
	{
		const struct lin_args &a = rows.a;
		const int tid = (int)threadIdx.x;
		x_valid = 0;
#pragma unroll
		for (int i = 0; i < n_x; i++) {
			const int r = row0 + (tid + i * SHAPE::threads) / 8;
			x[i] = rows.x(min(r, rows.m() - 1));
			x_valid |= (uint32_t)(r < rows.m()) << i;
		}
#pragma unroll
		for (int i = 0; i < n_w; i++) {
			const int at = tid + i * SHAPE::threads;
			if (!DENSE) {
				const int col = min(col0 + at / of_col, a.seg.n_cols - 1);
				w[DENSE ? 0 : i] =
					a.seg.w + (size_t)col * (size_t)a.seg.units * of_col + at % of_col;
			} else {
				const int col = min(col0 + at / (8 * LIN_COL), a.seg.n_cols - 1);
				row[DENSE ? i : 0] = lin_row(a.seg, col, at / 8 % LIN_COL);
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
			cp_async_16(stage + r * 128 + ((tid & 7) ^ tile_x_swizzle<KIND>(r)) * 16,
				    x[i] + (in ? k : 0), in && (x_valid >> i & 1));
		}
		stage += SHAPE::x_bytes;
#pragma unroll
		for (int i = 0; i < n_w; i++) {
			const int at = tid + i * SHAPE::threads, r = at / 8;
			if (w_pieces % SHAPE::threads && at >= w_pieces)
				break;
			if (!DENSE)
				cp_async_16(stage + at * 16, w[DENSE ? 0 : i] + (size_t)u * of_col);
			else
				cp_async_16(stage + r * 128 + ((tid & 7) ^ tile_swizzle(r)) * 16,
					    row[DENSE ? i : 0] + (in ? k : 0), in);
		}
	}
};

/* Return this lane's slot of half h of a unit of 8 rows. */
template <int KIND> static __device__ __forceinline__ uint4 tile_x(const unsigned char *rows8, int h)
{
	const int q = lane_id() >> 2, t = lane_id() & 3, swizzle = tile_x_swizzle<KIND>(q);
	rows8 += q * 128;
	if constexpr (code_shape<KIND>::sixteens) {
		const int slot = 4 * h + (t >> 1), in_slot = 8 * (t & 1);
		const uint2 first = *(const uint2 *)(const void *)(rows8 + (slot ^ swizzle) * 16 + in_slot),
			    second = *(const uint2 *)(const void *)(rows8 + ((slot + 2) ^ swizzle) * 16 +
								    in_slot);
		return make_uint4(first.x, first.y, second.x, second.y);
	}
	return *(const uint4 *)(const void *)(rows8 + ((t + 4 * h) ^ swizzle) * 16);
}

template <bool BF16, int KIND, int N_COLS, int N_T8, bool CODES = lin_is_codes(KIND)>
struct tile_sum : lin_sum<BF16, KIND == LIN_AWQ, N_COLS, N_T8> {
	static constexpr bool AWQ = KIND == LIN_AWQ;

	/* x: row 0 of the warp; w: the warp's first column. */
	__device__ __forceinline__ void add(const struct lin_seg &s, int, int, const unsigned char *x,
					    const unsigned char *w, const float *, int)
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

template <bool BF16, int KIND, int N_COLS, int N_T8>
struct tile_sum<BF16, KIND, N_COLS, N_T8, true> : code_sum<BF16, KIND, N_COLS, N_T8> {
	template <bool PREDICATED> __device__ __forceinline__ void ahead(const struct lin_seg &, int)
	{
	}

	__device__ __forceinline__ void scale()
	{
	}

	template <int H>
	__device__ __forceinline__ void half(const unsigned char *x, const code_unit<KIND> q[N_COLS],
					     const float *inputs, int rows)
	{
		uint4 b[N_T8];
		float2 in[N_T8] = {};
#pragma unroll
		for (int n = 0; n < N_T8; n++) {
			b[n] = tile_x<KIND>(x + n * 8 * 128, H);
			if constexpr (code_shape<KIND>::minimums)
				in[n] = *(const float2 *)(const void *)(inputs + H * rows + n * 8 +
									2 * (lane_id() & 3));
		}
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
			this->template half_unit<H>(i, q[i], H ? this->head[i].s.y : this->head[i].s.x, b,
						    in);
	}

	/* Add unit u.  inputs: sums of the inputs of this warp's rows, for both halves, `rows` apart. */
	__device__ __forceinline__ void add(const struct lin_seg &s, int col0, int u, const unsigned char *x,
					    const unsigned char *w, const float *inputs, int rows)
	{
		code_unit<KIND> q[N_COLS];
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
			q[i].read(w + i * code_shape<KIND>::unit_bytes);
		half<0>(x, q, inputs, rows);
		half<1>(x, q, inputs, rows);
		if (u & 1) {
			this->next(s, col0);
		} else {
#pragma unroll
			for (int i = 0; i < N_COLS; i++) {
				this->head[i].s.x = this->head[i].s.z;
				this->head[i].s.y = this->head[i].s.w;
			}
		}
	}
};

/* Compute the sums of a unit's inputs, divided among all warps of a block.  x: the stage's rows. */
template <bool BF16, int KIND, class SHAPE>
static __device__ __forceinline__ void tile_inputs(const unsigned char *x, float *inputs, int u)
{
	constexpr int EACH = SHAPE::rows / 8 / (SHAPE::threads / 32);
	static_assert(EACH * (SHAPE::threads / 32) * 8 == SHAPE::rows, "");
	inputs += (u & 1) * 2 * SHAPE::rows;
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const int t8 = warp_id() * EACH + i;
			const float2 v = code_inputs<BF16>(tile_x<KIND>(x + t8 * 8 * 128, h));
			if (lane_id() < 4)
				*(float2 *)(void *)(inputs + h * SHAPE::rows + t8 * 8 + 2 * lane_id()) = v;
		}
}

/* Add all blocks' slices of a warp's outputs and store them, two fragments of a column at a time. */
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
		lin_store<BF16>(lin_rows{a}, col, at, lin_partial_sum(a, v[0]));
		if (at < last)
			lin_store<BF16>(lin_rows{a}, col, at + 1, lin_partial_sum(a, v[1]));
	}
}

/* Store a warp's outputs, after its block has run all slices.  sums: [fragment][thread], the sums of all
 * slices; with one slice, scratch for its sums. */
template <bool BF16, int THREADS, int N_COLS, int N_T8, class ROWS>
static __device__ __forceinline__ void tile_store(const ROWS &rows, const float sum[N_COLS][N_T8][4],
						  float4 *sums, int col0, int t8)
{
	if (rows.a.seg.slices == 1) {
		block_sync(); /* the ring is free */
#pragma unroll
		for (int f = 0; f < N_COLS * N_T8; f++) {
			const float *v = sum[f / N_T8][f % N_T8];
			sums[f * THREADS] = make_float4(v[0], v[1], v[2], v[3]);
		}
	}
#pragma unroll 1
	for (int f = 0; f < N_COLS * N_T8; f++) {
		const int col = col0 + f / N_T8;
		if (col < rows.cols() && (t8 + f % N_T8) * 8 < rows.m())
			lin_store<BF16>(rows, col, t8 + f % N_T8, sums[f * THREADS]);
	}
}

/* Compute block at_col of a launch's columns, for the rows from block_row on and the slices of split `split`
 * out of `splits`. */
template <bool BF16, int KIND, int N_COLS, int N_T8, int WARPS_N, int WARPS_M, int STAGES, class ROWS>
static __device__ __forceinline__ void tile_block(const ROWS &rows, int at_col, int block_row, int split,
						  int splits)
{
	using shape = tile_shape<KIND, N_COLS, N_T8, WARPS_N, WARPS_M, STAGES>;
	const struct lin_args &a = rows.a;
	const struct lin_seg &seg = a.seg;
	const int warp_n = warp_id() % WARPS_N, warp_m = warp_id() / WARPS_N;
	const int block_col = at_col * shape::cols, col0 = block_col + warp_n * N_COLS;
	const int w0 = rows.col(col0), t8 = block_row / 8 + warp_m * N_T8;
	const int slice0 = seg.slices * split / splits;
	const int slice1 = seg.slices * (split + 1) / splits;
	const int u0 = lin_slice_unit(seg, slice0), u1 = lin_slice_unit(seg, slice1);
	unsigned char *ring = kern_smem();
	float4 *before = (float4 *)(void *)(ring + shape::ring_bytes) + threadIdx.x; /* [fragment][thread] */
	const int x_at = warp_m * N_T8 * 8 * 128;
	const int w_at = shape::x_bytes + warp_n * N_COLS * shape::col_bytes;
	/* Units whose copies may be in flight while a unit is computed.  With minimums the next unit must
	 * have arrived too, because its inputs are summed meanwhile. */
	constexpr int AHEAD = code_shape<KIND>::minimums ? STAGES - 3 : STAGES - 2;
	float *inputs = (float *)(void *)(ring + STAGES * shape::stage_bytes);

	tile_loader<KIND, shape> loader;
	loader.open(rows, rows.col(block_col), block_row);
#pragma unroll
	for (int i = 0; i < STAGES - 1; i++) {
		if (u0 + i < u1)
			loader.load(a, ring + i * shape::stage_bytes, u0 + i);
		cp_async_commit();
	}
	tile_sum<BF16, KIND, N_COLS, N_T8> s;
	s.open(seg, w0, u0);
	int slice = slice0, slice_end = lin_slice_unit(seg, slice0 + 1), stage = 0;
	if constexpr (code_shape<KIND>::minimums) {
		cp_async_wait<STAGES - 2>();
		block_sync();
		tile_inputs<BF16, KIND, shape>(ring, inputs, u0);
	}
	for (int u = u0; u < u1; u++) {
		cp_async_wait<AHEAD>();
		block_sync(); /* the unit has arrived; all warps are done with the previous unit */
		const int free_stage = stage == 0 ? STAGES - 1 : stage - 1;
		if (u + STAGES - 1 < u1)
			loader.load(a, ring + free_stage * shape::stage_bytes, u + STAGES - 1);
		cp_async_commit();
		const unsigned char *at = ring + stage * shape::stage_bytes;
		stage = stage == STAGES - 1 ? 0 : stage + 1;
		if (code_shape<KIND>::minimums && u + 1 < u1)
			tile_inputs<BF16, KIND, shape>(ring + stage * shape::stage_bytes, inputs, u + 1);
		s.template ahead<true>(seg, w0);
		s.add(seg, w0, u, at + x_at, at + w_at,
		      inputs + (u & 1) * 2 * shape::rows + warp_m * N_T8 * 8, shape::rows);
		if (u + 1 < slice_end)
			continue;
		if (KIND == LIN_AWQ)
			s.scale();
		if (!ROWS::listed && splits > 1) {
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
	if (!ROWS::listed && splits > 1) {
		if (cuda_last_block(a.counts + blockIdx.y * gridDim.x + blockIdx.x, splits))
			tile_fold<BF16, N_COLS, N_T8>(a, col0, t8);
		return;
	}
	tile_store<BF16, shape::threads, N_COLS, N_T8>(rows, s.sum, sums, col0, t8);
}

/* grid: (blocks of rows, blocks of columns, splits): blocks that share weights run together */
template <bool BF16, int KIND, int N_COLS, int N_T8, int WARPS_N, int WARPS_M, int STAGES>
static __global__ void __launch_bounds__(WARPS_N *WARPS_M * 32) linear_tile_kernel(const struct lin_args a)
{
	tile_block<BF16, KIND, N_COLS, N_T8, WARPS_N, WARPS_M, STAGES>(lin_rows{a}, (int)blockIdx.y,
								       (int)blockIdx.x * WARPS_M * N_T8 * 8,
								       (int)blockIdx.z, a.splits);
}

/* grid: (entries, blocks of columns) */
template <bool BF16, int KIND, int N_COLS, int N_T8, int WARPS_N, int WARPS_M, int STAGES>
static __global__ void __launch_bounds__(WARPS_N *WARPS_M * 32)
	linear_tile_list_kernel(const struct lin_list l)
{
	const lin_listed rows(l, (int)blockIdx.x);
	if (rows.m())
		tile_block<BF16, KIND, N_COLS, N_T8, WARPS_N, WARPS_M, STAGES>(rows, (int)blockIdx.y, 0, 0,
									       1);
}

/* The three sizes.  32 rows are bound by memory: narrow blocks, several per multiprocessor.  64 and 128 rows
 * are bound by the tensor cores: large tiles per warp, and each weight is unpacked for 64 rows.
 * TILE_64_SHORT has a shorter ring of plain weights, for devices where the longer ring and the sums of slices
 * exceed a block's shared memory. */
#define UNIT_BYTES    (code_shape<KIND>::unit_bytes)
#define TILE_32       2, 4, 4, 1, (UNIT_BYTES >= 1024 ? 4 : UNIT_BYTES > 512 ? 5 : 6)
#define TILE_64       2, 8, 4, 1, (UNIT_BYTES >= 2048 ? 3 : UNIT_BYTES > 512 ? 4 : 5)
#define TILE_64_SHORT 2, 8, 4, 1, (UNIT_BYTES >= 2048 ? 2 : UNIT_BYTES > 512 ? 4 : 5)
#define TILE_128      2, 8, 4, 2, (code_shape<KIND>::minimums ? 5 : 4)

enum { TILE_COLS = 8 }; /* columns per block, in all three sizes */

template <int KIND> struct tiles {
	using s32 = tile_shape<KIND, TILE_32>;
	using s64 = tile_shape<KIND, TILE_64>;
	using s64_short = tile_shape<KIND, TILE_64_SHORT>;
	using s128 = tile_shape<KIND, TILE_128>;
	static_assert(s32::cols == TILE_COLS && s64::cols == TILE_COLS && s128::cols == TILE_COLS, "");
	static_assert(s32::rows == 32 && s64::rows == 64 && s128::rows == 128, "");
	/* The smallest supported device has 99 KB. */
	static_assert(s32::smem(true) <= 99 * 1024 && s64_short::smem(true) <= 99 * 1024, "");
};

int lin_tile_128_smem(enum lin_kind kind, bool all_slices)
{
	return lin_by_kind(kind, [&](auto tag) { return tiles<tag.kind>::s128::smem(all_slices); });
}

int lin_tile_cols(int rows)
{
	(void)rows;
	return TILE_COLS;
}

template <bool BF16, int KIND> static int tile_allow(int smem_max)
{
	using t = tiles<KIND>;
	int e = cuda_smem_allow((const void *)linear_tile_kernel<BF16, KIND, TILE_32>, t::s32::smem(true));
	if (!e)
		e = cuda_smem_allow((const void *)linear_tile_kernel<BF16, KIND, TILE_64>,
				    min(smem_max, t::s64::smem(true)));
	if (!e && t::s64::smem(true) > smem_max)
		e = cuda_smem_allow((const void *)linear_tile_kernel<BF16, KIND, TILE_64_SHORT>,
				    t::s64_short::smem(true));
	return e ? e
		 : cuda_smem_allow((const void *)linear_tile_kernel<BF16, KIND, TILE_128>,
				   min(smem_max, t::s128::smem(true)));
}

int lin_tile_allow(enum lin_kind kind, int smem_max, bool bf16)
{
	return lin_by_kind(kind, [&](auto tag) {
		return bf16 ? tile_allow<true, tag.kind>(smem_max) : tile_allow<false, tag.kind>(smem_max);
	});
}

template <bool BF16, int KIND>
static int tile_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p)
{
	using t = tiles<KIND>;
	const bool all = p->splits == 1 && a->seg.slices > 1;
	const dim3 grid((unsigned)((a->m + p->rows - 1) / p->rows),
			(unsigned)((a->seg.n_cols + TILE_COLS - 1) / TILE_COLS), (unsigned)p->splits);
	if (p->rows == 32)
		return KERN_LAUNCH((linear_tile_kernel<BF16, KIND, TILE_32>), grid, dim3(128),
				   (size_t)t::s32::smem(all), s->s, *a);
	if (p->rows == 128)
		return KERN_LAUNCH((linear_tile_kernel<BF16, KIND, TILE_128>), grid, dim3(256),
				   (size_t)t::s128::smem(all), s->s, *a);
	if (t::s64::smem(all) > s->dev->smem_max)
		return KERN_LAUNCH((linear_tile_kernel<BF16, KIND, TILE_64_SHORT>), grid, dim3(128),
				   (size_t)t::s64_short::smem(all), s->s, *a);
	return KERN_LAUNCH((linear_tile_kernel<BF16, KIND, TILE_64>), grid, dim3(128),
			   (size_t)t::s64::smem(all), s->s, *a);
}

int lin_tile_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p, bool bf16)
{
	assert(p->rows == 32 || p->rows == 64 || p->rows == 128);
	return lin_by_kind(a->seg.kind, [&](auto tag) {
		return bf16 ? tile_launch<true, tag.kind>(s, a, p) : tile_launch<false, tag.kind>(s, a, p);
	});
}

/* ---- launching lists ---- */

template <bool BF16, int KIND>
static int tile_list(struct kern_stream *s, const struct lin_list *l, int n, const struct lin_plan *p)
{
	using t = tiles<KIND>;
	const bool all = l->a.seg.slices > 1;
	const dim3 grid((unsigned)n, (unsigned)((l->cols + TILE_COLS - 1) / TILE_COLS));
	if (p->rows == 32)
		return KERN_LAUNCH((linear_tile_list_kernel<BF16, KIND, TILE_32>), grid, dim3(128),
				   (size_t)t::s32::smem(all), s->s, *l);
	if (t::s64::smem(all) > s->dev->smem_max)
		return KERN_LAUNCH((linear_tile_list_kernel<BF16, KIND, TILE_64_SHORT>), grid, dim3(128),
				   (size_t)t::s64_short::smem(all), s->s, *l);
	return KERN_LAUNCH((linear_tile_list_kernel<BF16, KIND, TILE_64>), grid, dim3(128),
			   (size_t)t::s64::smem(all), s->s, *l);
}

int lin_tile_list(struct kern_stream *s, const struct lin_list *l, int n, const struct lin_plan *p, bool bf16)
{
	assert(p->rows == 32 || p->rows == 64);
	return lin_by_kind(l->a.seg.kind, [&](auto tag) {
		return bf16 ? tile_list<true, tag.kind>(s, l, n, p) : tile_list<false, tag.kind>(s, l, n, p);
	});
}

template <bool BF16, int KIND> static int tile_list_allow(int smem_max)
{
	using t = tiles<KIND>;
	int e = cuda_smem_allow((const void *)linear_tile_list_kernel<BF16, KIND, TILE_32>,
				t::s32::smem(true));
	if (!e && t::s64::smem(true) > smem_max)
		e = cuda_smem_allow((const void *)linear_tile_list_kernel<BF16, KIND, TILE_64_SHORT>,
				    t::s64_short::smem(true));
	return e ? e
		 : cuda_smem_allow((const void *)linear_tile_list_kernel<BF16, KIND, TILE_64>,
				   min(smem_max, t::s64::smem(true)));
}

int lin_tile_list_allow(enum lin_kind kind, int smem_max, bool bf16)
{
	return lin_by_kind(kind, [&](auto tag) {
		return bf16 ? tile_list_allow<true, tag.kind>(smem_max)
			    : tile_list_allow<false, tag.kind>(smem_max);
	});
}
