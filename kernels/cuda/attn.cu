/* attn.cu - paged attention, with the same bits for decode and for prompts.
 *
 * A tile is a few consecutive rows of one sequence x the query heads of one KV head.  More than 16 heads are
 * divided into several lanes of the grid.  The tile's queries are rows of a tensor-core operand, so that K
 * and V are read once for all of them.  A query's result depends on its row alone:
 *
 *  - Keys come in steps of 64, four to a chunk of 256, both aligned to absolute positions.  Scores
 *    are chains of mma over the head size, 16 at a time in ascending order.  An mma row does not
 *    depend on the tile's other rows, nor on its place among the 16.
 *  - Within a chunk: online softmax, step by step (step_softmax()).  A step without a visible key
 *    changes nothing for a row: its maximum stays, the correction is 2^0 = 1 and all its p are 0
 *    (rows.cu keeps V finite, so 0 x V adds 0).  A tile may therefore run steps that only some of
 *    its rows need.
 *  - A chunk begins with maximum -inf, sum 0, output 0.  One function, fold(), adds the chunks in
 *    ascending order; a chunk without a visible key changes nothing.  A sink joins the sum after
 *    the last chunk.  The final operation adds +0, which turns -0 into 0.
 *
 * Two kernels process the tiles with the same functions on the same fragments:
 *
 *  - split: 16 queries.  The four warps share a step: each computes the scores of 16 keys, all read
 *    all scores from shared memory and do the same softmax, and each computes its columns of P V.
 *    A block does one chunk and stores a partial result; the last block of the tile folds them.
 *    With few chunks, or without room for results, one block does all chunks one after another.
 *  - wide: 64 queries, 16 per warp, for prompts.  The warps share only K and V.
 *
 * Scores that are capped or have ALiBi (BENT) have separate instances of both kernels, because their
 * registers would cost the others.
 *
 * STAGES: with two, the next step's K and V are copied while a step is computed.  With one, for devices with
 * too little shared memory for two, they are copied after it.
 *
 * attn_plan.cu plans the blocks' work: one block per item, or, for a padded batch, as many blocks as fill the
 * device, which loop over a list in device memory.
 *
 * K, V and Q are stored in shared memory in rows of the padded head size.  Each row's 16-byte pieces are
 * permuted (piece()) so that ldmatrix has no bank conflicts. */
#include "kernels/cuda/attn.cuh"

#include <assert.h>

struct attn_args {
	const struct tile *tiles;
	const struct item *items;
	const int32_t *count; /* number of items, on the device; NULL: one per block */
	uint16_t *out;
	const uint16_t *q;
	const unsigned char *pool; /* pool, offset to the layer */
	const int32_t *tables;
	float *partial;
	int *arrived; /* finished chunks of a tile and lane, at its first partial result */
	size_t block_bytes, head_bytes;
	int table_stride, block_shift; /* a cache block holds 1 << block_shift tokens */
	int n_q, n_kv, dim, heads;     /* heads: query heads per KV head */
	int cuts, at_once;             /* lanes per KV head; most query heads per lane */
	int queries;                   /* most queries of a partial result */
	int window;
	float scale_log2;  /* scale x log2 e; BENT: log2 e */
	float cap, in_cap; /* BENT, cap > 0: a score becomes cap tanh(score x in_cap); in_cap = scale / cap */
	const float
		*alibi; /* BENT, [n_q]: a score becomes score x scale + slope x (key - position); or NULL */
	float scale;
	const float *sinks; /* [n_q] or NULL */
};

/* A block's work. */
struct work {
	struct tile t;
	int kv_head, head, n_heads, n_queries; /* head: the first query head */
};

KERN_DEV int first_seen(const struct attn_args &a, int pos)
{
	return a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
}

KERN_DEV struct work work_of(const struct attn_args &a, int tile, int lane)
{
	struct work w;
	w.t = a.tiles[tile];
	w.kv_head = lane / a.cuts;
	const int from = lane % a.cuts * a.at_once;
	w.n_heads = a.heads - from < a.at_once ? a.heads - from : a.at_once;
	w.head = w.kv_head * a.heads + from;
	w.n_queries = w.t.n_rows * w.n_heads;
	return w;
}

