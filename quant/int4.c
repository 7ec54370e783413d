#include "quant/int4.h"

#include "base/alloc.h"
#include "base/codes.h"
#include "kernels/half.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 15, WORD = 8 /* codes per word */, F16_MAX = 65504 };

static float clamp(float x, float lo, float hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* Round a small value to even by adding and subtracting a large one: this is the search's innermost loop. */
static float round_even(float x)
{
	return (x + 0x1.8p23f) - 0x1.8p23f;
}

struct int4_group int4_grid(const float *w, int n, float ratio)
{
	float lo = 0, hi = 0;
	for (int i = 0; i < n; i++) {
		lo = w[i] < lo ? w[i] : lo;
		hi = w[i] > hi ? w[i] : hi;
	}
	lo *= ratio;
	hi *= ratio;
	/* Clamp to F16: there is no smaller scale, and beyond the largest the codes saturate. */
	const float step = (hi - lo) / TOP;
	struct int4_group g = {.scale = half_from_f16(half_near_f16(clamp(step, 0x1p-24f, F16_MAX)))};
	g.zero = (int)round_even(clamp(-lo / (step > F16_MAX ? step : g.scale), 0, TOP));
	return g;
}

void int4_round(const struct int4_group *g, const float *w, int n, float *out, uint8_t *codes)
{
	const float lo = (float)-g->zero, hi = (float)(TOP - g->zero);
	for (int i = 0; i < n; i++) {
		const float q = round_even(clamp(w[i] / g->scale, lo, hi));
		out[i] = q * g->scale;
		if (codes)
			codes[i] = (uint8_t)(q + (float)g->zero);
	}
}

void int4_row(const float *w, int k, int group, const float *ratios, float *out)
{
	for (int i = 0, j = 0; i < k; i += group, j++) {
		const int n = k - i < group ? k - i : group;
		const struct int4_group g = int4_grid(w + i, n, ratios ? ratios[j] : 1);
		int4_round(&g, w + i, n, out + i, NULL);
	}
}

void int4_pack(const float *w, int n, int k, int group, const float *ratios, uint32_t *qweight,
	       uint32_t *qzeros, uint16_t *scales)
{
	const int groups = (k + group - 1) / group, words = n / WORD;
	assert(n % WORD == 0);
	memset(qweight, 0, (size_t)k * (size_t)words * sizeof *qweight);
	memset(qzeros, 0, (size_t)groups * (size_t)words * sizeof *qzeros);
	float *out = xmalloc((size_t)group * sizeof *out);
	uint8_t *codes = xmalloc((size_t)group);
	for (int row = 0; row < n; row++) {
		const int at = row / WORD, shift = 4 * codes_awq_nibble(row % WORD);
		for (int j = 0; j < groups; j++) {
			const int k0 = j * group, m = k - k0 < group ? k - k0 : group;
			const float *from = w + (size_t)row * (size_t)k + k0;
			const struct int4_group g = int4_grid(
				from, m, ratios ? ratios[(size_t)row * (size_t)groups + (size_t)j] : 1);
			int4_round(&g, from, m, out, codes);
			for (int i = 0; i < m; i++)
				qweight[(size_t)(k0 + i) * (size_t)words + (size_t)at] |= (uint32_t)codes[i]
											  << shift;
			qzeros[(size_t)j * (size_t)words + (size_t)at] |= (uint32_t)g.zero << shift;
			scales[(size_t)j * (size_t)n + (size_t)row] = half_near_f16(g.scale);
		}
	}
	free(out);
	free(codes);
}
