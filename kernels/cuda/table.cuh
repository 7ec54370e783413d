/* table.cuh - the operations that device.cu puts into the table, and what they share. */
#ifndef QUERN_KERNELS_CUDA_TABLE_CUH
#define QUERN_KERNELS_CUDA_TABLE_CUH

#include "kernels/cuda/cuda.cuh"

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

/* batch.cu */
int cuda_batch_init(struct kern_dev *d);
void cuda_batch_fini(struct kern_dev *d);
int cuda_batch_set(struct kern_stream *s, const struct kern_batch *b);

/* A ring of pinned buffers and one device buffer: what stands in a host buffer is safe until its
 * copy is done, so that the next batch can be prepared meanwhile. */
enum { CUDA_RING = 4 };
struct cuda_ring {
	size_t bytes;
	unsigned char *host[CUDA_RING];
	cudaEvent_t done[CUDA_RING];
	bool used[CUDA_RING];
	int next;
	unsigned char *dev;
};
int cuda_ring_init(struct kern_dev *d, struct cuda_ring *r, size_t bytes); /* 0, -ENOMEM */
void cuda_ring_fini(struct kern_dev *d, struct cuda_ring *r);
unsigned char *
cuda_ring_take(struct cuda_ring *r); /* the next host buffer, free by now; NULL: the device is lost */
int cuda_ring_send(struct cuda_ring *r, struct kern_stream *s, size_t bytes); /* what was taken, to dev */

/* kv.cu */
struct kern_kv *cuda_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			    int n_blocks, int n_host_blocks);
void cuda_kv_free(struct kern_kv *kv);
int64_t cuda_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size);
int64_t cuda_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size, int n_blocks);
int cuda_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cuda_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cuda_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);

/* rows.cu */
int cuda_embed_load(struct kern_dev *d, const void *table, enum kern_dtype dtype, int n_vocab, int hidden,
		    struct kern_embed **out, char *why, size_t why_n);
void cuda_embed_free(struct kern_embed *e);
int64_t cuda_embed_bytes(const struct kern_embed *e);
const struct kern_linear *cuda_embed_linear(const struct kern_embed *e);
int cuda_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x);
int cuda_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		 int hidden, float eps);
int cuda_qkv(struct kern_stream *s, const struct kern_qkv_args *a);
int cuda_gather(struct kern_stream *s, void *out, const void *x, int hidden);

/* attn.cu */
int cuda_plan_new(struct kern_kv *kv); /* 0, -ENOMEM */
/* Device memory that it takes. */
size_t cuda_plan_bytes(const struct kern_dev *d, int n_kv_heads, int dim_pad, int block_size, int n_blocks);
void cuda_plan_free(struct kern_kv *kv);
int cuda_attention(struct kern_stream *s, const struct kern_attn_args *a);

/* graph.cu */
int cuda_graph_begin(struct kern_stream *s);
int cuda_graph_end(struct kern_stream *s, struct kern_graph **out);
int cuda_graph_launch(struct kern_stream *s, struct kern_graph *g);
void cuda_graph_free(struct kern_graph *g);

/* sample.cu */
int cuda_sampler_init(struct kern_dev *d);
void cuda_sampler_fini(struct kern_dev *d);
int cuda_sample_reserve(struct kern_dev *d, int n_vocab); /* 0, -ENOMEM */
int cuda_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

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

#endif