/* Return the element offset of query i in [T][Hq][D]. */
KERN_DEV size_t query_at(const struct attn_args &a, const struct work &w, int i)
{
	return ((size_t)(w.t.row + i / w.n_heads) * (size_t)a.n_q + (size_t)(w.head + i % w.n_heads)) *
	       (size_t)a.dim;
}

/* ---- shared memory ---- */

/* Return the place of 16-byte piece c of a row.  The same piece of eight rows is in eight different groups of
 * 4 banks.  Rows of whole multiples of 128 bytes all begin at bank 0; of 64 and 192 bytes, every second row
 * does. */
template <int DP> KERN_DEV int piece(int row, int c)
{
	return row * (DP / 8) + (c ^ (DP % 64 == 0 ? row & 7 : row >> 1 & 3));
}

/* Copy the queries to shared memory.  A thread issues the loads of up to 8 pieces before it stores the
 * first. */
template <int DP, int QUERIES> KERN_DEV void load_q(const struct attn_args &a, const struct work &w, uint4 *q)
{
	constexpr int PIECES = QUERIES * (DP / 8), EACH = (PIECES + THREADS - 1) / THREADS;
	constexpr int GROUP = EACH < 8 ? EACH : 8;
#pragma unroll 1
	for (int i0 = (int)threadIdx.x; i0 < PIECES; i0 += GROUP * THREADS) {
		uint4 v[GROUP];
#pragma unroll
		for (int j = 0; j < GROUP; j++) {
			const int i = i0 + j * THREADS, row = i / (DP / 8), c = i % (DP / 8);
			v[j] = make_uint4(0, 0, 0, 0);
			if (row < w.n_queries && c * 8 < a.dim)
				v[j] = ld_global_128(a.q + query_at(a, w, row) + c * 8);
		}
#pragma unroll
		for (int j = 0; j < GROUP; j++) {
			const int i = i0 + j * THREADS;
			if (i < PIECES)
				q[piece<DP>(i / (DP / 8), i % (DP / 8))] = v[j];
		}
	}
}

/* Copy K and V of one step, with zeros for positions that no row of the tile sees.  A thread reads the table
 * entries of several pieces before it copies the first: a copy's address waits for its entry, and the
 * compiler moves no table read past a copy.  For an unseen position, the nearest seen position gives a valid
 * address, which is not read. */
template <int DP>
KERN_DEV void load_step(const struct attn_args &a, const struct work &w, int step, uint4 *k, uint4 *v)
{
	constexpr int PIECES = STEP * (DP / 8) / THREADS;
	constexpr int GROUP = PIECES > 8 ? 4 : PIECES; /* 256: no registers for more in the wide kernel */
	static_assert(PIECES * THREADS == STEP * (DP / 8) && PIECES % GROUP == 0, "");
	const int lo = first_seen(a, w.t.pos), hi = w.t.pos + w.t.n_rows - 1;
	const int32_t *table = a.tables + (size_t)w.t.table * (size_t)a.table_stride;
	const unsigned char *pool = a.pool + (size_t)w.kv_head * a.head_bytes;
	const size_t to_v = (size_t)a.n_kv * a.head_bytes;
	const int in_block = (1 << a.block_shift) - 1;
#pragma unroll 1
	for (int g = 0; g < PIECES; g += GROUP) {
		int32_t block[GROUP];
#pragma unroll
		for (int j = 0; j < GROUP; j++) {
			const int row = ((int)threadIdx.x + (g + j) * THREADS) / (DP / 8);
			block[j] = table[min(max(step * STEP + row, lo), hi) >> a.block_shift];
		}
#pragma unroll
		for (int j = 0; j < GROUP; j++) {
			const int i = (int)threadIdx.x + (g + j) * THREADS;
			const int row = i / (DP / 8), c = i % (DP / 8), pos = step * STEP + row;
			const int at = min(max(pos, lo), hi) & in_block;
			const unsigned char *from =
				pool + (size_t)block[j] * a.block_bytes + (size_t)(at * DP + c * 8) * 2;
			cp_async_16(k + piece<DP>(row, c), from, pos >= lo && pos <= hi);
			cp_async_16(v + piece<DP>(row, c), from + to_v, pos >= lo && pos <= hi);
		}
	}
	cp_async_commit();
}

