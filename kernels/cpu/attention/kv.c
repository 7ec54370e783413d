/* kv.c - the paged cache of one device and its host pool. */
#include "kernels/cpu/attention/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int pad16(int n)
{
	return (n + 15) & ~15;
}

/* All layers' K and V of n blocks, in bytes; false on overflow. */
static bool pool_bytes(size_t block_floats, int n_layers, int n_blocks, size_t *out)
{
	size_t n;
	return !__builtin_mul_overflow(block_floats, (size_t)n_layers * sizeof(float), &n) &&
	       !__builtin_mul_overflow(n, (size_t)n_blocks, out);
}

/* What attention works in: see attention.c for the pieces. */
static size_t scratch_floats(const struct kern_dev *d, int dim)
{
	const size_t q = SPAN_QUERIES, rows = (size_t)d->isa->rows_max, pad = (size_t)pad16(dim);
	size_t n = q * (size_t)dim + CHUNK * rows + q * pad + rows * pad + 4 * q;
	return (n + 31) & ~(size_t)15;
}

/* Chunks become tasks of their own only while spans are fewer than the threads can use. */
static size_t partial_floats(const struct kern_dev *d, int dim)
{
	size_t chunks = ((size_t)d->args.max_context + CHUNK - 1) / CHUNK;
	size_t want = 4 * (size_t)d->n_threads * SPAN_QUERIES * chunks * ((size_t)pad16(dim) + 2);
	return want < PARTIAL_MAX ? want : PARTIAL_MAX;
}

int64_t cpu_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			     int n_blocks)
{
	(void)n_layers, (void)n_kv_heads, (void)block_size, (void)n_blocks;
	return (int64_t)((scratch_floats(d, head_dim) * (size_t)d->n_threads + partial_floats(d, head_dim)) *
			 sizeof(float));
}

static bool scratch_new(struct kern_kv *kv)
{
	struct kern_dev *d = kv->dev;
	kv->scratch_floats = scratch_floats(d, kv->dim);
	kv->scratch_bytes = kv->scratch_floats * (size_t)d->n_threads * sizeof(float);
	kv->scratch = alloc_big(kv->scratch_bytes);
	kv->partial_floats = partial_floats(d, kv->dim);
	kv->partial_bytes = kv->partial_floats * sizeof(float);
	kv->partial = alloc_big(kv->partial_bytes);
	return kv->scratch && kv->partial;
}

struct kern_kv *cpu_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			   int n_blocks, int n_host_blocks)
{
	assert(n_layers > 0 && n_kv_heads > 0 && head_dim > 0 && n_blocks > 0 && n_host_blocks >= 0);
	assert(block_size > 0 && block_size % LANES_N == 0 && CHUNK % block_size == 0);
	struct kern_kv *kv = xcalloc(1, sizeof *kv);
	*kv = (struct kern_kv){
		.dev = d,
		.n_layers = n_layers,
		.n_kv_heads = n_kv_heads,
		.dim = head_dim,
		.dim_pad = pad16(head_dim),
		.block_size = block_size,
		.n_blocks = n_blocks,
		.n_host_blocks = n_host_blocks,
	};
	kv->k_block = (size_t)n_kv_heads * (size_t)head_dim * (size_t)block_size;
	kv->v_block = (size_t)n_kv_heads * (size_t)kv->dim_pad * (size_t)block_size;
	bool fits = pool_bytes(kv->k_block, n_layers, n_blocks, &kv->k_bytes) &&
		    pool_bytes(kv->v_block, n_layers, n_blocks, &kv->v_bytes) &&
		    pool_bytes(kv->k_block + kv->v_block, n_layers, n_host_blocks, &kv->host_bytes);
	if (fits) {
		kv->k = alloc_big(kv->k_bytes);
		kv->v = alloc_big(kv->v_bytes);
		kv->host = alloc_big(kv->host_bytes);
	}
	if (!fits || !kv->k || !kv->v || !kv->host || !scratch_new(kv)) {
		cpu_kv_free(kv);
		return NULL;
	}
	d->block_size = block_size;
	return kv;
}

void cpu_kv_free(struct kern_kv *kv)
{
	if (!kv)
		return;
	alloc_big_free(kv->partial, kv->partial_bytes);
	alloc_big_free(kv->scratch, kv->scratch_bytes);
	alloc_big_free(kv->host, kv->host_bytes);
	alloc_big_free(kv->v, kv->v_bytes);
	alloc_big_free(kv->k, kv->k_bytes);
	free(kv);
}

int64_t cpu_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size)
{
	(void)d;
	return (int64_t)n_layers * n_kv_heads * block_size * (head_dim + pad16(head_dim)) *
	       (int64_t)sizeof(float);
}

static float *k_layer(const struct kern_kv *kv, int layer, int block)
{
	return kv->k + ((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * kv->k_block;
}

static float *v_layer(const struct kern_kv *kv, int layer, int block)
{
	return kv->v + ((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * kv->v_block;
}

float *cpu_kv_k(const struct kern_kv *kv, int layer, int block, int kv_head)
{
	return k_layer(kv, layer, block) + (size_t)kv_head * (size_t)kv->dim * (size_t)kv->block_size;
}

float *cpu_kv_v(const struct kern_kv *kv, int layer, int block, int kv_head)
{
	return v_layer(kv, layer, block) + (size_t)kv_head * (size_t)kv->dim_pad * (size_t)kv->block_size;
}

static float *host_layer(const struct kern_kv *kv, int layer, int block)
{
	return kv->host +
	       ((size_t)block * (size_t)kv->n_layers + (size_t)layer) * (kv->k_block + kv->v_block);
}

static void check_pairs(const int32_t (*pairs)[2], int n, int n_from, int n_to)
{
	for (int i = 0; i < n; i++) {
		assert(pairs[i][0] >= 0 && pairs[i][0] < n_from);
		assert(pairs[i][1] >= 0 && pairs[i][1] < n_to);
	}
}

/* A pair's destination may be a later pair's source: pairs are done in order, within a layer. */
int cpu_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)s;
	check_pairs(pairs, n, kv->n_blocks, kv->n_blocks);
	for (int l = 0; l < kv->n_layers; l++)
		for (int i = 0; i < n; i++) {
			memmove(k_layer(kv, l, pairs[i][1]), k_layer(kv, l, pairs[i][0]),
				kv->k_block * sizeof(float));
			memmove(v_layer(kv, l, pairs[i][1]), v_layer(kv, l, pairs[i][0]),
				kv->v_block * sizeof(float));
		}
	return 0;
}

int cpu_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)s;
	check_pairs(pairs, n, kv->n_blocks, kv->n_host_blocks);
	for (int l = 0; l < kv->n_layers; l++)
		for (int i = 0; i < n; i++) {
			float *h = host_layer(kv, l, pairs[i][1]);
			memcpy(h, k_layer(kv, l, pairs[i][0]), kv->k_block * sizeof(float));
			memcpy(h + kv->k_block, v_layer(kv, l, pairs[i][0]), kv->v_block * sizeof(float));
		}
	return 0;
}

int cpu_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)s;
	check_pairs(pairs, n, kv->n_host_blocks, kv->n_blocks);
	for (int l = 0; l < kv->n_layers; l++)
		for (int i = 0; i < n; i++) {
			const float *h = host_layer(kv, l, pairs[i][0]);
			memcpy(k_layer(kv, l, pairs[i][1]), h, kv->k_block * sizeof(float));
			memcpy(v_layer(kv, l, pairs[i][1]), h + kv->k_block, kv->v_block * sizeof(float));
		}
	return 0;
}
