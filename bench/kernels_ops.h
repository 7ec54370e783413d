/* kernels_ops.h - what `quern bench kernels` times on one device in one compute mode: linear layers and head,
 * attention, norms, sampling, in the shapes of a model, over memory that no cache holds. */
#ifndef QUERN_BENCH_KERNELS_OPS_H
#define QUERN_BENCH_KERNELS_OPS_H

#include "bench/kernels_measure.h"
#include "bench/layers.h"

enum { KERNELS_BLOCK = 16, KERNELS_SEQS = 16, KERNELS_PREFILL = 512, KERNELS_VOCAB = 151936 };

struct kernels_run {
	const struct layers_model *model;
	enum kern_dtype weights; /* of the layers; the head of AWQ models is F16 */
	int gguf;                /* of KERN_CODES */
	int context;             /* tokens that attention looks back on */
	const int *rows;         /* [n_rows] ascending */
	int n_rows;
	size_t cold_bytes;          /* of weights and caches that are read in turn */
	const struct kern_ops *ops; /* the device, opened for the largest of rows, KERNELS_SEQS and context */
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_info info;
	enum kern_compute compute;
	enum kern_head head;
	enum kern_kv_type kv;
	struct kernels_meter *meter;
	void (*report)(void *arg, const struct kernels_point *p); /* after each measurement */
	void *arg;
};

/* 0, or the error after a line on stderr. */
int kernels_linears(struct kernels_run *r, bool layers, bool head);
int kernels_attention(struct kernels_run *r);
int kernels_norms(struct kernels_run *r);
int kernels_sampling(struct kernels_run *r);

/* The instruction under which a device's dot products run, from kern_info.mode ("int8 by amx"); PROBE_KINDS
 * where the mode names none that is probed. */
enum probe_kind kernels_peak_of(const char *mode);

/* Where attention's products run on K and V of this type (in mode bf16), and what part of that peak a product
 * takes. */
enum probe_kind kernels_attention_peak(const char *isa, enum kern_kv_type kv, bool bf16, double *part);

#endif