/* ---- arithmetic that decides bits: the same functions in both kernels ---- */

template <bool BF16> KERN_DEV void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	if constexpr (BF16)
		mma_m16n8k16_bf16(d, a, b);
	else
		mma_m16n8k16_f16(d, a, b);
}

/* Compute s[2 pairs][4]: for each pair, the scores of 16 queries (from q_row) and 16 keys (from key). */
template <bool BF16, int DP, int PAIRS>
KERN_DEV void scores(const uint4 *q, int q_row, const uint4 *k, int key, float s[][4])
{
	const int lane = lane_id();
	for (int n = 0; n < 2 * PAIRS; n++)
		for (int e = 0; e < 4; e++)
			s[n][e] = 0;
#pragma unroll
	for (int d = 0; d < DP / 16; d++) {
		uint32_t fa[4], fb[4];
		ldmatrix_x4(fa, q + piece<DP>(q_row + (lane & 15), 2 * d + (lane >> 4)));
#pragma unroll
		for (int p = 0; p < PAIRS; p++) {
			ldmatrix_x4(fb, k + piece<DP>(key + 16 * p + (lane & 7) + (lane >> 4) * 8,
						      2 * d + (lane >> 3 & 1)));
			mma<BF16>(s[2 * p], fa, fb);
			mma<BF16>(s[2 * p + 1], fa, fb + 2);
		}
	}
}

/* Compute the split kernel's scores of 64 keys.  Each warp computes 16 keys; all warps read all scores from
 * shared memory.  all: [query][S_STRIDE / 2] pairs of keys. */
template <bool BF16, int DP>
KERN_DEV void scores_split(const uint4 *q, const uint4 *k, float2 *all, float s[8][4])
{
	float mine[2][4];
	scores<BF16, DP, 1>(q, 0, k, 16 * warp_id(), mine);
	const int query = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int r = 0; r < 2; r++)
			all[(query + 8 * r) * (S_STRIDE / 2) + 8 * warp_id() + 4 * n + t] =
				make_float2(mine[n][2 * r], mine[n][2 * r + 1]);
	block_sync();
#pragma unroll
	for (int n = 0; n < 8; n++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const float2 v = all[(query + 8 * r) * (S_STRIDE / 2) + 4 * n + t];
			s[n][2 * r] = v.x;
			s[n][2 * r + 1] = v.y;
		}
}

/* A thread holds values of two queries: r = 0 is row lane / 4 of the 16, r = 1 is that row + 8. */
struct chunk_state {
	float max[2], sum[2]; /* sum: only this thread's keys, until close_sum() */
};

/* Replace s, the scores of 64 keys, by p.  fix gets the factor for the output so far. */
template <bool BENT>
KERN_DEV void step_softmax(float s[8][4], struct chunk_state *c, float fix[2], const int pos[2],
			   const float slope[2], int key0, const struct attn_args &a)
{
	const int t = lane_id() & 3;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int from = first_seen(a, pos[r]);
		float best = -INFINITY;
#pragma unroll
		for (int n = 0; n < 8; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const int key = key0 + 8 * n + 2 * t + e;
				float *x = &s[n][2 * r + e];
				if constexpr (BENT)
					*x = a.alibi ? f32_fma_rn(slope[r], (float)(key - pos[r]),
								  f32_mul_rn(*x, a.scale))
						     : cuda_softcap(*x, a.cap, a.in_cap);
				if (key < from || key > pos[r])
					*x = -INFINITY;
				best = fmaxf(best, *x);
			}
		best = fmaxf(best, shfl_xor(best, 1));
		best = fmaxf(best, shfl_xor(best, 2));
		best = fmaxf(best, c->max[r]);
		const float zero = best == -INFINITY ? 0.0f : best; /* no key seen yet */
		const float shift = -f32_mul_rn(zero, a.scale_log2);
		fix[r] = f32_exp2_fast(f32_mul_rn(f32_add_rn(c->max[r], -zero), a.scale_log2));
		float sum = f32_mul_rn(c->sum[r], fix[r]);
#pragma unroll
		for (int n = 0; n < 8; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				float *x = &s[n][2 * r + e];
				*x = f32_exp2_fast(f32_fma_rn(*x, a.scale_log2, shift));
				sum = f32_add_rn(sum, *x);
			}
		c->max[r] = best;
		c->sum[r] = sum;
	}
}

