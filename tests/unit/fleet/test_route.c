/* A job's replica is chosen by load, cached prefix and speed. */
#include "controller/fleet/route.h"

#include <criterion/criterion.h>

Test(route, least_loaded_without_a_prefix)
{
	struct route_option o[] = {{.load = 300}, {.load = 100}, {.load = 200}};
	cr_assert_eq(route_choose(o, 3, 50), 1);
}

Test(route, longest_prefix_at_equal_load)
{
	struct route_option o[] = {{.cached = 16}, {.cached = 64}, {.cached = 32}};
	cr_assert_eq(route_choose(o, 3, 100), 1);
}

Test(route, prefix_is_worth_a_wait_up_to_what_it_saves)
{
	struct route_option o[] = {{.load = 500, .cached = 600}, {.load = 0}};
	cr_assert_eq(route_choose(o, 2, 800), 0);
	o[0].load = 700;
	cr_assert_eq(route_choose(o, 2, 800), 1);
}

Test(route, load_is_weighed_by_speed)
{
	struct route_option o[] = {{.load = 1000, .speed = 10000}, {.load = 300, .speed = 1000}};
	cr_assert_eq(route_choose(o, 2, 100), 0);
}

Test(route, unknown_speed_is_the_mean_of_the_others)
{
	struct route_option o[] = {{.load = 200, .speed = 1000}, {.load = 100}};
	cr_assert_eq(route_choose(o, 2, 10), 1);
	o[1].load = 300;
	cr_assert_eq(route_choose(o, 2, 10), 0);
}

Test(route, path_counts_prompts_and_steps_at_their_speeds)
{
	/* 0.1 s and 4 s */
	struct route_path a = {.prompt_tokens = 100, .steps = 10, .prefill_tps = 10000, .decode_us = 9000};
	struct route_path b = {.prompt_tokens = 0, .steps = 40, .prefill_tps = 10000, .decode_us = 100000};
	cr_assert(route_is_earlier(&a, &b));
	cr_assert_not(route_is_earlier(&b, &a));
	a.prompt_tokens = 40000; /* 4.09 s */
	cr_assert_not(route_is_earlier(&a, &b));
	cr_assert(route_is_earlier(&b, &a));
}

Test(route, unknown_speed_of_a_path_is_the_other_ones)
{
	struct route_path a = {.prompt_tokens = 100, .steps = 10, .prefill_tps = 100, .decode_us = 1000};
	struct route_path b = {.prompt_tokens = 99, .steps = 10};
	cr_assert(route_is_earlier(&b, &a));
	b.prompt_tokens = 100;
	cr_assert_not(route_is_earlier(&b, &a));
	cr_assert_not(route_is_earlier(&a, &b));
	b.steps = 9;
	cr_assert(route_is_earlier(&b, &a));
}
