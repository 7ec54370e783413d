/* kv.h - the paged cache of one device: the place of a block's tiles, the host pool, attention's scratch.
 * The layout inside a tile belongs to its type (kvtype.h). */
#ifndef QUERN_KERNELS_CPU_ATTENTION_KV_H
#define QUERN_KERNELS_CPU_ATTENTION_KV_H

#include "base/err.h"
#include "kernels/cpu/attention/kvtype.h"
#include "kernels/cpu/cpu.h"

/* Layout of pool: [layer][block][tile of the block]; of host: [block][layer][tile of the block]. */
struct kern_kv {
	struct kern_dev *dev;
	const struct cpu_kv_type *type;
	int n_layers, n_kv_heads, dim, dim_pad, block_size, n_blocks, n_host_blocks;
	size_t k_bytes, v_bytes;        /* bytes of one head in a tile */
	size_t tile_bytes, block_bytes; /* bytes of one layer */
	unsigned char *pool, *host;
	size_t pool_bytes, host_bytes;
	unsigned char *scratch; /* [threads][scratch_bytes]: divided by attn_cut() */
	size_t scratch_bytes;   /* bytes of one thread */
	float *partial;         /* results of chunks that are separate tasks */
	size_t partial_floats;
};

/* Return the type of K and V. */
enum kern_kv_type cpu_kv_kind(const struct kern_open_args *a); /* never KERN_KV_MODE */
/* Find the table for that type.  -EINVAL, -ENOTSUP (not built for the CPU) with a reason. */
int cpu_kv_type(const struct kern_open_args *a, const struct cpu_isa *isa, const struct cpu_kv_type **out,
		struct why *why);

struct kern_kv *cpu_kv_new(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			   int n_blocks, int n_host_blocks);
void cpu_kv_free(struct kern_kv *kv);
int64_t cpu_kv_block_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size);
int64_t cpu_kv_scratch_bytes(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
			     int n_blocks);
int cpu_kv_copy(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cpu_kv_swap_out(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
int cpu_kv_swap_in(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);

/* Return the tile of a block that holds its token `at`. */
unsigned char *cpu_kv_tile(const struct kern_kv *kv, int layer, int block, int at);
/* Store K and V of one head, [D] each, as token `at` of a block. */
void cpu_kv_store(const struct kern_kv *kv, int layer, int block, int at, int kv_head, const float *k,
		  const float *v);

#endif
