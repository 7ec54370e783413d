/* test_gguf_encode.c - encoded GGUF blocks equal, bit for bit, those of ggml's quantizers (test data) and
 * of the package gguf (tests/golden/make_gguf_encode_golden.py). */
#include "base/codes.h"
#include "formats/gguf.h"
#include "quant/round/gguf_encode.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 14 };

static const struct {
	const char *name;
	enum gguf_type type;
	void (*encode)(const float *x, size_t n, void *out);
} types[] = {
	{"q8_0", GGUF_TYPE_Q8_0, gguf_encode_q8_0},
	{"q4_0", GGUF_TYPE_Q4_0, gguf_encode_q4_0},
	{"q4_k", GGUF_TYPE_Q4_K, gguf_encode_q4_k},
	{"q6_k", GGUF_TYPE_Q6_K, gguf_encode_q6_k},
};
enum { N_TYPES = sizeof types / sizeof *types };

static size_t read_all(const char *path, void *out, size_t most)
{
	FILE *f = fopen(path, "rb");
	cr_assert(f, "%s", path);
	const size_t n = fread(out, 1, most, f);
	fclose(f);
	return n;
}

Test(gguf_encode, blocks_are_those_of_ggml)
{
	static float x[N];
	static unsigned char want[N], got[N];
	for (int t = 0; t < N_TYPES; t++) {
		char rel[128];
		const int n = t < 2 ? 64 : 512;
		snprintf(rel, sizeof rel, "weights/ggml-quants/%s_%d_noim_input.bin", types[t].name, n);
		const char *in = testdata(rel);
		if (!in)
			cr_skip_test("the blocks of ggml are not there");
		const size_t values = read_all(in, x, sizeof x) / 4;
		snprintf(rel, sizeof rel, "weights/ggml-quants/%s_%d_noim_expected.bin", types[t].name, n);
		const size_t bytes = read_all(testdata(rel), want, sizeof want);
		types[t].encode(x, values, got);
		cr_assert(bytes > 0 && memcmp(got, want, bytes) == 0, "%s", types[t].name);
	}
}

/* Make the script's values: sums of bytes of a hashed counter, scaled by 2^-12 to 2^3; and blocks of zeros,
 * of one value, of equal values, and of positive values only. */
static void make_values(float *x)
{
	for (uint32_t i = 0; i < N; i++) {
		uint32_t h = i * 2654435761u + 12345u;
		h ^= h >> 15;
		h *= 2246822519u;
		h ^= h >> 13;
		const int sum =
			(int)(h & 255) + (int)(h >> 8 & 255) + (int)(h >> 16 & 255) + (int)(h >> 24) - 510;
		const uint32_t block = i / 256;
		x[i] = ldexpf((float)sum, (int)(block % 16) - 20);
		if (block == 3 || (block == 5 && i % 256 != 77))
			x[i] = 0;
		if (block == 7)
			x[i] = 0.375f;
		if (block == 9)
			x[i] = fabsf(x[i]) + 1;
	}
}

static uint64_t checksum(const unsigned char *p, size_t n)
{
	uint64_t h = 14695981039346656037u; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h;
}

Test(gguf_encode, blocks_are_those_of_the_package_gguf)
{
	static float x[N];
	static unsigned char got[N * 2];
	json_t *golden = json_load_file(repofile("tests/golden/gguf_encode.json"), 0, NULL);
	cr_assert(golden);
	make_values(x);
	for (int t = 0; t < 2; t++) {
		char text[32];
		types[t].encode(x, N, got);
		snprintf(text, sizeof text, "%016" PRIx64, checksum(got, N / 32 * (t ? 18 : 34)));
		cr_assert_str_eq(text, json_string_value(json_object_get(golden, types[t].name)), "%s",
				 types[t].name);
	}
	json_decref(golden);
}

/* ggml's quantizers do the same. */
Test(gguf_encode, of_two_largest_values_the_first_gives_the_sign)
{
	float x[32] = {-4, 4};
	unsigned char block[18];
	gguf_encode_q4_0(x, 32, block);
	cr_expect(block[0] == 0 && block[1] == 0x38, "0.5 in F16");
	x[0] = 4;
	x[1] = -4;
	gguf_encode_q4_0(x, 32, block);
	cr_expect(block[0] == 0 && block[1] == 0xb8, "-0.5");
}

/* Checks the largest decoding error, relative to the block's largest value. */
Test(gguf_encode, a_block_is_read_as_what_it_was)
{
	static float x[N], back[N];
	static unsigned char got[N * 2];
	static const double most[] = {0.0045, 0.13, 0.12, 0.04};
	make_values(x);
	for (int t = 0; t < N_TYPES; t++) {
		struct codes c;
		types[t].encode(x, N, got);
		cr_assert(gguf_codes(types[t].type, N / 256, 256, got, &c));
		codes_floats(&c, 0, N / 256, back);
		for (int b = 0; b < N / 256; b++) {
			double top = 0, worst = 0;
			for (int i = 256 * b; i < 256 * (b + 1); i++) {
				top = fmax(top, fabs((double)x[i]));
				worst = fmax(worst, fabs((double)x[i] - (double)back[i]));
			}
			/* Blocks of smaller values have scales that F16 rounds coarsely. */
			cr_assert(top < 0.01 || worst <= most[t] * top, "%s: block %d has the error %g of %g",
				  types[t].name, b, worst, top);
		}
	}
}
