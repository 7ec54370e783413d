/* test_hf_rows.c - rows rounded to nearest, the numbers in config.json, and the tensors that stay in
 * floating point. */
#include "quant/convert/hf_files.h"
#include "quant/round/hf_rows.h"
#include "quant/round/keep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* E4M3: 1.mmm * 2^(e - 7), or 0.mmm * 2^-6 if e is 0. */
static double e4m3(uint8_t code)
{
	const int e = code >> 3 & 15, m = code & 7;
	const double size = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
	return code & 0x80 ? -size : size;
}

/* Return the nearest code; the even one of two equally near. There are 127 sizes, and 0x7f is NaN. */
static uint8_t nearest(double x)
{
	uint8_t best = 0;
	for (int c = 1; c < 0x7f; c++) {
		const double now = fabs(fabs(x) - e4m3((uint8_t)c)), before = fabs(fabs(x) - e4m3(best));
		if (now < before || (now == before && c % 2 == 0))
			best = (uint8_t)c;
	}
	return best | (signbit(x) ? 0x80 : 0);
}

Test(rounding, an_e4m3_is_the_nearest_and_of_two_the_even_one)
{
	/* every value, the middle of each two values, and values just next to the middle */
	for (int c = 0; c < 0x7e; c++) {
		const double a = e4m3((uint8_t)c), b = e4m3((uint8_t)(c + 1)), middle = (a + b) / 2;
		const float of[] = {(float)a, (float)middle, nextafterf((float)middle, 0),
				    nextafterf((float)middle, 1000)};
		for (int i = 0; i < 4; i++) {
			cr_expect_eq(round_e4m3(of[i]), nearest(of[i]), "%a", (double)of[i]);
			cr_expect_eq(round_e4m3(-of[i]), nearest(-of[i]), "%a", (double)-of[i]);
		}
	}
	cr_expect_eq(round_e4m3(448), 0x7e);
	cr_expect_eq(round_e4m3(1e30f), 0x7e);
	cr_expect_eq(round_e4m3(-1e30f), 0xfe);
	cr_expect_eq(round_e4m3(465), 0x7e, "not a NaN");
}

Test(rounding, a_row_has_the_scale_of_its_largest_value)
{
	static const float row[] = {-254, 127, 3, 1, -5, 0}, zeros[6] = {0};
	int8_t code[6];
	uint8_t fp8[6];
	float scale;
	round_int8_row(row, 6, code, &scale);
	cr_expect_eq(scale, 2);
	static const int8_t want[] = {-127, 64, 2, 0, -2, 0};
	cr_expect_eq(memcmp(code, want, 6), 0, "ties are rounded to even");
	round_int8_row(zeros, 6, code, &scale);
	cr_expect(scale == 0 && code[0] == 0 && code[5] == 0);
	round_fp8_row(row, 6, fp8, &scale);
	cr_expect_eq(scale, 254.0f / 448);
	cr_expect_eq(fp8[0], 0xfe);
	cr_expect_eq(fp8[1], nearest(127 / scale));
	round_fp8_row(zeros, 6, fp8, &scale);
	cr_expect(scale == 0 && fp8[0] == 0 && fp8[5] == 0);
}

Test(rounding, a_number_is_the_shortest_that_stands_for_its_float)
{
	static const double decimals[] = {1e-6, 0.1, 10000, 0.33333334, 1e-5, 500000, 0.70710677};
	for (size_t i = 0; i < sizeof decimals / sizeof *decimals; i++) {
		json_t *n = hf_number((double)(float)decimals[i]);
		cr_expect_eq(json_real_value(n), decimals[i], "%.17g became %.17g", decimals[i],
			     json_real_value(n));
		json_decref(n);
	}
}

Test(rounding, parts_stay_in_floats_by_a_pattern_or_by_their_whole_name)
{
	char *patterns[] = {"layers.1.*down", "v_proj"};
	struct keep k = {.patterns = patterns, .n_patterns = 2};
	keep_add(&k, "model.layers.2.mlp.up_proj");
	cr_expect_eq(keep_of(&k, "model.layers.1.mlp.down_proj", 0), KEEP_PATTERN);
	cr_expect_eq(keep_of(&k, "model.layers.11.mlp.down_proj", 0), KEEP_NOT);
	cr_expect_eq(keep_of(&k, "model.layers.7.self_attn.v_proj", 0), KEEP_PATTERN);
	cr_expect_eq(keep_of(&k, "model.layers.2.mlp.up_proj", 0), KEEP_NAME);
	cr_expect_eq(keep_of(&k, "model.layers.2.mlp.up_proj.x", 0), KEEP_NOT);
	keep_add(&k, "model.layers.3.mlp.experts.5.up_proj");
	cr_expect_eq(keep_of(&k, "model.layers.3.mlp.experts.0.up_proj", 0), KEEP_NOT);
	cr_expect_eq(keep_of(&k, "model.layers.3.mlp.experts.0.up_proj", 6), KEEP_NAME);
	cr_expect_eq(keep_of(&k, "model.layers.3.mlp.experts.0.up_proj", 5), KEEP_NOT);
	cr_expect_eq(keep_of(&k, "model.layers.2.mlp.up_proj", 6), KEEP_NAME, "no part of an expert");
	keep_fini(&k);
	cr_expect_eq(keep_of(&k, "model.layers.2.mlp.up_proj", 0), KEEP_NOT);
}
