/* codes.h - stored quantized weights as the canonical codes of base/codes.h. */
#ifndef QUERN_KERNELS_CODES_H
#define QUERN_KERNELS_CODES_H

#include "kernels/kern.h"

/* A part in AWQ (version "gemm") with k inputs and groups of `group` inputs.  Borrows the part's weights. */
void codes_awq(struct codes *c, const struct kern_linear_part *p, int k, int group);

/* A part in F32, F16 or BF16, quantized as it is read: 8 bits, symmetric, per output and group of
 * CODES_DENSE_GROUP inputs.  Borrows the part. */
enum { CODES_DENSE_GROUP = 128 };
void codes_dense(struct codes *c, const struct kern_linear_part *p, int k);
/* Codes of another kind, quantized again like codes_dense(), with inputs in the layer's order.  Borrows
 * `from`. */
void codes_again(struct codes *c, const struct codes *from);
/* Return true if c was made by codes_dense() or codes_again(). */
bool codes_are_made(const struct codes *c);

#endif
