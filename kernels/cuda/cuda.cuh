/* cuda.cuh - declarations that the files of the CUDA table share.
 *
 * memory.cu    memory, workspaces, the status of CUDA's calls
 * device.cu    opening, streams, events, the table itself
 * batch.cu     one batch on the device: positions, block tables, the work list of attention
 * kv.cu        the paged cache, copies and swaps
 * rows.cu      embedding, norms, rotation and KV store, gather
 * attn*.cu     paged attention, and its plan
 * sample.cu    from logits to a token
 * graph.cu     a decoding step, captured
 * linear*.cu   linear layers, in AWQ, F16 and BF16
 * route.cu     the choice of a row's experts
 * moe.cu       mixtures of experts
 * blas*.cu     cuBLAS, for --fast
 *
 * Operands and KV are F16 or BF16, the same type for the whole device (dev->operand).  The residual stream
 * and logits are F32.  Kernels that depend on the operand type are templates over `bool BF16`.
 * Errors: a refused launch returns -EIO at once; a later failure shows in stream_sync().
 * No operation allocates: open(), kv_new() and *_load() make the buffers. */
#ifndef QUERN_KERNELS_CUDA_CUDA_CUH
#define QUERN_KERNELS_CUDA_CUDA_CUH

#include "kernels/cuda/ptx.cuh"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "kernels/kern.h"
}

enum {
	CUDA_CHUNK = 256,            /* tokens of an attention chunk, aligned to absolute positions */
	CUDA_HEAD_MAX = 256,         /* largest head size */
	CUDA_FAST_BYTES = 128 << 20, /* size of each --fast workspace, about */
};

/* ---- memory.cu: status of calls, memory ---- */

/* Return the last launch's status, 0 or -EIO, and log a failure with the kernel's name.  KERN_LAUNCH() calls
 * it. */
int cuda_launched(const char *kernel);

/* Return 0, or log what failed and return -EIO (-ENOMEM if memory ran out). */
int cuda_check(cudaError_t e, const char *what);

/* Allocate zeroed device memory, 256-byte aligned; NULL if there is none left.  0 bytes: allocates 256. */
void *cuda_mem_new(struct kern_dev *d, size_t bytes);
void cuda_mem_free(struct kern_dev *d, void *p, size_t bytes);
/* Return the bytes that the driver takes for an allocation: small ones share pages of 2 MB. */
size_t cuda_mem_taken(size_t bytes);
/* Allocate pinned host memory for copies. */
void *cuda_pinned_new(size_t bytes);
void cuda_pinned_free(void *p);
/* Allocate pinned host memory that kernels can read and write too, at device addresses. */
void *cuda_host_new(struct kern_dev *d, size_t bytes);
void cuda_host_free(struct kern_dev *d, void *p, size_t bytes);
/* Return the device address of `bytes` at p within one allocation of cuda_host_new(); NULL if p is in
 * none. */
void *cuda_mapped(const struct kern_dev *d, const void *p, size_t bytes);
/* Copy from host to device and wait for the copy, for loading: 0, -EIO. */
int cuda_upload_now(struct kern_dev *d, void *dst_dev, const void *src_host, size_t bytes);

/* Device memory that can grow.  Growing loses the contents and zeroes the buffer (0, -ENOMEM). */
struct cuda_buf {
	void *p;
	size_t bytes;
};
int cuda_buf_reserve(struct kern_dev *d, struct cuda_buf *b, size_t bytes);

/* A workspace that linear layers share, in stream order.  Loading a layer makes the workspace large enough
 * (0, -ENOMEM); operations only use it.  Growing zeroes it, and kernels with counters in it leave them zero.
 * Users: CUDA_WS_PARTIAL (partial sums), CUDA_WS_COUNT (arrival counters), CUDA_WS_WEIGHTS and
 * CUDA_WS_GATE_UP (--fast: plain weights, SwiGLU's input), CUDA_WS_ROUTE (the router's outputs),
 * CUDA_WS_PAIRS (lists of (row, expert) pairs), CUDA_WS_MIDDLE and CUDA_WS_GIVEN (input and output of down,
 * per pair). */
