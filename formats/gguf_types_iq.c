/* gguf_types_iq.c - the types of GGUF whose weights are entries of a codebook: 8 (or 4) values that an index
 * of 8 to 11 bits names.  IQ2 and IQ3 have magnitudes there, and a sign bit per value.  IQ1 has -1, 0 and 1,
 * to which an eighth is added or subtracted.
 *
 *     w = d * (2 s + 1) * value        s: scale of 3 or 4 bits of a group of 32 or 16 values
 *
 * Codes are the whole numbers that d's fraction leaves: magnitudes with their signs, or 8 * value +- 1. */
#include "formats/gguf_types_impl.h"

#include "formats/gguf_grid_data.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { VALUES = 256, PART = 32, ZERO = 128 };

/* The codebooks with a byte per value, the first value in the lowest byte. */
static struct {
	uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq1[2048];
	uint32_t iq3_xxs[256], iq3_s[512];
	uint64_t signs[256]; /* byte i is 255 if bit i is set */
} grids;

static uint64_t bytes_of(unsigned entry, const uint8_t *values, int n, int bits)
{
	uint64_t all = 0;
	for (int i = 0; i < n; i++)
		all |= (uint64_t)values[entry >> bits * i & ((1u << bits) - 1)] << 8 * i;
	return all;
}

static void make_grids(void)
{
	static const uint8_t two[] = {8, 25, 43, 0}, xxs[] = {4, 12, 20, 28, 36, 44, 52, 62},
			     three[] = {1, 3, 5, 7, 9, 11, 13, 15}, one[] = {ZERO - 8, ZERO, ZERO + 8, 0},
			     sign[] = {0, 255};
	for (int i = 0; i < 256; i++) {
		grids.iq2_xxs[i] = bytes_of(grid_iq2_xxs[i], two, 8, 2);
		grids.iq3_xxs[i] = (uint32_t)bytes_of(grid_iq3_xxs[i], xxs, 4, 3);
		grids.signs[i] = bytes_of((unsigned)i, sign, 8, 1);
	}
	for (int i = 0; i < 512; i++) {
		grids.iq2_xs[i] = bytes_of(grid_iq2_xs[i], two, 8, 2);
		grids.iq3_s[i] = (uint32_t)bytes_of(grid_iq3_s[i], three, 4, 3);
	}
	for (int i = 0; i < 1024; i++)
		grids.iq2_s[i] = bytes_of(grid_iq2_s[i], two, 8, 2);
	for (int i = 0; i < 2048; i++)
		grids.iq1[i] = bytes_of(grid_iq1[i], one, 8, 2);
}

static void need_grids(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_grids);
}

