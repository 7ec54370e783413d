#include "quant/round/hf_rows.h"

#include <math.h>
#include <string.h>

static float largest(const float *x, int k)
{
	float top = 0;
	for (int i = 0; i < k; i++)
		top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
	return top;
}

void round_int8_row(const float *x, int k, int8_t *code, float *scale)
{
	*scale = largest(x, k) / 127;
	for (int i = 0; i < k; i++) {
		const float q = *scale > 0 ? rintf(x[i] / *scale) : 0;
		code[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
	}
}

uint8_t round_e4m3(float x)
{
	uint32_t u;
	memcpy(&u, &x, 4);
	const uint8_t sign = (uint8_t)(u >> 24 & 0x80);
	const float size = fabsf(x);
	if (size >= 448)
		return sign | 0x7e;
	/* Below 2^-6 the steps are 2^-9 wide. */
	if (size < 0x1p-6f)
		return sign | (uint8_t)(rintf(size * 0x1p9f));
	u &= 0x7fffffff;
	u += 0x7ffff + (u >> 20 & 1);
	return sign | (uint8_t)((u >> 20) - ((127 - 7) << 3));
}

void round_fp8_row(const float *x, int k, uint8_t *code, float *scale)
{
	*scale = largest(x, k) / 448;
	for (int i = 0; i < k; i++)
		code[i] = round_e4m3(*scale > 0 ? x[i] / *scale : 0);
}
