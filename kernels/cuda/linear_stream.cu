/* linear_stream.cu - linear layers of up to 16 rows: weights at the speed of the memory.
 *
 * A warp owns one or two columns, one slice and 8 or 16 rows.  Its weights pass through a ring of its own in
 * shared memory.  Each lane copies (cp.async) and reads back only the data that it needs itself.  There is no
 * barrier, every warp keeps 5 to 8 KB in flight, and each stalls alone.  Rows are loaded through L1 into
 * registers as soon as the previous rows are used.
 *
 * A unit of 6 bits has 768 bytes per column, and lanes copy data that other lanes read, so that the warp
 * synchronizes twice a round.
 *
 * Speed depends on bytes in flight (4.8 TB/s at about 700 ns are 25 KB per multiprocessor) and on
 * instructions.  At that rate a unit of AWQ (512 bytes) arrives every 25 cycles, in which a multiprocessor
 * issues 100 instructions.  A unit takes about 100 instructions with one column per warp and 85 with two (40
 * of them unpack and multiply), so two columns are better if there are enough warps.  For the same reason
 * sums are scaled rather than weights, and two units share a round.  A ring in registers would have to be
 * unrolled: 60 KB of code, fetched by every launch.
 *
 * The warps of a block: warp = column block * block_slices + slice.  If a block has all slices, they are
 * added in shared memory; otherwise in the workspace, by the last block. */
#include "kernels/cuda/linear_codes.cuh"

#include <assert.h>

/* A stage holds one unit of F16 and BF16, two of AWQ and codes, so that the fixed cost of a round is shared
 * by at least 1 KB of weights. */
template <int KIND, int N_COLS> struct stream_shape {
	static constexpr int units = KIND == LIN_DENSE ? 1 : 2;         /* per stage */
	static constexpr int unit_bytes = code_shape<KIND>::unit_bytes; /* per column */
	static constexpr int pieces =
		N_COLS * unit_bytes / 512; /* 16-byte pieces per lane in a unit; not used for 768 bytes */
	static constexpr int stage_bytes = units * N_COLS * unit_bytes;
	static constexpr int stages = unit_bytes >= 1024 ? (N_COLS == 1 ? 4 : 3)
				      : unit_bytes > 512 ? (N_COLS == 1 ? 5 : 4)
				      : N_COLS == 1      ? 6
							 : 4;
	static constexpr int ring_bytes = stages * stage_bytes; /* per warp */
};

/* A lane's copies from global memory to its place in the ring.  Pieces of F16 and BF16 are [column][place 2g,
 * 2g + 1][half]. */
template <bool AWQ, int N_COLS> struct stream_src {
	using shape = stream_shape<AWQ ? LIN_AWQ : LIN_DENSE, N_COLS>;
	const uint4 *w[AWQ ? N_COLS : 1];          /* this lane's part of the next unit */
	const uint16_t *row[AWQ ? 1 : 2 * N_COLS]; /* this lane's slot of the next unit */

	__device__ __forceinline__ void open(const struct lin_seg &s, int col0, int u0)
	{
		const int lane = lane_id();
#pragma unroll
		for (int i = 0; i < N_COLS; i++) {
			const int col = min(col0 + i, s.n_cols - 1);
			if (AWQ) {
				w[AWQ ? i : 0] =
					s.w + ((size_t)col * (size_t)s.units + (size_t)u0) * 32 + lane;
			} else {
				row[AWQ ? 0 : 2 * i] =
					lin_row(s, col, 2 * (lane >> 2)) + u0 * LIN_UNIT + 8 * (lane & 3);
				row[AWQ ? 0 : 2 * i + 1] =
					lin_row(s, col, 2 * (lane >> 2) + 1) + u0 * LIN_UNIT + 8 * (lane & 3);
			}
		}
	}

	/* Load the stage of unit u, the one after the last loaded; zeros from u1 on. */
	__device__ __forceinline__ void load(unsigned char *stage, const struct lin_seg &s, int u, int u1,
					     uint64_t policy)
	{
		const int k = u * LIN_UNIT + 8 * (lane_id() & 3);
#pragma unroll
		for (int i = 0; i < shape::units * shape::pieces; i++) {
			unsigned char *to = stage + i * 512;
			if (AWQ) {
				const int col = AWQ ? i % shape::pieces : 0, unit = i / shape::pieces;
				const bool in = unit == 0 || u + unit < u1;
				cp_async_16_hint(to, in ? w[col] + 32 * unit : w[col], policy, in);
			} else {
				/* rows are padded to 8 inputs with zeros, not to 64 */
				const uint16_t *from = row[AWQ ? 0 : i >> 1];
				const bool in = k + 32 * (i & 1) < s.k;
				cp_async_16_hint(to, in ? from + 32 * (i & 1) : s.parts[0].w, policy, in);
			}
		}
#pragma unroll
		for (int i = 0; i < (AWQ ? N_COLS : 2 * N_COLS); i++) {
			w[AWQ ? i : 0] += AWQ ? 32 * shape::units : 0;
			row[AWQ ? 0 : i] += AWQ ? 0 : LIN_UNIT;
		}
	}
};

