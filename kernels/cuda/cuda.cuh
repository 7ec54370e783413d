/* cuda.cuh - what the CUDA table's files share.
 *
 * memory.cu    memory, workspaces, the status of CUDA's calls
 * device.cu    opening, streams, events, the table itself
 * batch.cu     one batch on the device: positions, block tables, the work list of attention
 * kv.cu        the paged cache, copies and swaps
 * rows.cu      embedding, norms, rotation and KV store, gather
 * attn*.cu     paged attention, and its plan
 * sample.cu    from logits to a token
 * graph.cu     a step of decoding, captured
 * linear*.cu   linear layers, in AWQ, F16 and BF16
 * route.cu     which experts a row has
 * moe.cu       mixtures of experts
 * blas*.cu     cuBLAS, for --fast
 *
 * Operands and KV are F16 or BF16, one of them for the whole device (dev->operand); the residual
 * stream and logits are F32.  Kernels that depend on it are templates over `bool BF16`.
 * Errors: a launch that is refused gives -EIO at once; what fails later shows in stream_sync().
 * No operation allocates: buffers are made by open(), kv_new() and *_load(). */
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
	CUDA_CHUNK = 256,            /* tokens of a chunk of attention, aligned to absolute positions */
	CUDA_HEAD_MAX = 256,         /* largest head size */
	CUDA_FAST_BYTES = 128 << 20, /* of each workspace of --fast, about: the largest layer of an 8B
					model goes in two tiles */
};

/* ---- memory.cu: the status of calls, memory ---- */

/* The last launch's status, logged with the kernel's name: 0 or -EIO.  KERN_LAUNCH() calls it. */
int cuda_launched(const char *kernel);

/* 0, or -EIO (-ENOMEM for memory) after a line in the log that names what was done. */
int cuda_check(cudaError_t e, const char *what);

/* Device memory, zeroed, 256-byte aligned; NULL when it is out.  bytes 0 gives one of 256. */
void *cuda_mem_new(struct kern_dev *d, size_t bytes);
void cuda_mem_free(struct kern_dev *d, void *p, size_t bytes);
/* What the driver takes for a piece: small ones share pages of 2 MB. */
size_t cuda_mem_taken(size_t bytes);
/* Pinned host memory for copies. */
void *cuda_pinned_new(size_t bytes);
void cuda_pinned_free(void *p);
/* Pinned host memory that kernels read and write as well, at addresses of the device's. */
void *cuda_host_new(struct kern_dev *d, size_t bytes);
void cuda_host_free(struct kern_dev *d, void *p, size_t bytes);
/* The device's address of `bytes` in one piece of cuda_host_new(); NULL: not of such a piece. */
void *cuda_mapped(const struct kern_dev *d, const void *p, size_t bytes);
/* Host to device and done when it returns: for loading (0, -EIO). */
int cuda_upload_now(struct kern_dev *d, void *dst_dev, const void *src_host, size_t bytes);

/* Device memory that grows, its contents lost and zeroed (0, -ENOMEM). */
struct cuda_buf {
	void *p;
	size_t bytes;
};
int cuda_buf_reserve(struct kern_dev *d, struct cuda_buf *b, size_t bytes);

/* A workspace that linear layers share, in stream order; loading a layer makes it large enough
 * (0, -ENOMEM), operations only use it.  Zeroed when it grows; kernels
 * with counters in it leave them zero.  Users: CUDA_WS_PARTIAL (partial sums), CUDA_WS_COUNT (arrival
 * counters), CUDA_WS_WEIGHTS and CUDA_WS_GATE_UP (--fast: plain weights, and what SwiGLU takes); of
 * experts: CUDA_WS_ROUTE (the router's outputs), CUDA_WS_PAIRS (lists of pairs of a row and an expert), and
 * of each pair CUDA_WS_MIDDLE (what down takes) and CUDA_WS_GIVEN (what it gives). */
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

/* Before a kernel's first launch (KERN_LAUNCH() calls it): all kernels have the same share of L1 as shared
 * memory, the largest.  Where two that follow one another differ, a multiprocessor must be empty before it
 * changes over; attention and the linear layers need nearly all of it.  True: done. */
