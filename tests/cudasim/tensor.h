/* tensor.h - summation of the emulated tensor cores. */
#ifndef QUERN_TESTS_CUDASIM_TENSOR_H
#define QUERN_TESTS_CUDASIM_TENSOR_H

/* Compute d[row][8] += a[row][16] b[16][8] for `rows` rows, with the current way of adding
 * (cudasim_tensor()).  Rows of d are ldd apart. */
void cudasim_tensor_tile(float *d, int ldd, const float *a, int rows, const float *b);

#endif
