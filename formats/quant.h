/* quant.h - quantized checkpoints in Hugging Face layout.  quant_config.c reads config.json, quant_find.c
 * finds and checks the tensors, quant_read.c reads them as struct codes.
 *
 * The tensors of a module decide whether it is quantized: a module that config.json excludes from
 * quantization has a plain weight.  config.json names one scheme for all modules, or several by rules.  A
 * module gets the first scheme that fits the shapes of its tensors.  If none fits, the module is refused
 * with the shape that the first scheme needs.  So the bits and group size of rules by name (GPTQModel's
 * "dynamic", AutoRound's "extra_config") are derived from the tensors.  Config groups of compressed-tensors
 * and the layers of ModelOpt may have different layouts: a module that a pattern names (quant_rules.h) gets
 * only schemes of that group, and is refused if its tensors are others.
 *
 * N outputs, K inputs, G = ceil(K / group) groups.  Words are int32; a stream's codes begin at the lowest
 * bits:
 *
 *   AWQ "gemm"       qweight [K, N b/32]; qzeros [G, N b/32]; scales [G, N]; see weights.h.
 *                    With 8 bits a word has four outputs, in the order 0 2 1 3.
 *   AWQ "gemv"       qweight [N, K/8], streams along K; qzeros [N, Z], streams along G;
 *                    scales [N, 8 Z], Z >= G / 8
 *   AWQ "gemv_fast"  qweight int16 [N/4, K]; scales F16 [8 Z, N]; qzeros F16 [8 Z, N], each -scale * zero
 *   GPTQ             qweight [K b/32, N], for each output a stream along K;
 *                    qzeros [G, N b/32], for each group a stream along N, less 1 in format "gptq";
 *                    scales [G, N]; g_idx [K], the group of each input
 *   pack-quantized   weight_packed [N, ceil(K b/32)], streams along K;
 *                    weight_zero_point [ceil(N b/32), G], streams along N;
 *                    weight_scale [N, G], [N, 1] or [1]; weight_shape [2]; weight_g_idx [K]
 *   int-quantized    weight int8 [N, K]; weight_scale and weight_zero_point int8, shaped as above
 *   FP8              weight E4M3 [N, K]; weight_scale [1], [N, 1] or per block, or weight_scale_inv per block
 *   MXFP8            weight E4M3 [N, K]; weight_scale E8M0 [N, K/32]
 *   NVFP4            weight_packed or weight E2M1 [N, K/2], two in a byte, the first in the low bits;
 *                    weight_scale E4M3 [N, K/16]; and a scale of the whole tensor: weight_global_scale, by
 *                    which the others are divided, or weight_scale_2, by which they are multiplied
 *   MXFP4            weight_packed or weight as in NVFP4; weight_scale E8M0 [N, K/32]
 *   NF4, FP4         weight [N K/2] bytes, two codes in each, the first in the high bits; weight.absmax F32,
 *                    a scale for each block of codes, which may go on in the next row, or U8 with scales of
 *                    its own (nested_absmax, nested_quant_map); weight.quant_state.*, JSON in bytes
 *   LLM.int8         weight int8 [N, K]; SCB F32 [N], the largest value of each row
 *
 * Specifications: AutoGPTQ and GPTQModel (QuantLinear), AutoAWQ (WQLinear), compressed-tensors
 * (pack_quantized, naive_quantized, fp4_quantized), transformers (finegrained_fp8), NVIDIA ModelOpt
 * (NVFP4QTensor, MXFP4QTensor), bitsandbytes (QuantState); E4M3: "FP8 Formats for Deep Learning",
 * arXiv:2209.05433; E2M1 and E8M0: OCP Microscaling Formats 1.0; NF4: "QLoRA", arXiv:2305.14314. */
#ifndef QUERN_FORMATS_QUANT_H
#define QUERN_FORMATS_QUANT_H

#include "base/codes.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct safetensors;
struct st_tensor;
struct weights_linear;
struct quant_rules;

enum quant_layout {
	QUANT_AWQ,
	QUANT_AWQ_GEMV,
	QUANT_AWQ_GEMV_FAST,
	QUANT_GPTQ,
	QUANT_PACKED,
	QUANT_INT8,
	QUANT_FP8,
	QUANT_MXFP8,
	QUANT_NVFP4,
	QUANT_MXFP4,
	QUANT_NF4,
	QUANT_FP4,
	QUANT_LLM_INT8,
};

struct quant_scheme {
	enum quant_layout layout;
	int bits;
	int group;   /* inputs that share a scale; -1: whole rows */
	int block_n; /* FP8: outputs that share a scale; 1; or 0 for a scale per tensor */
	int rule;    /* modules that it is for, as quant_rules.h numbers them; 0: any */
};

