/* kernels_ops.h - the operations that `quern bench kernels` times on one device in one compute mode: linear
 * layers and head, attention, norms, sampling, in the shapes of a model, over memory that no cache holds. */
#ifndef QUERN_BENCH_KERNELS_OPS_H
#define QUERN_BENCH_KERNELS_OPS_H

#include "bench/kernels_measure.h"
#include "bench/layers.h"

enum { KERNELS_BLOCK = 16, KERNELS_SEQS = 16, KERNELS_PREFILL = 512, KERNELS_VOCAB = 151936 };

struct kernels_run {
	const struct layers_model *model;
	enum kern_dtype weights; /* type of the layers; the head of AWQ models is F16 */
	int gguf;                /* GGUF type, for KERN_CODES */
	int context;             /* tokens of context for attention */
	const int *rows;         /* [n_rows] ascending */
	int n_rows;
	size_t cold_bytes;          /* bytes of weights and caches that are read in turn */
	const struct kern_ops *ops; /* the device, opened for the largest of rows, for KERNELS_SEQS and for
				     * context */
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_info info;
	enum kern_compute compute;
	enum kern_head head;
	enum kern_kv_type kv;
	struct kernels_meter *meter;
	void (*report)(void *arg, const struct kernels_point *p); /* called after each measurement */
	void *arg;
};

/* Measure one kind of operation.  0, or the error after a line on stderr. */
int kernels_linears(struct kernels_run *r, bool layers, bool head);
int kernels_attention(struct kernels_run *r);
int kernels_norms(struct kernels_run *r);
int kernels_sampling(struct kernels_run *r);

/* Return the probe of the instruction that a device's dot products use, from kern_info.mode ("int8 by amx");
 * PROBE_KINDS if the mode names no probed instruction. */
enum probe_kind kernels_peak_of(const char *mode);

/* Return the probe of the instruction that attention uses for K and V of this type (bf16: in mode bf16);
 * *part is the fraction of that peak that a product can reach. */
enum probe_kind kernels_attention_peak(const char *isa, enum kern_kv_type kv, bool bf16, double *part);

#endif
