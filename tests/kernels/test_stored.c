/* test_stored.c - layers whose weights stay as stored have the bits of the same layers with packed codes, in
 * every mode, and take the bytes of the file. */
#include "base/alloc.h"
#include "formats/gguf.h"
#include "kernels/cpu/cpu.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

TestSuite(stored, .timeout = 120);

enum { K = 768, N = 150, ROWS = 5 };

static const enum gguf_type types[] = {
	GGUF_TYPE_IQ1_S, GGUF_TYPE_IQ1_M,   GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS,
	GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S,
};
enum { TYPES = sizeof types / sizeof *types };

static uint64_t state;

static uint32_t rnd(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33);
}

/* Random rows [N][K] of a type; scales are finite. */
static unsigned char *random_rows(enum gguf_type type, int block_bytes)
{
	const size_t blocks = (size_t)N * K / 256, bytes = blocks * (size_t)block_bytes;
	unsigned char *w = xmalloc(bytes);
	for (size_t i = 0; i < bytes; i++)
		w[i] = (unsigned char)rnd();
	for (size_t b = 0; b < blocks; b++) /* the high byte of d, or its highest nibble */
		w[b * (size_t)block_bytes + (type == GGUF_TYPE_IQ1_M ? 55 : 1)] &= 0x2f;
	return w;
}

static struct kern_dev *device(enum kern_compute mode)
{
	const struct kern_open_args a = {.index = -1,
					 .compute = mode,
					 .n_threads = 2,
					 .max_rows = ROWS,
					 .max_seqs = 1,
					 .max_logits = ROWS,
					 .max_context = 1,
					 .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct why why;
	cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
	return d;
}

/* Compute rows of a layer with these codes; return the layer's bytes. */
static int64_t compute(struct kern_dev *d, const struct codes *c, const float *x, int rows, float *y)
{
	const struct kern_linear_src src = {.name = "layer",
					    .k = c->k,
					    .n_parts = 1,
					    .parts[0] = {.dtype = KERN_CODES, .n = c->n, .w = c}};
	struct kern_stream *s;
	struct kern_linear *w;
	struct why why;
	void *operands = xcalloc(kern_cpu_ops.operand_bytes(d, rows, c->k) + 64, 1);
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &w, &why), 0, "%s", why.text);
	s = kern_cpu_ops.stream_new(d);
	cr_assert(s);
	if (cpu_has_operands(d))
		cpu_quantize(d, operands, x, rows, c->k);
	else
		memcpy(operands, x, (size_t)rows * (size_t)c->k * sizeof *x);
	cr_assert_eq(kern_cpu_ops.linear(s, w, y, operands, rows, true), 0);
	const int64_t bytes = kern_cpu_ops.linear_bytes(w);
	kern_cpu_ops.stream_free(s);
	kern_cpu_ops.linear_free(w);
	free(operands);
	return bytes;
}

static void check(enum kern_compute mode, const struct codes *c, const struct codes *packed, const char *name)
{
	static float x[ROWS * K], got[ROWS * N], want[ROWS * N];
	struct kern_dev *d = device(mode);
	for (int i = 0; i < ROWS * K; i++)
		x[i] = (float)(int)(rnd() % 2001) / 1000 - 1;
	for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
		const int64_t bytes = compute(d, c, x, rows, got), plain = compute(d, packed, x, rows, want);
		cr_expect_eq(bytes, ((int64_t)codes_row_bytes(c) * c->n + 63) / 64 * 64, "%s", name);
		cr_expect_gt(plain, 2 * bytes, "%s", name);
		for (int i = 0; i < rows * c->n; i++)
			cr_assert_eq(got[i], want[i], "%s in mode %s: %d rows, %d: %g, not %g", name,
				     kern_compute_name(mode), rows, i, (double)got[i], (double)want[i]);
	}
	kern_cpu_ops.close(d);
}

static void check_type(enum kern_compute mode, enum gguf_type type, bool cut)
{
	enum { N0 = 7, ROWS_CUT = 90, K0 = 256 };
	int values, bytes;
	enum gguf_type same;
	struct codes c, packed, part, packed_part;
	cr_assert(gguf_type_of(gguf_type_name(type), &same, &values, &bytes) && values == 256);
	unsigned char *w = random_rows(type, bytes);
	cr_assert(gguf_codes(type, N, K, w, &c) && c.super_bytes == bytes);
	packed = c;
	packed.super_bytes = 0;
	if (!cut) {
		check(mode, &c, &packed, gguf_type_name(type));
	} else { /* the part of a rank, twice cut */
		struct codes outer, packed_outer;
		codes_cut(&outer, &c, N0, N - N0, 0, K);
		codes_cut(&packed_outer, &packed, N0, N - N0, 0, K);
		codes_cut(&part, &outer, 3, ROWS_CUT, K0, K - K0);
		codes_cut(&packed_part, &packed_outer, 3, ROWS_CUT, K0, K - K0);
		check(mode, &part, &packed_part, gguf_type_name(type));
	}
	free(w);
}

Test(stored, every_mode_has_the_bits_of_packed_codes)
{
	static const enum kern_compute modes[] = {KERN_COMPUTE_F32, KERN_COMPUTE_BF16, KERN_COMPUTE_INT16,
						  KERN_COMPUTE_INT8};
	for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
		for (int t = 0; t < TYPES; t++)
			check_type(modes[m], types[t], false);
}

Test(stored, a_cut_has_its_rows_and_columns)
{
	for (int t = 0; t < TYPES; t++)
		check_type(t % 2 ? KERN_COMPUTE_INT16 : KERN_COMPUTE_F32, types[t], true);
}