/* o[16 queries][16 of the head size] = o x fix + p v, over 64 keys. */
template <bool BF16, int DP>
KERN_DEV void weigh(const float p[8][4], const float fix[2], const uint4 *v, int pair, float o[2][4])
{
	const int lane = lane_id();
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			o[n][e] = f32_mul_rn(o[n][e], fix[e >> 1]);
#pragma unroll
	for (int k = 0; k < STEP / 16; k++) {
		uint32_t fb[4];
		const uint32_t fa[4] = {op2_of_f32<BF16>(p[2 * k][0], p[2 * k][1]),
					op2_of_f32<BF16>(p[2 * k][2], p[2 * k][3]),
					op2_of_f32<BF16>(p[2 * k + 1][0], p[2 * k + 1][1]),
					op2_of_f32<BF16>(p[2 * k + 1][2], p[2 * k + 1][3])};
		ldmatrix_x4_trans(fb, v + piece<DP>(16 * k + (lane & 15), 2 * pair + (lane >> 4)));
		mma<BF16>(o[0], fa, fb);
		mma<BF16>(o[1], fa, fb + 2);
	}
}

/* Add up the sums of a row's four threads. */
KERN_DEV void close_sum(struct chunk_state *c)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		c->sum[r] = f32_add_rn(c->sum[r], shfl_xor(c->sum[r], 1));
		c->sum[r] = f32_add_rn(c->sum[r], shfl_xor(c->sum[r], 2));
	}
}

/* How to fold a chunk into the earlier chunks. */
struct folding {
	float max, before, chunk; /* the new maximum; factors of the earlier chunks and of the chunk */
};

KERN_DEV struct folding folding_of(float max, float chunk_max, float scale_log2)
{
	struct folding f;
	f.max = fmaxf(max, chunk_max);
	const float zero = f.max == -INFINITY ? 0.0f : f.max;
	f.before = f32_exp2_fast(f32_mul_rn(f32_add_rn(max, -zero), scale_log2));
	f.chunk = f32_exp2_fast(f32_mul_rn(f32_add_rn(chunk_max, -zero), scale_log2));
	return f;
}

KERN_DEV float fold(float x, float chunk, const struct folding &f)
{
	return f32_fma_rn(x, f.before, f32_mul_rn(chunk, f.chunk));
}

/* Return 1 / (the sum of a query's weights, relative to 2^(max scale_log2), plus its head's sink).  If the
 * sink exceeds 2^87 of them, the result is 0, whatever its value. */
KERN_DEV float one_by(const struct attn_args &a, int head, float max, float sum)
{
	if (a.sinks) {
		const float x =
			f32_fma_rn(a.sinks[head], 1.44269504088896341f, -f32_mul_rn(max, a.scale_log2));
		sum = f32_add_rn(sum, f32_exp2_fast(fminf(x, 87.0f)));
	}
	return f32_div_rn(1.0f, sum);
}

KERN_DEV float finish(float o, float one_by_sum)
{
	return f32_add_rn(f32_mul_rn(o, one_by_sum), 0.0f);
}

/* ---- processing of an item ---- */

