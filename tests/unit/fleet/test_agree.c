/* One compute mode for the workers of a kind of device. */
#include "controller/fleet/agree.h"

#include <criterion/criterion.h>
#include <stdio.h>

static bool loaded; /* what the workers say of themselves */

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

/* After a restart of the controller. */
Test(agree, a_worker_that_has_loaded_a_model_counts_more)
{
	struct agree a = {0};
	check(&a, "auto", "cpu", "int16", "int16", true);
	loaded = true;
	check(&a, "auto", "cpu", "f32", "f32", true);
	check(&a, "auto", "cpu", "int8", "f32", false); /* of another service: the first of them stays */
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