enum cuda_ws {
	CUDA_WS_PARTIAL,
	CUDA_WS_COUNT,
	CUDA_WS_WEIGHTS,
	CUDA_WS_GATE_UP,
	CUDA_WS_ROUTE,
	CUDA_WS_PAIRS,
	CUDA_WS_MIDDLE,
	CUDA_WS_GIVEN,
	CUDA_WS_N
};
int cuda_ws_reserve(struct kern_dev *d, enum cuda_ws which, size_t bytes);

/* Prepare a kernel's first launch (KERN_LAUNCH() calls it): set the largest share of L1 as shared memory, the
 * same for all kernels.  If two consecutive kernels differ in it, a multiprocessor must drain before it
 * changes over; attention and the linear layers need nearly all of it.  True on success. */
bool cuda_carve_out(const void *kernel);

/* Raise a kernel's limit of dynamic shared memory, once, at open or load.  Needed above 48 KB. */
int cuda_smem_allow(const void *kernel, int bytes);

/* ---- the batch on the device (batch.cu) ---- */

/* Device arrays at static addresses, so that a captured graph stays valid. */
struct cuda_batch {
	int n_rows, n_seqs, n_logits; /* host's counts, including null rows */
	int pad_to;                   /* as in kern_batch */
	int32_t *token_at;            /* [max_rows]; -1: a null row */
	int32_t *row_table;           /* [max_rows] index of the row's block table for kind 0 of layers */
	int32_t *row_pos;             /* [max_rows] the row's position */
	int32_t *logits_row;          /* [max_logits] */
	int32_t *tables;              /* [max_tables + 1][n_kinds][table_stride]; the last: null rows' */
	int table_stride;             /* = max_blocks_per_seq */
	int32_t *pos0, *row0;         /* host: [max_seqs], [max_seqs + 1] */
	int32_t *table_at;            /* host: [max_seqs], as row_table */
	unsigned serial;              /* changes with every batch and graph; older work lists are void */
};

/* ---- structs of the interface ---- */

struct kern_stream {
	struct kern_dev *dev;
	cudaStream_t s;
};

struct kern_event {
	struct kern_dev *dev;
	cudaEvent_t e;
};

struct kern_embed {
	struct kern_dev *dev;
	int n_vocab, hidden;
	void *table; /* [V][H] operand type, row-major */
	size_t bytes;
	struct kern_linear *view; /* the output head's view, made at load by cuda_linear_of_table() */
};

/* The paged cache.  A block holds all layers, so that copying or swapping it is one transfer:
 *     [block][layer][k, v][kv head][token][dim_pad]  of operand type
 * dim_pad: the head size rounded up to one that attention is built for; the padding is 0.  The null block,
 * for null rows, follows the n_blocks. */
struct kern_kv {
	struct kern_dev *dev;
	int n_layers, n_kv_heads, dim, dim_pad, block_size, n_blocks, n_host_blocks;
	size_t head_bytes;  /* one head's K or V in a block */
	size_t layer_bytes; /* K and V of one layer in a block */
	size_t block_bytes;
	unsigned char *pool, *host;
	/* attention's plans and partial results (attn.cu) */
	struct cuda_plans *plans;
};

/* Mapped memory with both of its addresses. */
struct cuda_host {
	unsigned char *host, *dev;
	size_t bytes;
};

struct kern_dev {
	struct kern_open_args args;
	int id;
	int sms;      /* multiprocessors */
	int cc;       /* compute capability: 80, 86, 89, 90, ... */
	int smem_max; /* most dynamic shared memory per block, with opt-in */
	size_t l2_bytes;
	cudaStream_t notes; /* stream of event_notify() */
	char name[64];
	enum kern_dtype operand; /* KERN_F16 or KERN_BF16 */
	struct cuda_batch batch;
	struct cuda_buf ws[CUDA_WS_N];
	struct cuda_stage *stage; /* owned by batch.cu */
	struct cuda_sampler *sampler;
	struct cuda_blas *blas; /* only with --fast, else NULL */
	struct kern_crossover *crossovers;
	int n_crossovers;
	size_t fast_bytes;        /* CUDA_FAST_BYTES */
	int block_size, n_blocks; /* the cache's; set by kv_new() */
	struct cuda_host *hosts;  /* [n_hosts] allocations of cuda_host_new() */
	int n_hosts;
	size_t used; /* bytes of device memory that cuda_mem_new() allocated and that are not freed */
};

