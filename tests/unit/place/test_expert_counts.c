/* Rows of each expert, read from the text of a service's /metrics. */
#include "formats/place/expert_counts.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, EXPERTS = 2 };

/* Three layers; the first is dense. */
static struct model_config mixture(void)
{
	struct model_config c = {.n_layers = LAYERS, .experts = {.n = EXPERTS, .n_chosen = 1}};
	c.layers[1].sparse = c.layers[2].sparse = 1;
	return c;
}

#define ROWS(layer, expert, n)                                                                               \
	"quern:expert_layer_rows_total{model_name=\"m\",layer=\"" #layer "\",expert=\"" #expert "\"} " #n "\n"

static int parse(struct expert_counts *x, const char *text, struct why *why)
{
	const struct model_config c = mixture();
	return expert_counts_parse(x, text, "rows.txt", &c, why);
}

Test(expert_counts, are_read_among_other_metrics)
{
	static const char text[] =
		"# HELP quern:expert_layer_rows_total Rows computed by an expert of a layer.\n"
		"quern:expert_imbalance{model_name=\"m\",layer=\"2\"} 1.5\n" ROWS(2, 0, 7)
			ROWS(2, 1, 0) "quern:tokens{layer=\"1\",expert=\"0\"} 99\n";
	struct expert_counts x;
	struct why why = {""};
	cr_assert_eq(parse(&x, text, &why), 0, "%s", why.text);
	cr_expect(x.n_layers == LAYERS && x.n_experts == EXPERTS);
	const uint64_t want[LAYERS * EXPERTS] = {0, 0, 0, 0, 7, 0};
	cr_expect(memcmp(x.rows, want, sizeof want) == 0);
	expert_counts_fini(&x);
}

/* Labels in any order and number, timestamps, and names that contain the end of a label. */
Test(expert_counts, labels_are_read_as_prometheus_has_them)
{
	static const char text[] =
		"quern:expert_layer_rows_total{expert=\"1\",layer=\"1\",model_name=\"a} \\\" b,layer=\"} 5 "
		"1700000000\r\n"
		"quern:expert_layer_rows_total{model_name=\"x\",layer=\"1\",expert=\"0\",} 1e3";
	struct expert_counts x;
	struct why why = {""};
	cr_assert_eq(parse(&x, text, &why), 0, "%s", why.text);
	cr_expect(x.rows[2] == 1000 && x.rows[3] == 5);
	expert_counts_fini(&x);
}

Test(expert_counts, of_several_services_are_added)
{
	struct expert_counts x;
	struct why why = {""};
	cr_assert_eq(parse(&x, ROWS(1, 0, 4) ROWS(1, 1, 1) ROWS(1, 0, 3) ROWS(1, 1, 0), &why), 0, "%s",
		     why.text);
	cr_expect(x.rows[2] == 7 && x.rows[3] == 1);
	expert_counts_fini(&x);
}

struct refusal {
	char text[320], why[64];
};

#define BAD(rest) "quern:expert_layer_rows_total{" rest "\n"

ParameterizedTestParameters(expert_counts, what_cannot_be_is_refused)
{
	static struct refusal cases[] = {
		{"", "rows.txt has no rows of experts"},
		{"# quern:expert_layer_rows_total{\n", "has no rows of experts"},
		{"x\n" ROWS(3, 0, 1), "line 2: layer 3, expert 0, where the model has 3 layers of 2"},
		{ROWS(1, 2, 1), "layer 1, expert 2, where the model has 3 layers of 2 experts"},
		{ROWS(99999999999999999999, 0, 1), "another model"},
		{ROWS(0, 1, 1), "layer 0 has no experts"},
		{ROWS(1, 0, 1), "0 counts of expert 1 of layer 1, and 1 of expert 0"},
		{ROWS(1, 0, 1) ROWS(1, 0, 1), "0 counts of expert 1 of layer 1"},
		{ROWS(1, 1, 1) ROWS(2, 0, 1) ROWS(2, 1, 1), "1 counts of expert 1 of layer 1, and 0"},
		{BAD("layer=\"1\"} 5"), "line 1: no count"},
		{BAD("expert=\"1\"} 5"), "line 1: no count"},
		{BAD("layer=\"1\",expert=\"\"} 5"), "no count"},
		{BAD("layer=\"1\",expert=\"1x\"} 5"), "no count"},
		{BAD("layer=\"1\",expert=\"-1\"} 5"), "no count"},
		{BAD("layer=\"1\",expert=\"1\"}"), "no count"},
		{BAD("layer=\"1\",expert=\"1\"} -5"), "no count"},
		{BAD("layer=\"1\",expert=\"1\"} 1.5"), "no count"},
		{BAD("layer=\"1\",expert=\"1\"} 1e300"), "no count"},
		{BAD("layer=\"1\",expert=\"1\"} 5x"), "no count"},
		{BAD("layer=\"1\",expert=\"1\"} NaN"), "no count"},
		{BAD("layer=\"1\",expert=\"1"), "no count"},
		{BAD("layer=\"1\",expert=\"1\\"), "no count"},
		{BAD(""), "no count"},
	};
	return cr_make_param_array(struct refusal, cases, sizeof cases / sizeof cases[0]);
}

ParameterizedTest(struct refusal *r, expert_counts, what_cannot_be_is_refused)
{
	struct expert_counts x;
	struct why why = {""};
	cr_expect_eq(parse(&x, r->text, &why), -EINVAL, "%s", r->text);
	cr_expect(strstr(why.text, r->why), "%s: %s", r->text, why.text);
	cr_expect_null(x.rows);
}

Test(expert_counts, of_a_dense_model_are_refused)
{
	const struct model_config dense = {.n_layers = LAYERS};
	struct expert_counts x;
	struct why why = {""};
	cr_expect_eq(expert_counts_parse(&x, "", "rows.txt", &dense, &why), -EINVAL);
	cr_expect(strstr(why.text, "no mixture of experts"), "%s", why.text);
	cr_expect_null(x.rows);
}

Test(expert_counts, a_file_with_a_zero_byte_is_no_text)
{
	static const char text[] = ROWS(1, 0, 1) ROWS(1, 1, 1) "\0" ROWS(2, 0, 1);
	const struct model_config c = mixture();
	struct expert_counts x;
	struct why why = {""};
	char path[] = "/tmp/quern-counts-XXXXXX";
	FILE *f = fdopen(mkstemp(path), "wb");
	cr_assert(f && fwrite(text, 1, sizeof text - 1, f) == sizeof text - 1 && fclose(f) == 0);
	cr_expect_eq(expert_counts_read(&x, path, &c, &why), -EINVAL);
	cr_expect(strstr(why.text, "is no text"), "%s", why.text);
	cr_expect_null(x.rows);
	remove(path);
}

Test(expert_counts, a_missing_file_is_named)
{
	const struct model_config c = mixture();
	struct expert_counts x;
	struct why why = {""};
	cr_expect_eq(expert_counts_read(&x, "/nonexistent/rows", &c, &why), -ENOENT);
	cr_expect(strstr(why.text, "--expert-counts") && strstr(why.text, "/nonexistent/rows"), "%s",
		  why.text);
	cr_expect_null(x.rows);
}
