/* gguf_quantize.h - write a model as a GGUF file of a quantized type, rounded to nearest.
 *
 * Linear layers and the embedding get the type.  With the 4-bit types the head, or the tied embedding, has a
 * finer type, as in llama.cpp (base/block_types.h).  A matrix with rows that are not whole blocks is Q8_0, or
 * stays unchanged. */
#ifndef QUERN_QUANT_ROUND_GGUF_QUANTIZE_H
#define QUERN_QUANT_ROUND_GGUF_QUANTIZE_H

#include "base/err.h"
#include "quant/round/imatrix.h"
#include "quant/round/keep.h"

#include <stdbool.h>

/* Return whether it is the option of a type that can be written, such as "q4_k". */
bool gguf_quantize_has(const char *type);
/* Return whether the type takes an importance matrix. */
bool gguf_quantize_weighs(const char *type);

struct gguf_importance {
	const struct imatrix *imatrix;
	const char *path; /* path of its file, or of the text it was computed on: becomes a key */
};

/* Quantize src, a directory of safetensors or a GGUF file (or its shards) with floats or Q8_0.  type: one of
 * gguf_quantize_has().  keep: parts that stay unchanged.  importance NULL: none.  -ENOTSUP, ... with the
 * reason; also if no linear layer would be quantized. */
int gguf_quantize(const char *src, const char *dst, const char *type, const struct keep *keep,
		  const struct gguf_importance *importance, struct why *why);

#endif
