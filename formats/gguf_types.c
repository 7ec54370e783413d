/* gguf_types.c - the quantized types of GGUF as codes (base/codes.h).  A row is a sequence of blocks; the
 * layout of a block is at its reader.  F16 values are little-endian.  In a block of 32 values, the low
 * nibbles are the first 16 values. */
#include "formats/gguf.h"
#include "formats/gguf_types_impl.h"

#include <string.h>

enum { SMALL = 32, LARGE = 256 }; /* values of a block, and of a super-block */

const float gguf_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Convert F16 to F32 exactly, subnormals included: move exponent and mantissa to their places in an F32, then
 * multiply by 2^(127 - 15). */
float gguf_f16_at(const unsigned char *p)
{
	uint16_t h;
	float f;
	memcpy(&h, p, 2);
	const uint32_t size = (uint32_t)(h & 0x7fff) << 13;
	memcpy(&f, &size, 4);
	f *= 0x1p112f;
	uint32_t bits;
	memcpy(&bits, &f, 4);
	bits |= (uint32_t)(h & 0x8000) << 16 | (size >= 0x0f800000 ? 0x7f800000 | size : 0);
	memcpy(&f, &bits, 4);
	return f;
}

static void one(const struct block *to, int scale, int offset)
{
	*to->scale = (int16_t)scale;
	*to->offset = (int16_t)offset;
}

/* Sixteen bytes, in the machine's byte order. */
typedef uint64_t bytes16 __attribute__((vector_size(16)));

static bytes16 sixteen(const unsigned char *p)
{
	bytes16 v;
	memcpy(&v, p, sizeof v);
	return v;
}

static void put_sixteen(uint8_t *p, bytes16 v)
{
	memcpy(p, &v, sizeof v);
}

enum { EACH_BIT = 1, EACH_PAIR = 3, EACH_NIBBLE = 15 };

/* Extract the bits of `mask` from each byte, starting at bit `at`. */
static bytes16 bits_of(bytes16 v, int at, int mask)
{
	return v >> at & (uint64_t)mask * 0x0101010101010101u;
}

