/* Quantized types of GGUF, equal bit for bit to the gguf package (PyPI): tests/golden/make_gguf_golden.py. */
#include "base/alloc.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(gguf_types, .timeout = 60);

enum { COLUMNS = 512, RANDOM = 27, FILLED = 5, ROWS = RANDOM + FILLED };

static void fill(unsigned char *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t z = seed += 0x9E3779B97F4A7C15;
		z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
		z = (z ^ z >> 27) * 0x94D049BB133111EB;
		z ^= z >> 31;
		memcpy(p + i, &z, n - i < 8 ? n - i : 8);
	}
}

static uint64_t hash(const float *f, int n)
{
	uint64_t h = 0xCBF29CE484222325;
	for (int i = 0; i < n; i++) {
		uint32_t u;
		memcpy(&u, &f[i], 4);
		u = isnan(f[i]) ? 0x7fc00000 : u;
		for (int b = 0; b < 4; b++)
			h = (h ^ (u >> 8 * b & 255)) * 0x100000001B3;
	}
	return h;
}

Test(gguf_types, every_type_is_bit_for_bit_that_of_the_package)
{
	static const unsigned char filled[FILLED] = {0x00, 0xff, 0x7b, 0x80, 0x01};
	struct why why;
	const char *name;
	json_t *all, *one;
	cr_assert_eq(json_read(repofile("tests/golden/gguf_types.json"), 1 << 20, &all, &why), 0, "%s",
		     why.text);
	cr_assert_eq(json_object_size(all), 20);
	json_object_foreach(all, name, one)
	{
		const size_t row = (size_t)json_integer_value(json_object_get(one, "bytes"));
		const enum gguf_type type = (enum gguf_type)json_integer_value(json_object_get(one, "type"));
		unsigned char *p = xmalloc(ROWS * row);
		float *out = xmalloc((size_t)COLUMNS * ROWS * sizeof *out);
		struct codes c;
		fill(p, RANDOM * row, (uint64_t)type);
		for (size_t i = 0; i < FILLED; i++)
			memset(p + (RANDOM + i) * row, filled[i], row);
		cr_expect_str_eq(gguf_type_name(type), name);
		cr_assert(gguf_codes(type, ROWS, COLUMNS, p, &c), "%s", name);
		/* Read in ranges of rows, as the kernels do. */
		codes_floats(&c, 0, 7, out);
		codes_floats(&c, 7, ROWS, out + (size_t)7 * COLUMNS);
		for (size_t i = 0; i < ROWS; i++) {
			char text[17];
			snprintf(text, sizeof text, "%016llx",
				 (unsigned long long)hash(out + i * COLUMNS, COLUMNS));
			cr_expect_str_eq(text,
					 json_string_value(json_array_get(json_object_get(one, "rows"), i)),
					 "%s, row %zu", name, i);
		}
		free(p);
		free(out);
	}
	json_decref(all);
}

Test(gguf_types, codes_are_within_their_bits)
{
	static const enum gguf_type types[] = {
		GGUF_TYPE_Q4_0,    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,  GGUF_TYPE_Q5_1,    GGUF_TYPE_Q8_0,
		GGUF_TYPE_Q2_K,    GGUF_TYPE_Q3_K,   GGUF_TYPE_Q4_K,  GGUF_TYPE_Q5_K,    GGUF_TYPE_Q6_K,
		GGUF_TYPE_IQ4_NL,  GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4, GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M,
		GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS, GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S,
	};
	static unsigned char p[4096];
	fill(p, sizeof p, 1);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		struct codes c;
		struct code_rows r;
		cr_assert(gguf_codes(types[i], 4, COLUMNS, p, &c));
		codes_rows_new(&r, &c, 4);
		c.read(&c, 0, 4, &r);
		for (int k = 0; k < 4 * COLUMNS; k++)
			cr_assert(r.code[k] < 1 << c.bits, "%s", gguf_type_name(types[i]));
		codes_rows_free(&r);
	}
	struct codes c;
	cr_expect(!gguf_codes(GGUF_TYPE_F16, 4, COLUMNS, p, &c) &&
		  !gguf_codes(GGUF_TYPE_Q4_K, 4, 128, p, &c));
}
