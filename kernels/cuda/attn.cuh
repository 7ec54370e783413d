/* attn.cuh - attention's plan: which rows make a tile, and which block does what of it. */
#ifndef QUERN_KERNELS_CUDA_ATTN_CUH
#define QUERN_KERNELS_CUDA_ATTN_CUH

#include "kernels/cuda/cuda.cuh"

enum {
	THREADS = 128,
	WARPS = 4,
	STEP = 64, /* keys */
	STEPS_OF_CHUNK = CUDA_CHUNK / STEP,
	SPLIT_QUERIES = 16,
	WIDE_QUERIES = 64,
	S_STRIDE =
		STEP + 8, /* floats of a row of scores in shared memory: four rows' pairs meet all 32 banks */
	PARTIAL_MAX_BYTES = 128 << 20,
	LIST_THREADS = 256,
};

/* Some rows of a run. */
struct tile {
	int32_t seq, row, n_rows, pos; /* of the first row */
	int32_t chunk0, n_chunks;      /* that some row sees */
	int32_t partial;               /* of chunk0; -1: none */
	int32_t item;                  /* its first in a device-side list */
};

struct item {
	int32_t tile;
	int32_t chunk; /* -1: all of them, and the output is written */
};

/* Arrays at static addresses. */
struct list {
	int32_t *count;     /* of items */
	struct tile *tiles; /* [max_seqs], one a row */
	struct item *items; /* [list_items()] */
};

/* Made once per batch, shape of heads and window. */
struct cuda_plan {
	struct cuda_ring ring;
	struct cuda_buf partial;
	int *arrived;             /* [plan_arrived_bytes()] 0 between launches */
	int tiles_max, items_max; /* items of both kinds */
	struct list list;
	/* what it was made for */
	unsigned serial;
	int heads, window;
	bool fresh, listed; /* listed: on the device, of a padded batch */
	/* and what came of it: tiles [n], split items, wide items, in the ring's buffer */
	int n_tiles, n_split, n_wide;
	int at_once, cuts, queries, stages[2]; /* stages: wide, split */
};

/* For the batch that is set: on the host, as long as it is not padded, or on the device. */
int cuda_plan_make(struct kern_stream *s, const struct kern_attn_args *a);
int cuda_plan_list(struct kern_stream *s, const struct kern_attn_args *a);
/* Where part 0 (split items), 1 (wide items), 2 (the end) of a plan that the host made begin in the
 * ring's buffer, behind the tiles. */
size_t cuda_plan_part(const struct cuda_plan *p, int part);

/* Shared memory of a block, for padded head size DP:
 *
 *     | queries [16 or 64][DP] | stage 0: K [64][DP], V [64][DP] | stage 1 (or none) | tail |
 *
 * tail: split: the scores of a step, [16][S_STRIDE] F32; wide: the output of earlier chunks,
 * [pairs * 8][THREADS] F32, for which the split kernel has registers. */
template <int DP, bool SPLIT> struct layout {
	static constexpr int kv_bytes = STEP * DP * 2;
	static constexpr int stage_bytes = 2 * kv_bytes;
	static constexpr int pairs = SPLIT ? (DP / 16 + WARPS - 1) / WARPS : DP / 16; /* of a warp */
	static constexpr int q_bytes = (SPLIT ? (int)SPLIT_QUERIES : (int)WIDE_QUERIES) * DP * 2;
	static constexpr int acc_bytes = SPLIT ? 0 : pairs * 8 * THREADS * 4;
	static constexpr int s_bytes = SPLIT ? SPLIT_QUERIES * S_STRIDE * 4 : 0;
	static constexpr int fixed_bytes = q_bytes + acc_bytes + s_bytes;
};

/* Its bytes, with one stage or two. */
template <int DP> static inline int smem_of_dim(bool split, int stages)
{
	return split ? (int)layout<DP, true>::fixed_bytes + stages * layout<DP, true>::stage_bytes
		     : layout<DP, false>::fixed_bytes + stages * layout<DP, false>::stage_bytes;
}

#endif