enum { QUANT_SCHEMES_MAX = 32 };

struct quant {
	char name[48];        /* "GPTQ"; "" if nothing is quantized; for messages */
	bool mixed;           /* the schemes have several layouts */
	bool zeros_less_one;  /* GPTQ format "gptq" */
	bool own_kv_cache;    /* kv_cache_scheme is present; it is ignored */
	bool own_activations; /* the checkpoint quantizes activations too; quern's compute mode decides
			       * instead */
	char activations[32]; /* their type, "4-bit float", if it is named */
	const char *method;   /* static: "awq", "gptq", "auto-round", "compressed-tensors", "fp8", "mxfp4",
			       * "modelopt", "bitsandbytes"; NULL if nothing is quantized */
	struct quant_rules *rules; /* owned; NULL: none */
	int n_schemes;
	struct quant_scheme schemes[QUANT_SCHEMES_MAX];
};

void quant_fini(struct quant *q);

/* Name of a layout, for messages: "NVFP4". */
const char *quant_layout_name(enum quant_layout layout);

/* Describe MXFP4 (OCP Microscaling Formats 1.0) as gpt-oss's checkpoints store it; the codes read it in
 * place.  Each output's row has k / 32 blocks of 16 bytes and k / 32 exponents; a byte has two values, the
 * first in the low bits.  n: rows, `step` rows apart in the tensor; k: a multiple of 32. */
void quant_mxfp4(struct codes *out, int n, int k, const void *blocks, const void *exponents, int step);

/* Read quantization_config from config.json's root, else from quantize_config.json, quant_config.json or
 * hf_quant_config.json in dir, which AutoGPTQ, AutoAWQ and ModelOpt write.  dir may be NULL.  *out: to be
 * freed by quant_fini(), also after an error.  -EINVAL, -ENOTSUP: the reason names the key. */
int quant_config_read(const json_t *root, const char *dir, struct quant *out, struct why *why);

/* Return whether the module has quantized tensors, whatever config.json has. */
bool quant_has(const struct safetensors *files, const char *module);

enum { QUANT_TENSORS_MAX = 8 };

struct quant_found {
	int n_tensors;
	const struct st_tensor *tensors[QUANT_TENSORS_MAX];
	size_t bytes; /* bytes of these tensors */
	void *owned;  /* memory that is not in the files, or NULL; the caller owns it as long as the layer
		       * exists */
};

/* Find the module l->name with l->n outputs and l->k inputs, and fill in *l: as WEIGHTS_AWQ for AWQ "gemm"
 * with 4 bits, F16 scales and the groups of the first 4-bit scheme; else as codes.  -ENOENT, -EINVAL,
 * -ENOTSUP: the reason names the tensor. */
int quant_find(const struct safetensors *files, const struct quant *q, struct weights_linear *l,
	       struct quant_found *found, struct why *why);

/* Stored types of scales: those of enum codes_float, and bytes.  E8M0 is read as half its value, as
 * codes_e8m0_half() gives it. */
enum quant_scale {
	QUANT_SCALE_F32 = CODES_F32,
	QUANT_SCALE_F16 = CODES_F16,
	QUANT_SCALE_BF16 = CODES_BF16,
	QUANT_SCALE_E4M3,
	QUANT_SCALE_E8M0,
};

/* Scales of bitsandbytes' blocks, which are counted over the whole tensor:
 * absmax[b] = F32, or map[U8[b]] * nested[b / nested_block] + offset. */
struct quant_absmax {
	int block, nested_block;           /* codes; scales */
	const unsigned char *nested, *map; /* F32, unaligned; NULL: scales are F32 */
	float offset;
};

/* A layer as stored; from[0] of its codes points to it. */
struct quant_stored {
	enum quant_layout layout;
	int n, k, bits, group;
	bool less_one;
	const unsigned char *q, *zeros, *scales; /* unaligned; zeros NULL: none */
	enum quant_scale scale_type;
	size_t scale_n, scale_g; /* distance in values between the scales of two outputs, and of two groups */
	int block_n;             /* outputs that share a scale, at least 1 */
	float whole;             /* scale of the whole tensor; 1: none */
	bool divides;            /* scales are divided by `whole`, not multiplied */
	float unit;              /* factor of all scales, exact: 0.5 if the table has twice the values */
	struct quant_absmax absmax;
	size_t zero_words; /* words in a row of packed zeros */
	int32_t order[];   /* [k] used as codes.perm if the layer has a permutation */
};

void quant_read(const struct codes *c, int n0, int n1, const struct code_rows *out);
float quant_scale_at(const struct quant_stored *s, int n, int g);
extern const float quant_e4m3[256]; /* values of all codes; two are NaN */

#endif
