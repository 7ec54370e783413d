/* Tests that fail in every possible way, to test suites.c (tests/e2e/gpu). */
#include "tests/gpu/suites.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int n_before; /* tests that ran in this process */

static void set_up(void)
{
	n_before++;
}

TestSuite(cases, .init = set_up);

Test(cases, a_first)
{
	cr_assert_eq(n_before, 1);
}

Test(cases, b_has_the_same_process)
{
	cr_assert_eq(n_before, 2);
}

Test(cases, c_asserts)
{
	cr_assert_eq(n_before, 0, "a failed assertion, %d", n_before);
}

Test(cases, d_has_a_new_process)
{
	cr_assert_eq(n_before, 1);
}

Test(cases, e_expects)
{
	cr_expect(n_before == 0);
	cr_expect_str_eq("one", "another");
	cr_assert(true);
}

Test(cases, f_crashes)
{
	cr_assert_eq(n_before, 1);
	raise(SIGSEGV);
}

Test(cases, g_skips)
{
	cr_skip_test("nothing to do");
	cr_assert(false);
}

Test(cases, h_aborts_as_it_says, .signal = SIGABRT)
{
	abort();
}

Test(cases, i_should_abort, .signal = SIGABRT)
{
}

Test(cases, j_exits)
{
	exit(0);
}

Test(cases, k_hangs)
{
	for (;;)
		pause();
}

ParameterizedTestParameters(cases, l_parameters)
{
	static int values[] = {1, 2, 3};
	return cr_make_param_array(int, values, 3);
}

ParameterizedTest(int *value, cases, l_parameters)
{
	cr_assert_neq(*value, 2);
}

Test(other, last)
{
	cr_assert_float_eq(1.0, 1.0, 1e-9);
}

int main(int argc, char **argv)
{
	return suites_main(argc, argv);
}
