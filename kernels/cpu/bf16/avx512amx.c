/* avx512amx.c - the kernels of mode bf16 for AMX: sixteen rows by sixteen outputs by 32 values in one
 * instruction, which sums in the order of bf16.h.
 * Tests compile it with BF16_EMULATED.
 *
 * More than 16 rows:  tile 0, 1   A: 16 rows (the second: the rest of 32) of 32 values
 *                     tile 2, 3   B: bricks of two tiles of outputs
 *                     tile 4..7   C: A 0 B 2, A 0 B 3, A 1 B 2, A 1 B 3
 * Up to 16 rows:      tile 0      A
 *                     tile 1..3   B: bricks, in rotation
 *                     tile 4..7   C: one for each tile of outputs
 *
 * The sums of a group are scaled and added to c while the tiles compute the next group.  Otherwise each would
 * wait for the other, for a third of the time. */
#include "kernels/cpu/bf16/bf16.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(BF16_EMULATED)

#include "kernels/cpu/bf16/avx512.h"

enum {
	AMX_ROWS = 16,
	AMX_SLICE = 256,       /* inputs per segment of floats: bricks of 32 KB */
	AMX_CODES_SLICE = 128, /* inputs per segment of codes, which are scaled and added to c after every
				  group */
	AMX_FEW_SLICE = 256,   /* with up to 16 rows, stays in the first-level cache */
	FEW_AHEAD = 2048,      /* prefetch distance, bytes of codes */
	AHEAD_MAX = 8,
};

#ifndef BF16_EMULATED

/* Asm, so that no compiler has to support the extension; "memory", since a tile cannot be an operand of
 * asm. */
#define AMX_LOAD(t, p, stride)                                                                               \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((size_t)(stride))     \
			 : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(p)), "r"((size_t)(stride))       \
			 : "memory")
#define AMX_ZERO(t)      __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define AMX_RELEASE()    __asm__ volatile("tilerelease" ::: "memory")

/* Configure tiles of 64 bytes by rows[i] rows. */
static void amx_configure(const uint8_t rows[8])
{
	struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1};
	for (int i = 0; i < 8; i++) {
		config.bytes[i] = rows[i] ? 64 : 0;
		config.rows[i] = rows[i];
	}
	__asm__ volatile("ldtilecfg %0" ::"m"(config));
}

#endif

static void amx_begin(const struct cpu_bf16_tile *t);
static bool few_codes(const struct cpu_bf16_tile *t);
#define WALK_BEGIN(t) amx_begin(t)
#define WALK_END(t)   AMX_RELEASE()
#define WALK_SELF(t)  few_codes(t)
#include "kernels/cpu/bf16/round.h"
#include "kernels/cpu/bf16/walk.h"

static void amx_rows(int rows0, int rows1)
{
	const uint8_t a = (uint8_t)rows0, b = (uint8_t)rows1;
	amx_configure((const uint8_t[8]){a, b, 16, 16, a, a, b, b});
}

static void amx_begin(const struct cpu_bf16_tile *t)
{
	const uint8_t n = (uint8_t)t->n_rows;
	if (t->n_rows <= AMX_ROWS)
		amx_configure((const uint8_t[8]){n, 16, 16, 16, n, n, n, n});
	else if (t->n_rows < 2 * AMX_ROWS)
		amx_rows(AMX_ROWS, t->n_rows - AMX_ROWS);
	else
		amx_rows(AMX_ROWS, AMX_ROWS);
}

static int walk_slice(const struct cpu_bf16_tile *t)
{
	const bool groups = t->bits && t->group < t->k;
	if (t->n_rows <= AMX_ROWS)
		return t->bits ? AMX_FEW_SLICE : 1 << 30;
	return groups && t->group <= AMX_CODES_SLICE ? AMX_CODES_SLICE : AMX_SLICE;
}

/* ---- up to 16 rows ---- */