/* Copies of codes: a lane copies consecutive pieces, whichever lane reads them. */
template <int KIND, int N_COLS> struct stream_code_src {
	using shape = stream_shape<KIND, N_COLS>;
	static constexpr int unit_pieces = code_shape<KIND>::unit_pieces;
	const uint4 *w[N_COLS];

	__device__ __forceinline__ void open(const struct lin_seg &s, int col0, int u0)
	{
#pragma unroll
		for (int i = 0; i < N_COLS; i++) {
			const size_t col = (size_t)min(col0 + i, s.n_cols - 1);
			w[i] = s.w + (col * (size_t)s.units + (size_t)u0) * unit_pieces + lane_id();
		}
	}

	__device__ __forceinline__ void load(unsigned char *stage, int u, int u1, uint64_t policy)
	{
		constexpr int n = 2 * unit_pieces / 32; /* per column */
#pragma unroll
		for (int i = 0; i < N_COLS; i++) {
#pragma unroll
			for (int p = 0; p < n; p++) {
				/* groups of 16 are in whole super-blocks */
				const bool in = code_shape<KIND>::sixteens || p < n / 2 || u + 1 < u1;
				cp_async_16_hint(stage + (i * n + p) * 512, in ? w[i] + 32 * p : w[i], policy,
						 in);
			}
			w[i] += 2 * unit_pieces;
		}
	}
};

/* One unit of 8 * N_T8 rows: two slots for each row that a lane owns. */
template <int N_T8> struct stream_x {
	uint4 slot[N_T8][2];
};

/* Load unit u, which is `offset` after the row pointers; zeros from input k_all on. */
template <int N_T8, bool SIXTEENS = false>
static __device__ __forceinline__ void stream_x_load(stream_x<N_T8> &to, const uint16_t *const row[N_T8],
						     int k_all, int u, int offset)
{
	const int k = u * LIN_UNIT;
	if constexpr (SIXTEENS) { /* inputs are whole units */
#pragma unroll
		for (int i = 0; i < N_T8; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const uint2 first = ld_global_64(row[i] + offset + 32 * h),
					    second = ld_global_64(row[i] + offset + 32 * h + 16);
				to.slot[i][h] = make_uint4(first.x, first.y, second.x, second.y);
			}
	} else if (k + LIN_UNIT <= k_all) {
#pragma unroll
		for (int i = 0; i < N_T8; i++)
#pragma unroll
			for (int h = 0; h < 2; h++)
				to.slot[i][h] = ld_global_128(row[i] + offset + 32 * h);
	} else {
#pragma unroll
		for (int i = 0; i < N_T8; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				to.slot[i][h] = make_uint4(0, 0, 0, 0);
				if (k + 32 * h + 8 * (lane_id() & 3) < k_all)
					to.slot[i][h] = ld_global_128(row[i] + offset + 32 * h);
			}
	}
}

template <bool BF16, int KIND, int N_COLS, int N_T8, bool CODES = lin_is_codes(KIND)>
struct stream_sum : lin_sum<BF16, KIND == LIN_AWQ, N_COLS, N_T8> {
	static constexpr bool AWQ = KIND == LIN_AWQ;