/* Store the sixteen bytes of v as int16. */
static void put_words(int16_t *p, bytes16 v)
{
	typedef uint8_t bytes __attribute__((vector_size(16)));
	const bytes b = (bytes)v, zero = {0};
	const bytes low =
		__builtin_shufflevector(b, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
	const bytes high = __builtin_shufflevector(b, zero, 8, 16, 9, 17, 10, 18, 11, 19, 12, 20, 13, 21, 14,
						   22, 15, 23);
	memcpy(p, &low, sizeof low);
	memcpy(p + 8, &high, sizeof high);
}

static void nibbles(uint8_t *code, const unsigned char *q, int n)
{
	for (int i = 0; i < n; i += 16) {
		const bytes16 v = sixteen(q + i);
		put_sixteen(code + i, bits_of(v, 0, EACH_NIBBLE));
		put_sixteen(code + i + n, bits_of(v, 4, EACH_NIBBLE));
	}
}

/* ---- blocks of 32 ---- */

/* d f16 | int8 [32] */
static void gguf_read_q8_0(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	one(to, 1, 128);
	for (int i = 0; i < SMALL; i += 16)
		put_sixteen(to->code + i, sixteen(p + 2 + i) ^ 0x8080808080808080u);
}

/* d f16 | nibbles [16] */
static void gguf_read_q4_0(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	one(to, 1, 8);
	nibbles(to->code, p + 2, 16);
}

/* d f16 | m f16 | nibbles [16] */
static void gguf_read_q4_1(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	*to->dmin = -gguf_f16_at(p + 2);
	one(to, 1, 1);
	nibbles(to->code, p + 4, 16);
}

/* Move bit i of four to byte i with a multiplication: i + 7 i = 8 i, and no two partial products overlap. */
static void fifth_bits(uint8_t *code, const unsigned char *high)
{
	for (int i = 0; i < SMALL; i += 8) {
		uint64_t v;
		memcpy(&v, code + i, 8);
		const uint64_t low = high[i / 8] & 15u, top = high[i / 8] >> 4;
		const uint64_t spread = (low * 0x00204081u & 0x01010101u) | (top * 0x00204081u & 0x01010101u)
										    << 32;
		v |= spread << 4;
		memcpy(code + i, &v, 8);
	}
}

/* d f16 | fifth bits u32 | nibbles [16] */
static void gguf_read_q5_0(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	one(to, 1, 16);
	nibbles(to->code, p + 6, 16);
	fifth_bits(to->code, p + 2);
}

/* d f16 | m f16 | fifth bits u32 | nibbles [16] */
static void gguf_read_q5_1(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	*to->dmin = -gguf_f16_at(p + 2);
	one(to, 1, 1);
	nibbles(to->code, p + 8, 16);
	fifth_bits(to->code, p + 4);
}

/* d f16 | nibbles [16], indexes into a table */
static void gguf_read_iq4_nl(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	one(to, 1, 0);
	nibbles(to->code, p + 2, 16);
}

/* exponent u8 | nibbles [16]: d is 2^(exponent - 128), since the table has doubled values */
static void gguf_read_mxfp4(const unsigned char *p, const struct block *to)
{
	*to->d = codes_e8m0_half(*p);
	one(to, 1, 0);
	nibbles(to->code, p + 1, 16);
}

/* ---- super-blocks of 256 ---- */

/* Unpack two bits per value: byte 32 j + i has values 128 j + i + 0, 32, 64, 96. */
static void crumbs(uint8_t *code, const unsigned char *q)
{
	for (int i = 0; i < LARGE; i += 16)
		put_sixteen(code + i,
			    bits_of(sixteen(q + i / 128 * 32 + i % 32), i % 128 / 32 * 2, EACH_PAIR));
}

/* Add one more bit per value, at bit `at`: byte i % 32 has those of values i, i + 32 and so on. */
static void one_bit(uint8_t *code, const unsigned char *high, int at)
{
	for (int i = 0; i < LARGE; i += 16)
		put_sixteen(code + i, sixteen(code + i) | bits_of(sixteen(high + i % 32), i / 32, EACH_BIT)
								  << at);
}

/* scale and minimum in nibbles [16] | two bits [64] | d f16 | dmin f16 */
static void gguf_read_q2_k(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p + 80);
	*to->dmin = gguf_f16_at(p + 82);
	put_words(to->scale, bits_of(sixteen(p), 0, EACH_NIBBLE));
	put_words(to->offset, bits_of(sixteen(p), 4, EACH_NIBBLE));
	crumbs(to->code, p + 16);
}

/* third bits [32] | two bits [64] | 16 scales of 6 bits [12] | d f16.  Bytes 0 to 7 have the low nibbles of
 * the scales: 0 to 7 in their low halves, 8 to 15 in their high halves.  Bytes 8 to 11 have the high two bits
 * in the same way. */
static void gguf_read_q3_k(const unsigned char *p, const struct block *to)
{
	const unsigned char *s = p + 96;
	*to->d = gguf_f16_at(p + 108);
	for (int g = 0; g < 16; g++) {
		const int low = s[g % 8] >> g / 8 * 4 & 15, high = s[8 + g % 4] >> g / 4 * 2 & 3;
		to->scale[g] = (int16_t)((low | high << 4) - 32);
		to->offset[g] = 4;
	}
	crumbs(to->code, p + 32);
	one_bit(to->code, p, 2);
}

/* Unpack 8 scales and 8 minimums of 6 bits from 12 bytes.  Groups 0 to 3: the low bits of bytes 0 to 3
 * (scales) and 4 to 7 (minimums).  Groups 4 to 7: the low four bits in bytes 8 to 11, the high two bits on
 * top of bytes 0 to 7. */
static void sixes(const unsigned char *s, const struct block *to)
{
	for (int g = 0; g < 4; g++) {
		to->scale[g] = s[g] & 63;
		to->offset[g] = s[4 + g] & 63;
		to->scale[4 + g] = (int16_t)((s[8 + g] & 15) | s[g] >> 6 << 4);
		to->offset[4 + g] = (int16_t)(s[8 + g] >> 4 | s[4 + g] >> 6 << 4);
	}
}

