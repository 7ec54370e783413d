/* Experts of CPU layers that are also kept on the device: those with the most rows. */
#include "formats/place/hot.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, EXPERTS = 3 };

/* Layer 0 is dense, layer 1 is on the device. */
static struct placement two_on_the_cpu(void)
{
	return (struct placement){.cpu = {[2] = true, [3] = true}, .n_cpu = 2, .n_sparse = 3};
}

static uint64_t rows[LAYERS * EXPERTS];
static int64_t sizes[LAYERS] = {[2] = 10, [3] = 10};
static struct placement placement;
static struct why why;

static void given(const uint64_t (*layers)[EXPERTS])
{
	memset(rows, 0, sizeof rows);
	memcpy(rows + 1 * EXPERTS, layers, 3 * sizeof *layers);
	sizes[2] = sizes[3] = 10;
	placement = two_on_the_cpu();
	why.text[0] = 0;
}

static int choose(struct hot *h, int64_t budget)
{
	const struct expert_counts counts = {LAYERS, EXPERTS, rows};
	const struct hot_choice a = {&counts, sizes, budget};
	return hot_choose(h, &placement, &a, &why);
}

/* Return the chosen experts, such as "2.0 3.1". */
static const char *chosen(int64_t budget)
{
	static char out[128];
	struct hot h;
	int n = 0;
	int64_t bytes = 0;
	out[0] = 0;
	cr_assert_eq(choose(&h, budget), 0, "%s", why.text);
	for (int l = 0; l < LAYERS; l++)
		for (int e = 0; e < EXPERTS; e++)
			if (hot_layer(&h, l)[e]) {
				snprintf(out + strlen(out), sizeof out - strlen(out), "%s%d.%d",
					 n++ ? " " : "", l, e);
				bytes += sizes[l];
			}
	cr_expect(h.n == n && h.bytes == bytes && bytes <= budget, "%d experts, %lld bytes", h.n,
		  (long long)h.bytes);
	for (int l = 0; l < LAYERS; l++) {
		char layer[8];
		snprintf(layer, sizeof layer, "%d.", l);
		cr_expect_eq(hot_any(&h, l), strstr(out, layer) != NULL, "layer %d", l);
	}
	hot_fini(&h);
	return out;
}

Test(hot, experts_with_the_most_rows_are_taken_of_all_layers)
{
	/* The first of these layers is on the device as a whole. */
	static const uint64_t layers[3][EXPERTS] = {{90, 90, 90}, {5, 1, 30}, {20, 40, 2}};
	given(layers);
	cr_expect_str_eq(chosen(10), "3.1");
	cr_expect_str_eq(chosen(19), "3.1");
	cr_expect_str_eq(chosen(20), "2.2 3.1");
	cr_expect_str_eq(chosen(35), "2.2 3.0 3.1");
}

Test(hot, of_equals_the_lowest_layer_then_the_lowest_expert_is_taken)
{
	static const uint64_t layers[3][EXPERTS] = {{0, 0, 0}, {7, 9, 7}, {7, 7, 7}};
	given(layers);
	cr_expect_str_eq(chosen(10), "2.1");
	cr_expect_str_eq(chosen(20), "2.0 2.1");
	given(layers);
	cr_expect_str_eq(chosen(40), "2.0 2.1 2.2 3.0");
}

Test(hot, what_does_not_fit_is_passed_over)
{
	static const uint64_t layers[3][EXPERTS] = {{0, 0, 0}, {9, 8, 7}, {5, 4, 3}};
	given(layers);
	sizes[2] = 30;
	cr_expect_str_eq(chosen(50), "2.0 3.0 3.1");
	cr_expect_str_eq(chosen(25), "3.0 3.1");
}

Test(hot, an_expert_without_rows_stays_where_it_is)
{
	static const uint64_t layers[3][EXPERTS] = {{0, 0, 0}, {0, 3, 0}, {0, 0, 1}};
	given(layers);
	cr_expect_str_eq(chosen(59), "2.1 3.2");
}

Test(hot, a_layer_with_hot_experts_only_leaves_the_cpu)
{
	static const uint64_t layers[3][EXPERTS] = {{0, 0, 0}, {1, 2, 3}, {9, 9, 9}};
	given(layers);
	cr_expect_str_eq(chosen(40), "2.2 3.0 3.1 3.2");
	cr_expect(placement.cpu[2] && !placement.cpu[3] && placement.n_cpu == 1);
}

Test(hot, any_counts_and_budget_keep_the_bound)
{
	srand(7);
	for (int i = 0; i < 20000; i++) {
		struct hot h;
		uint64_t layers[3][EXPERTS];
		for (int k = 0; k < 3 * EXPERTS; k++)
			layers[k / EXPERTS][k % EXPERTS] = (uint64_t)rand() % 4;
		given((const uint64_t(*)[EXPERTS])layers);
		sizes[2] = 1 + rand() % 20;
		sizes[3] = 1 + rand() % 20;
		const int64_t budget = rand() % 130, all = EXPERTS * (sizes[2] + sizes[3]);
		int rc = choose(&h, budget);
		if (budget >= all)
			cr_assert_eq(rc, -EINVAL);
		if (!rc)
			cr_assert(h.n > 0 && h.bytes <= budget && placement.n_cpu > 0);
		hot_fini(&h);
	}
}

