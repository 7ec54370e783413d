/* The rule that sets the number of a service's replicas. */
#include "controller/fleet/autoscale.h"

#include <criterion/criterion.h>

enum { SECOND = 1000000, PERIOD = 15 };

/* A simulated service, scaled by the rule. */
struct scaled {
	struct autoscale rule;
	uint32_t n;
	int64_t s; /* time, seconds */
};

static struct scaled scaled_of(struct autoscale_config cfg, uint32_t n)
{
	struct scaled x = {.n = n, .s = 1000};
	autoscale_init(&x.rule, &cfg);
	return x;
}

static const struct autoscale_config one_to_eight = {
	.min = 1, .max = 8, .target = 10, .window_us = PERIOD * SECOND, .down_us = 4 * PERIOD * SECOND};

/* Apply this load for so many seconds. Return the number of replicas at the end. */
static uint32_t under(struct scaled *x, double load, int64_t seconds)
{
	for (int64_t end = x->s + seconds; x->s < end; x->s++) {
		autoscale_note(&x->rule, load, x->s * SECOND);
		if (autoscale_due(&x->rule, x->s * SECOND))
			x->n = autoscale_decide(&x->rule, x->n, x->n, x->s * SECOND);
	}
	return x->n;
}

/* Return the number of replicas of a first decision. */
static uint32_t wish(double load, uint32_t now, uint32_t serving)
{
	struct autoscale_config cfg = one_to_eight;
	struct autoscale a;
	cfg.max = 100;
	cfg.down_us = 1;
	autoscale_init(&a, &cfg);
	autoscale_note(&a, load, SECOND);
	return autoscale_decide(&a, now, serving, 100 * (int64_t)SECOND);
}

Test(autoscale, wish_is_between_what_serves_and_the_load_over_the_target)
{
	static const struct {
		double load;
		uint32_t now, serving, n;
	} cases[] = {
		{0, 4, 4, 1},    {10, 1, 1, 1}, {40, 1, 1, 2},    {90, 1, 1, 3}, {91, 1, 1, 4},
		{160, 4, 4, 8},  {10, 4, 4, 2}, {1000, 4, 4, 20}, {90, 8, 1, 3}, /* seven of eight start */
		{250, 25, 4, 10}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		cr_expect_eq(wish(cases[i].load, cases[i].now, cases[i].serving), cases[i].n,
			     "load %g, %u serve: %u", cases[i].load, cases[i].serving,
			     wish(cases[i].load, cases[i].now, cases[i].serving));
}

Test(autoscale, number_settles_where_each_replica_has_about_its_requests)
{
	for (double load = 5; load < 80; load += 7)
		for (uint32_t from = 1; from <= 8; from++) {
			struct scaled x = scaled_of(one_to_eight, from);
			const double each = load / under(&x, load, 40 * PERIOD);
			cr_expect(each <= 10 * 1.21 + 1e-9 && (each >= 5 || x.n == 1),
				  "load %g from %u: %u replicas", load, from, x.n);
		}
}

Test(autoscale, number_stays_within_its_bounds)
{
	struct scaled x = scaled_of(one_to_eight, 1);
	cr_assert_eq(under(&x, 1e9, 2 * PERIOD), 8);
	cr_assert_eq(under(&x, 0, 20 * PERIOD), 1);
	struct autoscale_config least = one_to_eight;
	least.min = 3;
	x = scaled_of(least, 3);
	cr_assert_eq(under(&x, 0, 20 * PERIOD), 3);
}

Test(autoscale, nothing_changes_within_the_tolerance)
{
	struct scaled x = scaled_of(one_to_eight, 4);
	cr_assert_eq(under(&x, 48.3, 20 * PERIOD), 4); /* the square root of 1.21 is a tenth above 1 */
	cr_assert_eq(under(&x, 32.5, 20 * PERIOD), 4);
	cr_assert_eq(under(&x, 48.5, 20 * PERIOD), 5);
}

Test(autoscale, number_rises_at_once_and_falls_when_the_load_was_low_for_long)
{
	struct scaled x = scaled_of(one_to_eight, 1);
	under(&x, 5, 2 * PERIOD);
	const uint32_t high = under(&x, 360, PERIOD + 1);
	cr_assert_geq(high, 4);
	cr_assert_geq(under(&x, 5, 3 * PERIOD), high, "before down_us it is %u", x.n);
	cr_assert_eq(under(&x, 5, 20 * PERIOD), 1);
}

Test(autoscale, number_falls_to_the_greatest_wish_of_the_time)
{
	struct scaled x = scaled_of(one_to_eight, 6);
	under(&x, 5, 2 * PERIOD);  /* decisions for 2 */
	under(&x, 26, PERIOD + 1); /* one decision for 4 among them */
	cr_assert_eq(under(&x, 5, 2 * PERIOD), 4);
	cr_assert_eq(under(&x, 5, 20 * PERIOD), 1);
}

Test(autoscale, a_short_peak_is_averaged)
{
	struct scaled x = scaled_of(one_to_eight, 1);
	under(&x, 2, 4 * PERIOD);
	under(&x, 60, 2); /* two of fifteen seconds: below 10 on average */
	cr_assert_eq(under(&x, 2, PERIOD), 1);
}

Test(autoscale, number_rises_to_the_least_wish_of_up_us)
{
	struct autoscale_config slow = one_to_eight;
	slow.up_us = 3 * PERIOD * SECOND;
	struct scaled x = scaled_of(slow, 1);
	under(&x, 5, 4 * PERIOD);
	under(&x, 360, 2 * PERIOD);
	cr_assert_eq(x.n, 1);
	cr_assert_geq(under(&x, 360, 2 * PERIOD), 6);
}

Test(autoscale, number_of_the_start_is_not_lowered_at_once)
{
	struct scaled x = scaled_of(one_to_eight, 5);
	cr_assert_eq(under(&x, 0, 3 * PERIOD), 5);
	cr_assert_eq(under(&x, 0, 3 * PERIOD), 1);
}

Test(autoscale, long_windows_are_cut_to_what_is_kept)
{
	struct autoscale_config c = one_to_eight;
	c.window_us = c.down_us = INT64_MAX / 2;
	struct scaled x = scaled_of(c, 1);
	cr_assert_eq(under(&x, 25, 300), 3);
	under(&x, 5, AUTOSCALE_LOADS);
	cr_assert_float_eq(autoscale_load(&x.rule, x.s * SECOND), 5, 1e-9);
	cr_assert_eq(under(&x, 5, 2 * (AUTOSCALE_WISHES + 10) * PERIOD), 1);
}