	/* w: this lane's pieces of a unit */
	__device__ __forceinline__ void add(const struct lin_seg &s, const unsigned char *w,
					    const stream_x<N_T8> &x)
	{
		uint4 q[stream_shape<KIND, N_COLS>::pieces];
#pragma unroll
		for (int i = 0; i < stream_shape<KIND, N_COLS>::pieces; i++)
			q[i] = *(const uint4 *)(const void *)(w + i * 512);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int h = j >> 1, p = j & 1;
#pragma unroll
			for (int i = 0; i < N_COLS; i++) {
				uint32_t a[4];
				if (AWQ) {
					this->group[AWQ ? i : 0].unpack(a, lin_word(q[i], j));
				} else {
					const uint4 &r0 = q[AWQ ? 0 : 4 * i + h],
						    &r1 = q[AWQ ? 0 : 4 * i + 2 + h];
					a[0] = lin_word(r0, 2 * p);
					a[1] = lin_word(r1, 2 * p);
					a[2] = lin_word(r0, 2 * p + 1);
					a[3] = lin_word(r1, 2 * p + 1);
				}
#pragma unroll
				for (int n = 0; n < N_T8; n++)
					this->step(i, n, a, lin_word(x.slot[n][h], 2 * p),
						   lin_word(x.slot[n][h], 2 * p + 1));
			}
			if (p)
				this->group_step(s);
		}
	}

	/* col0: column within the segment */
	template <class ROWS>
	__device__ __forceinline__ void run(const ROWS &rows, int col0, int t8, int u0, int u1,
					    unsigned char *ring)
	{
		const struct lin_args &a = rows.a;
		using shape = stream_shape<KIND, N_COLS>;
		const uint64_t policy = l2_evict_first();
		const uint16_t *row[N_T8];
		stream_src<AWQ, N_COLS> src;
		src.open(a.seg, col0, u0);
		ring += lane_id() * 16;
#pragma unroll
		for (int i = 0; i < shape::stages - 1; i++) {
			if (u0 + i * shape::units < u1)
				src.load(ring + i * shape::stage_bytes, a.seg, u0 + i * shape::units, u1,
					 policy);
			cp_async_commit();
		}
		this->open(a.seg, col0, u0);
		/* Rows after the last repeat it: their sums are not stored. */
#pragma unroll
		for (int i = 0; i < N_T8; i++)
			row[i] = rows.x(min((t8 + i) * 8 + (lane_id() >> 2), rows.m() - 1)) + u0 * LIN_UNIT +
				 8 * (lane_id() & 3);
		const int k_end = min(a.seg.k, u1 * LIN_UNIT);
		stream_x<N_T8> x[shape::units];
#pragma unroll
		for (int i = 0; i < shape::units; i++)
			stream_x_load<N_T8>(x[i], row, k_end, u0 + i, i * LIN_UNIT);
		int at = 0, free_at = (shape::stages - 1) * shape::stage_bytes;
#pragma unroll 1
		for (int u = u0; u < u1; u += shape::units) {
			const int u_load = u + (shape::stages - 1) * shape::units;
			if (u_load < u1)
				src.load(ring + free_at, a.seg, u_load, u1, policy);
			cp_async_commit();
			this->template ahead<false>(a.seg, col0);
			cp_async_wait<shape::stages - 1>();
#pragma unroll
			for (int n = 0; n < N_T8; n++)
				row[n] += shape::units * LIN_UNIT;
#pragma unroll
			for (int i = 0; i < shape::units; i++) {
				add(a.seg, ring + at + i * shape::pieces * 512, x[i]);
				if (u + shape::units < u1) /* replaces x[i] as soon as it is used */
					stream_x_load<N_T8>(x[i], row, k_end, u + shape::units + i,
							    i * LIN_UNIT);
			}
			free_at = at;
			at = at == shape::ring_bytes - shape::stage_bytes ? 0 : at + shape::stage_bytes;
		}
		if (AWQ)
			this->scale(); /* the last group: it continues in the next slice, or is padding */
	}
};

/* Sums of codes: a stage is a chunk of 128 inputs. */
template <bool BF16, int KIND, int N_COLS, int N_T8>
struct stream_sum<BF16, KIND, N_COLS, N_T8, true> : code_sum<BF16, KIND, N_COLS, N_T8> {
	static constexpr bool sixteens = code_shape<KIND>::sixteens;

	/* Add unit I of the chunk.  stage: two units of each column. */
	template <int I>
	__device__ __forceinline__ void add(const unsigned char *stage, const stream_x<N_T8> &x)
	{
		code_unit<KIND> q[N_COLS];
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
			q[i].read(stage + (2 * i + I) * code_shape<KIND>::unit_bytes);
		half<I, 0>(q, x);
		half<I, 1>(q, x);
	}

