/* tensor.h - how the emulated tensor cores add. */
#ifndef QUERN_TESTS_CUDASIM_TENSOR_H
#define QUERN_TESTS_CUDASIM_TENSOR_H

/* d[row][8] += a[row][16] b[16][8] for so many rows, as the present way of summing has it (cudasim_tensor());
 * rows of d are ldd apart. */
void cudasim_tensor_tile(float *d, int ldd, const float *a, int rows, const float *b);

#endif
