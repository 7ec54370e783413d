/* kv.c - the paged cache of one device and its host pool. */
#include "kernels/cpu/attention/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "kernels/cpu/attention/bf16.h"
#include "kernels/cpu/attention/int.h"
#include "kernels/cpu/attention/scratch.h"
#include "kernels/cpu/nodes.h"
#include "kernels/cpu/touch.h"

/* ---- types ---- */

enum kern_kv_type cpu_kv_kind(const struct kern_open_args *a)
{
	if (a->kv != KERN_KV_MODE)
		return a->kv;
	if (a->compute == KERN_COMPUTE_F32)
		return KERN_KV_F32;
	return a->compute == KERN_COMPUTE_BF16 ? KERN_KV_BF16 : KERN_KV_INT16;
}

int cpu_kv_type(const struct kern_open_args *a, const struct cpu_isa *isa, const struct cpu_kv_type **out,
		struct why *why)
{
	switch (cpu_kv_kind(a)) {
	case KERN_KV_F32:
		*out = isa->kv_f32;
		return 0;
	case KERN_KV_BF16:
		*out = a->compute == KERN_COMPUTE_BF16 ? cpu_kv_bf16(isa) : isa->kv_bf16;
		return 0;
	case KERN_KV_F16:
		return err_why(why, -ENOTSUP, "the CPU does not keep K and V in f16: use f32 or bf16");
	case KERN_KV_INT16:
		*out = &cpu_kv_ints(isa)->int16;
		return 0;
	case KERN_KV_INT8:
		*out = &cpu_kv_ints(isa)->int8;
		return 0;
	case KERN_KV_MODE:
		break;
	}
	return err_why(why, -EINVAL, "type %d of K and V is not known", (int)a->kv);
}

/* ---- the pools ---- */

static size_t tile_bytes(const struct kern_dev *d, int n_kv_heads, int head_dim)
{
	return (size_t)n_kv_heads * (d->kv_type->k_bytes(head_dim) + d->kv_type->v_bytes(head_dim));
}

/* Compute the bytes of n_blocks blocks with all layers; false on overflow. */
static bool pool_bytes(size_t block_bytes, int n_layers, int n_blocks, size_t *out)
{
	size_t n;
	return !__builtin_mul_overflow(block_bytes, (size_t)n_layers, &n) &&
	       !__builtin_mul_overflow(n, (size_t)n_blocks, out);
}

int64_t cpu_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			     int n_blocks)
{
	(void)n_layers, (void)block_size, (void)n_blocks;
	return (int64_t)(attn_cut(NULL, d->kv_type, n_kv_heads, head_dim).bytes * (size_t)d->n_threads +
			 attn_partials(d, n_kv_heads, head_dim) * sizeof(float));
}

static bool scratch_new(struct kern_kv *kv)
{
	struct kern_dev *d = kv->dev;
	kv->scratch_bytes = attn_cut(NULL, d->kv_type, kv->n_kv_heads, kv->dim).bytes;
	kv->scratch = alloc_big(kv->scratch_bytes * (size_t)d->n_threads);
	kv->partial_floats = attn_partials(d, kv->n_kv_heads, kv->dim);
	kv->partial = alloc_big(kv->partial_floats * sizeof(float));
	return kv->scratch && kv->partial;
}

/* Start the thread that touches pages for the next tokens.  The bounds limit the memory of an idle
 * process. */
static void touch_new(struct kern_kv *kv)
{
	enum { TOKENS = 4096, BYTES = 512 << 20 };
	const struct cpu_touch_pool pool = {(char *)kv->pool, kv->pool_bytes, kv->n_layers};
	const size_t block = kv->block_bytes * (size_t)kv->n_layers;
	int ahead = TOKENS / kv->block_size;
	if (block && (size_t)ahead > BYTES / block)
		ahead = (int)(BYTES / block);
	kv->dev->touch = cpu_touch_new(&pool, 1, kv->n_blocks, ahead);
}