	template <int I, int H>
	__device__ __forceinline__ void half(const code_unit<KIND> q[N_COLS], const stream_x<N_T8> &x)
	{
		uint4 b[N_T8];
		float2 inputs[N_T8] = {};
#pragma unroll
		for (int n = 0; n < N_T8; n++) {
			b[n] = x.slot[n][H];
			if constexpr (code_shape<KIND>::minimums)
				inputs[n] = code_inputs<BF16>(b[n]);
		}
#pragma unroll
		for (int i = 0; i < N_COLS; i++)
			this->template half_unit<H>(i, q[i], lin_word(this->head[i].s, 2 * I + H), b, inputs);
	}

	/* col0: column within the segment */
	template <class ROWS>
	__device__ __forceinline__ void run(const ROWS &rows, int col0, int t8, int u0, int u1,
					    unsigned char *ring)
	{
		const struct lin_args &a = rows.a;
		using shape = stream_shape<KIND, N_COLS>;
		const uint64_t policy = l2_evict_first();
		const int own = lane_id() * 16, k_end = min(a.seg.k, u1 * LIN_UNIT);
		const uint16_t *row[N_T8];
		stream_code_src<KIND, N_COLS> src;
		src.open(a.seg, col0, u0);
#pragma unroll
		for (int i = 0; i < shape::stages - 1; i++) {
			if (u0 + 2 * i < u1)
				src.load(ring + i * shape::stage_bytes + own, u0 + 2 * i, u1, policy);
			cp_async_commit();
		}
		this->open(a.seg, col0, u0);
		/* Rows after the last repeat it: their sums are not stored. */
#pragma unroll
		for (int i = 0; i < N_T8; i++)
			row[i] = rows.x(min((t8 + i) * 8 + (lane_id() >> 2), rows.m() - 1)) + u0 * LIN_UNIT +
				 (sixteens ? 4 : 8) * (lane_id() & 3);
		stream_x<N_T8> x[2];
#pragma unroll
		for (int i = 0; i < 2; i++)
			stream_x_load<N_T8, sixteens>(x[i], row, k_end, u0 + i, i * LIN_UNIT);
		int at = 0, free_at = (shape::stages - 1) * shape::stage_bytes;
#pragma unroll 1
		for (int u = u0; u < u1; u += 2) {
			const int u_load = u + (shape::stages - 1) * 2;
			if (sixteens)
				warp_sync(); /* all lanes are done with the free stage */
			if (u_load < u1)
				src.load(ring + free_at + own, u_load, u1, policy);
			cp_async_commit();
			cp_async_wait<shape::stages - 1>();
			if (sixteens)
				warp_sync(); /* all lanes' copies have arrived */
#pragma unroll
			for (int n = 0; n < N_T8; n++)
				row[n] += 2 * LIN_UNIT;
			const bool more = u + 2 < u1;
			add<0>(ring + at, x[0]);
			if (more)
				stream_x_load<N_T8, sixteens>(x[0], row, k_end, u + 2, 0);
			add<1>(ring + at, x[1]);
			if (more)
				stream_x_load<N_T8, sixteens>(x[1], row, k_end, u + 3, LIN_UNIT);
			this->next(a.seg, col0);
			free_at = at;
			at = at + shape::stage_bytes == shape::ring_bytes ? 0 : at + shape::stage_bytes;
		}
	}
};