template <bool BF16, int DP, bool SPLIT> struct walk {
	static constexpr int PAIRS = layout<DP, SPLIT>::pairs;
	float o[PAIRS][2][4];
	struct chunk_state c;
	float max[2], sum[2];             /* over the earlier chunks */
	float own[SPLIT ? PAIRS * 8 : 1]; /* output of the earlier chunks */
	float *acc;                       /* wide: shared memory for that output, [PAIRS * 8][THREADS] */

	KERN_DEV float &acc_of(struct walk *w, int i)
	{
		if constexpr (SPLIT)
			return w->own[i];
		else
			return w->acc[i * THREADS];
	}

	/* Return which 16 columns of the head are this thread's pair i; too large: none. */
	KERN_DEV int pair_of(int i)
	{
		return SPLIT ? warp_id() + WARPS * i : i;
	}

	KERN_DEV void chunk_begin(struct walk *w)
	{
#pragma unroll
		for (int r = 0; r < 2; r++) {
			w->c.max[r] = -INFINITY;
			w->c.sum[r] = 0;
		}
#pragma unroll
		for (int i = 0; i < PAIRS * 8; i++)
			w->o[i / 8][i / 4 % 2][i % 4] = 0;
	}

	KERN_DEV void begin(struct walk *w, float *shared)
	{
		w->acc = shared + threadIdx.x;
#pragma unroll
		for (int r = 0; r < 2; r++) {
			w->max[r] = -INFINITY;
			w->sum[r] = 0;
		}
#pragma unroll
		for (int i = 0; i < PAIRS * 8; i++)
			acc_of(w, i) = 0;
		chunk_begin(w);
	}

	KERN_DEV void chunk_fold(struct walk *w, float scale_log2)
	{
		struct folding f[2];
		close_sum(&w->c);
#pragma unroll
		for (int r = 0; r < 2; r++) {
			f[r] = folding_of(w->max[r], w->c.max[r], scale_log2);
			w->max[r] = f[r].max;
			w->sum[r] = fold(w->sum[r], w->c.sum[r], f[r]);
		}
#pragma unroll
		for (int i = 0; i < PAIRS * 8; i++)
			acc_of(w, i) = fold(acc_of(w, i), w->o[i / 8][i / 4 % 2][i % 4], f[i % 4 / 2]);
	}

	/* Return the query and the first column of values 2 e2, 2 e2 + 1 of half h of pair i. */
	KERN_DEV int query_of(int e2)
	{
		return (SPLIT ? 0 : 16 * warp_id()) + (lane_id() >> 2) + 8 * e2;
	}

	KERN_DEV int column_of(int i, int h)
	{
		return 16 * pair_of(i) + 8 * h + 2 * (lane_id() & 3);
	}

	KERN_DEV void write_out(struct walk *w, const struct attn_args &a, const struct work &k)
	{
#pragma unroll
		for (int e2 = 0; e2 < 2; e2++) {
			const int query = query_of(e2);
			if (query >= k.n_queries)
				continue;
			const float by = one_by(a, k.head + query % k.n_heads, w->max[e2], w->sum[e2]);
			uint16_t *out = a.out + query_at(a, k, query);
#pragma unroll
			for (int i = 0; i < PAIRS * 2; i++) {
				const int col = column_of(i / 2, i % 2);
				const int at = i * 4 + 2 * e2;
				if (col < a.dim)
					*(uint32_t *)(void *)(out + col) = op2_of_f32<BF16>(
						finish(acc_of(w, at), by), finish(acc_of(w, at + 1), by));
			}
		}
	}

	/* Store a chunk's own result: [queries][2] maximum and sum, then [queries][DP] output. */
	KERN_DEV void write_partial(struct walk *w, const struct attn_args &a, const struct work &k, float *p)
	{
		close_sum(&w->c);
#pragma unroll
		for (int e2 = 0; e2 < 2; e2++) {
			const int query = query_of(e2);
			if (query >= k.n_queries)
				continue;
			if (warp_id() == 0 && (lane_id() & 3) == 0) {
				*(float2 *)(void *)(p + 2 * query) = make_float2(w->c.max[e2], w->c.sum[e2]);
			}
			float *out = p + 2 * a.queries + query * DP;
#pragma unroll
			for (int i = 0; i < PAIRS * 2; i++) {
				const int col = column_of(i / 2, i % 2);
				const float *o = w->o[i / 2][i % 2] + 2 * e2;
				if (col < DP)
					*(float2 *)(void *)(out + col) = make_float2(o[0], o[1]);
			}
		}
	}
};

/* Return the address of a partial result.  Its size is even, so that pairs in it are aligned. */
template <int DP> KERN_DEV float *partial_of(const struct attn_args &a, int index, int lane)
{
	return a.partial +
	       ((size_t)index * (size_t)(a.n_kv * a.cuts) + (size_t)lane) * (size_t)(a.queries * (DP + 2));
}

/* Fold the results of a tile's chunks in ascending order and write the output.  A warp processes one query at
 * a time and loads several chunks ahead. */