static uint16_t u16_at(const unsigned char *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static uint32_t u32_at(const unsigned char *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

typedef uint8_t bytes8 __attribute__((vector_size(8)));

/* Store eight magnitudes with their signs. */
static void put_signed(uint8_t *code, uint64_t magnitudes, unsigned signs)
{
	const bytes8 m = (bytes8)magnitudes, s = (bytes8)grids.signs[signs];
	const bytes8 v = (m ^ s) - s + (uint8_t)ZERO;
	memcpy(code, &v, sizeof v);
}

/* Return eight signs of which seven bits are stored: the number of negative values is even. */
static unsigned eight_signs(uint32_t seven)
{
	return seven | (unsigned)__builtin_parity(seven) << 7;
}

static void put_scale(const struct block *to, int group, int s)
{
	to->scale[group] = (int16_t)(2 * s + 1);
	to->offset[group] = ZERO;
}

/* d f16 | 8 parts of 32 values: indexes u8 [4] | signs 4 x 7 bits, scale 4 bits */
void gguf_read_iq2_xxs(const unsigned char *p, const struct block *to)
{
	need_grids();
	*to->d = gguf_f16_at(p) / 8;
	for (int g = 0; g < 8; g++) {
		const unsigned char *part = p + 2 + 8 * g;
		const uint32_t rest = u32_at(part + 4);
		put_scale(to, g, (int)(rest >> 28));
		for (int i = 0; i < 4; i++)
			put_signed(to->code + PART * g + 8 * i, grids.iq2_xxs[part[i]],
				   eight_signs(rest >> 7 * i & 127));
	}
}

/* d f16 | u16 [32]: index 9 bits, signs 7 bits | scales in nibbles [8] */
void gguf_read_iq2_xs(const unsigned char *p, const struct block *to)
{
	need_grids();
	*to->d = gguf_f16_at(p) / 8;
	for (int i = 0; i < 32; i++) {
		const uint32_t q = u16_at(p + 2 + 2 * i);
		put_signed(to->code + 8 * i, grids.iq2_xs[q & 511], eight_signs(q >> 9));
	}
	for (int g = 0; g < 16; g++)
		put_scale(to, g, p[66 + g / 2] >> g % 2 * 4 & 15);
}

/* d f16 | low 8 bits of indexes [32] | signs [32] | high 2 bits of indexes [8] | scales in nibbles [8] */
void gguf_read_iq2_s(const unsigned char *p, const struct block *to)
{
	need_grids();
	*to->d = gguf_f16_at(p) / 8;
	for (int i = 0; i < 32; i++) {
		const unsigned high = (unsigned)p[66 + i / 4] >> i % 4 * 2 & 3;
		put_signed(to->code + 8 * i, grids.iq2_s[p[2 + i] | high << 8], p[34 + i]);
	}
	for (int g = 0; g < 16; g++)
		put_scale(to, g, p[74 + g / 2] >> g % 2 * 4 & 15);
}

static uint64_t pair_of(uint32_t low, uint32_t high)
{
	return low | (uint64_t)high << 32;
}

/* d f16 | indexes u8 [64] | 8 parts of 32 values: signs 4 x 7 bits, scale 4 bits */
void gguf_read_iq3_xxs(const unsigned char *p, const struct block *to)
{
	need_grids();
	*to->d = gguf_f16_at(p) / 4;
	for (int g = 0; g < 8; g++) {
		const unsigned char *q = p + 2 + 8 * g;
		const uint32_t rest = u32_at(p + 66 + 4 * g);
		put_scale(to, g, (int)(rest >> 28));
		for (int i = 0; i < 4; i++)
			put_signed(to->code + PART * g + 8 * i,
				   pair_of(grids.iq3_xxs[q[2 * i]], grids.iq3_xxs[q[2 * i + 1]]),
				   eight_signs(rest >> 7 * i & 127));
	}
}

/* d f16 | low 8 bits of indexes [64] | ninth bits [8] | signs [32] | scales in nibbles [4] */
void gguf_read_iq3_s(const unsigned char *p, const struct block *to)
{
	need_grids();
	*to->d = gguf_f16_at(p);
	for (int i = 0; i < 32; i++) {
		const unsigned char *q = p + 2 + 2 * i;
		const unsigned ninth = (unsigned)p[66 + i / 4] >> i % 4 * 2;
		put_signed(
			to->code + 8 * i,
			pair_of(grids.iq3_s[q[0] | (ninth & 1) << 8], grids.iq3_s[q[1] | (ninth & 2) << 7]),
			p[74 + i]);
	}
	for (int g = 0; g < 8; g++)
		put_scale(to, g, p[106 + g / 2] >> g % 2 * 4 & 15);
}

/* Store eight values of IQ1; down: an eighth is subtracted from each, else added. */
static void put_eighths(uint8_t *code, unsigned index, bool down)
{
	const uint64_t ones = 0x0101010101010101u,
		       v = down ? grids.iq1[index] - ones : grids.iq1[index] + ones;
	memcpy(code, &v, sizeof v);
}

/* d f16 | low 8 bits of indexes [32] | u16 [8]: high bits of indexes 4 x 3, scale 3 bits, an eighth down */
void gguf_read_iq1_s(const unsigned char *p, const struct block *to)
{
	need_grids();
	*to->d = gguf_f16_at(p) / 8;
	for (int g = 0; g < 8; g++) {
		const unsigned rest = u16_at(p + 34 + 2 * g);
		put_scale(to, g, (int)(rest >> 12 & 7));
		for (int i = 0; i < 4; i++)
			put_eighths(to->code + PART * g + 8 * i, p[2 + 4 * g + i] | (rest >> 3 * i & 7) << 8,
				    rest >> 15);
	}
}

/* low 8 bits of indexes [32] | nibbles [16]: high 3 bits of an index, an eighth down | u16 [4]: scales 4 x 3
 * bits, a nibble of d, the lowest first */
void gguf_read_iq1_m(const unsigned char *p, const struct block *to)
{
	need_grids();
	unsigned d = 0;
	for (int i = 0; i < 4; i++)
		d |= (unsigned)u16_at(p + 48 + 2 * i) >> 12 << 4 * i;
	*to->d = gguf_f16_at((const unsigned char[]){(unsigned char)d, (unsigned char)(d >> 8)}) / 8;
	for (int g = 0; g < 16; g++)
		put_scale(to, g, u16_at(p + 48 + g / 4 * 2) >> g % 4 * 3 & 7);
	for (int i = 0; i < 32; i++) {
		const unsigned rest = (unsigned)p[32 + i / 2] >> i % 2 * 4;
		put_eighths(to->code + 8 * i, p[i] | (rest & 7) << 8, rest >> 3 & 1);
	}
}