bool cuda_carve_out(const void *kernel);

/* Raises a kernel's limit of dynamic shared memory, once, at open or load: needed beyond 48 KB. */
int cuda_smem_allow(const void *kernel, int bytes);

/* ---- the batch on the device (batch.cu) ---- */

/* Device arrays at static addresses: a graph that was captured with them stays valid. */
struct cuda_batch {
	int n_rows, n_seqs, n_logits; /* host's view; with null rows */
	int pad_to;                   /* as in kern_batch */
	int32_t *token_at;            /* [max_rows]; -1: a null row */
	int32_t *row_seq;             /* [max_rows] */
	int32_t *row_pos;             /* [max_rows] */
	int32_t *logits_row;          /* [max_logits] */
	int32_t *tables;              /* [max_seqs][table_stride] */
	int table_stride;             /* = max_blocks_per_seq */
	int32_t *pos0, *row0;         /* host: [max_seqs], [max_seqs + 1] */
	unsigned serial;              /* changes with every batch and graph: work lists of before are void */
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
	struct kern_linear *view; /* the head's view, made at load by cuda_linear_of_table() */
};

/* The paged cache.  A block holds all layers, so that a copy or a swap is one transfer:
 *     [block][layer][k, v][kv head][token][dim_pad]  of operand type
 * dim_pad: the head size rounded up to one that attention is built for; what is added is 0.
 * Behind the n_blocks there is one more, the null block, for null rows. */
struct kern_kv {
	struct kern_dev *dev;
	int n_layers, n_kv_heads, dim, dim_pad, block_size, n_blocks, n_host_blocks;
	size_t head_bytes;  /* of one head's K or V in a block */
	size_t layer_bytes; /* K and V of a layer in a block */
	size_t block_bytes;
	unsigned char *pool, *host;
	/* attention's plan and partial results (attn.cu) */
	struct cuda_plan *plan;
};

/* Mapped memory, at both of its addresses. */
struct cuda_host {
	unsigned char *host, *dev;
	size_t bytes;
};

struct kern_dev {
	struct kern_open_args args;
	int id;
	int sms;      /* multiprocessors */
	int cc;       /* 80, 86, 89, 90, ... */
	int smem_max; /* dynamic shared memory of a block, with opting in */
	size_t l2_bytes;
	cudaStream_t notes; /* of event_notify() */
	char name[64];
	enum kern_dtype operand; /* KERN_F16 or KERN_BF16 */
	struct cuda_batch batch;
	struct cuda_buf ws[CUDA_WS_N];
	struct cuda_stage *stage; /* batch.cu's */
	struct cuda_sampler *sampler;
	struct cuda_blas *blas; /* --fast; else NULL */
	struct kern_crossover *crossovers;
	int n_crossovers;
	size_t fast_bytes;        /* CUDA_FAST_BYTES */
	int block_size, n_blocks; /* of the cache, once kv_new() was called */
	struct cuda_host *hosts;  /* [n_hosts] of cuda_host_new() */
	int n_hosts;
	size_t used; /* device memory that cuda_mem_new() gave and has not back */
};

static inline bool cuda_is_bf16(const struct kern_dev *d)
{
	return d->operand == KERN_BF16;
}

/* ---- between blocks ---- */

/* True in the last of n blocks that come here with this count, which sees what the others wrote.
 * The count is 0 before and
 * after.  All threads of a block call it; shared memory is free by then. */
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
	if (last) /* every thread of it reads what others wrote */
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

/* By a kernel, in order with the stream; addresses and bytes are multiples of 4.  No copy engine takes part,
 * so that it does not wait behind what other streams copy (0, -EIO). */
int cuda_move(struct kern_stream *s, void *to, const void *from, size_t bytes);

/* A ring of mapped buffers through which a step's input goes to its kernels.
 *
 *     cuda_ring_take()    host writes   kernels that read it are queued   cuda_ring_sent()   next buffer
 *                                                                         | done: it may be taken again
 *
 * A buffer is written again only when its event says that the kernels are done.  With more buffers than the
 * sends of the plans under way, the host never waits for that. */
