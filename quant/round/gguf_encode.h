/* gguf_encode.h - floats as blocks of GGUF's quantized types (formats/gguf_types.c reads them), with the
 * codes and scales that ggml's reference quantizers give without an importance matrix, bit for bit: results
 * are compared, so sums are in the reference's order.
 *
 *     Q8_0   32 values    d F16, 32 int8                     d = largest / 127
 *     Q4_0   32           d F16, 16 bytes                    d = largest, with its sign, / -8
 *     Q4_K   256          d, dmin F16, 12 bytes of 8 scales and 8 minimums of 6 bits, 128 bytes
 *     Q6_K   256          128 + 64 bytes of codes, 16 int8 scales, d F16
 *
 * Q4_K searches 22 grids for each 32 values, Q6_K 19 for each 16, for the least error weighted by the values'
 * size; the scales found are then rounded, and the codes chosen again. */
#ifndef QUERN_QUANT_ROUND_GGUF_ENCODE_H
#define QUERN_QUANT_ROUND_GGUF_ENCODE_H

#include <stddef.h>

/* n is a multiple of the block's values. */
void gguf_encode_q8_0(const float *x, size_t n, void *out);
void gguf_encode_q4_0(const float *x, size_t n, void *out);
void gguf_encode_q4_k(const float *x, size_t n, void *out);
void gguf_encode_q6_k(const float *x, size_t n, void *out);

#endif