Test(hot, a_choice_has_a_name_of_its_own)
{
	static const uint64_t a[3][EXPERTS] = {{0, 0, 0}, {9, 1, 1}, {1, 1, 8}},
			      b[3][EXPERTS] = {{0, 0, 0}, {900, 10, 1}, {1, 1, 80}},
			      c[3][EXPERTS] = {{0, 0, 0}, {9, 1, 1}, {1, 8, 1}};
	const uint64_t(*const all[])[EXPERTS] = {a, b, c};
	char text[3][HOT_TEXT];
	struct hot h = {0};
	hot_text(&h, LAYERS, text[0]);
	cr_expect_str_eq(text[0], "");
	for (int i = 0; i < 3; i++) {
		given(all[i]);
		cr_assert_eq(choose(&h, 20), 0, "%s", why.text);
		hot_text(&h, LAYERS, text[i]);
		hot_fini(&h);
	}
	cr_expect(strncmp(text[0], "hot=2:", 6) == 0, "%s", text[0]);
	cr_expect_str_eq(text[0], text[1]);
	cr_expect_str_neq(text[0], text[2]);
}

Test(hot, a_budget_that_chooses_nothing_or_all_is_refused)
{
	static const uint64_t layers[3][EXPERTS] = {{5, 5, 5}, {1, 2, 3}, {9, 9, 9}},
			      none[3][EXPERTS] = {{5, 5, 5}, {0, 0, 0}, {0, 0, 0}};
	struct hot h;
	given(layers);
	cr_expect_eq(choose(&h, 60), -EINVAL);
	cr_expect(strstr(why.text, "has room for all experts"), "%s", why.text);
	cr_expect_eq(choose(&h, 9), -EINVAL);
	cr_expect(strstr(why.text, "is 9 bytes, and one expert takes 10"), "%s", why.text);
	given(none);
	cr_expect_eq(choose(&h, 20), -EINVAL);
	cr_expect(strstr(why.text, "no expert that is on the CPU had a row") &&
			  strstr(why.text, "--expert-metrics"),
		  "%s", why.text);
	cr_expect_null(h.here);
	cr_expect_eq(placement.n_cpu, 2);
}

struct options {
	struct hot_options o;
	char spec[24];
	char why[64]; /* "": accepted */
};

ParameterizedTestParameters(hot, options_go_together)
{
	static struct options cases[] = {
		{{false, 0, NULL}, "", ""},
		{{false, 0, NULL}, "*.experts=cpu", ""},
		{{true, 1 << 20, "rows"}, "*.experts=cpu", ""},
		{{true, 1 << 20, NULL}, "*.experts=cpu", "needs --expert-counts FILE"},
		{{true, 0, "rows"}, "*.experts=cpu", "more than 0 bytes"},
		{{false, 0, "rows"}, "*.experts=cpu", "is for --hot-experts"},
		{{true, 1 << 20, "rows"}, "", "give --experts cpu or --place, too"},
	};
	return cr_make_param_array(struct options, cases, sizeof cases / sizeof cases[0]);
}

ParameterizedTest(struct options *x, hot, options_go_together)
{
	struct why text = {""};
	const char *spec = x->spec[0] ? x->spec : NULL;
	/* A case runs in its own process, where its pointer is invalid: only test whether it is NULL. */
	const struct hot_options o = {x->o.given, x->o.bytes, x->o.counts ? "rows" : NULL};
	cr_expect_eq(hot_check_options(&o, spec, &text), x->why[0] ? -EINVAL : 0, "%s", text.text);
	cr_expect(strstr(text.text, x->why), "%s", text.text);
}

Test(hot, a_placement_without_experts_on_the_cpu_is_refused)
{
	const struct hot_options o = {true, 1 << 20, "rows"}, none = {0};
	const struct placement all_on_device = {.n_sparse = 3}, cpu = two_on_the_cpu();
	cr_expect_eq(hot_check_placement(&o, &all_on_device, "cuda:0", &why), -EINVAL);
	cr_expect(strstr(why.text, "leaves all experts on the device"), "%s", why.text);
	cr_expect_eq(hot_check_placement(&none, &all_on_device, "cuda:0", &why), 0);
	cr_expect_eq(hot_check_placement(&o, &cpu, "cuda:0", &why), 0);
	/* One configuration serves machines with and without GPUs. */
	cr_expect_eq(hot_check_placement(&o, &all_on_device, "cpu:0", &why), 0);
}
