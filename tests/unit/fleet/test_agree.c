/* Workers on devices of one kind agree on one compute mode. */
#include "controller/fleet/agree.h"

#include <criterion/criterion.h>
#include <stdio.h>

static bool loaded; /* the workers report that they have a model loaded */

static void check(struct agree *a, const char *wanted, const char *device, const char *own, const char *want,
		  bool decides)
{
	bool first;
	cr_expect_str_eq(agree_compute(a, wanted, device, own, loaded, &first), want, "%s on %s", own,
			 device);
	cr_expect_eq(first, decides, "%s on %s", own, device);
}

Test(agree, the_first_worker_of_a_kind_decides)
{
	struct agree a = {0};
	check(&a, "auto", "cpu", "int16", "int16", true);
	check(&a, "auto", "cpu:1", "f32", "int16", false);
	check(&a, "auto", "cuda:0", "f32", "f32", true);
	check(&a, "auto", "cuda:1", "int16", "f32", false);
	check(&a, "auto", "cpu", "int8", "int16", false);
}

Test(agree, a_mode_that_is_asked_for_is_taken_and_decides_nothing)
{
	struct agree a = {0};
	check(&a, "bf16", "cpu", "int16", "bf16", false);
	check(&a, "auto", "cpu", "f32", "f32", true);
	check(&a, "f32", "cpu", "int16", "f32", false);
}

Test(agree, a_word_that_is_no_mode_is_f32)
{
	struct agree a = {0};
	check(&a, "auto", "cpu", "", "f32", true);
	check(&a, "auto", "gpu", "auto", "f32", true);
	check(&a, "auto", "cpu", "int16", "f32", false);
}

Test(agree, kinds_beyond_those_that_are_kept_choose_for_themselves)
{
	struct agree a = {0};
	for (int i = 0; i < AGREE_KINDS; i++) {
		char kind[16];
		snprintf(kind, sizeof kind, "kind%d", i);
		check(&a, "auto", kind, "bf16", "bf16", true);
	}
	check(&a, "auto", "cpu", "int16", "auto", false);
	check(&a, "auto", "kind0:7", "int16", "bf16", false);
}

/* This happens after a restart of the controller. */
Test(agree, a_worker_that_has_loaded_a_model_counts_more)
{
	struct agree a = {0};
	check(&a, "auto", "cpu", "int16", "int16", true);
	loaded = true;
	check(&a, "auto", "cpu", "f32", "f32", true);
	check(&a, "auto", "cpu", "int8", "f32", false); /* of another service: the first mode stays */
	check(&a, "auto", "cuda:0", "bf16", "bf16", true);
	loaded = false;
	check(&a, "auto", "cpu", "int16", "f32", false);
	check(&a, "auto", "cuda:0", "f32", "bf16", false);
}

Test(agree, a_loaded_mode_that_was_agreed_on_decides_nothing_more)
{
	struct agree a = {0};
	check(&a, "auto", "cpu", "int16", "int16", true);
	loaded = true;
	check(&a, "auto", "cpu", "int16", "int16", false);
	check(&a, "auto", "cpu", "f32", "int16", false);
}

static struct bus_hello hello(const char *device, const char *own, const char *experts)
{
	struct bus_hello h = {.loaded = loaded, .experts_loaded = loaded};
	snprintf(h.device, sizeof h.device, "%s", device);
	snprintf(h.compute, sizeof h.compute, "%s", own);
	snprintf(h.experts_compute, sizeof h.experts_compute, "%s", experts);
	return h;
}

/* Join a worker; return its modes. */
static struct agree_modes join(struct agree *a, const struct bus_hello *h)
{
	struct agree_modes m;
	agree_join(a, "auto", h, 1);
	agree_modes(a, "auto", h, &m);
	return m;
}

Test(agree, the_modes_of_workers_that_serve_stay)
{
	struct agree a = {0};
	const struct bus_hello first = hello("cuda:0", "f32", "int16");
	struct agree_modes m = join(&a, &first);
	cr_expect(agree_decide(&a, "auto", &first, &m));
	loaded = true;
	const struct bus_hello late = hello("cuda:1", "bf16", "int8"), other = hello("cpu", "f32", "");
	m = join(&a, &late);
	cr_expect_str_eq(m.compute, "f32");
	cr_expect_str_eq(m.experts, "int16");
	cr_expect(agree_decide(&a, "auto", &late, &m));
	m = join(&a, &other); /* no mode was agreed for its kind */
	cr_expect_str_eq(m.compute, "f32");
	cr_expect_str_eq(m.experts, "");
}

Test(agree, modes_that_changed_while_a_worker_loaded_do_not_hold)
{
	struct agree a = {0};
	const struct bus_hello first = hello("cuda:0", "f32", "int16");
	const struct agree_modes m = join(&a, &first);
	loaded = true;
	const struct bus_hello second = hello("cuda:0", "f32", "int8");
	cr_expect_str_eq(join(&a, &second).experts, "int8");
	cr_expect(!agree_decide(&a, "auto", &first, &m));
	const struct agree_modes again = join(&a, &first);
	cr_expect_str_eq(again.experts, "int8");
	cr_expect(agree_decide(&a, "auto", &first, &again));
}

Test(agree, a_loaded_model_without_experts_chooses_no_mode_for_them)
{
	struct agree a = {0};
	struct bus_hello h = hello("cuda:0", "f32", "int16");
	cr_expect_str_eq(join(&a, &h).experts, "int16");
	h = hello("cuda:0", "f32", "int8");
	h.loaded = true;
	cr_expect_str_eq(join(&a, &h).experts, "int16");
	h.experts_loaded = true;
	cr_expect_str_eq(join(&a, &h).experts, "int8");
}
