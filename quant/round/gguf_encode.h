/* gguf_encode.h - encode floats as blocks of GGUF's quantized types (formats/gguf_types.c draws the blocks).
 * Codes and scales equal, bit for bit, those of ggml's reference quantizers, without an importance matrix and
 * with one.  So sums are in the reference's order, because errors are compared.
 *
 * A type of 8 or 4 bits in blocks of 32 takes its scale from the largest value.  Q4_K and Q5_K try up to 22
 * grids per 32 values, Q6_K 19 per 16, IQ4_XS 16 per 32, and take the least error, weighted by the values'
 * magnitude.  Then the scales are rounded and the codes chosen again.
 *
 * An importance matrix has a value for each input of a layer, the mean square of that input on some text
 * (quant/round/imatrix.h).  It multiplies the weight of an error; then Q4_K and Q5_K try 38 grids and choose
 * the integer scales by their weighted error, too. */
#ifndef QUERN_QUANT_ROUND_GGUF_ENCODE_H
#define QUERN_QUANT_ROUND_GGUF_ENCODE_H

#include "base/block_types.h"

#include <stddef.h>

/* gguf_encode_q8_0() and so on: one for each type that can be written.  x: [rows][columns]; columns: whole
 * blocks.  importance: [columns], or NULL; Q8_0 and Q4_0 ignore it. */
#define ENCODER(number, NAME, name, ...)                                                                     \
	void gguf_encode_##name(const float *x, size_t rows, size_t columns, const float *importance,        \
				void *out);
BLOCK_TYPES(BLOCK_NONE, ENCODER)
#undef ENCODER

#endif