/* Unpack pairs of groups of 32: the low nibbles of 32 bytes, then the high nibbles. */
static void large_nibbles(uint8_t *code, const unsigned char *q)
{
	for (int g = 0; g < 4; g++)
		nibbles(code + g * 64, q + g * 32, 32);
}

/* d f16 | dmin f16 | scales and minimums [12] | nibbles [128] */
static void gguf_read_q4_k(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	*to->dmin = gguf_f16_at(p + 2);
	sixes(p + 4, to);
	large_nibbles(to->code, p + 16);
}

/* d f16 | dmin f16 | scales and minimums [12] | fifth bits [32] | nibbles [128] */
static void gguf_read_q5_k(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	*to->dmin = gguf_f16_at(p + 2);
	sixes(p + 4, to);
	large_nibbles(to->code, p + 48);
	one_bit(to->code, p + 16, 4);
}

/* low nibbles [128], pairs of 64 | two high bits [64] | scales int8 [16] | d f16 */
static void gguf_read_q6_k(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p + 208);
	for (int g = 0; g < 16; g++) {
		to->scale[g] = (int8_t)p[192 + g];
		to->offset[g] = 32;
	}
	for (int i = 0; i < LARGE; i += 16) {
		const bytes16 high = sixteen(p + 128 + i / 128 * 32 + i % 32);
		const bytes16 low = sixteen(p + i / 128 * 64 + i % 64);
		put_sixteen(to->code + i, bits_of(low, i % 128 / 64 * 4, EACH_NIBBLE) |
						  bits_of(high, i % 128 / 32 * 2, EACH_PAIR) << 4);
	}
}

/* d f16 | high pairs of the scales u16 | low nibbles of the scales [4] | nibbles [128] */
static void gguf_read_iq4_xs(const unsigned char *p, const struct block *to)
{
	*to->d = gguf_f16_at(p);
	for (int g = 0; g < 8; g++) {
		const int low = p[4 + g / 2] >> g % 2 * 4 & 15, high = p[2 + g / 4] >> g % 4 * 2 & 3;
		to->scale[g] = (int16_t)((low | high << 4) - 32);
		to->offset[g] = 0;
		nibbles(to->code + g * 32, p + 8 + g * 16, 16);
	}
}

/* ---- rows ---- */

struct kind {
	enum gguf_type type;
	int values, bytes; /* per block */
	int bits, group, zero;
	enum codes_float d_type;
	const float *table;
	void (*block)(const unsigned char *p, const struct block *to);
};

static const struct kind kinds[] = {
#define KIND(number, NAME, name, values, bytes, bits, group, zero, d, table, ...)                            \
	{GGUF_TYPE_##NAME, values, bytes, bits, group, zero, CODES_##d, table, gguf_read_##name},
	BLOCK_TYPES(KIND, KIND)};

static void read_rows(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct kind *t = c->from[1];
	const unsigned char *p = c->from[0];
	const size_t blocks = (size_t)(c->k / t->values), per = (size_t)(t->values / t->group);
	p += (size_t)n0 * blocks * (size_t)t->bytes;
	for (size_t i = 0; i < (size_t)(n1 - n0) * blocks; i++, p += t->bytes) {
		const struct block to = {.code = out->code + i * (size_t)t->values,
					 .scale = out->scale + i * per,
					 .offset = out->offset + i * per,
					 .d = out->d + i,
					 .dmin = out->dmin ? out->dmin + i : NULL};
		t->block(p, &to);
	}
}

/* Return whether codes of 8 bits are stored in less than half of that: as entries of a codebook. */
static bool is_codebook(const struct kind *t)
{
	return t->bits == 8 && t->bytes * 2 < t->values;
}

bool gguf_codes(enum gguf_type type, int n, int k, const void *data, struct codes *out)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const struct kind *t = &kinds[i];
		if (t->type != type || k % t->values)
			continue;
		*out = (struct codes){.n = n,
				      .k = k,
				      .bits = t->bits,
				      .group = t->group,
				      .super = t->values,
				      .minimums = t->zero < 0,
				      .zero = t->zero,
				      .d_type = t->d_type,
				      .table = t->table,
				      .read = read_rows,
				      .super_bytes = is_codebook(t) ? t->bytes : 0,
				      .from = {data, t}};
		return true;
	}
	return false;
}
