/* codes.h - quantized weights as stored to the canonical codes of kern.h. */
#ifndef QUERN_KERNELS_CODES_H
#define QUERN_KERNELS_CODES_H

#include "kernels/kern.h"

/* A part in AWQ (version "gemm") of k inputs and groups of `group`; borrows the part's weights. */
void codes_awq(struct kern_codes *c, const struct kern_linear_part *p, int k, int group);

/* A part in F32, F16 or BF16, quantized as it is read: 8 bits, symmetric, per output and group of
 * CODES_DENSE_GROUP inputs.  Borrows the part. */
enum { CODES_DENSE_GROUP = 128 };
void codes_dense(struct kern_codes *c, const struct kern_linear_part *p, int k);

/* Rows of c, owned: room for n outputs. */
void codes_rows_new(struct kern_code_rows *r, const struct kern_codes *c, int n);
void codes_rows_free(struct kern_code_rows *r);

int codes_groups(const struct kern_codes *c); /* of a row */
int codes_supers(const struct kern_codes *c);

#endif
