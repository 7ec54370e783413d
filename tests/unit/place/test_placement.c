/* The rules of --place, which decide where experts are stored. */
#include "formats/place/placement.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 6 };

/* Six layers; the first is dense. */
static struct model_config mixture(void)
{
	struct model_config c = {.n_layers = LAYERS, .experts = {.n = 8, .n_chosen = 2}};
	for (int i = 1; i < LAYERS; i++)
		c.layers[i].sparse = 1;
	return c;
}

/* Return the layers with experts on the CPU, such as "1 2". */
static const char *placed(const char *spec, const char *device)
{
	static char out[64];
	struct why why = {""};
	struct placement p;
	const struct model_config c = mixture();
	cr_assert_eq(placement_parse(&p, spec, device, &c, &why), 0, "%s: %s", spec, why.text);
	out[0] = 0;
	int n = 0;
	for (int i = 0; i < CONFIG_LAYERS_MAX; i++)
		if (p.cpu[i]) {
			n++;
			snprintf(out + strlen(out), sizeof out - strlen(out), out[0] ? " %d" : "%d", i);
		}
	cr_assert(p.n_cpu == n && p.n_sparse == LAYERS - 1);
	return out;
}

Test(placement, rules_name_layers)
{
	cr_expect_str_eq(placed(NULL, "cuda:0"), "");
	cr_expect_str_eq(placed("*=cuda:0", "cuda:0"), "");
	cr_expect_str_eq(placed("*.experts=cpu", "cuda:0"), "1 2 3 4 5");
	cr_expect_str_eq(placed("layers.3.experts=cpu", "cuda:0"), "3");
	cr_expect_str_eq(placed("layers.0-2.experts=cuda:0,*.experts=cpu,*=cuda:0", "cuda:0"), "3 4 5");
	cr_expect_str_eq(placed("*=cuda,*.experts=cpu,layers.0-2.experts=cuda", "cuda:1"), "3 4 5");
	cr_expect_str_eq(placed("layers.0-2.experts=cpu,*.experts=cuda:0", "cuda:0"), "1 2");
}

Test(placement, on_a_worker_of_the_cpu_everything_is_its_own)
{
	cr_expect_str_eq(placed("*.experts=cpu", "cpu"), "");
	cr_expect_str_eq(placed("*.experts=cpu,*=cpu", "cpu:0"), "");
}

Test(placement, the_same_in_other_words_has_the_same_name)
{
	static const char *const same[] = {"layers.1-2.experts=cuda:0,*.experts=cpu",
					   "*.experts=cpu,layers.0-2.experts=cuda", "layers.3-5.experts=cpu"};
	const struct model_config c = mixture();
	char first[PLACEMENT_TEXT], text[PLACEMENT_TEXT];
	struct placement p;
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(placement_parse(&p, same[i], "cuda:0", &c, NULL), 0);
		placement_text(&p, i ? text : first);
		cr_expect(i == 0 || strcmp(first, text) == 0, "%s, not %s", text, first);
	}
	cr_assert_eq(placement_parse(&p, "*.experts=cpu", "cuda:0", &c, NULL), 0);
	placement_text(&p, text);
	cr_expect_str_eq(text, "all");
	cr_assert_eq(placement_parse(&p, "layers.2-4.experts=cpu", "cuda:0", &c, NULL), 0);
	placement_text(&p, text);
	cr_expect_str_neq(first, text);
}

struct refusal {
	char spec[80], why[80];
};

ParameterizedTestParameters(placement, what_cannot_be_is_refused)
{
	static struct refusal cases[] = {
		{"", "PART=DEVICE"},
		{"*.experts=cpu,", "PART=DEVICE"},
		{"*.experts", "PART=DEVICE"},
		{"layers.3=cpu", "no such part"},
		{"layers.-1.experts=cpu", "no such part"},
		{"layers.1-.experts=cpu", "no such part"},
		{"layers.x.experts=cpu", "no such part"},
		{"layers.1.attention=cpu", "no such part"},
		{"*.experts=cuda:1", "on cpu or on cuda,"},
		{"*.experts=", "on cpu or on cuda,"},
		{"layers.6.experts=cpu", "the model has 6 layers, 0 to 5"},
		{"layers.4-99999999999999999999.experts=cpu", "the model has 6 layers"},
		{"layers.0.experts=cpu", "names nothing"},
		{"layers.4-3.experts=cpu", "names nothing"},
		{"layers.1-5.experts=cpu,*.experts=cuda:0", "names nothing"},
		{"layers.1-3.experts=cpu,layers.3.experts=cuda:0", "another rule names layer 3"},
		{"*.experts=cpu,*.experts=cpu", "a second rule"},
		{"*=cuda:0,*=cuda:0", "a second rule"},
		{"*=cpu", "only experts can be on the CPU"},
	};
	return cr_make_param_array(struct refusal, cases, sizeof cases / sizeof cases[0]);
}

ParameterizedTest(struct refusal *r, placement, what_cannot_be_is_refused)
{
	struct why why = {""};
	struct placement p;
	const struct model_config c = mixture();
	cr_expect_eq(placement_parse(&p, r->spec, "cuda:0", &c, &why), -EINVAL, "%s", r->spec);
	cr_expect(strstr(why.text, r->why), "%s: %s", r->spec, why.text);
}

Test(placement, a_dense_model_has_no_experts_to_place)
{
	struct why why = {""};
	struct placement p;
	const struct model_config c = {.n_layers = LAYERS};
	cr_expect_eq(placement_parse(&p, PLACEMENT_EXPERTS_CPU, "cuda:0", &c, &why), -EINVAL);
	cr_expect(strstr(why.text, "no mixture of experts"), "%s", why.text);
}

Test(placement, a_group_has_no_experts_on_the_cpu)
{
	struct why why = {""};
	const struct placement none = {.n_sparse = 5}, some = {.n_sparse = 5, .n_cpu = 1};
	cr_expect_eq(placement_check_ranks(&none, 2, &why), 0);
	cr_expect_eq(placement_check_ranks(&some, 1, &why), 0);
	cr_expect_eq(placement_check_ranks(&some, 2, &why), -ENOTSUP);
	cr_expect(strstr(why.text, "leave --tp out"), "%s", why.text);
}

Test(placement, the_options_say_where_experts_are_once)
{
	struct why why = {""};
	const char *spec;
	cr_expect_eq(placement_options(NULL, NULL, &spec, &why), 0);
	cr_expect_null(spec);
	cr_expect_eq(placement_options("cpu", NULL, &spec, &why), 0);
	cr_expect_str_eq(spec, PLACEMENT_EXPERTS_CPU);
	cr_expect_eq(placement_options("device", NULL, &spec, &why), 0);
	cr_expect_null(spec);
	cr_expect_eq(placement_options(NULL, "*=cuda", &spec, &why), 0);
	cr_expect_str_eq(spec, "*=cuda");
	cr_expect_eq(placement_options("cpu", "*=cuda", &spec, &why), -EINVAL);
	cr_expect_eq(placement_options("device", "*=cuda", &spec, &why), -EINVAL);
	cr_expect(strstr(why.text, "leave one out"), "%s", why.text);
	cr_expect_eq(placement_options("gpu", NULL, &spec, &why), -EINVAL);
	cr_expect(strstr(why.text, "must be cpu or device"), "%s", why.text);
}
