/* hf_rows.h - rows of floats by a code of 8 bits for each value and one scale. */
#ifndef QUERN_QUANT_ROUND_HF_ROWS_H
#define QUERN_QUANT_ROUND_HF_ROWS_H

#include <stdint.h>

/* k values: a code is the value / scale, rounded to nearest, ties to even; the scale is the largest / 127, or
 * / 448.  Of a row of zeros it is 0. */
void round_int8_row(const float *x, int k, int8_t *code, float *scale);
void round_fp8_row(const float *x, int k, uint8_t *code, float *scale);
/* The nearest E4M3, ties to even; beyond 448: 448, with the sign. */
uint8_t round_e4m3(float x);

#endif
