/* test_int4.c - 4-bit codes: the grid of a group, rounded values, and AWQ's packed words. */
#include "formats/weights.h"
#include "kernels/half.h"
#include "quant/int4.h"
#include "quant/layer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(int4);

static float random_at(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

Test(int4, values_are_off_by_half_a_step_at_most)
{
	float w[128], out[128];
	uint8_t codes[128];
	unsigned seed = 3;
	for (int i = 0; i < 128; i++)
		w[i] = random_at(&seed) + 0.3f;
	const struct int4_group g = int4_grid(w, 128, 1);
	int4_round(&g, w, 128, out, codes);
	for (int i = 0; i < 128; i++) {
		/* Rounding the zero and the scale may clip the ends of the range. */
		cr_assert_leq(fabsf(out[i] - w[i]), 1.01f * g.scale, "%d: %g is %g", i, (double)w[i],
			      (double)out[i]);
		cr_assert_leq(codes[i], 15);
		cr_assert_float_eq(out[i], ((float)codes[i] - (float)g.zero) * g.scale, 0);
	}
}

Test(int4, zero_is_exact_and_all_of_one_sign_have_their_zero_at_the_end)
{
	const float up[4] = {0, 1, 2, 3}, down[4] = {-3, -1, 0, -2}, none[4] = {0};
	float out[4];
	cr_assert_eq(int4_grid(up, 4, 1).zero, 0);
	cr_assert_eq(int4_grid(down, 4, 1).zero, 15);
	const struct int4_group g = int4_grid(none, 4, 1);
	int4_round(&g, none, 4, out, NULL);
	cr_assert_arr_eq(out, none, sizeof none);
}

Test(int4, ties_are_rounded_to_even)
{
	const struct int4_group g = {.scale = 1, .zero = 8};
	const float w[4] = {0.5f, 1.5f, 2.5f, -0.5f}, expect[4] = {0, 2, 2, 0};
	float out[4];
	int4_round(&g, w, 4, out, NULL);
	for (int i = 0; i < 4; i++)
		cr_assert_float_eq(out[i], expect[i], 0, "%d: %g", i, (double)out[i]);
}

Test(int4, values_beyond_f16_saturate)
{
	const float w[2] = {-3e8f, 3e8f};
	float out[2];
	const struct int4_group g = int4_grid(w, 2, 1);
	int4_round(&g, w, 2, out, NULL);
	cr_assert(isfinite(g.scale) && g.scale <= 65504);
	cr_assert(out[0] < 0 && out[1] > 0);
}

Test(int4, packed_words_are_read_as_what_the_rows_become)
{
	enum { N = 16, K = 96, GROUP = 32, G = K / GROUP };
	static float w[N][K], expect[N][K], got[N * K], ratios[N * G];
	static uint32_t q[K * N / 8], z[G * N / 8];
	static uint16_t s[G * N];
	unsigned seed = 7;
	for (int i = 0; i < N * G; i++)
		ratios[i] = i % 3 ? 1 : 0.7f;
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < K; j++)
			w[i][j] = random_at(&seed) * (float)(i + 1);
		int4_row(w[i], K, GROUP, ratios + i * G, expect[i]);
	}
	int4_pack(&w[0][0], N, K, GROUP, ratios, q, z, s);
	const struct weights_linear l = {
		.n = N, .k = K, .kind = WEIGHTS_AWQ, .group = GROUP, .w = q, .qzeros = z, .scales = s};
	layer_floats(&l, got);
	cr_assert_arr_eq(got, expect, sizeof got);
}

Test(int4, values_of_one_sign_are_off_by_half_a_step_at_most)
{
	float w[8], out[8];
	for (int sign = -1; sign <= 1; sign += 2) {
		for (int i = 0; i < 8; i++)
			w[i] = (float)sign * (1 + (float)i / 8);
		const struct int4_group g = int4_grid(w, 8, 1);
		int4_round(&g, w, 8, out, NULL);
		for (int i = 0; i < 8; i++)
			cr_expect_leq(fabsf(out[i] - w[i]), g.scale / 2 * 1.001f, "%g became %g",
				      (double)w[i], (double)out[i]);
	}
}

Test(int4, each_group_has_its_own_ratio)
{
	enum { GROUPS = 3, EACH = 8 };
	static const float ratios[GROUPS] = {1, 0.5f, 0.75f};
	float w[GROUPS * EACH], out[GROUPS * EACH], want[EACH];
	for (int i = 0; i < GROUPS * EACH; i++)
		w[i] = (float)((i * 37) % 23) - 9.5f;
	int4_row(w, GROUPS * EACH, EACH, ratios, out);
	for (int g = 0; g < GROUPS; g++) {
		const struct int4_group grid = int4_grid(w + g * EACH, EACH, ratios[g]);
		int4_round(&grid, w + g * EACH, EACH, want, NULL);
		cr_expect_eq(memcmp(want, out + g * EACH, sizeof want), 0, "group %d", g);
	}
}
