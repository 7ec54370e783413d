/* attention.h - paged attention of the CPU table. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_ATTENTION_H
#define QUERN_KERNELS_CPU_ATTENTION_ATTENTION_H

#include "kernels/cpu/cpu.h"

int cpu_attention(struct kern_stream *s, const struct kern_attn_args *a);

/* What a cache of these sizes needs beside its blocks: bytes of one thread, and floats for results of chunks.
 */
size_t cpu_attention_scratch(const struct kern_dev *d, int n_kv_heads, int head_dim);
size_t cpu_attention_partials(const struct kern_dev *d, int n_kv_heads, int head_dim);

#endif
