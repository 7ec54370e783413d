/* kv.cu - the paged cache of a GPU, and its pinned host pool. */
#include "kernels/cuda/cuda.cuh"

#include <assert.h>
#include <stdlib.h>

/* Round up to a head size that attention is built for. */
static int pad_dim(int dim)
{
	static const int built[] = {32, 64, 96, 128, 256};
	for (int size : built)
		if (dim <= size)
			return size;
	assert(!"head size");
	return 0;
}

static size_t bytes_of_head(int head_dim, int block_size)
{
	return (size_t)block_size * (size_t)pad_dim(head_dim) * 2;
}

int64_t cuda_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size)
{
	(void)d;
	return (int64_t)n_layers * 2 * n_kv_heads * (int64_t)bytes_of_head(head_dim, block_size);
}

int64_t cuda_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			      int n_blocks)
{
	const int64_t null_block = cuda_kv_block_bytes(d, n_layers, n_kv_heads, head_dim, block_size);
	const int64_t end_of_pool = 2 << 20; /* rest of the pool's last page */
	return (int64_t)cuda_plans_bytes(d, n_kv_heads, pad_dim(head_dim), block_size, n_blocks) +
	       null_block + end_of_pool;
}

struct kern_kv *cuda_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			    int n_blocks, int n_host_blocks)
{
	assert(n_layers > 0 && n_kv_heads > 0 && n_blocks > 0 && n_host_blocks >= 0);
	assert(head_dim > 0 && head_dim % 8 == 0 && head_dim <= CUDA_HEAD_MAX);
	assert(block_size > 0 && block_size % 16 == 0 && CUDA_CHUNK % block_size == 0);
	struct kern_kv *kv = (struct kern_kv *)xcalloc(1, sizeof *kv);
	size_t bytes, host_bytes, blocks = (size_t)n_blocks + 1; /* one more for the null block */
	kv->dev = d;
	kv->n_layers = n_layers;
	kv->n_kv_heads = n_kv_heads;
	kv->dim = head_dim;
	kv->dim_pad = pad_dim(head_dim);
	kv->block_size = block_size;
	kv->n_blocks = n_blocks;
	kv->n_host_blocks = n_host_blocks;
	kv->head_bytes = bytes_of_head(head_dim, block_size);
	kv->layer_bytes = 2 * (size_t)n_kv_heads * kv->head_bytes;
	kv->block_bytes = (size_t)n_layers * kv->layer_bytes;
	if (__builtin_mul_overflow(kv->block_bytes, blocks, &bytes) ||
	    __builtin_mul_overflow(kv->block_bytes, (size_t)n_host_blocks, &host_bytes))
		goto fail;
	kv->pool = (unsigned char *)cuda_mem_new(d, bytes); /* zeroed: the padding of a head stays 0 */
	if (n_host_blocks)
		kv->host = (unsigned char *)cuda_pinned_new(host_bytes);
	if (!kv->pool || (n_host_blocks && !kv->host) || cuda_plans_new(kv))
		goto fail;
	d->block_size = block_size;
	d->n_blocks = n_blocks;
	return kv;
fail:
	cuda_kv_free(kv);
	return NULL;
}

void cuda_kv_free(struct kern_kv *kv)
{
	if (!kv)
		return;
	cuda_plans_free(kv);
	cuda_pinned_free(kv->host);
	cuda_mem_free(kv->dev, kv->pool, kv->block_bytes * ((size_t)kv->n_blocks + 1));
	free(kv);
}

/* A copy engine alternates between streams after each copy.  A small copy of another stream would wait 20 ms
 * for a copy of a gigabyte, but 0.1 ms for a piece. */
enum { PIECE = 4 << 20 };

static int copy_pieces(struct kern_stream *s, unsigned char *to, const unsigned char *from, size_t bytes,
		       cudaMemcpyKind kind)
{
	for (size_t at = 0; at < bytes; at += PIECE) {
		int e = cuda_check(
			cudaMemcpyAsync(to + at, from + at, min(bytes - at, (size_t)PIECE), kind, s->s),
			"copy of KV blocks");
		if (e)
			return e;
	}
	return 0;
}

/* The device's blocks, or the host's. */
struct pool {
	unsigned char *p;
	int n;
};

/* Copy pairs in order: a destination may be a later pair's source.  Between two pools, a pair that continues
 * the previous pair on both sides joins its transfer, so that small adjacent blocks share pieces. */
static int copy_pairs(struct kern_stream *s, const struct kern_kv *kv, struct pool to, struct pool from,
		      const int32_t (*pairs)[2], int n, cudaMemcpyKind kind)
{
	for (int i = 0, run; i < n; i += run) {
		for (run = 1; i + run < n && to.p != from.p && pairs[i + run][0] == pairs[i][0] + run &&
			      pairs[i + run][1] == pairs[i][1] + run;)
			run++;
		assert(pairs[i][0] >= 0 && pairs[i][0] + run <= from.n);
		assert(pairs[i][1] >= 0 && pairs[i][1] + run <= to.n);
		if (to.p == from.p && pairs[i][0] == pairs[i][1])
			continue;
		int e = copy_pieces(s, to.p + (size_t)pairs[i][1] * kv->block_bytes,
				    from.p + (size_t)pairs[i][0] * kv->block_bytes,
				    (size_t)run * kv->block_bytes, kind);
		if (e)
			return e;
	}
	return 0;
}

static struct pool device_pool(const struct kern_kv *kv)
{
	return {kv->pool, kv->n_blocks};
}

static struct pool host_pool(const struct kern_kv *kv)
{
	return {kv->host, kv->n_host_blocks};
}

int cuda_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	return copy_pairs(s, kv, device_pool(kv), device_pool(kv), pairs, n, cudaMemcpyDeviceToDevice);
}

int cuda_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	return copy_pairs(s, kv, host_pool(kv), device_pool(kv), pairs, n, cudaMemcpyDeviceToHost);
}

int cuda_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	return copy_pairs(s, kv, device_pool(kv), host_pool(kv), pairs, n, cudaMemcpyHostToDevice);
}
