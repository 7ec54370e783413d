/* attention.h - paged attention of the CPU table. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_ATTENTION_H
#define QUERN_KERNELS_CPU_ATTENTION_ATTENTION_H

#include "kernels/cpu/cpu.h"

int cpu_attention(struct kern_stream *s, const struct kern_attn_args *a);

#endif
