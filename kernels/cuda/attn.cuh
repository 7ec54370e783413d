/* attn.cuh - attention's plan: which rows form a tile, and which block computes which item of work. */
#ifndef QUERN_KERNELS_CUDA_ATTN_CUH
#define QUERN_KERNELS_CUDA_ATTN_CUH

#include "kernels/cuda/cuda.cuh"

enum {
	THREADS = 128,
	WARPS = 4,
	STEP = 64, /* keys per step */
	STEPS_OF_CHUNK = CUDA_CHUNK / STEP,
	SPLIT_QUERIES = 16,
	WIDE_QUERIES = 64,
	S_STRIDE = STEP + 8, /* floats per row of scores; four rows' pairs then hit all banks */
	PARTIAL_MAX_BYTES = 128 << 20,
	LIST_THREADS = 256,
	SMEM_LEAST = 99 << 10, /* dynamic shared memory that every device since 8.0 offers a block */
	PLANS = 2,             /* layers of a model have one window size or none */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
	SMEM_OF_SM = (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870 ? 164 : 100) << 10,
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
	SMEM_OF_SM = 100 << 10,
#else
	SMEM_OF_SM = 228 << 10,
#endif
};

/* Consecutive rows of one run. */
struct tile {
	int32_t table, row, n_rows, pos; /* row and pos: the first row's */
	int32_t chunk0, n_chunks;        /* chunks that at least one row sees */
	int32_t partial;                 /* partial result of chunk0; -1: none */
	int32_t item;                    /* first item in a device-side list */
};

struct item {
	int32_t tile;
	int32_t chunk; /* -1: all chunks, and the block writes the output */
};

/* Work list, in arrays at static addresses. */
struct list {
	int32_t *count;     /* number of items */
	struct tile *tiles; /* [max_seqs], one per row */
	struct item *items; /* [list_items()] */
};

/* A plan, made once per batch, head counts and window. */
struct cuda_plan {
	struct cuda_ring ring;
	struct list list;
	/* key of the plan; heads 0: not made yet */
	unsigned serial;
	int heads, window;
	bool fresh, listed; /* listed: made on the device, for a padded batch */
	/* contents: tiles [n], split items, wide items, in the ring's buffer */
	int n_tiles, n_split, n_wide;
	int at_once, cuts, queries, stages[2]; /* stages: wide, split */
};

/* Plans of a cache.  Layers with the same window share a plan; all plans share the launch buffers. */
struct cuda_plans {
	struct cuda_plan plan[PLANS];
	int next; /* plan to replace for a window that has none */
	struct cuda_buf partial;
	int *arrived;             /* [plan_arrived_bytes()] 0 between launches */
	int tiles_max, items_max; /* limits of a plan; items of both kinds */
};

/* Return the plan for the current batch.  The first layer with its window makes it: on the host, or on the
 * device if the batch is padded.  NULL: -EIO. */
const struct cuda_plan *cuda_plan_for(struct kern_stream *s, const struct kern_attn_args *a);
/* Return the offset in the ring's buffer of a host-made plan's part: 0 split items, 1 wide items, 2 the end.
 * The parts follow the tiles. */
size_t cuda_plan_part(const struct cuda_plan *p, int part);

/* Shared memory of a block, for padded head size DP:
 *
 *     | queries [16 or 64][DP] | stage 0: K [64][DP], V [64][DP] | stage 1 (or none) | tail |
 *
 * tail: split kernel: the scores of a step, [16][S_STRIDE] F32; wide kernel: the output of earlier chunks,
 * [pairs * 8][THREADS] F32, which the split kernel keeps in registers. */
template <int DP, bool SPLIT> struct layout {
	static constexpr int kv_bytes = STEP * DP * 2;
	static constexpr int stage_bytes = 2 * kv_bytes;
	static constexpr int pairs = SPLIT ? (DP / 16 + WARPS - 1) / WARPS : DP / 16; /* per warp */
	static constexpr int q_bytes = (SPLIT ? (int)SPLIT_QUERIES : (int)WIDE_QUERIES) * DP * 2;
	static constexpr int acc_bytes = SPLIT ? 0 : pairs * 8 * THREADS * 4;
	static constexpr int s_bytes = SPLIT ? SPLIT_QUERIES * S_STRIDE * 4 : 0;
	static constexpr int fixed_bytes = q_bytes + acc_bytes + s_bytes;
};

/* Return a block's shared memory in bytes, with one stage or two. */
template <int DP> static constexpr int smem_of_dim(bool split, int stages)
{
	return split ? (int)layout<DP, true>::fixed_bytes + stages * layout<DP, true>::stage_bytes
		     : layout<DP, false>::fixed_bytes + stages * layout<DP, false>::stage_bytes;
}

/* Return the blocks that a multiprocessor should hold, for __launch_bounds__: as many as fit in shared
 * memory, at most 3.  A higher number would limit registers without a gain. */
template <int DP, bool SPLIT> static constexpr int blocks_of_sm(void)
{
	constexpr int fit = SMEM_OF_SM / (smem_of_dim<DP>(true, 2) + 1024);
	return !SPLIT || DP > 128 || fit < 1 ? 1 : fit > 3 ? 3 : fit;
}

/* Return whether some device has too little shared memory for two stages. */
template <int DP> static constexpr bool may_have_one_stage(bool split)
{
	return smem_of_dim<DP>(split, 2) > SMEM_LEAST;
}

#endif
