/* quant.h - quantized checkpoints in Hugging Face layout: what config.json says of them (quant_config.c), and
 * their linear layers as struct codes (quant_find.c finds and checks the tensors, quant_read.c reads them).
 *
 * The tensors of a module say whether it is quantized: a module that the file lists as not converted has a
 * plain weight.  Of the schemes that config.json names (one for all, or several by rules), a module has the
 * first with the shapes of its tensors; one that fits none is refused with the shape that the first needs. So
 * bits and group size of rules by name (GPTQModel's "dynamic", AutoRound's "extra_config", config groups) are
 * read off the tensors, and a rule cannot contradict them.
 *
 * N outputs, K inputs, G = ceil(K / group) groups; words are int32, a stream's codes begin at its lowest
 * bits:
 *
 *   AWQ "gemm"       qweight [K, N b/32], qzeros [G, N b/32], scales [G, N]: see weights.h; 8 bits: four
 * outputs 8i/2 + 0 2 1 3 in a word AWQ "gemv"       qweight [N, K/8] streams along K; qzeros [N, Z] along G;
 * scales [N, 8 Z], Z >= G / 8 AWQ "gemv_fast"  qweight int16 [N/4, K]; scales, qzeros F16 [8 Z, N], the zeros
 * being -scale * zero GPTQ             qweight [K b/32, N]: per output a stream along K; qzeros [G, N b/32]:
 * per group a stream along N, format "gptq" less 1; scales [G, N]; g_idx [K], the group of an input
 *   pack-quantized   weight_packed [N, ceil(K b/32)], streams along K; weight_zero_point [ceil(N b/32), G],
 * along N; weight_scale [N, G], [N, 1] or [1]; weight_shape [2]; weight_g_idx [K] int-quantized    weight
 * int8 [N, K]; weight_scale, weight_zero_point int8 likewise FP8              weight E4M3 [N, K];
 * weight_scale [1], [N, 1] or per block, or weight_scale_inv per block
 *
 * Specifications: AutoGPTQ and GPTQModel (QuantLinear), AutoAWQ (WQLinear), compressed-tensors
 * (pack_quantized, naive_quantized), transformers (finegrained_fp8); E4M3: "FP8 Formats for Deep Learning",
 * arXiv:2209.05433. */
#ifndef QUERN_FORMATS_QUANT_H
#define QUERN_FORMATS_QUANT_H

#include "base/codes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct safetensors;
struct weights_linear;

enum quant_layout {
	QUANT_AWQ,
	QUANT_AWQ_GEMV,
	QUANT_AWQ_GEMV_FAST,
	QUANT_GPTQ,
	QUANT_PACKED,
	QUANT_INT8,
	QUANT_FP8,
};

struct quant_scheme {
	int bits;
	int group;   /* inputs that share a scale; -1: whole rows */
	int block_n; /* FP8: outputs that share a scale; 1, or 0: all, as in a scale per tensor */
};

enum { QUANT_SCHEMES_MAX = 32 };

struct quant {
	char name[48]; /* "GPTQ", "" where nothing is quantized; for messages */
	enum quant_layout layout;
	bool zeros_less_one;  /* GPTQ format "gptq" */
	bool own_kv_cache;    /* kv_cache_scheme is there; it is not used */
	bool own_activations; /* activations are meant to be quantized too; quern's mode decides */
	int n_schemes;
	struct quant_scheme schemes[QUANT_SCHEMES_MAX];
};

/* MXFP4 as gpt-oss's checkpoints have it (OCP Microscaling Formats 1.0): of an output's row, k / 32 blocks of
 * 16 bytes, each two values, the first in the low bits, and k / 32 exponents.  n rows, each `step` rows
 * behind the one before; k a multiple of 32.  Reads them in place. */
void quant_mxfp4(struct codes *out, int n, int k, const void *blocks, const void *exponents, int step);

/* Reads quantization_config out of config.json's root.  -EINVAL, -ENOTSUP: the reason names the key. */
int quant_config_read(const json_t *root, struct quant *out, char *why, size_t why_n);

/* Whether the module has quantized tensors.  config.json need not say so. */
bool quant_has(const struct safetensors *files, const char *module);

struct quant_found {
	int n_tensors;
	size_t bytes; /* of them */
	void *owned;  /* by the caller, for the layer's life: what is not in the files; or NULL */
};

/* The module l->name of l->n outputs and l->k inputs: its codes (of AWQ "gemm" with 4 bits and F16 scales,
 * in groups of the first scheme of 4 bits, its tensors) into *l.  -ENOENT, -EINVAL, -ENOTSUP: the reason
 * names the tensor. */
int quant_find(const struct safetensors *files, const struct quant *q, struct weights_linear *l,
	       struct quant_found *found, char *why, size_t why_n);

/* A layer as stored: from[0] of its codes. */
struct quant_stored {
	enum quant_layout layout;
	int n, k, bits, group;
	bool less_one;
	const unsigned char *q, *zeros, *scales; /* unaligned; zeros NULL: none */
	enum codes_float scale_type;
	size_t scale_n, scale_g; /* values from the scale of an output's, or a group's, to the next one's */
	int block_n;             /* outputs that share a scale, at least 1 */
	size_t zero_words;       /* of a row of packed zeros */
	int32_t order[];         /* [k] codes.perm, where there is one */
};

void quant_read(const struct codes *c, int n0, int n1, const struct code_rows *out);
float quant_scale_at(const struct quant_stored *s, int n, int g);
extern const float quant_e4m3[256]; /* the values of all codes; NaN for two */

#endif
