/* scratch.h - what attention works in: a thread's scratch, and room for results of chunks. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_SCRATCH_H
#define QUERN_KERNELS_CPU_ATTENTION_SCRATCH_H

#include "kernels/cpu/attention/kvtype.h"
#include "kernels/cpu/cpu.h"

enum {
	WIDE_QUERIES = 16,     /* of each KV head, where a task is a chunk for all KV heads */
	PARTIAL_MAX = 8 << 20, /* floats; more parallelism than that buys is not needed */
};

/* A thread's scratch, cut into its pieces. */
struct attn_work {
	int *held;          /* [2] span and lane whose queries are prepared, in this call of attention() */
	unsigned char *q;   /* prepared queries of a lane's KV heads */
	unsigned char *own; /* the type's */
	float *max, *sum;   /* [all queries of a lane] */
	float *cmax, *csum; /* of one chunk */
	float *o, *oc;      /* [all queries of a lane][dim_pad] */
	size_t bytes;
};

/* The pieces in memory that begins at base; NULL: counts bytes only. */
struct attn_work attn_cut(unsigned char *base, const struct cpu_kv_type *type, int n_kv_heads, int dim);

/* Floats for results of chunks that are tasks. */
size_t attn_partials(const struct kern_dev *d, int n_kv_heads, int head_dim);

#endif