template <bool BF16, int DP> KERN_DEV void merge(const struct attn_args &a, const struct work &w, int lane)
{
	constexpr int N = DP / 2 < WARP ? 1 : (DP / 2 + WARP - 1) / WARP, AHEAD = 8;
	for (int query = warp_id(); query < w.n_queries; query += WARPS) {
		float max = -INFINITY, sum = 0, o[N][2] = {};
		for (int c0 = 0; c0 < w.t.n_chunks; c0 += AHEAD) {
			float2 chunk[AHEAD], in[AHEAD][N]; /* maximum and sum; output */
#pragma unroll
			for (int j = 0; j < AHEAD; j++) {
				const int c = min(c0 + j, w.t.n_chunks - 1);
				const float *p = partial_of<DP>(a, w.t.partial + c, lane);
				const float *from = p + 2 * a.queries + query * DP;
				chunk[j] = ld_cg_f32x2(p + 2 * query);
#pragma unroll
				for (int i = 0; i < N; i++) {
					const int col = 2 * (lane_id() + WARP * i);
					in[j][i] = make_float2(0, 0);
					if (col < DP)
						in[j][i] = ld_cg_f32x2(from + col);
				}
			}
#pragma unroll
			for (int j = 0; j < AHEAD; j++) {
				if (c0 + j >= w.t.n_chunks)
					break;
				const struct folding f = folding_of(max, chunk[j].x, a.scale_log2);
				max = f.max;
				sum = fold(sum, chunk[j].y, f);
#pragma unroll
				for (int i = 0; i < N; i++) {
					o[i][0] = fold(o[i][0], in[j][i].x, f);
					o[i][1] = fold(o[i][1], in[j][i].y, f);
				}
			}
		}
		const float by = one_by(a, w.head + query % w.n_heads, max, sum);
		uint16_t *out = a.out + query_at(a, w, query);
#pragma unroll
		for (int i = 0; i < N; i++) {
			const int col = 2 * (lane_id() + WARP * i);
			if (col < a.dim)
				*(uint32_t *)(void *)(out + col) =
					op2_of_f32<BF16>(finish(o[i][0], by), finish(o[i][1], by));
		}
	}
}

template <bool BF16, int DP, bool SPLIT, bool BENT, int STAGES>
KERN_DEV void do_item(const struct attn_args &a, const struct item it)
{
	typedef layout<DP, SPLIT> lay;
	typedef walk<BF16, DP, SPLIT> walker;
	const struct work w = work_of(a, it.tile, (int)blockIdx.y);
	unsigned char *at = kern_smem();
	uint4 *q = (uint4 *)(void *)at;
	at += lay::q_bytes;
	unsigned char *stage = at;
	at += STAGES * lay::stage_bytes;
	float *acc = (float *)(void *)at, *shared_s = (float *)(void *)(at + lay::acc_bytes);

	/* this block's steps that some row sees */
	int step = first_seen(a, w.t.pos) / STEP, end = (w.t.pos + w.t.n_rows - 1) / STEP + 1;
	if (it.chunk >= 0) {
		step = max(step, it.chunk * STEPS_OF_CHUNK);
		end = min(end, (it.chunk + 1) * STEPS_OF_CHUNK);
	}
	int pos[2];
#pragma unroll
	for (int r = 0; r < 2; r++) { /* rows after the tile's last repeat that row; not stored */
		const int query = walker::query_of(r);
		pos[r] = w.t.pos + min(query / w.n_heads, w.t.n_rows - 1);
	}
	float slope[2] = {0, 0};
	if constexpr (BENT)
		for (int r = 0; a.alibi && r < 2; r++)
			slope[r] = a.alibi[w.head + walker::query_of(r) % w.n_heads];
	walker k;
	walker::begin(&k, acc);
	load_step<DP>(a, w, step, (uint4 *)(void *)stage, (uint4 *)(void *)(stage + lay::kv_bytes));
	load_q<DP, SPLIT ? SPLIT_QUERIES : WIDE_QUERIES>(a, w, q); /* overlaps with the copies */
	for (int buffer = 0; step < end; step++) {
		uint4 *ks = (uint4 *)(void *)(stage + buffer * lay::stage_bytes),
		      *vs = ks + lay::kv_bytes / 16;
		cp_async_wait<0>();
		block_sync(); /* all copies have arrived; all warps are done with the other buffer */
		if constexpr (STAGES == 2) {
			buffer ^= 1;
			uint4 *next = (uint4 *)(void *)(stage + buffer * lay::stage_bytes);
			if (step + 1 < end)
				load_step<DP>(a, w, step + 1, next, next + lay::kv_bytes / 16);
		}
		float s[8][4], fix[2];
		if constexpr (SPLIT)
			scores_split<BF16, DP>(q, ks, (float2 *)(void *)shared_s, s);
		else
			scores<BF16, DP, 4>(q, 16 * warp_id(), ks, 0, s);
		step_softmax<BENT>(s, &k.c, fix, pos, slope, step * STEP, a);
#pragma unroll
		for (int i = 0; i < walker::PAIRS; i++)
			if (walker::pair_of(i) < DP / 16)
				weigh<BF16, DP>(s, fix, vs, walker::pair_of(i), k.o[i]);
		if (it.chunk < 0 && (step + 1 == end || (step + 1) % STEPS_OF_CHUNK == 0)) {
			walker::chunk_fold(&k, a.scale_log2);
			walker::chunk_begin(&k);
		}
		if constexpr (STAGES == 1) {
			block_sync();
			if (step + 1 < end)
				load_step<DP>(a, w, step + 1, ks, vs);
		}
	}
	if (it.chunk < 0) {
		walker::write_out(&k, a, w);
	} else if constexpr (SPLIT) {
		const int lane = (int)blockIdx.y, lanes = a.n_kv * a.cuts;
		walker::write_partial(&k, a, w, partial_of<DP>(a, w.t.partial + it.chunk - w.t.chunk0, lane));
		if (cuda_last_block(a.arrived + (size_t)w.t.partial * (size_t)lanes + (size_t)lane,
				    w.t.n_chunks))
			merge<BF16, DP>(a, w, lane);
	}
}

