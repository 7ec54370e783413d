/* avx512amx.c - the integer kernels for AMX: sixteen rows by sixteen outputs by 64 k in one instruction.
 * Rows in sixteens go through tiles, what is left over through VNNI: the sums are exact, so the bits are the
 * same.  See dots.h.
 *
 *     tile 0, 1   A: 16 rows of 64 signed bytes of two row blocks
 *     tile 2, 3   B: 16 lines of [16 outputs][4 codes] of two tiles of outputs
 *     tile 4..7   C: int32 [16 rows][16 outputs] of A 0 B 2, A 0 B 3, A 1 B 2, A 1 B 3 */
#include "kernels/cpu/dot/dot.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(DOT_EMULATED)

#include "kernels/cpu/dot/avx512.h"

enum {
	AMX_ROWS = 16,
	AMX_K = 64,
};

#ifndef DOT_EMULATED

/* Asm, so that no compiler has to know the extension; "memory", since a tile is no operand of it. */
#define AMX_LOAD(t, p, stride)                                                                               \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))     \
			 : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(p)), "r"((size_t)(stride))       \
			 : "memory")
#define AMX_ZERO(t)      __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_RELEASE()    __asm__ volatile("tilerelease" ::: "memory")

/* All eight tiles are 16 rows of 64 bytes. */
static void amx_configure(void)
{
	static const struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1,
		    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
		    .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
	__asm__ volatile("ldtilecfg %0" ::"m"(config));
}

#endif

#define DOT_NAME "amx"
#define DOT_ENTER                                                                                            \
	const bool tiles = t->n_rows >= AMX_ROWS;                                                            \
	if (tiles)                                                                                           \
		amx_configure();
#define DOT_LEAVE                                                                                            \
	if (tiles)                                                                                           \
		AMX_RELEASE();

struct seg;
static void seg_amx(struct seg s);
#define DOT_SEGMENT seg_amx
#include "kernels/cpu/dot/dots.h"

/* The sums of two row blocks (or one, then a is given twice) with two tiles of outputs over n_k steps. */
static void amx_sums(const unsigned char *a0, const unsigned char *a1, size_t a_stride,
		     const unsigned char *lines, size_t tile2, size_t step, int n_k, int32_t (*out)[16][16])
{
	AMX_ZERO(4);
	AMX_ZERO(5);
	AMX_ZERO(6);
	AMX_ZERO(7);
	for (int i = 0; i < n_k; i++, lines += 16 * step, a0 += AMX_K, a1 += AMX_K) {
		AMX_LOAD(2, lines, step);
		AMX_LOAD(3, lines + tile2, step);
		AMX_LOAD(0, a0, a_stride);
		AMX_DOT(4, 0, 2);
		AMX_DOT(5, 0, 3);
		if (a1 == a0)
			continue;
		AMX_LOAD(1, a1, a_stride);
		AMX_DOT(6, 1, 2);
		AMX_DOT(7, 1, 3);
	}
	AMX_STORE(4, out[0], 64);
	AMX_STORE(5, out[1], 64);
	AMX_STORE(6, out[2], 64);
	AMX_STORE(7, out[3], 64);
}

/* Two row blocks and two tiles of outputs from v on; high and low bytes of int16 are summed apart. */
static void amx_square(const struct seg *s, int v, int n_v, int n_blocks, int n_k)
{
	const struct cpu_operand *op = s->t->op;
	_Alignas(64) int32_t sums[2][4][16][16];
	const size_t second = n_blocks > 1 ? AMX_ROWS * op->row : 0, tile2 = n_v > 1 ? 64 : 0;
	for (int b = 0; b < (op->wide ? 2 : 1); b++) {
		const unsigned char *a = s->x + (size_t)b * (size_t)op->k_pad;
		amx_sums(a, a + second, op->row, s->lines + (size_t)v * 64, tile2, s->step, n_k, sums[b]);
	}
	for (int r = 0; r < n_blocks * AMX_ROWS; r++)
		for (int j = 0; j < n_v; j++) {
			const int at = r / AMX_ROWS * 2 + j, row = r % AMX_ROWS;
			struct seg one = *s;
			qa sum = _mm512_loadu_si512(sums[0][at][row]);
			if (op->wide)
				sum = qa_add(qa_shl(sum, 8), _mm512_loadu_si512(sums[1][at][row]));
			one.row += (size_t)r * op->row;
			one.c += (size_t)r * (size_t)s->t->tn * 16;
			seg_scale(&one, v + j, 1, &sum, s->t->tn);
		}
}

/* Codes of one byte, padded with zeros to whole steps of 64 k: the activations beyond a segment are
 * another's, and count for nothing. */
static int amx_lines(struct seg *s)
{
	const struct cpu_dot_tile *t = s->t;
	const size_t line = (size_t)t->tn * 64;
	if (t->bits == 4) {
		seg_unpack(s, t->scratch);
	} else {
		for (int i = 0; i < s->n_lines; i++)
			memcpy(t->scratch + (size_t)i * line, s->lines + (size_t)i * s->step, line);
		s->lines = t->scratch;
		s->step = line;
	}
	const int n_k = (s->n_lines + 15) / 16;
	memset(t->scratch + (size_t)s->n_lines * line, 0, (size_t)(n_k * 16 - s->n_lines) * line);
	return n_k;
}

static void seg_amx(struct seg s)
{
	const struct cpu_dot_tile *t = s.t;
	const int blocks = t->n_rows / AMX_ROWS;
	int bits = t->bits;
	if (blocks) {
		const int n_k = amx_lines(&s);
		for (int b = 0; b < blocks; b += 2) {
			const int n = blocks - b < 2 ? blocks - b : 2;
			for (int v = 0; v < t->tn; v += 2)
				amx_square(&s, v, t->tn - v < 2 ? t->tn - v : 2, n, n_k);
			s.x += (size_t)(n * AMX_ROWS) * t->op->row;
			s.row += (size_t)(n * AMX_ROWS) * t->op->row;
			s.c += (size_t)(n * AMX_ROWS) * (size_t)t->tn * 16;
		}
		bits = 8;
	} else if (bits == 4 && t->n_rows >= DOT_UNPACK) {
		seg_unpack(&s, t->scratch);
		bits = 8;
	}
	if (t->n_rows % AMX_ROWS)
		seg_all(s, bits, t->n_rows % AMX_ROWS);
}

#ifdef DOT_EMULATED

const struct cpu_dot *DOT_EMULATED(void)
{
	return &dots_table;
}

#else

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The system gives a process its tiles on request only. */
static bool amx_granted(void)
{
	enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
	return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

const struct cpu_dot *cpu_dot_amx(void)
{
	unsigned a, b, c, d;
	bool ok = cpu_dot_avx512vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) &&
		  (d >> 25 & 1) && amx_granted();
	return ok ? &dots_table : NULL;
}

#endif

#else

const struct cpu_dot *cpu_dot_amx(void)
{
	return NULL;
}

#endif
