/* hf_rows.h - encode rows of floats as an 8-bit code per value and one scale. */
#ifndef QUERN_QUANT_ROUND_HF_ROWS_H
#define QUERN_QUANT_ROUND_HF_ROWS_H

#include <stdint.h>

/* Encode k values: code = value / scale, rounded to nearest, ties to even.  The scale is the largest absolute
 * value / 127 (int8) or / 448 (fp8); 0 for a row of zeros. */
void round_int8_row(const float *x, int k, int8_t *code, float *scale);
void round_fp8_row(const float *x, int k, uint8_t *code, float *scale);
/* Return the nearest E4M3, ties to even; values beyond 448 become 448 with their sign. */
uint8_t round_e4m3(float x);

#endif
