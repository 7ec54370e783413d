/* pack_codes.c - packs the heads and lines of codes.
 *
 * A line has a word of each of 16 outputs, but codes are read in rows, one per output.  Four rows of 16 codes
 * become words, which are transposed and stored.
 *
 *     row n      | 0 .. 15 |        4 bits: words 0 .. 7, 8 .. 15        lines   | n | n+1 | n+2 | n+3 |
 *     row n + 1  | 0 .. 15 |   ->   8 bits: words 0 .. 3, ..., 12 .. 15     ->   | n | n+1 | n+2 | n+3 |
 *     ... */
#include "kernels/cpu/pack.h"

#include <string.h>

size_t cpu_pack_group_bytes(const struct cpu_codes *c, int len)
{
	const int lines = c->bits == 4 ? (len + 7) / 8 : c->bits == 6 ? (len + 15) / 16 * 3 : (len + 3) / 4;
	return (size_t)c->head + (size_t)lines * 64;
}

/* ---- heads ---- */

/* Pack d and dmin of super-group s, for at most 16 outputs from row0 on. */
static void pack_super(const struct codes *c, const struct pack_rows *r, int s, int row0, int rows,
		       unsigned char *head)
{
	for (int n = 0; n < rows; n++) {
		const size_t at = (size_t)(row0 + n) * (size_t)codes_supers(c) + (size_t)s;
		memcpy(head + n * 2, &r->d[at], 2);
		if (c->minimums)
			memcpy(head + 32 + n * 2, &r->dmin[at], 2);
	}
}

/* Pack the head of F32 scales (and minimums) of group g. */
static void pack_floats(const struct cpu_codes *p, const struct codes *c, const struct code_rows *r, int g,
			int row0, int rows, unsigned char *head)
{
	const size_t groups = (size_t)codes_groups(c), supers = (size_t)codes_supers(c);
	const size_t super = (size_t)(g * c->group / c->super);
	for (int n = 0; n < rows; n++) {
		const size_t row = (size_t)(row0 + n), at = row * groups + (size_t)g,
			     s = row * supers + super;
		const float scale = r->d[s] * (float)r->scale[at];
		memcpy(head + n * 4, &scale, 4);
		if (!p->minimums)
			continue;
		const float min = r->dmin[s] * (float)r->offset[at];
		memcpy(head + 64 + n * 4, &min, 4);
	}
}

/* Pack the scales and offsets of group g. */
static void pack_head(const struct cpu_codes *p, const struct codes *c, const struct pack_rows *r, int g,
		      int row0, int rows, unsigned char *head)
{
	const size_t groups = (size_t)codes_groups(c);
	size_t at = (size_t)row0 * groups + (size_t)g;
	if (p->heads == HEADS_F32) {
		pack_floats(p, c, &r->r, g, row0, rows, head);
		return;
	}
	for (int n = 0; n < rows; n++, at += groups)
		if (p->heads == HEADS_SUPER) {
			head[n] = (unsigned char)r->r.scale[at];
			if (p->minimums)
				head[16 + n] = (unsigned char)r->r.offset[at];
		} else {
			memcpy(head + n * 2, &r->d[at], 2);
			if (p->heads == HEADS_AWQ)
				head[32 + n] = (unsigned char)(c->zero >= 0 ? c->zero : r->r.offset[at]);
		}
}

/* ---- lines ---- */

static uint64_t eight(const uint8_t *code)
{
	uint64_t v;
	memcpy(&v, code, 8);
	return v;
}

/* Combine eight bytes: bytes 0 to 3 and, `at` bits further up, bytes 4 to 7. */
static uint32_t halves_of(uint64_t v, int at)
{
	return (uint32_t)(v | v >> (32 - at));
}

/* Store one output's word in each line of a round of codes; lines are step bytes apart. */
static inline void pack_round(const int bits, const uint8_t *code, unsigned char *line, size_t step)
{
	if (bits == 8) {
		memcpy(line, code, 4);
		return;
	}
	uint32_t pairs = 0;
	for (int i = 0; i < (bits == 6 ? 2 : 1); i++) {
		const uint64_t v = eight(code + 8 * i);
		const uint32_t word = halves_of(v & 0x0f0f0f0f0f0f0f0fu, 4);
		pairs |= halves_of(v >> 4 & 0x0303030303030303u, 2) << 4 * i;
		memcpy(line + (size_t)i * step, &word, 4);
	}
	if (bits == 6)
		memcpy(line + 2 * step, &pairs, 4);
}

static inline void pack_row(const int bits, const uint8_t *code, int len, unsigned char *line, size_t step)
{
	const int per_round = bits == 4 ? 8 : bits == 6 ? 16 : 4;
	int k = 0;
	for (; k + per_round <= len; k += per_round, line += bits == 6 ? 3 * step : step)
		pack_round(bits, code + k, line, step);
	if (k < len) {
		uint8_t last[16] = {0};
		memcpy(last, code + k, (size_t)(len - k));
		pack_round(bits, last, line, step);
	}
}

