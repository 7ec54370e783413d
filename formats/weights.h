/* weights.h - the named tensors of a decoder, found in a model's files and checked against its
 * configuration.  Pointers lead into the mapped files, or into memory that struct weights owns. */
#ifndef QUERN_FORMATS_WEIGHTS_H
#define QUERN_FORMATS_WEIGHTS_H

#include "base/codes.h"
#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weights_vec {
	const void *data; /* [n] of dtype; NULL: none */
	enum config_dtype dtype;
	int n;
};

enum weights_kind { WEIGHTS_DENSE, WEIGHTS_AWQ, WEIGHTS_CODES };

/* y = x W^T + bias.  Dense: w is [n, k] of dtype.  Codes: `codes` reads what is stored, the first tensor of
 * which begins at w.  AWQ (version "gemm"): w is int32 [k, n/8],
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
	enum weights_kind kind;
	int group;               /* AWQ: along k; whole rows: k */
	enum config_dtype dtype; /* dense */
	const void *w, *qzeros, *scales;
	struct codes codes; /* from[] as long as struct weights lives */
	size_t bytes;       /* codes: as stored, of all its tensors */
	struct weights_vec bias;
};

struct weights_expert {
	struct weights_linear gate, up, down;
};

struct weights_layer {
	struct weights_vec attn_norm, ffn_norm; /* before attention and the feed-forward layer; or none */
	struct weights_vec attn_post, ffn_post; /* of what they give, before it is added; or none */
	struct weights_vec q_norm, k_norm;      /* [head_dim], or of all heads: config.h, qk_norm */
	struct weights_vec sinks;               /* [n_heads] or none */
	struct weights_linear q, k, v, o;
	/* Of a layer with experts: of the one that all rows have; w NULL: there is none. */
	struct weights_linear gate, up, down;
	struct weights_expert *experts; /* [n_experts], owned by struct weights; or NULL */
	int n_experts;
	struct weights_linear router, shared_gate; /* in floats; [n_experts] and 1 output, or none */
	struct weights_vec choice_bias;            /* [n_experts] or none */
};

struct weights_tensor { /* of the files, used or not; strings and data are theirs */
	const char *name, *type;
	int n_dims;
	int64_t shape[8];
	size_t bytes;
	const void *data;
};

/* The mapped files of one kind, as its reader opened them. */
struct weights_files {
	void *at; /* owned */
	void (*close)(void *at);
	int n_files, n_tensors;
	void (*tensor)(const void *at, int i, struct weights_tensor *out);
};

struct weights {
	struct weights_files files;
	void **owned; /* [n_owned] memory that tensors lie in; freed with free() */
	int n_owned;
	struct weights_vec embed; /* n = n_vocab * hidden: [n_vocab, hidden]; data NULL: embed_codes */
	struct weights_linear embed_codes; /* a quantized table, n_vocab outputs; w NULL: `embed` has it */
	struct weights_vec norm;
	struct weights_linear head;   /* w NULL: the embedding serves (tied); w that of embed_codes: so too */
	struct weights_layer *layers; /* [n_layers], owned */
	int n_layers;
	int64_t bytes;        /* of the tensors that the decoder uses */
	int n_used, n_unused; /* tensors of the files */
};

/* path: a directory or a file, of any kind that formats/model_file.h knows.
 * -ENOENT, -EINVAL: why names the tensor that is missing or has another shape or type. */
int weights_open(const char *path, const struct model_config *c, struct weights **out, char *why,
		 size_t why_n);
/* Of a directory in Hugging Face layout: *.safetensors. */
int hf_weights_open(const char *dir, const struct model_config *c, struct weights **out, char *why,
		    size_t why_n);
void weights_close(struct weights *w); /* NULL is fine */

/* f for each linear layer that is there: of the layers in order, then the head, if it has weights of its own.
 */
void weights_each(const struct weights *w, void (*f)(void *ctx, const struct weights_linear *l, bool head),
		  void *ctx);

/* For readers: p (of malloc) is freed with w. */
void *weights_own(struct weights *w, void *p);

/* A vector as F32 into out [v->n]. */
void weights_to_f32(const struct weights_vec *v, float *out);

#endif
