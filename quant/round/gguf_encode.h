/* gguf_encode.h - encode floats as blocks of GGUF's quantized types (formats/gguf_types.c draws the blocks).
 * Codes and scales equal, bit for bit, those of ggml's reference quantizers without an importance matrix.  So
 * sums are in the reference's order, because errors are compared.
 *
 * A type of 8 or 4 bits in blocks of 32 takes its scale from the largest value.  Q4_K tries 22 grids per 32
 * values, Q6_K 19 per 16, and takes the least error, weighted by the values' magnitude.  Then the scales are
 * rounded and the codes chosen again. */
#ifndef QUERN_QUANT_ROUND_GGUF_ENCODE_H
#define QUERN_QUANT_ROUND_GGUF_ENCODE_H

#include "base/block_types.h"

#include <stddef.h>

/* gguf_encode_q8_0() and so on: one for each type that can be written.  n: whole blocks of values. */
#define ENCODER(number, NAME, name, ...) void gguf_encode_##name(const float *x, size_t n, void *out);
BLOCK_TYPES(BLOCK_NONE, ENCODER)
#undef ENCODER

#endif