static void few_sums(const unsigned char *a, size_t row, const unsigned char *b, size_t step, int tn,
		     int n_steps)
{
	for (int s = 0; s < n_steps; s++, a += 2 * BF16_STEP, b += step) {
		AMX_LOAD(0, a, row);
		AMX_LOAD(1, b, 64);
		AMX_DOT(4, 0, 1);
		if (tn < 2)
			continue;
		AMX_LOAD(2, b + BF16_BRICK, 64);
		AMX_DOT(5, 0, 2);
		if (tn < 4)
			continue;
		AMX_LOAD(3, b + 2 * BF16_BRICK, 64);
		AMX_DOT(6, 0, 3);
		AMX_LOAD(1, b + 3 * BF16_BRICK, 64);
		AMX_DOT(7, 0, 1);
	}
}

static void few_store(float *c, size_t row, size_t tile, int tn)
{
	AMX_STORE(4, c, row);
	if (tn > 1)
		AMX_STORE(5, c + tile, row);
	if (tn > 2) {
		AMX_STORE(6, c + 2 * tile, row);
		AMX_STORE(7, c + 3 * tile, row);
	}
}

/* Floats and codes of whole rows: one chain that continues in c. */
static void few_chain(const struct seg *s)
{
	const struct cpu_bf16_tile *t = s->t;
	const size_t c_row = (size_t)t->tn * 64;
	AMX_LOAD(4, t->c, c_row);
	if (t->tn > 1)
		AMX_LOAD(5, t->c + 16, c_row);
	if (t->tn > 2) {
		AMX_LOAD(6, t->c + 32, c_row);
		AMX_LOAD(7, t->c + 48, c_row);
	}
	few_sums(t->x + s->k0 * 2, t->row, s->w, s->step, t->tn, s->n_steps);
	few_store(t->c, c_row, 16, t->tn);
}

/* Codes in groups: while the tiles multiply the bricks of a step, the bricks of the next step are
 * unpacked. */
struct few {
	const unsigned char *codes, *heads; /* codes of the step to unpack next; heads of its group */
	int left;                           /* steps left in that group */
	walk_zero zeros[4];
};

VFN void few_group(const int tn, const struct cpu_bf16_tile *t, struct few *f, int k0)
{
	const int left = t->k - k0 < t->group ? t->k - k0 : t->group;
	f->heads = f->codes + (size_t)t->t0 * AWQ_HEAD;
	f->left = (left + BF16_STEP - 1) / BF16_STEP;
	f->codes += (size_t)t->tiles * AWQ_HEAD;
	UNROLL for (int v = 0; v < tn; v++) f->zeros[v] = walk_zeros(t, f->heads + (size_t)v * AWQ_HEAD);
}

VFN void few_brick(const int tn, const int bits, const struct cpu_bf16_tile *t, const struct few *f,
		   unsigned char *to, int v)
{
	const unsigned char *codes = f->codes + (size_t)((t->t0 + v) * bits) * 64;
	walk_codes(to, codes, f->zeros[v], v, tn, bits);
	for (int i = 0; i < bits; i++)
		v_prefetch(codes + FEW_AHEAD + i * 64);
}

VFN void few_scale(const int tn, const struct cpu_bf16_tile *t, const unsigned char *heads)
{
	_Alignas(64) float sums[4][AMX_ROWS][LANES_N];
	few_store(sums[0][0], 64, (size_t)AMX_ROWS * LANES_N, tn);
	UNROLL for (int v = 0; v < tn; v++)
	{
		const vf scale = walk_scale(t, heads + (size_t)v * AWQ_HEAD);
		for (int r = 0; r < t->n_rows; r++) {
			float *c = t->c + (r * tn + v) * LANES_N;
			v_store(c, v_fma(scale, v_load(sums[v][r]), v_load(c)));
		}
	}
}

