/* When a process is restarted, given up, or signalled. */
#include "base/restarts.h"

#include <criterion/criterion.h>
#include <signal.h>

static const int64_t second = 1000000;

static struct restarts fresh(void)
{
	struct restarts r = {0};
	restarts_reset(&r);
	return r;
}

Test(restarts, delays_double_up_to_five_seconds)
{
	static const int64_t ms[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000};
	struct restarts r = fresh();
	/* The deaths are so far apart that the process is never given up. */
	for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
		int64_t now = (int64_t)(1 + i) * 100 * second;
		cr_assert(restarts_died(&r, false, now));
		cr_expect_eq(r.start_us, now + ms[i] * 1000, "death %zu: after %lld us", i,
			     (long long)(r.start_us - now));
	}
	cr_assert(restarts_died(&r, true, 5000 * second));
	cr_expect_eq(r.start_us, 5000 * second + second / 10, "it has served: from the beginning");
}

Test(restarts, five_deaths_within_half_a_minute_are_too_many)
{
	struct restarts r = fresh();
	for (int i = 0; i < 4; i++)
		cr_assert(restarts_died(&r, false, second + i * second));
	cr_expect_not(restarts_died(&r, false, 31 * second - 1));
	r = fresh();
	for (int i = 0; i < 4; i++)
		cr_assert(restarts_died(&r, false, second + i * second));
	cr_expect(restarts_died(&r, false, 31 * second));
	cr_expect_not(restarts_died(&r, false, 31 * second + 1), "five within 30 s: from the second on");
}

Test(restarts, a_refused_start_is_tried_again_after_a_second)
{
	struct restarts r = fresh();
	restarts_refused(&r);
	cr_assert(restarts_died(&r, false, 7 * second));
	cr_expect_eq(r.start_us, 8 * second);
	for (int i = 0; i < 3; i++)
		cr_assert(restarts_died(&r, false, (100 + 100 * i) * second));
	restarts_refused(&r);
	cr_assert(restarts_died(&r, false, 900 * second));
	cr_expect_eq(r.start_us, 905 * second, "a longer delay stays");
}

Test(restarts, a_retired_process_is_reminded_after_10_s_and_killed_after_20)
{
	const int64_t at = 50 * second;
	cr_expect_eq(restarts_overdue(0, 0, at), 0);
	cr_expect_eq(restarts_overdue(0, at, at + 10 * second), 0);
	cr_expect_eq(restarts_overdue(0, at, at + 10 * second + 1), SIGTERM);
	cr_expect_eq(restarts_overdue(0, at, at + 20 * second), SIGTERM);
	cr_expect_eq(restarts_overdue(0, at, at + 20 * second + 1), SIGKILL);
}

Test(restarts, a_stopped_process_is_killed_before_its_peers_give_it_up)
{
	const int64_t at = 50 * second;
	cr_expect_eq(restarts_overdue(at, 0, at + 1600000), 0);
	cr_expect_eq(restarts_overdue(at, 0, at + 1600001), SIGKILL);
	cr_expect_eq(restarts_overdue(at, at, at + 1600001), SIGKILL);
}
