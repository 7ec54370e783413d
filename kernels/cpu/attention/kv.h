/* kv.h - the paged cache of one device: where K and V of a block lie, and its host pool. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_KV_H
#define QUERN_KERNELS_CPU_ATTENTION_KV_H

#include "kernels/cpu/cpu.h"

enum {
	SPAN_QUERIES = 40,      /* rows x heads of a KV head that walk the cache together */
	PARTIAL_MAX = 16 << 20, /* floats; more parallelism than that buys is not needed */
};

/* K [layer][block][kv head][D][block_size], V [layer][block][kv head][block_size][D padded to 16]:
 * 16 tokens of K are a vector, 16 values of V are a vector. */
struct kern_kv {
	struct kern_dev *dev;
	int n_layers, n_kv_heads, dim, dim_pad, block_size, n_blocks, n_host_blocks;
	size_t k_block, v_block; /* floats of a block in one layer */
	float *k, *v;
	size_t k_bytes, v_bytes;
	float *host; /* [block][layer][K, V] */
	size_t host_bytes;
	/* attention's scratch, per thread: queries [D][m], scores, and results of one span */
	float *scratch;
	size_t scratch_floats; /* of one thread */
	size_t scratch_bytes;
	float *partial; /* results of chunks that are tasks of their own */
	size_t partial_floats;
	size_t partial_bytes;
};

struct kern_kv *cpu_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			   int n_blocks, int n_host_blocks);
void cpu_kv_free(struct kern_kv *kv);
int64_t cpu_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size);
int64_t cpu_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			     int n_blocks);
int cpu_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cpu_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cpu_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
float *cpu_kv_k(const struct kern_kv *kv, int layer, int block, int kv_head);
float *cpu_kv_v(const struct kern_kv *kv, int layer, int block, int kv_head);

#endif