VFN void few_steps(const int tn, const int bits, const struct cpu_bf16_tile *t)
{
	enum { RING = 4 * BF16_BRICK };
	const size_t step = (size_t)(t->tiles * bits) * 64;
	const unsigned char *a = t->x, *heads = NULL;
	struct few f = {.codes = t->w};
	int at = 0, left = 0;
	few_group(tn, t, &f, 0);
	UNROLL for (int v = 0; v < tn; v++) few_brick(tn, bits, t, &f, t->scratch, v);
	for (int k = 0; k < t->k; a += 2 * BF16_STEP) {
		const unsigned char *b = t->scratch + at;
		unsigned char *to = t->scratch + (at ^= RING);
		if (!left) {
			left = f.left;
			heads = f.heads;
			AMX_ZERO(4);
			AMX_ZERO(5);
			AMX_ZERO(6);
			AMX_ZERO(7);
		}
		k += left == 1 && t->k - k < BF16_STEP ? t->k - k : BF16_STEP;
		f.codes += step;
		const bool more = k < t->k;
		if (more && --f.left == 0)
			few_group(tn, t, &f, k);
		AMX_LOAD(0, a, t->row);
		AMX_LOAD(1, b, 64);
		AMX_DOT(4, 0, 1);
		if (more)
			few_brick(tn, bits, t, &f, to, 0);
		if (tn > 1) {
			AMX_LOAD(2, b + BF16_BRICK, 64);
			AMX_DOT(5, 0, 2);
			if (more)
				few_brick(tn, bits, t, &f, to, 1);
		}
		if (tn > 2) {
			AMX_LOAD(3, b + 2 * BF16_BRICK, 64);
			AMX_DOT(6, 0, 3);
			if (more)
				few_brick(tn, bits, t, &f, to, 2);
			AMX_LOAD(1, b + 3 * BF16_BRICK, 64);
			AMX_DOT(7, 0, 1);
			if (more)
				few_brick(tn, bits, t, &f, to, 3);
		}
		if (--left == 0)
			few_scale(tn, t, heads);
	}
}

static bool few_codes(const struct cpu_bf16_tile *t)
{
	if (t->n_rows > AMX_ROWS || !t->bits || t->group >= t->k)
		return false;
	if (t->bits == 4 && t->tn == 4)
		few_steps(4, 4, t);
	else if (t->bits == 4 && t->tn == 2)
		few_steps(2, 4, t);
	else if (t->bits == 4)
		few_steps(1, 4, t);
	else if (t->tn == 4)
		few_steps(4, 8, t);
	else if (t->tn == 2)
		few_steps(2, 8, t);
	else
		few_steps(1, 8, t);
	return true;
}

/* ---- more rows, two by two tiles ---- */

/* Sums of a group that must still be scaled and added. */
struct pending {
	const float *sums; /* [A][tile][16][16] */
	float *c;
	size_t c_row;
	int rows, n_v;
	vf scale[2];
};

struct square {
	const unsigned char *a; /* 32 rows */
	size_t a_row;
	const unsigned char *b;
	size_t step, tile2; /* tile2: bytes to the second tile; 0: there is no second tile */
	int rows;
	struct ahead *ahead;
};

struct square_sums {
	float f[4][AMX_ROWS * LANES_N], none[4 * LANES_N];
};

/* Memory that the next segment reads, prefetched meanwhile to the second-level cache. */
struct ahead {
	const unsigned char *p, *end;
	int some; /* lines to prefetch per step */
};

static inline void ahead_step(struct ahead *h)
{
	for (int i = 0; i < h->some && h->p < h->end; i++, h->p += 64)
		_mm_prefetch((const char *)h->p, _MM_HINT_T1);
}

VFN void scale_row(const float *sums, float *c, size_t c_row, vf scale0, vf scale1, int r)
{
	const float *from = sums + r / AMX_ROWS * 2 * AMX_ROWS * LANES_N + r % AMX_ROWS * LANES_N;
	c += (size_t)r * c_row;
	v_store(c, v_fma(scale0, v_load(from), v_load(c)));
	v_store(c + 16, v_fma(scale1, v_load(from + AMX_ROWS * LANES_N), v_load(c + 16)));
}

static void scale_all(const struct pending *p)
{
	for (int r = 0; r < p->rows; r++) {
		const float *from = p->sums + r / AMX_ROWS * 2 * AMX_ROWS * LANES_N + r % AMX_ROWS * LANES_N;
		float *c = p->c + (size_t)r * p->c_row;
		v_store(c, v_fma(p->scale[0], v_load(from), v_load(c)));
		if (p->n_v > 1)
			v_store(c + 16,
				v_fma(p->scale[1], v_load(from + AMX_ROWS * LANES_N), v_load(c + 16)));
	}
}

/* Multiply 32 rows by two tiles of outputs.  Between the dot products, scale the pending 32 rows and two
 * tiles. */