/* ---- sixteen outputs at once ---- */

enum { PIECE = 16 }; /* codes of a row at a time */

typedef uint64_t longs __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));

/* Load codes of a row from `code` on, keeping only the bits of mask. */
static inline longs piece(const uint8_t *code, int mask)
{
	longs v;
	memcpy(&v, code, sizeof v);
	return v & (uint64_t)mask * 0x0101010101010101u;
}

static inline void put(unsigned char *line, words v)
{
	memcpy(line, &v, sizeof v);
}

/* Collect the lower word of each half of four rows: out[0] from the first halves, out[1] from the second. */
static inline void halves(const longs v[4], words out[2])
{
	const words a = __builtin_shufflevector((words)v[0], (words)v[1], 0, 2, 4, 6);
	const words b = __builtin_shufflevector((words)v[2], (words)v[3], 0, 2, 4, 6);
	out[0] = __builtin_shufflevector(a, b, 0, 2, 4, 6);
	out[1] = __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

/* Pack 16 codes of four rows, k codes apart, to their words of the lines. */
static inline void four_rows(const int bits, const uint8_t *code, size_t k, unsigned char *line, size_t step)
{
	longs low[4], high[4];
	words w[2], pairs[2];
	for (int n = 0; n < 4; n++) {
		const longs v = piece(code + (size_t)n * k, 15);
		low[n] = v | v >> 28;
	}
	halves(low, w);
	put(line, w[0]);
	put(line + step, w[1]);
	if (bits == 4)
		return;
	for (int n = 0; n < 4; n++) {
		const longs v = piece(code + (size_t)n * k, 48);
		high[n] = v >> 4 | v >> 34;
	}
	halves(high, pairs);
	put(line + 2 * step, pairs[0] | pairs[1] << 4);
}

/* Transpose four rows of four words, k bytes apart, to four lines. */
static inline void transpose_words(const uint8_t *code, size_t k, unsigned char *line, size_t step)
{
	const words v0 = (words)piece(code, 255), v1 = (words)piece(code + k, 255),
		    v2 = (words)piece(code + 2 * k, 255), v3 = (words)piece(code + 3 * k, 255);
	const words a = __builtin_shufflevector(v0, v1, 0, 4, 1, 5),
		    b = __builtin_shufflevector(v2, v3, 0, 4, 1, 5),
		    c = __builtin_shufflevector(v0, v1, 2, 6, 3, 7),
		    d = __builtin_shufflevector(v2, v3, 2, 6, 3, 7);
	put(line, __builtin_shufflevector(a, b, 0, 1, 4, 5));
	put(line + step, __builtin_shufflevector(a, b, 2, 3, 6, 7));
	put(line + 2 * step, __builtin_shufflevector(c, d, 0, 1, 4, 5));
	put(line + 3 * step, __builtin_shufflevector(c, d, 2, 3, 6, 7));
}

/* Pack 16 outputs.  len: a multiple of PIECE. */
static inline void pack_tile(const int bits, const uint8_t *code, size_t k, int len, unsigned char *line,
			     size_t step)
{
	for (int i = 0; i < len; i += PIECE, line += (size_t)(bits == 8 ? 4 : bits == 6 ? 3 : 2) * step)
		for (int n = 0; n < LANES_N; n += 4) {
			const uint8_t *from = code + (size_t)n * k + i;
			if (bits == 8)
				transpose_words(from, k, line + n * 4, step);
			else
				four_rows(bits, from, k, line + n * 4, step);
		}
}

/* ---- lines of floats of 8 bits ---- */

typedef uint8_t bytes __attribute__((vector_size(16)));

static inline bytes zip_low(bytes a, bytes b)
{
	return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

static inline bytes zip_high(bytes a, bytes b)
{
	return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Transpose 16 codes of sixteen rows to columns. */
static void transpose_piece(const uint8_t *code, size_t k, unsigned char *line, size_t step)
{
	bytes v[LANES_N], to[LANES_N];
	for (int n = 0; n < LANES_N; n++)
		memcpy(&v[n], code + (size_t)n * k, sizeof v[n]);
	for (int round = 0; round < 4; round++) {
		for (int n = 0; n < LANES_N / 2; n++) {
			to[2 * n] = zip_low(v[n], v[n + LANES_N / 2]);
			to[2 * n + 1] = zip_high(v[n], v[n + LANES_N / 2]);
		}
		memcpy(v, to, sizeof v);
	}
	for (int i = 0; i < PIECE; i++)
		memcpy(line + (size_t)(i / 4) * step + (size_t)(i % 4) * LANES_N, &v[i], sizeof v[i]);
}

static void pack_e4m3(const uint8_t *code, size_t k, int len, int rows, unsigned char *line, size_t step)
{
	int i = 0;
	for (; rows == LANES_N && i + PIECE <= len; i += PIECE)
		transpose_piece(code + i, k, line + (size_t)(i / 4) * step, step);
	for (; i < len; i++)
		for (int n = 0; n < rows; n++)
			line[(size_t)(i / 4) * step + (size_t)(i % 4 * LANES_N + n)] =
				code[(size_t)n * k + (size_t)i];
}

/* ---- blocks ---- */

/* Pack the lines of a group, step bytes apart.  code: len codes of each row; rows are k codes apart. */
static void pack_lines(const struct cpu_codes *p, const uint8_t *code, size_t k, int len, int rows,
		       unsigned char *lines, size_t step)
{
	const int bits = p->bits;
	if (p->e4m3) {
		pack_e4m3(code, k, len, rows, lines, step);
		return;
	}
	if (rows == LANES_N && len % PIECE == 0) {
		if (bits == 4)
			pack_tile(4, code, k, len, lines, step);
		else if (bits == 6)
			pack_tile(6, code, k, len, lines, step);
		else
			pack_tile(8, code, k, len, lines, step);
		return;
	}
	for (int n = 0; n < rows; n++, code += k, lines += 4)
		if (bits == 4)
			pack_row(4, code, len, lines, step);
		else if (bits == 6)
			pack_row(6, code, len, lines, step);
		else
			pack_row(8, code, len, lines, step);
}

void cpu_pack_codes(const struct cpu_codes *p, const struct codes *c, const struct pack_rows *r, int n,
		    int tiles, unsigned char *out)
{
	for (int g = 0; g < codes_groups(c); g++) {
		const int k0 = g * c->group, len = c->k - k0 < c->group ? c->k - k0 : c->group;
		if (p->heads == HEADS_SUPER && k0 % c->super == 0) {
			for (int t = 0; t * LANES_N < n; t++)
				pack_super(c, r, k0 / c->super, t * LANES_N,
					   n - t * LANES_N < LANES_N ? n - t * LANES_N : LANES_N,
					   out + t * p->super_head);
			out += tiles * p->super_head;
		}
		unsigned char *lines = out + tiles * p->head;
		for (int t = 0; t * LANES_N < n; t++) {
			int rows = n - t * LANES_N < LANES_N ? n - t * LANES_N : LANES_N;
			pack_head(p, c, r, g, t * LANES_N, rows, out + t * p->head);
			pack_lines(p, r->r.code + (size_t)(t * LANES_N) * (size_t)c->k + k0, (size_t)c->k,
				   len, rows, lines + t * 64, (size_t)tiles * 64);
		}
		out += (size_t)tiles * cpu_pack_group_bytes(p, len);
	}
}

/* ---- values of 2 and 4 bytes ---- */

typedef uint16_t shorts __attribute__((vector_size(16)));

/* Transpose 8 rows of 8 values of 2 bytes. */
static void transpose_shorts(const unsigned char *row, size_t row_step, unsigned char *out,
			     size_t column_step)
{
	shorts v[8], to[8];
	for (int n = 0; n < 8; n++)
		memcpy(&v[n], row + (size_t)n * row_step, sizeof v[n]);
	for (int round = 0; round < 3; round++) {
		for (int n = 0; n < 4; n++) {
			to[2 * n] = __builtin_shufflevector(v[n], v[n + 4], 0, 8, 1, 9, 2, 10, 3, 11);
			to[2 * n + 1] = __builtin_shufflevector(v[n], v[n + 4], 4, 12, 5, 13, 6, 14, 7, 15);
		}
		memcpy(v, to, sizeof v);
	}
	for (int i = 0; i < 8; i++)
		memcpy(out + (size_t)i * column_step, &v[i], sizeof v[i]);
}

void cpu_pack_transpose(const unsigned char *rows, size_t row_step, int n, int k, int es, unsigned char *out,
			size_t column_step)
{
	const int side = es == 2 ? 8 : 4, n_whole = n / side * side, k_whole = k / side * side;
	const size_t size = (size_t)es;
	for (int i = 0; i < k_whole; i += side)
		for (int r = 0; r < n_whole; r += side) {
			const unsigned char *from = rows + (size_t)r * row_step + (size_t)i * size;
			unsigned char *to = out + (size_t)i * column_step + (size_t)r * size;
			if (es == 2)
				transpose_shorts(from, row_step, to, column_step);
			else
				transpose_words(from, row_step, to, column_step);
		}
	for (int r = 0; r < n; r++)
		for (int i = r < n_whole ? k_whole : 0; i < k; i++)
			memcpy(out + (size_t)i * column_step + (size_t)r * size,
			       rows + (size_t)r * row_step + (size_t)i * size, size);
}