static inline bool cuda_is_bf16(const struct kern_dev *d)
{
	return d->operand == KERN_BF16;
}

/* ---- between blocks ---- */

/* Return true in the last of n blocks that increment this count; that block sees the writes of the others.
 * The count is 0 before and after.  All threads of the block call it; shared memory must be free. */
KERN_DEV bool cuda_last_block(int *count, int n)
{
	int *flag = (int *)(void *)kern_smem();
	fence_device();
	block_sync();
	if (threadIdx.x == 0) {
		*flag = atomic_add(count, 1) == n - 1;
		if (*flag)
			*count = 0;
	}
	block_sync();
	const bool last = *flag != 0;
	if (last) /* every thread of the last block reads the other blocks' writes */
		fence_device();
	return last;
}

/* ---- operands: F16 or BF16 ---- */

template <bool BF16> KERN_DEV float op_f32(uint16_t v)
{
	if constexpr (BF16)
		return f32_of_bf16(v);
	else
		return f32_of_f16(v);
}

template <bool BF16> KERN_DEV uint16_t op_of_f32(float v)
{
	if constexpr (BF16)
		return bf16_of_f32(v);
	else
		return f16_of_f32(v);
}

template <bool BF16> KERN_DEV uint32_t op2_of_f32(float first, float second)
{
	if constexpr (BF16)
		return bf16x2_of_f32(first, second);
	else
		return f16x2_of_f32(first, second);
}

/* ---- batch.cu ---- */

int cuda_batch_init(struct kern_dev *d);
void cuda_batch_fini(struct kern_dev *d);
int cuda_batch_set(struct kern_stream *s, const struct kern_batch *b);
int cuda_pick(struct kern_stream *s, float *out, const float *x, const uint32_t (*pairs)[2], int n);

/* Copy by a kernel, in stream order; addresses and bytes are multiples of 4.  No copy engine is used, so the
 * copy does not queue after copies of other streams (0, -EIO). */
int cuda_move(struct kern_stream *s, void *to, const void *from, size_t bytes);

/* A ring of mapped buffers that passes a step's input to its kernels.
 *
 *     cuda_ring_take()    host writes   kernels that read it are queued   cuda_ring_sent()   next buffer
 *                                                                         | done: it may be taken again
 *
 * A buffer is written again only when its event reports that the kernels are done.  With more buffers than
 * sends of the plans in flight, the host never waits for that. */
enum { CUDA_RING = 4 };
struct cuda_ring {
	size_t bytes;
	unsigned char *host[CUDA_RING]; /* allocated by cuda_host_new() */
	cudaEvent_t done[CUDA_RING];
	bool used[CUDA_RING];
	int next;
	unsigned char *dev; /* NULL, or a device copy for kernels that read it often */
};
int cuda_ring_init(struct kern_dev *d, struct cuda_ring *r, size_t bytes, bool copied); /* 0, -ENOMEM */
void cuda_ring_fini(struct kern_dev *d, struct cuda_ring *r);
/* Return the next host buffer, which is free by now; NULL if the device is lost. */
unsigned char *cuda_ring_take(struct cuda_ring *r);
/* Mark the taken buffer as sent: all kernels that read it are queued on s. */
int cuda_ring_sent(struct cuda_ring *r, struct kern_stream *s);
/* For a copied ring: queue the copy of the taken buffer to dev, then mark it as sent. */
int cuda_ring_send(struct cuda_ring *r, struct kern_stream *s, size_t bytes);

/* ---- kv.cu ---- */

struct kern_kv *cuda_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			    int n_blocks, int n_host_blocks);
void cuda_kv_free(struct kern_kv *kv);
int64_t cuda_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size);
int64_t cuda_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			      int n_blocks);
int cuda_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cuda_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cuda_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);