/* Compute block `at` of a launch's columns, for the slices of split `split` and the rows from t8 on. */
template <bool BF16, int KIND, int N_COLS, int N_T8, class ROWS>
static __device__ __forceinline__ void stream_block(const ROWS &rows, int at, int split, int t8)
{
	constexpr int FRAGS = N_COLS * N_T8; /* per warp */
	const struct lin_args &a = rows.a;
	const int n_warps = (int)blockDim.x / 32, warp = warp_id();
	const int per_block = n_warps / a.block_slices * N_COLS; /* columns per block */
	const int slice = split * a.block_slices + warp % a.block_slices;
	const int block_col = at * per_block, col0 = block_col + warp / a.block_slices * N_COLS;
	stream_sum<BF16, KIND, N_COLS, N_T8> s;
	const bool work = col0 < rows.cols();
	if (work)
		s.run(rows, rows.col(col0), t8, lin_slice_unit(a.seg, slice),
		      lin_slice_unit(a.seg, slice + 1),
		      kern_smem() + warp * stream_shape<KIND, N_COLS>::ring_bytes);

	float4 *partials = (float4 *)(void *)kern_smem(); /* [warp][fragment][lane] */
	if (!ROWS::listed && a.splits > 1) {
#pragma unroll
		for (int f = 0; f < FRAGS; f++)
			if (work)
				lin_partial_store(a, slice, col0 + f / N_T8, t8 + f % N_T8,
						  s.sum[f / N_T8][f % N_T8]);
		if (!cuda_last_block(a.counts + blockIdx.z * gridDim.x + blockIdx.x, a.splits))
			return;
	} else {
		block_sync(); /* all warps are done with their rings */
#pragma unroll
		for (int f = 0; f < FRAGS; f++) {
			const float *v = s.sum[f / N_T8][f % N_T8];
			if (work)
				partials[(warp * FRAGS + f) * 32 + lane_id()] =
					make_float4(v[0], v[1], v[2], v[3]);
		}
		block_sync();
	}
#pragma unroll 1
	for (int f = warp; f < per_block * N_T8; f += n_warps) {
		const int col = block_col + f / N_T8, in_warp = f % FRAGS;
		if (col >= rows.cols() || (t8 + f % N_T8) * 8 >= rows.m())
			continue;
		const float4 *from =
			partials + (f / FRAGS * a.block_slices * FRAGS + in_warp) * 32 + lane_id();
		float4 sum;
		if (!ROWS::listed && a.splits > 1) {
			uint4 v[LIN_SLICES_MAX];
			lin_partial_load(a, col, t8 + f % N_T8, v);
			sum = lin_partial_sum(a, v);
		} else {
			sum = from[0];
			for (int i = 1; i < a.block_slices; i++)
				sum = lin_add(sum, from[i * FRAGS * 32]);
		}
		lin_store<BF16>(rows, col, t8 + f % N_T8, sum);
	}
}

#define STREAM_BLOCKS (N_COLS * N_T8 <= 2 && !(code_shape<KIND>::sixteens && N_COLS == 2) ? 2 : 1)

/* grid: (blocks of columns, splits, blocks of rows) */
template <bool BF16, int KIND, int N_COLS, int N_T8>
static __global__ void __launch_bounds__(256, STREAM_BLOCKS) linear_stream_kernel(const struct lin_args a)
{
	stream_block<BF16, KIND, N_COLS, N_T8>(lin_rows{a}, (int)blockIdx.x, (int)blockIdx.y,
					       (int)blockIdx.z * N_T8);
}

#define STREAM_LIST_BLOCKS (code_shape<KIND>::minimums && N_T8 == 2 ? 1 : STREAM_BLOCKS)

/* grid: (blocks of columns, entries) */
template <bool BF16, int KIND, int N_COLS, int N_T8>
static __global__ void __launch_bounds__(256, STREAM_LIST_BLOCKS)
	linear_stream_list_kernel(const struct lin_list l)
{
	const lin_listed rows(l, (int)blockIdx.y);
	if (rows.m())
		stream_block<BF16, KIND, N_COLS, N_T8>(rows, (int)blockIdx.x, 0, 0);
}

/* ---- launching ---- */

template <int KIND, int N_COLS, int N_T8> static int stream_smem(int warps)
{
	return warps * max(stream_shape<KIND, N_COLS>::ring_bytes, N_COLS * N_T8 * 512);
}

template <bool BF16, int KIND, int N_COLS, int N_T8>
static int stream_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p)
{
	const int per_block = p->warps / a->block_slices * N_COLS;
	dim3 grid((unsigned)((a->seg.n_cols + per_block - 1) / per_block), (unsigned)p->splits,
		  (unsigned)((a->m + 8 * N_T8 - 1) / (8 * N_T8)));
	return KERN_LAUNCH((linear_stream_kernel<BF16, KIND, N_COLS, N_T8>), grid,
			   dim3((unsigned)p->warps * 32), (size_t)(stream_smem<KIND, N_COLS, N_T8>(p->warps)),
			   s->s, *a);
}

template <bool BF16, int KIND>
static int stream_launch_size(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p)
{
	if (p->rows <= 8)
		return p->cols == 1 ? stream_launch<BF16, KIND, 1, 1>(s, a, p)
				    : stream_launch<BF16, KIND, 2, 1>(s, a, p);
	return p->cols == 1 ? stream_launch<BF16, KIND, 1, 2>(s, a, p)
			    : stream_launch<BF16, KIND, 2, 2>(s, a, p);
}