VFN void full_sums(const int n_steps, const struct square *q, int step0, const struct pending *p)
{
	enum { STEP_ROWS = 2 * AMX_ROWS };
	const unsigned char *a = q->a + (size_t)step0 * 2 * BF16_STEP, *b = q->b + (size_t)step0 * q->step;
	const unsigned char *a1 = a + AMX_ROWS * q->a_row;
	const float *sums = p->sums;
	float *c = p->c;
	const size_t a_row = q->a_row, c_row = p->c_row, step = q->step, tile2 = q->tile2;
	const vf scale0 = p->scale[0], scale1 = p->scale[1];
	const int some = STEP_ROWS / 4 / n_steps;
#define SCALE(i)                                                                                             \
	UNROLL for (int r = 0; r < some; r++)                                                                \
		scale_row(sums, c, c_row, scale0, scale1, (4 * s + (i)) * some + r);
	UNROLL for (int s = 0; s < n_steps; s++)
	{
		AMX_LOAD(0, a + s * 2 * BF16_STEP, a_row);
		AMX_LOAD(2, b, 64);
		AMX_DOT(4, 0, 2);
		SCALE(0)
		AMX_LOAD(3, b + tile2, 64);
		AMX_DOT(5, 0, 3);
		SCALE(1)
		AMX_LOAD(1, a1 + s * 2 * BF16_STEP, a_row);
		AMX_DOT(6, 1, 2);
		SCALE(2)
		AMX_DOT(7, 1, 3);
		SCALE(3)
		ahead_step(q->ahead);
		b += step;
	}
#undef SCALE
}

static void any_sums(const struct square *q, int step0, int n_steps)
{
	const unsigned char *a0 = q->a + (size_t)step0 * 2 * BF16_STEP, *b = q->b + (size_t)step0 * q->step;
	const unsigned char *a1 = a0 + AMX_ROWS * q->a_row;
	const size_t a_row = q->a_row, step = q->step, tile2 = q->tile2;
	const bool two = q->rows > AMX_ROWS;
	for (int s = 0; s < n_steps; s++, a0 += 2 * BF16_STEP, a1 += 2 * BF16_STEP, b += step) {
		AMX_LOAD(0, a0, a_row);
		AMX_LOAD(2, b, 64);
		AMX_DOT(4, 0, 2);
		AMX_LOAD(3, b + tile2, 64);
		AMX_DOT(5, 0, 3);
		ahead_step(q->ahead);
		if (!two)
			continue;
		AMX_LOAD(1, a1, a_row);
		AMX_DOT(6, 1, 2);
		AMX_DOT(7, 1, 3);
	}
}

/* Multiply as one chain that continues in c. */
static void square_chain(const struct square *q, int n_steps, float *c, size_t c_row)
{
	float *second = c + AMX_ROWS * c_row;
	const bool two = q->rows > AMX_ROWS;
	AMX_LOAD(4, c, c_row * 4);
	if (q->tile2)
		AMX_LOAD(5, c + 16, c_row * 4);
	else
		AMX_ZERO(5);
	if (two)
		AMX_LOAD(6, second, c_row * 4);
	if (two && q->tile2)
		AMX_LOAD(7, second + 16, c_row * 4);
	else if (two)
		AMX_ZERO(7);
	any_sums(q, 0, n_steps);
	AMX_STORE(4, c, c_row * 4);
	if (q->tile2)
		AMX_STORE(5, c + 16, c_row * 4);
	if (two)
		AMX_STORE(6, second, c_row * 4);
	if (two && q->tile2)
		AMX_STORE(7, second + 16, c_row * 4);
}

static void square_group(const struct square *q, int step0, int n_steps, const struct pending *p)
{
	const bool full = p->rows == 2 * AMX_ROWS && p->n_v == 2;
	AMX_ZERO(4);
	AMX_ZERO(5);
	if (q->rows > AMX_ROWS) {
		AMX_ZERO(6);
		AMX_ZERO(7);
	}
	if (full && q->rows == 2 * AMX_ROWS && n_steps == 4) {
		full_sums(4, q, step0, p);
	} else if (full && q->rows == 2 * AMX_ROWS && n_steps == 2) {
		full_sums(2, q, step0, p);
	} else if (full && q->rows == 2 * AMX_ROWS && n_steps == 1) {
		full_sums(1, q, step0, p);
	} else {
		scale_all(p);
		any_sums(q, step0, n_steps);
	}
}

