/* scratch.h - attention's memory: scratch of each thread, and room for results of chunks. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_SCRATCH_H
#define QUERN_KERNELS_CPU_ATTENTION_SCRATCH_H

#include "kernels/cpu/attention/kvtype.h"
#include "kernels/cpu/cpu.h"

enum {
	WIDE_QUERIES = 16,     /* queries of each KV head, if a task is a chunk for all KV heads */
	PARTIAL_MAX = 8 << 20, /* floats; more room would allow more parallel tasks than needed */
};

/* The parts of a thread's scratch. */
struct attn_work {
	int *held;          /* [2] span and lane of the queries prepared in this call of attention() */
	unsigned char *q;   /* prepared queries of a lane's KV heads */
	unsigned char *own; /* scratch of the KV type */
	float *max, *sum;   /* [all queries of a lane] */
	float *cmax, *csum; /* results of one chunk */
	float *o, *oc;      /* [all queries of a lane][dim_pad] */
	size_t bytes;
};

/* Return the parts in memory that begins at base.  base NULL: counts bytes only. */
struct attn_work attn_cut(unsigned char *base, const struct cpu_kv_type *type, int n_kv_heads, int dim);

/* Return the floats needed for results of chunks that are tasks. */
size_t attn_partials(const struct kern_dev *d, int n_kv_heads, int head_dim);

#endif
