/* test_gguf_encode.c - encoded GGUF blocks equal, bit for bit, those of ggml's quantizers (test data, and
 * tests/golden/make_ggml_golden.py) and of the package gguf (tests/golden/make_gguf_encode_golden.py). */
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

enum { N = 1 << 14, COLUMNS = 512 };

/* The largest decoding error, in ten thousandths of a block's largest value. */
enum {
	ERROR_Q8_0 = 45,
	ERROR_Q4_0 = 1300,
	ERROR_Q4_K = 1200,
	ERROR_Q5_K = 600,
	ERROR_Q6_K = 400,
	ERROR_IQ4_XS = 1200
};

static const struct {
	const char *name;
	enum gguf_type type;
	void (*encode)(const float *x, size_t rows, size_t columns, const float *importance, void *out);
	int values, bytes, error;
} types[] = {
#define ROW(number, NAME, name, values, bytes, ...)                                                          \
	{#name, GGUF_TYPE_##NAME, gguf_encode_##name, values, bytes, ERROR_##NAME},
	BLOCK_TYPES(BLOCK_NONE, ROW)};
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
		const int n = types[t].values == 32 ? 64 : COLUMNS;
		snprintf(rel, sizeof rel, "weights/ggml-quants/%s_%d_noim_input.bin", types[t].name, n);
		const char *in = testdata(rel);
		if (!in && t == 0)
			cr_skip_test("the blocks of ggml are not there");
		if (!in) /* IQ4_XS, which only the golden checksums have */
			continue;
		const size_t values = read_all(in, x, sizeof x) / 4;
		snprintf(rel, sizeof rel, "weights/ggml-quants/%s_%d_noim_expected.bin", types[t].name, n);
		const size_t bytes = read_all(testdata(rel), want, sizeof want);
		types[t].encode(x, values / (size_t)n, (size_t)n, NULL, got);
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
		types[t].encode(x, N / COLUMNS, COLUMNS, NULL, got);
		snprintf(text, sizeof text, "%016" PRIx64, checksum(got, N / 32 * (t ? 18 : 34)));
		cr_assert_str_eq(text, json_string_value(json_object_get(golden, types[t].name)), "%s",
				 types[t].name);
	}
	json_decref(golden);
}

/* Make the script's importance matrix: a few inputs matter much, some not at all. */
static void make_importance(float *importance)
{
	for (uint32_t i = 0; i < COLUMNS; i++) {
		importance[i] = (float)(i * 2654435761u >> 22) / 256;
		if (i % 31 == 5)
			importance[i] *= 64;
		if (i % 13 == 7)
			importance[i] = 0;
	}
}

Test(gguf_encode, blocks_with_and_without_importance_are_those_of_ggml)
{
	static float x[N], importance[COLUMNS];
	static unsigned char got[N * 2];
	json_t *golden = json_load_file(repofile("tests/golden/ggml.json"), 0, NULL);
	int n = 0;
	cr_assert(golden);
	make_values(x);
	make_importance(importance);
	for (int t = 0; t < N_TYPES; t++) {
		const json_t *of = json_object_get(golden, types[t].name);
		for (int with = 0; of && with < 2; with++, n++) {
			char text[32];
			types[t].encode(x, N / COLUMNS, COLUMNS, with ? importance : NULL, got);
			snprintf(text, sizeof text, "%016" PRIx64,
				 checksum(got, (size_t)(N / types[t].values * types[t].bytes)));
			cr_expect_str_eq(
				text, json_string_value(json_object_get(of, with ? "importance" : "plain")),
				"%s, %d", types[t].name, with);
		}
	}
	cr_expect_eq(n, 2 * (int)json_object_size(golden));
	json_decref(golden);
}

/* Inputs that matter are stored more precisely: the weighted error is smaller than without the matrix. */
Test(gguf_encode, importance_lowers_the_weighted_error)
{
	static float x[N], importance[COLUMNS], back[2][N];
	static unsigned char got[N * 2];
	make_values(x);
	make_importance(importance);
	for (int t = 0; t < N_TYPES; t++) {
		double error[2] = {0};
		for (int with = 0; with < 2; with++) {
			struct codes c;
			types[t].encode(x, N / COLUMNS, COLUMNS, with ? importance : NULL, got);
			cr_assert(gguf_codes(types[t].type, N / COLUMNS, COLUMNS, got, &c));
			codes_floats(&c, 0, N / COLUMNS, back[with]);
			for (int i = 0; i < N; i++)
				error[with] += (double)importance[i % COLUMNS] *
					       pow((double)(x[i] - back[with][i]), 2);
		}
		if (types[t].type == GGUF_TYPE_Q8_0 || types[t].type == GGUF_TYPE_Q4_0)
			cr_expect_eq(error[1], error[0], "%s", types[t].name);
		else
			cr_expect_lt(error[1], 0.9 * error[0], "%s: %g, %g", types[t].name, error[1],
				     error[0]);
	}
}

/* ggml's quantizers do the same. */
Test(gguf_encode, of_two_largest_values_the_first_gives_the_sign)
{
	float x[32] = {-4, 4};
	unsigned char block[18];
	gguf_encode_q4_0(x, 1, 32, NULL, block);
	cr_expect(block[0] == 0 && block[1] == 0x38, "0.5 in F16");
	x[0] = 4;
	x[1] = -4;
	gguf_encode_q4_0(x, 1, 32, NULL, block);
	cr_expect(block[0] == 0 && block[1] == 0xb8, "-0.5");
}

Test(gguf_encode, a_block_is_read_as_what_it_was)
{
	static float x[N], back[N];
	static unsigned char got[N * 2];
	make_values(x);
	for (int t = 0; t < N_TYPES; t++) {
		struct codes c;
		types[t].encode(x, N / 256, 256, NULL, got);
		cr_assert(gguf_codes(types[t].type, N / 256, 256, got, &c));
		codes_floats(&c, 0, N / 256, back);
		for (int b = 0; b < N / 256; b++) {
			double top = 0, worst = 0;
			for (int i = 256 * b; i < 256 * (b + 1); i++) {
				top = fmax(top, fabs((double)x[i]));
				worst = fmax(worst, fabs((double)x[i] - (double)back[i]));
			}
			/* Blocks of smaller values have scales that F16 rounds coarsely. */
			cr_assert(top < 0.01 || worst <= types[t].error * 1e-4 * top,
				  "%s: block %d has the error %g of %g", types[t].name, b, worst, top);
		}
	}
}