/* Multiply the groups of a segment.  The sums of the last group remain pending. */
static void square_groups(const struct square *q, const struct seg *s, int v, float *c,
			  struct square_sums *sums, struct pending *p)
{
	const struct cpu_bf16_tile *t = s->t;
	const unsigned char *heads = s->heads + (size_t)v * AWQ_HEAD;
	for (int at = 0; at < s->n_steps; at += s->group_steps, heads += s->group) {
		float(*to)[AMX_ROWS * LANES_N] = sums->f;
		square_group(q, at, s->n_steps - at < s->group_steps ? s->n_steps - at : s->group_steps, p);
		AMX_STORE(4, to[0], 64);
		AMX_STORE(5, to[1], 64);
		if (q->rows > AMX_ROWS) {
			AMX_STORE(6, to[2], 64);
			AMX_STORE(7, to[3], 64);
		}
		*p = (struct pending){
			.sums = to[0],
			.c = c,
			.c_row = (size_t)t->tn * LANES_N,
			.rows = q->rows,
			.n_v = q->tile2 ? 2 : 1,
			.scale = {walk_scale(t, heads), walk_scale(t, heads + (q->tile2 ? AWQ_HEAD : 0))},
		};
	}
}

/* Multiply rows r0 to r1 - 1, in blocks of 32, by all tiles of outputs.  The rows of a block stay in the
 * first-level cache for all tiles, and the bricks of a segment for all blocks. */
static void squares(const struct seg *s, int r0, int r1)
{
	const struct cpu_bf16_tile *t = s->t;
	_Alignas(64) struct square_sums sums;
	/* Nothing is pending yet: zeros times zero are added to zeros. */
	struct pending p = {.sums = sums.f[0], .c = sums.none, .rows = 2 * AMX_ROWS, .n_v = 2};
	const int steps = (r1 - r0 + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS) * ((t->tn + 1) / 2) * s->n_steps;
	const int some = (int)(s->next_bytes / 64) / steps + 1;
	struct ahead ahead = {
		.p = s->next, .end = s->next + s->next_bytes, .some = some < AHEAD_MAX ? some : AHEAD_MAX};
	memset(&sums, 0, sizeof sums);
	for (int r = r0; r < r1; r += 2 * AMX_ROWS)
		for (int v = 0; v < t->tn; v += 2) {
			float *c = t->c + (size_t)(r * t->tn + v) * LANES_N;
			const struct square q = {
				.a = t->x + (size_t)r * t->row + s->k0 * 2,
				.a_row = t->row,
				.b = s->w + (size_t)v * BF16_BRICK,
				.step = s->step,
				.tile2 = t->tn > 1 ? BF16_BRICK : 0,
				.rows = r1 - r < 2 * AMX_ROWS ? r1 - r : 2 * AMX_ROWS,
				.ahead = &ahead,
			};
			if (s->group_steps)
				square_groups(&q, s, v, c, &sums, &p);
			else
				square_chain(&q, s->n_steps, c, (size_t)t->tn * LANES_N);
		}
	scale_all(&p);
}

static void walk_rows(const struct seg *s)
{
	const int n = s->t->n_rows, whole = n / (2 * AMX_ROWS) * 2 * AMX_ROWS, rest = n - whole;
	if (n <= AMX_ROWS) {
		few_chain(s);
		return;
	}
	if (whole && rest)
		amx_rows(AMX_ROWS, AMX_ROWS);
	if (whole)
		squares(s, 0, whole);
	if (whole && rest)
		amx_rows(rest < AMX_ROWS ? rest : AMX_ROWS, rest < AMX_ROWS ? 0 : rest - AMX_ROWS);
	if (rest)
		squares(s, whole, n);
}

static const struct cpu_bf16 amx_table = {
	.name = "amx", .round = round_pairs, .weights = round_pairs, .tile = walk_tile};

#ifdef BF16_EMULATED

const struct cpu_bf16 *BF16_EMULATED(void)
{
	return &amx_table;
}

#else

#include <cpuid.h>

const struct cpu_bf16 *cpu_bf16_amx(void)
{
	unsigned a, b, c, d;
	bool ok = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && cpu_isa_amx();
	return ok ? &amx_table : NULL;
}

#endif

#else

const struct cpu_bf16 *cpu_bf16_amx(void)
{
	return NULL;
}

#endif
