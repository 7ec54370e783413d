/* test_awq.c - the AWQ search on a layer with known inputs: the Gram matrix replaces the tokens, scales
 * reduce errors that clipping and rounding cannot, and no result is worse than rounding to nearest. */
#include "quant/awq.h"
#include "quant/int4.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 300, K = 64, N = 24, GROUP = 32 };

static struct model_config config = {.n_layers = 1,
				     .hidden = K,
				     .intermediate = K,
				     .n_heads = 2,
				     .n_kv_heads = 2,
				     .head_dim = 32,
				     .n_vocab = 16,
				     .max_position = 128};
static struct weights_layer layer;
static struct weights weights = {.layers = &layer, .n_layers = 1};
static struct runner *runner;
static struct inputs in;
static float x[T][K], w[N][K], ratios[N * K / GROUP], scales[K];
static struct why why;

static float random_at(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

/* Inputs 5 and 40 are far larger than the others. */
static void begin(void)
{
	unsigned seed = 11;
	model_config_plan(&config);
	cr_assert_eq(runner_open(&runner, &config, &weights, 128, 1, &why), 0, "%s", why.text);
	for (int t = 0; t < T; t++)
		for (int k = 0; k < K; k++)
			x[t][k] = random_at(&seed) * (k == 5 || k == 40 ? 30 : 1);
	for (int n = 0; n < N; n++)
		for (int k = 0; k < K; k++)
			w[n][k] = random_at(&seed);
	cr_assert_eq(inputs_init(&in, K, T, &why), 0);
	/* Two batches, as from a runner. */
	cr_assert_eq(inputs_add(&in, runner, &x[0][0], 200, &why), 0);
	cr_assert_eq(inputs_add(&in, runner, &x[200][0], T - 200, &why), 0);
	inputs_end(&in);
}

static void end(void)
{
	inputs_fini(&in);
	runner_close(runner);
}

TestSuite(awq, .init = begin, .fini = end);

static void fit(void *arg, float *s)
{
	(void)arg, (void)s;
}

static struct awq_block block(void)
{
	return (struct awq_block){.k = K,
				  .group = GROUP,
				  .n_parts = 1,
				  .parts = {{.w = &w[0][0], .n = N, .ratios = ratios}},
				  .in = &in,
				  .fit = fit,
				  .scales = scales};
}

/* Return the mean square error over tokens, summed over outputs, in double precision. */
static double output_error(const float *effective)
{
	double sum = 0;
	for (int t = 0; t < T; t++)
		for (int n = 0; n < N; n++) {
			double y = 0;
			for (int k = 0; k < K; k++)
				y += ((double)effective[n * K + k] - w[n][k]) * x[t][k];
			sum += y * y;
		}
	return sum / T;
}

Test(awq, the_gram_matrix_is_that_of_all_rows)
{
	for (int i = 0; i < K; i += 7)
		for (int j = 0; j < K; j += 5) {
			double sum = 0;
			for (int t = 0; t < T; t++)
				sum += (double)x[t][i] * x[t][j];
			cr_assert_float_eq(in.gram[i * K + j], sum / T, 1e-3 + fabs(sum / T) * 1e-4, "%d %d",
					   i, j);
		}
	double sum = 0;
	for (int t = 0; t < T; t++)
		sum += fabs(x[t][5]);
	cr_assert_float_eq(in.sums[5], sum, sum * 1e-5);
	cr_assert_eq(in.n, T);
	cr_assert_eq(in.n_sample, T);
}

Test(awq, noise_is_the_error_of_outputs)
{
	struct awq_block b = block();
	static float effective[N * K], nearest[N * K];
	cr_assert_eq(awq_search(&b, runner, &why), 0, "%s", why.text);
	awq_effective(&b, &b.parts[0], effective);
	for (int n = 0; n < N; n++)
		int4_row(w[n], K, GROUP, NULL, nearest + n * K);
	const double searched = output_error(effective), plain = output_error(nearest);
	cr_assert_float_eq(b.parts[0].error.noise, searched, searched * 1e-3);
	cr_assert_float_eq(b.parts[0].nearest, plain, plain * 1e-3);
}

Test(awq, large_inputs_are_protected)
{
	struct awq_block b = block();
	cr_assert_eq(awq_search(&b, runner, &why), 0, "%s", why.text);
	cr_assert_gt(scales[5], 2 * scales[6]);
	cr_assert_gt(scales[40], 2 * scales[41]);
	cr_assert_lt(b.parts[0].error.noise, 0.5 * b.parts[0].nearest);
}

Test(awq, without_scales_clipping_is_never_worse_than_rounding_to_nearest)
{
	struct awq_block b = block();
	b.fit = NULL;
	cr_assert_eq(awq_search(&b, runner, &why), 0, "%s", why.text);
	for (int k = 0; k < K; k++)
		cr_assert_float_eq(scales[k], 1, 0);
	cr_assert_leq(b.parts[0].error.noise, b.parts[0].nearest);
}

Test(awq, tied_inputs_have_one_scale)
{
	static int tie[K];
	struct awq_block b = block();
	for (int k = 0; k < K; k++)
		tie[k] = k % 32;
	b.tie = tie;
	b.n_ties = 32;
	cr_assert_eq(awq_search(&b, runner, &why), 0, "%s", why.text);
	for (int k = 0; k < 32; k++)
		cr_assert_float_eq(scales[k], scales[k + 32], 0, "%d", k);
	cr_assert_gt(scales[5], scales[6]);
}
