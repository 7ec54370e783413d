/* hf_quantize.h - write a float model as a directory of safetensors with quantized linear layers, rounded to
 * nearest (formats/quant.h has the layouts).
 *
 *     int8      compressed-tensors "int-quantized": int8, a scale for each output: largest / 127
 *     fp8       compressed-tensors "float-quantized": E4M3, a scale for each output: largest / 448
 *     int4-rtn  AWQ "gemm": 4 bits, a scale and a zero for each group of 128 inputs (64 or 32 where a layer's
 *               inputs are no multiple)
 *
 * Embedding, head, norms, biases and routers stay unchanged. */
#ifndef QUERN_QUANT_ROUND_HF_QUANTIZE_H
#define QUERN_QUANT_ROUND_HF_QUANTIZE_H

#include "base/err.h"
#include "quant/round/keep.h"

#include <stddef.h>
#include <stdint.h>

/* Pack w [n, k] in groups of inputs: qweight [k, n / 8], qzeros [ceil(k / group), n / 8], scales F16 [ceil(k
 * / group), n] (formats/weights.h); ratios NULL. */
typedef void (*int4_packer)(const float *w, int n, int k, int group, const float *ratios, uint32_t *qweight,
			    uint32_t *qzeros, uint16_t *scales);

/* Quantize.  type: "int8", "fp8", "int4-rtn"; pack: for int4-rtn.  keep: parts that stay unchanged. */
int hf_quantize(const char *src, const char *dst, const char *type, int4_packer pack, const struct keep *keep,
		struct why *why);

#endif