struct kern_kv *cpu_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			   int n_blocks, int n_host_blocks)
{
	assert(n_layers > 0 && n_kv_heads > 0 && head_dim > 0 && n_blocks > 0 && n_host_blocks >= 0);
	assert(block_size > 0 && block_size % KV_TILE == 0 && CHUNK % block_size == 0);
	struct kern_kv *kv = xcalloc(1, sizeof *kv);
	*kv = (struct kern_kv){
		.dev = d,
		.type = d->kv_type,
		.n_layers = n_layers,
		.n_kv_heads = n_kv_heads,
		.dim = head_dim,
		.dim_pad = (head_dim + 15) & ~15,
		.block_size = block_size,
		.n_blocks = n_blocks,
		.n_host_blocks = n_host_blocks,
		.k_bytes = d->kv_type->k_bytes(head_dim),
		.v_bytes = d->kv_type->v_bytes(head_dim),
		.tile_bytes = tile_bytes(d, n_kv_heads, head_dim),
	};
	assert(kv->k_bytes % 64 == 0 && kv->v_bytes % 64 == 0);
	kv->block_bytes = kv->tile_bytes * (size_t)(block_size / KV_TILE);
	bool fits = pool_bytes(kv->block_bytes, n_layers, n_blocks, &kv->pool_bytes) &&
		    pool_bytes(kv->block_bytes, n_layers, n_host_blocks, &kv->host_bytes);
	if (fits) {
		kv->pool = alloc_big(kv->pool_bytes);
		kv->host = alloc_big(kv->host_bytes);
	}
	if (!fits || !kv->pool || !kv->host || !scratch_new(kv)) {
		cpu_kv_free(kv);
		return NULL;
	}
	d->block_size = block_size;
	cpu_nodes_spread(d->nodes, kv->pool, kv->pool_bytes);
	touch_new(kv);
	return kv;
}

void cpu_kv_free(struct kern_kv *kv)
{
	if (!kv)
		return;
	if (kv->dev->touch) {
		cpu_touch_free(kv->dev->touch);
		kv->dev->touch = NULL;
	}
	alloc_big_free(kv->partial, kv->partial_floats * sizeof(float));
	alloc_big_free(kv->scratch, kv->scratch_bytes * (size_t)kv->dev->n_threads);
	alloc_big_free(kv->host, kv->host_bytes);
	alloc_big_free(kv->pool, kv->pool_bytes);
	free(kv);
}

int64_t cpu_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size)
{
	return (int64_t)tile_bytes(d, n_kv_heads, head_dim) * n_layers * (block_size / KV_TILE);
}

static unsigned char *block_at(const struct kern_kv *kv, int layer, int block)
{
	return kv->pool + ((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * kv->block_bytes;
}

static unsigned char *host_at(const struct kern_kv *kv, int layer, int block)
{
	return kv->host + ((size_t)block * (size_t)kv->n_layers + (size_t)layer) * kv->block_bytes;
}

unsigned char *cpu_kv_tile(const struct kern_kv *kv, int layer, int block, int at)
{
	return block_at(kv, layer, block) + (size_t)(at / KV_TILE) * kv->tile_bytes;
}

void cpu_kv_store(const struct kern_kv *kv, int layer, int block, int at, int kv_head, const float *k,
		  const float *v)
{
	unsigned char *t = cpu_kv_tile(kv, layer, block, at);
	kv->type->store(t + (size_t)kv_head * kv->k_bytes,
			t + (size_t)kv->n_kv_heads * kv->k_bytes + (size_t)kv_head * kv->v_bytes,
			at % KV_TILE, k, v, kv->dim);
}

/* ---- moving blocks ---- */

static void check_pairs(const int32_t (*pairs)[2], int n, int n_from, int n_to)
{
	for (int i = 0; i < n; i++) {
		assert(pairs[i][0] >= 0 && pairs[i][0] < n_from);
		assert(pairs[i][1] >= 0 && pairs[i][1] < n_to);
	}
}

/* A pair's destination may be a later pair's source, so the pairs of a layer are copied in order. */
int cpu_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)s;
	check_pairs(pairs, n, kv->n_blocks, kv->n_blocks);
	for (int l = 0; l < kv->n_layers; l++)
		for (int i = 0; i < n; i++)
			memmove(block_at(kv, l, pairs[i][1]), block_at(kv, l, pairs[i][0]), kv->block_bytes);
	return 0;
}

int cpu_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)s;
	check_pairs(pairs, n, kv->n_blocks, kv->n_host_blocks);
	for (int l = 0; l < kv->n_layers; l++)
		for (int i = 0; i < n; i++)
			memcpy(host_at(kv, l, pairs[i][1]), block_at(kv, l, pairs[i][0]), kv->block_bytes);
	return 0;
}

int cpu_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n)
{
	(void)s;
	check_pairs(pairs, n, kv->n_host_blocks, kv->n_blocks);
	for (int l = 0; l < kv->n_layers; l++)
		for (int i = 0; i < n; i++)
			memcpy(block_at(kv, l, pairs[i][1]), host_at(kv, l, pairs[i][0]), kv->block_bytes);
	return 0;
}
