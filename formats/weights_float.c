#include "formats/weights.h"

#include <string.h>

static float f32_of_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* Convert IEEE half to single exactly, subnormals included. */
static float f32_of_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exp = h >> 10 & 31, man = h & 1023;
	if (exp == 31)
		return f32_of_bits(sign | 0x7f800000 | man << 13);
	if (exp)
		return f32_of_bits(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * (1.0f / 16777216);
	return sign ? -f : f;
}

void weights_to_f32(const struct weights_vec *v, float *out)
{
	const unsigned char *p = v->data;
	for (int i = 0; i < v->n; i++) {
		uint16_t h;
		if (v->dtype == CONFIG_F32) {
			memcpy(&out[i], p + 4 * (size_t)i, 4);
			continue;
		}
		memcpy(&h, p + 2 * (size_t)i, 2);
		out[i] = v->dtype == CONFIG_F16 ? f32_of_f16(h) : f32_of_bits((uint32_t)h << 16);
	}
}