template <bool BF16, int DP, bool SPLIT, bool BENT, int STAGES>
static __global__ void __launch_bounds__(THREADS, blocks_of_sm<DP, SPLIT>()) attn_kernel(struct attn_args a)
{
	if constexpr (!SPLIT) {
		do_item<BF16, DP, SPLIT, BENT, STAGES>(a, a.items[blockIdx.x]);
		return;
	}
	const int n = a.count ? *a.count : (int)gridDim.x;
	for (int i = (int)blockIdx.x; i < n; i += (int)gridDim.x) {
		if (i != (int)blockIdx.x)
			block_sync(); /* all warps are done with the shared memory of the previous item */
		do_item<BF16, DP, SPLIT, BENT, STAGES>(a, a.items[i]);
	}
}

/* ---- launching ---- */

/* Launch n items; n = 0: the device's list, with as many blocks as fill the device at once. */
template <bool BF16, int DP, bool SPLIT, bool BENT, int STAGES>
static int launch_stages(struct kern_stream *s, const struct attn_args &a, int n)
{
	static int at_once; /* blocks per multiprocessor; a process has one device */
	const int lanes = a.n_kv * a.cuts, smem = smem_of_dim<DP>(SPLIT, STAGES);
	if (!at_once) {
		int e = cuda_smem_allow((const void *)attn_kernel<BF16, DP, SPLIT, BENT, STAGES>, smem);
		if (!e)
			e = cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
					       &at_once, attn_kernel<BF16, DP, SPLIT, BENT, STAGES>, THREADS,
					       (size_t)smem),
				       "blocks of a multiprocessor");
		if (e)
			return e;
	}
	if (!n)
		n = (max(at_once, 1) * s->dev->sms + lanes - 1) / lanes;
	return KERN_LAUNCH((attn_kernel<BF16, DP, SPLIT, BENT, STAGES>), dim3((unsigned)n, (unsigned)lanes),
			   THREADS, (size_t)smem, s->s, a);
}

template <bool BF16, int DP, bool SPLIT, bool BENT>
static int launch_walk(struct kern_stream *s, const struct cuda_plan *p, const struct attn_args &a, int n)
{
	assert(p->stages[SPLIT] == 2 || (p->stages[SPLIT] == 1 && may_have_one_stage<DP>(SPLIT)));
	if constexpr (may_have_one_stage<DP>(SPLIT))
		if (p->stages[SPLIT] == 1)
			return launch_stages<BF16, DP, SPLIT, BENT, 1>(s, a, n);
	return launch_stages<BF16, DP, SPLIT, BENT, 2>(s, a, n);
}

