/* Media types chosen by a request's Accept header: RFC 9110, 12.5.1. */
#include "controller/metrics/accept.h"

#include <criterion/criterion.h>

static void check(const char *accept, int q, enum accept_range by)
{
	const struct accept a = accept_weigh(accept, "text/plain", "0.0.4");
	cr_expect_eq(a.q, q, "%s: %d", accept, a.q);
	cr_expect_eq((int)a.by, (int)by, "%s: %d", accept, (int)a.by);
}

Test(accept, weighs_a_type)
{
	check("text/plain", 1000, ACCEPT_TYPE);
	check("TEXT/Plain;Q=0.25", 250, ACCEPT_TYPE);
	check("text/html, text/plain ; q=0.5", 500, ACCEPT_TYPE);
	check("text/html,,\t, text/plain;q=0.1", 100, ACCEPT_TYPE);
	check("text/plain;charset=utf-8;version=\"0.0.4\";q=1.000", 1000, ACCEPT_VERSION);
	check("text/plain;version=1.0.0", 0, ACCEPT_NONE);
	check("text/*;q=0.3", 300, ACCEPT_KIND);
	check("*/*;q=0.2", 200, ACCEPT_ANY);
	check("text/plain;q=0", 0, ACCEPT_TYPE);
	check("text/html", 0, ACCEPT_NONE);
	check("xtext/plain, text/plainx, text-plain", 0, ACCEPT_NONE);
	check("", 0, ACCEPT_NONE);
}

Test(accept, everything_is_acceptable_without_it)
{
	const struct accept a = accept_weigh(NULL, "text/plain", "0.0.4");
	cr_expect_eq(a.q, 1000);
	cr_expect_eq((int)a.by, (int)ACCEPT_NONE);
}

Test(accept, the_most_specific_range_decides)
{
	check("text/plain;q=0, */*", 0, ACCEPT_TYPE);
	check("*/*, text/*;q=0.5", 500, ACCEPT_KIND);
	check("text/plain;version=0.0.4;q=0.1, text/plain;q=0.9", 100, ACCEPT_VERSION);
	check("text/plain;q=0.1, text/plain;q=0.4", 400, ACCEPT_TYPE);
}

Test(accept, malformed_members_are_passed_over)
{
	static const char *const bad[] = {"text/plain;q=2",
					  "text/plain;q=1.001",
					  "text/plain;q=0.1234",
					  "text/plain;q=-1",
					  "text/plain;q=x",
					  "text/plain;q=",
					  "text/plain;q=.5",
					  "text/plain;q",
					  "text/plain;version",
					  "text /plain",
					  "text/",
					  "/plain",
					  "text/plain version",
					  "*/plain",
					  "text/plain;q=\"0.5",
					  "text/plain;a=\"b\\"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		check(bad[i], 0, ACCEPT_NONE);
	check("text/plain;q=2, */*;q=0.5", 500, ACCEPT_ANY);
	check("a/b;c=\", text/plain;q=0.7, \\\",\";q=0.3, text/*;q=0.1", 100, ACCEPT_KIND);
	check("a/b;c=\"d\" e, text/*;q=0.1", 100, ACCEPT_KIND);
}
