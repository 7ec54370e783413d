/* gguf_encode.h - encode floats as blocks of GGUF's quantized types (formats/gguf_types.c reads them).  Codes
 * and scales equal, bit for bit, those of ggml's reference quantizers without an importance matrix.  So sums
 * are in the reference's order, because errors are compared.
 *
 *     Q8_0   32 values    d F16, 32 int8                     d = largest / 127
 *     Q4_0   32           d F16, 16 bytes                    d = largest, with its sign, / -8
 *     Q4_K   256          d, dmin F16, 12 bytes of 8 scales and 8 minimums of 6 bits, 128 bytes
 *     Q6_K   256          128 + 64 bytes of codes, 16 int8 scales, d F16
 *
 * Q4_K tries 22 grids per 32 values, Q6_K 19 per 16, and takes the least error, weighted by the values'
 * magnitude.  Then the scales are rounded and the codes chosen again. */
#ifndef QUERN_QUANT_ROUND_GGUF_ENCODE_H
#define QUERN_QUANT_ROUND_GGUF_ENCODE_H

#include <stddef.h>

/* n: a multiple of the block's values. */
void gguf_encode_q8_0(const float *x, size_t n, void *out);
void gguf_encode_q4_0(const float *x, size_t n, void *out);
void gguf_encode_q4_k(const float *x, size_t n, void *out);
void gguf_encode_q6_k(const float *x, size_t n, void *out);

#endif