enum { CUDA_RING = 4 };
struct cuda_ring {
	size_t bytes;
	unsigned char *host[CUDA_RING]; /* cuda_host_new() */
	cudaEvent_t done[CUDA_RING];
	bool used[CUDA_RING];
	int next;
	unsigned char *dev; /* NULL, or a copy for kernels that read it often */
};
int cuda_ring_init(struct kern_dev *d, struct cuda_ring *r, size_t bytes, bool copied); /* 0, -ENOMEM */
void cuda_ring_fini(struct kern_dev *d, struct cuda_ring *r);
/* The next host buffer, free by now; NULL: the device is lost. */
unsigned char *cuda_ring_take(struct cuda_ring *r);
/* All kernels that read what was taken are queued on s. */
int cuda_ring_sent(struct cuda_ring *r, struct kern_stream *s);
/* Of a copied ring: what was taken comes to dev; sent. */
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

/* cap tanh(x by) = cap - 2 cap / (2^(2 x by log2 e) + 1); NaN stays NaN. */
KERN_DEV float cuda_softcap(float x, float cap, float by)
{
	float y = f32_mul_rn(x, f32_mul_rn(by, 2 * 1.44269504088896341f));
	y = y > 60.0f ? 60.0f : y < -60.0f ? -60.0f : y;
	return f32_add_rn(cap, -f32_div_rn(f32_add_rn(cap, cap), f32_add_rn(f32_exp2_fast(y), 1.0f)));
}

/* ---- rows.cu ---- */

int cuda_embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out, char *why,
		    size_t why_n);
void cuda_embed_free(struct kern_embed *e);
int64_t cuda_embed_bytes(const struct kern_embed *e);
const struct kern_linear *cuda_embed_linear(const struct kern_embed *e);
int cuda_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x);
int cuda_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		 int hidden, float eps);
int cuda_rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps);
int cuda_add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width);
int cuda_map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by);
int cuda_qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		     int n_kv_heads, int head_dim);
int cuda_qkv(struct kern_stream *s, const struct kern_qkv_args *a);
int cuda_gather(struct kern_stream *s, void *out, const void *x, int hidden);

/* ---- attn_plan.cu, attn.cu ---- */

int cuda_plan_new(struct kern_kv *kv); /* 0, -ENOMEM */
/* Device memory that it takes. */
size_t cuda_plan_bytes(const struct kern_dev *d, int n_kv_heads, int dim_pad, int block_size, int n_blocks);
void cuda_plan_free(struct kern_kv *kv);
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

/* An embedding's table [V][H] (operand type, device memory, 256-byte aligned, row-major, borrowed
 * for the view's life) as a linear layer of K = H inputs and N = V outputs, without a copy: the
 * F16/BF16 linear kernels must take plain row-major [N][K] weights.  Called by embed_load();
 * freed with cuda_linear_free(), which leaves the table alone.  0, -ENOMEM, -ENOTSUP with why. */
int cuda_linear_of_table(struct kern_dev *d, const void *table, int n_vocab, int hidden,
			 struct kern_linear **out, char *why, size_t why_n);

int cuda_linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		     char *why, size_t why_n);
void cuda_linear_free(struct kern_linear *w);
int64_t cuda_linear_bytes(const struct kern_linear *w);
int cuda_linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		bool out_f32);
int cuda_gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		       int n_rows);

/* ---- route.cu ---- */

/* A layer that is loaded as exact. */
int cuda_router_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		     char *why, size_t why_n);
int cuda_route(struct kern_stream *s, const struct kern_route_args *a, int n_rows);

/* ---- moe.cu ---- */

int cuda_experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
		      char *why, size_t why_n);
void cuda_experts_free(struct kern_experts *x);
int64_t cuda_experts_bytes(const struct kern_experts *x);
size_t cuda_experts_packed_bytes(const struct kern_experts *x);
int cuda_experts_save(struct kern_experts *x, void *host);
void cuda_experts_place(struct kern_experts *x, void *at);
int cuda_moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows);

#endif