/* Return cap tanh(x by), computed as cap - 2 cap / (2^(2 x by log2 e) + 1); NaN stays NaN. */
KERN_DEV float cuda_softcap(float x, float cap, float by)
{
	float y = f32_mul_rn(x, f32_mul_rn(by, 2 * 1.44269504088896341f));
	y = y > 60.0f ? 60.0f : y < -60.0f ? -60.0f : y;
	return f32_add_rn(cap, -f32_div_rn(f32_add_rn(cap, cap), f32_add_rn(f32_exp2_fast(y), 1.0f)));
}

/* ---- rows.cu ---- */

int cuda_embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
		    struct why *why);
void cuda_embed_free(struct kern_embed *e);
int64_t cuda_embed_bytes(const struct kern_embed *e);
const struct kern_linear *cuda_embed_linear(const struct kern_embed *e);
int cuda_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x);
int cuda_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		 int hidden, float eps);
int cuda_rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps);
int cuda_layernorm(struct kern_stream *s, const struct kern_layernorm_args *a, int n_rows);
int cuda_positions(struct kern_stream *s, void *x, const void *table, int hidden);
int cuda_activate(struct kern_stream *s, void *out, void *x, int n_rows, int width,
		  const struct kern_act_args *a);
int cuda_add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width);
int cuda_map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by);
int cuda_qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		     int n_kv_heads, int head_dim);
int cuda_qkv(struct kern_stream *s, const struct kern_qkv_args *a);
int cuda_gather(struct kern_stream *s, void *out, const void *x, int hidden);

/* ---- attn_plan.cu, attn.cu ---- */

int cuda_plans_new(struct kern_kv *kv); /* 0, -ENOMEM */
/* Return the device memory that the plans take, in bytes. */
size_t cuda_plans_bytes(const struct kern_dev *d, int n_kv_heads, int dim_pad, int block_size, int n_blocks);
void cuda_plans_free(struct kern_kv *kv);
int cuda_attention(struct kern_stream *s, const struct kern_attn_args *a);

/* ---- graph.cu ---- */

int cuda_graph_begin(struct kern_stream *s);
int cuda_graph_end(struct kern_stream *s, struct kern_graph **out);
int cuda_graph_launch(struct kern_stream *s, struct kern_graph *g);
void cuda_graph_free(struct kern_graph *g);

/* ---- sample.cu ---- */

int cuda_sampler_init(struct kern_dev *d);
void cuda_sampler_fini(struct kern_dev *d);
int cuda_sample_reserve(struct kern_dev *d, int n_vocab); /* 0, -ENOMEM */
int cuda_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

/* ---- linear.cu ---- */

/* View an embedding's table [V][H] as a linear layer of K = H inputs and N = V outputs, without a copy.  The
 * table is of operand type, in device memory, 256-byte aligned, row-major and borrowed for the view's life:
 * the F16/BF16 linear kernels must take plain row-major [N][K] weights.  embed_load() calls it;
 * cuda_linear_free() frees the view and leaves the table alone.  0, -ENOMEM, -ENOTSUP with why. */
int cuda_linear_of_table(struct kern_dev *d, const void *table, int n_vocab, int hidden,
			 struct kern_linear **out, struct why *why);

int cuda_linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		     struct why *why);
void cuda_linear_free(struct kern_linear *w);
int64_t cuda_linear_bytes(const struct kern_linear *w);
int cuda_linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		bool out_f32);
int cuda_gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		       int n_rows);

/* ---- route.cu ---- */

/* Load a router, a layer with exact F32 weights. */
int cuda_router_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		     struct why *why);
int cuda_route(struct kern_stream *s, const struct kern_route_args *a, int n_rows);

/* ---- moe.cu ---- */

int cuda_experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
		      struct why *why);
void cuda_experts_free(struct kern_experts *x);
int64_t cuda_experts_bytes(const struct kern_experts *x);
size_t cuda_experts_packed_bytes(const struct kern_experts *x);
int cuda_experts_save(struct kern_experts *x, void *host);
void cuda_experts_place(struct kern_experts *x, void *at);
int cuda_moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows);

#endif
