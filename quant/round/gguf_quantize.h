/* gguf_quantize.h - a model in floats as a GGUF file of a quantized type, rounded to nearest.
 *
 * Linear layers and the embedding have the type.  With the 4-bit types the head, or the embedding where it
 * serves as the head, is Q6_K, as llama.cpp has it.  A matrix with rows that are no whole blocks is Q8_0
 * instead, or stays as it is. */
#ifndef QUERN_QUANT_ROUND_GGUF_QUANTIZE_H
#define QUERN_QUANT_ROUND_GGUF_QUANTIZE_H

#include "quant/round/keep.h"

#include <stddef.h>

/* type: "q8_0", "q4_0", "q4_k", "q6_k".  keep: what stays as it is.  -ENOTSUP, ... with the reason: also
 * where no linear layer would be quantized. */
int gguf_quantize(const char *src, const char *dst, const char *type, const struct keep *keep, char *why,
		  size_t why_n);

#endif
