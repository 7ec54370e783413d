/* int4.h - weights as 4-bit codes with a scale and a zero point per group of inputs, and their packing as AWQ
 * stores them (formats/weights.h, WEIGHTS_AWQ).
 *
 * For a group with the smallest value lo <= 0 and the largest hi >= 0:
 *
 *     scale = F16((hi - lo) / 15)     zero = round(-lo / scale)     code = round(w / scale) + zero
 *
 * zero and code are in 0 .. 15; ties round to even.  Clipping multiplies lo and hi by a ratio first. */
#ifndef QUERN_QUANT_INT4_H
#define QUERN_QUANT_INT4_H

#include <stdint.h>

struct int4_group {
	float scale; /* an F16 value */
	int zero;
};

/* Compute the grid of n values with their range multiplied by ratio. */
struct int4_group int4_grid(const float *w, int n, float ratio);
/* Round n values to the grid.  codes: [n], or NULL. */
void int4_round(const struct int4_group *g, const float *w, int n, float *out, uint8_t *codes);

/* Round a row of k values by groups.  ratios: [ceil(k / group)], or NULL for 1. */
void int4_row(const float *w, int k, int group, const float *ratios, float *out);

/* Pack w [n, k], with ratios [n, ceil(k / group)] or NULL: qweight [k, n / 8], qzeros [G, n / 8], scales F16
 * [G, n].  n is a multiple of 8. */
void int4_pack(const float *w, int n, int k, int group, const float *ratios, uint32_t *qweight,
	       uint32_t *qzeros, uint16_t *scales);

#endif
