/* weights.h - the named tensors of a decoder, found in a model's files and checked against its
 * configuration.  All pointers lead into the mapped files: nothing is copied. */
#ifndef QUERN_FORMATS_WEIGHTS_H
#define QUERN_FORMATS_WEIGHTS_H

#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct safetensors;

struct weights_vec {
	const void *data; /* [n] of dtype; NULL: none */
	enum config_dtype dtype;
	int n;
};

/* y = x W^T + bias.  Dense: w is [n, k] of dtype.  AWQ (version "gemm"): w is int32 [k, n/8],
 * qzeros int32 [ceil(k/group), n/8], scales F16 [ceil(k/group), n].  A word has the 4-bit values of
 * outputs 8i .. 8i+7, the lowest bits first, in this order:
 *
 *     bits  0-3  4-7  8-11  12-15  16-19  20-23  24-27  28-31
 *     8i +    0    2     4      6      1      3      5      7
 *
 *     W[n][k] = scales[k / group][n] * (q[k][n] - qzeros[k / group][n]) */
struct weights_linear {
	char name[96]; /* "model.layers.3.mlp.up_proj" */
	int n, k;
	bool awq;
	int group;               /* AWQ: along k; whole rows: k */
	enum config_dtype dtype; /* dense */
	const void *w, *qzeros, *scales;
	struct weights_vec bias;
};

struct weights_layer {
	struct weights_vec attn_norm, ffn_norm, q_norm, k_norm;
	struct weights_linear q, k, v, o, gate, up, down;
};

struct weights {
	struct safetensors *files; /* owned */
	struct weights_vec embed;  /* n = n_vocab * hidden: [n_vocab, hidden] */
	struct weights_vec norm;
	struct weights_linear head;   /* w NULL: the embedding serves (tied) */
	struct weights_layer *layers; /* [n_layers], owned */
	int n_layers;
	int64_t bytes;        /* of the tensors that the decoder uses */
	int n_used, n_unused; /* tensors of the files */
};

/* -ENOENT, -EINVAL: why names the tensor that is missing or has another shape or type. */
int weights_open(const char *dir, const struct model_config *c, struct weights **out, char *why,
		 size_t why_n);
void weights_close(struct weights *w); /* NULL is fine */

/* A vector as F32 into out [v->n]. */
void weights_to_f32(const struct weights_vec *v, float *out);

#endif
