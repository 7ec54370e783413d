/* weights.h - the named tensors of a decoder, found in a model's files and checked against its
 * configuration.  Pointers lead into the mapped files, or into memory that struct weights owns. */
#ifndef QUERN_FORMATS_WEIGHTS_H
#define QUERN_FORMATS_WEIGHTS_H

#include "base/codes.h"
#include "base/err.h"
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

/* A linear layer: y = x W^T + bias.  Dense: w is [n, k] of dtype.  Codes: `codes` reads the stored tensors,
 * the first of which begins at w.  AWQ (version "gemm"): w is int32 [k, n/8], qzeros int32 [ceil(k/group),
 * n/8], scales F16 [ceil(k/group), n].  A word has the 4-bit values of outputs 8i .. 8i+7, the lowest bits
 * first, in this order:
 *
 *     bits  0-3  4-7  8-11  12-15  16-19  20-23  24-27  28-31
 *     8i +    0    2     4      6      1      3      5      7
 *
 *     W[n][k] = scales[k / group][n] * (q[k][n] - qzeros[k / group][n]) */
struct weights_linear {
	char name[96]; /* "model.layers.3.mlp.up_proj" */
	int n, k;
	enum weights_kind kind;
	int group;               /* AWQ: inputs per group; equal to k if each row is one group */
	enum config_dtype dtype; /* for dense weights */
	const void *w, *qzeros, *scales;
	struct codes codes; /* from[] is valid as long as struct weights */
	size_t bytes;       /* codes: stored bytes of all their tensors */
	struct weights_vec bias;
};

struct weights_expert {
	struct weights_linear gate, up, down;
};

struct weights_layer {
	struct weights_vec attn_norm, ffn_norm; /* weights of the norms before attention and before the FFN;
						 * or none */
	struct weights_vec attn_post, ffn_post; /* on the output of each, before the residual addition; or
						 * none */
	struct weights_vec q_norm, k_norm;      /* [head_dim], or over all heads (qk_norm, config.h) */
	/* Biases of these norms, or none. */
	struct weights_vec attn_norm_bias, ffn_norm_bias, attn_post_bias, ffn_post_bias, q_norm_bias,
		k_norm_bias;
	struct weights_vec sinks;    /* [n_heads] or none */
	struct weights_vec act_args; /* xIELU: F32 [4], alpha_p and alpha_n (both after softplus; alpha_n with
				      * beta added), beta, eps; or none */
	struct weights_linear q, k, v, o;
	/* Dense feed-forward layer, or the shared expert of a layer with experts; w NULL: none.  gate.w NULL
	 * alone: the layer has no gate (ffn_plain, config.h). */
	struct weights_linear gate, up, down;
	struct weights_expert *experts; /* [n_experts], owned by struct weights; or NULL */
	int n_experts;
	struct weights_linear router, shared_gate; /* dense, [n_experts] and 1 output; or none */
	struct weights_vec choice_bias;            /* [n_experts] or none */
};

struct weights_tensor { /* a tensor of the files, used or not; strings and data are borrowed from the files */
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
	void **owned; /* [n_owned] memory of tensors that are not in the files; freed with free() */
	int n_owned;
	struct weights_vec embed; /* [n_vocab, hidden], n = n_vocab * hidden; data NULL: see embed_codes */
	struct weights_linear embed_codes;  /* a quantized table with n_vocab outputs; w NULL: see `embed` */
	struct weights_vec norm, norm_bias; /* final norm; or none */
	struct weights_vec embed_norm, embed_norm_bias; /* norm of the embedded rows (BLOOM); or none */
	/* Learned positions [max_position, hidden], row i for position i; or none.  The files' table may
	 * begin with rows that are never used (OPT: two); this one does not.  Tables that are computed
	 * (sinusoids) are owned. */
	struct weights_vec positions;
	struct weights_linear head;   /* w NULL or w == embed_codes.w: tied to the embedding */
	bool untied;                  /* the configuration ties the head, but the files have a head of their
				       * own */
	struct weights_layer *layers; /* [n_layers], owned */
	int n_layers;
	int64_t bytes;        /* bytes of the tensors that the decoder uses */
	bool *used;           /* [files.n_tensors], owned */
	int n_used, n_unused; /* tensors of the files */
	int n_beyond;         /* layers in the files beyond those of the configuration; 0: none */
};

/* Open a model's weights.  path: a directory or a file of any kind that formats/model_file.h knows.
 * -ENOENT, -EINVAL: why names the tensor that is missing or has another shape or type. */
int weights_open(const char *path, const struct model_config *c, struct weights **out, struct why *why);
/* Open *.safetensors of a directory in Hugging Face layout. */
int hf_weights_open(const char *dir, const struct model_config *c, struct weights **out, struct why *why);
/* For a directory with the model_type of another architecture: check that it has tensors by the names of c's
 * architecture.  -ENOTSUP if not: programs that follow `architectures` alone would look for tensors that do
 * not exist.  0 also if nothing can be read. */
int hf_weights_check_names(const char *dir, const struct model_config *c, const char *model_type,
			   struct why *why);
void weights_close(struct weights *w); /* NULL is fine */

/* Call f for each linear layer that exists: those of the layers in order, then the head if it has its own
 * weights. */
void weights_each(const struct weights *w, void (*f)(void *ctx, const struct weights_linear *l, bool head),
		  void *ctx);

/* For readers: mark tensor i of the files as used. */
void weights_use(struct weights *w, int i, size_t bytes);
/* Beginnings of names. */
struct weights_place {
	const char *layers; /* "model.layers." */
	const char *head;   /* "lm_head" */
	const char *text;   /* "model.": all of it belongs to the decoder; NULL: nothing is known to */
};
/* For readers, at the end: count unused tensors, and refuse those that would change the decoder's results:
 * all but zero biases and what programs store beside the weights.  Further layers that predict tokens are
 * left out.  -ENOTSUP with the tensor's name. */
int weights_weigh_unused(struct weights *w, const struct model_config *c, const struct weights_place *at,
			 struct why *why);

/* For readers of Hugging Face layout: log keys and settings of the checkpoint that are not used. */
void weights_log_unused(const struct model_config *c);

/* For readers: free p (from malloc) with w.  Return p. */
void *weights_own(struct weights *w, void *p);

/* Convert a vector to F32: out [v->n]. */
void weights_to_f32(const struct weights_vec *v, float *out);

#endif