int lin_stream_launch(struct kern_stream *s, const struct lin_args *a, const struct lin_plan *p, bool bf16)
{
	assert(p->warps % a->block_slices == 0 && p->warps <= 8);
	return lin_by_kind(a->seg.kind, [&](auto tag) {
		return bf16 ? stream_launch_size<true, tag.kind>(s, a, p)
			    : stream_launch_size<false, tag.kind>(s, a, p);
	});
}

template <bool BF16, int KIND> static int stream_allow(void)
{
	int e = 0;
	e = e ? e
	      : cuda_smem_allow((const void *)linear_stream_kernel<BF16, KIND, 1, 1>,
				stream_smem<KIND, 1, 1>(8));
	e = e ? e
	      : cuda_smem_allow((const void *)linear_stream_kernel<BF16, KIND, 1, 2>,
				stream_smem<KIND, 1, 2>(8));
	e = e ? e
	      : cuda_smem_allow((const void *)linear_stream_kernel<BF16, KIND, 2, 1>,
				stream_smem<KIND, 2, 1>(8));
	e = e ? e
	      : cuda_smem_allow((const void *)linear_stream_kernel<BF16, KIND, 2, 2>,
				stream_smem<KIND, 2, 2>(8));
	return e;
}

int lin_stream_allow(enum lin_kind kind, bool bf16)
{
	return lin_by_kind(kind, [&](auto tag) {
		/* the smallest supported device has 99 KB */
		static_assert(8 * stream_shape<tag.kind, 2>::ring_bytes <= 99 * 1024, "");
		return bf16 ? stream_allow<true, tag.kind>() : stream_allow<false, tag.kind>();
	});
}

/* ---- launching lists ---- */

template <bool BF16, int KIND, int N_COLS, int N_T8>
static int stream_list(struct kern_stream *s, const struct lin_list *l, int n, int warps)
{
	const int per_block = warps / l->a.block_slices * N_COLS;
	const dim3 grid((unsigned)((l->cols + per_block - 1) / per_block), (unsigned)n);
	return KERN_LAUNCH((linear_stream_list_kernel<BF16, KIND, N_COLS, N_T8>), grid,
			   dim3((unsigned)warps * 32), (size_t)(stream_smem<KIND, N_COLS, N_T8>(warps)), s->s,
			   *l);
}

template <bool BF16, int KIND>
static int stream_list_size(struct kern_stream *s, const struct lin_list *l, int n, const struct lin_plan *p)
{
	if (p->rows <= 8)
		return p->cols == 1 ? stream_list<BF16, KIND, 1, 1>(s, l, n, p->warps)
				    : stream_list<BF16, KIND, 2, 1>(s, l, n, p->warps);
	return p->cols == 1 ? stream_list<BF16, KIND, 1, 2>(s, l, n, p->warps)
			    : stream_list<BF16, KIND, 2, 2>(s, l, n, p->warps);
}

int lin_stream_list(struct kern_stream *s, const struct lin_list *l, int n, const struct lin_plan *p,
		    bool bf16)
{
	assert(p->warps % l->a.block_slices == 0 && p->warps <= 8 && l->a.block_slices == l->a.seg.slices);
	return lin_by_kind(l->a.seg.kind, [&](auto tag) {
		return bf16 ? stream_list_size<true, tag.kind>(s, l, n, p)
			    : stream_list_size<false, tag.kind>(s, l, n, p);
	});
}

template <bool BF16, int KIND> static int stream_list_allow(void)
{
	int e = cuda_smem_allow((const void *)linear_stream_list_kernel<BF16, KIND, 1, 1>,
				stream_smem<KIND, 1, 1>(8));
	if (!e)
		e = cuda_smem_allow((const void *)linear_stream_list_kernel<BF16, KIND, 1, 2>,
				    stream_smem<KIND, 1, 2>(8));
	if (!e)
		e = cuda_smem_allow((const void *)linear_stream_list_kernel<BF16, KIND, 2, 1>,
				    stream_smem<KIND, 2, 1>(8));
	if (!e)
		e = cuda_smem_allow((const void *)linear_stream_list_kernel<BF16, KIND, 2, 2>,
				    stream_smem<KIND, 2, 2>(8));
	return e;
}

int lin_stream_list_allow(enum lin_kind kind, bool bf16)
{
	return lin_by_kind(kind, [&](auto tag) {
		return bf16 ? stream_list_allow<true, tag.kind>() : stream_list_allow<false, tag.kind>();
	});
}