template <bool BF16, int DP, bool BENT>
static int launch_list(struct kern_stream *s, const struct cuda_plan *p, struct attn_args a)
{
	a.tiles = p->list.tiles;
	a.items = p->list.items;
	a.count = p->list.count;
	return launch_walk<BF16, DP, true, BENT>(s, p, a, 0);
}

template <bool BF16, int DP, bool BENT>
static int launch_dim(struct kern_stream *s, const struct cuda_plan *p, struct attn_args a)
{
	const unsigned char *buf = p->ring.dev;
	int e = 0;
	if (p->listed)
		return launch_list<BF16, DP, BENT>(s, p, a);
	a.tiles = (const struct tile *)(const void *)buf;
	if (p->n_wide) {
		a.items = (const struct item *)(const void *)(buf + cuda_plan_part(p, 1));
		e = launch_walk<BF16, DP, false, BENT>(s, p, a, p->n_wide);
	}
	if (p->n_split && !e) {
		a.items = (const struct item *)(const void *)(buf + cuda_plan_part(p, 0));
		e = launch_walk<BF16, DP, true, BENT>(s, p, a, p->n_split);
	}
	return e;
}

template <bool BF16, bool BENT>
static int launch(struct kern_stream *s, const struct kern_kv *kv, const struct cuda_plan *p,
		  const struct attn_args &a)
{
	switch (kv->dim_pad) {
	case 32:
		return launch_dim<BF16, 32, BENT>(s, p, a);
	case 64:
		return launch_dim<BF16, 64, BENT>(s, p, a);
	case 96:
		return launch_dim<BF16, 96, BENT>(s, p, a);
	case 128:
		return launch_dim<BF16, 128, BENT>(s, p, a);
	default:
		return launch_dim<BF16, 256, BENT>(s, p, a);
	}
}

int cuda_attention(struct kern_stream *s, const struct kern_attn_args *in)
{
	const struct kern_dev *d = s->dev;
	const struct cuda_batch *b = &d->batch;
	struct kern_kv *kv = in->kv;
	assert(in->head_dim == kv->dim && in->n_kv_heads == kv->n_kv_heads);
	assert(in->kind >= 0 && in->kind < d->args.n_kinds);
	assert(in->n_q_heads % in->n_kv_heads == 0 && in->layer >= 0 && in->layer < kv->n_layers);
	if (!b->n_rows)
		return 0;
	const struct cuda_plan *p = cuda_plan_for(s, in);
	if (!p)
		return -EIO;
	struct attn_args a = {};
	a.out = (uint16_t *)in->out;
	a.q = (const uint16_t *)in->q;
	a.pool = kv->pool + (size_t)in->layer * kv->layer_bytes;
	a.tables = b->tables + (size_t)in->kind * (size_t)b->table_stride;
	a.partial = (float *)kv->plans->partial.p;
	a.arrived = kv->plans->arrived;
	a.block_bytes = kv->block_bytes;
	a.head_bytes = kv->head_bytes;
	a.table_stride = b->table_stride;
	while (1 << a.block_shift < kv->block_size)
		a.block_shift++;
	assert(1 << a.block_shift == kv->block_size);
	a.n_q = in->n_q_heads;
	a.n_kv = in->n_kv_heads;
	a.dim = in->head_dim;
	a.heads = p->heads;
	a.cuts = p->cuts;
	a.at_once = p->at_once;
	a.queries = p->queries;
	a.window = in->window;
	a.sinks = (const float *)in->sinks;
	a.cap = in->cap;
	a.in_cap = in->cap > 0 ? in->scale / in->cap : 0;
	a.alibi = (const float *)in->alibi;
	a.scale = in->scale;
	assert(!(a.alibi && a.cap > 0));
	const bool bent = a.alibi || a.cap > 0;
	a.scale_log2 = (bent ? 1.0f : in->scale) * 1.44269504088896341f;
	if (bent)
		return cuda_is_bf16(d) ? launch<true, true>(s, kv, p, a) : launch<false, true>(s, kv, p, a);
	return cuda_is_bf16(d) ? launch<true, false>(s, kv, p, a) : launch<false, false>(s, kv, p, a);
}
