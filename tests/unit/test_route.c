/* Which replica a job goes to. */
#include "controller/route.h"

#include <criterion/criterion.h>

Test(route, the_least_loaded_without_a_prefix)
{
	struct route_option o[] = {{.load = 300}, {.load = 100}, {.load = 200}};
	cr_assert_eq(route_choose(o, 3, 50), 1);
}

Test(route, the_longest_prefix_of_equally_loaded_ones)
{
	struct route_option o[] = {{.cached = 16}, {.cached = 64}, {.cached = 32}};
	cr_assert_eq(route_choose(o, 3, 100), 1);
}

Test(route, a_prefix_is_worth_waiting_for_but_not_longer_than_it_saves)
{
	struct route_option o[] = {{.load = 500, .cached = 600}, {.load = 0}};
	cr_assert_eq(route_choose(o, 2, 800), 0);
	o[0].load = 700;
	cr_assert_eq(route_choose(o, 2, 800), 1);
}

Test(route, load_counts_against_speed)
{
	struct route_option o[] = {{.load = 1000, .speed = 10000}, {.load = 300, .speed = 1000}};
	cr_assert_eq(route_choose(o, 2, 100), 0);
}

Test(route, a_speed_that_is_not_known_is_that_of_the_others)
{
	struct route_option o[] = {{.load = 200, .speed = 1000}, {.load = 100}};
	cr_assert_eq(route_choose(o, 2, 10), 1);
	o[1].load = 300;
	cr_assert_eq(route_choose(o, 2, 10), 0);
}
