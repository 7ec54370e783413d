#include "base/err.h"
#include "base/file.h"

#include <criterion/criterion.h>
#include <string.h>

Test(err, the_reason_is_formatted_and_the_error_returned)
{
	struct why why;
	cr_expect_eq(err_why(&why, -EINVAL, "x is %d, must be > 0", -3), -EINVAL);
	cr_expect_str_eq(why.text, "x is -3, must be > 0");
}

Test(err, a_prefix_stands_before_the_reason)
{
	struct why why;
	err_why(&why, 0, "not a number");
	cr_expect_eq(err_prefix(&why, -ERANGE, "line %d", 7), -ERANGE);
	cr_expect_str_eq(why.text, "line 7: not a number");
}

Test(err, an_addition_stands_behind_the_reason)
{
	struct why why;
	err_why(&why, 0, "not a number");
	cr_expect_eq(err_append(&why, -ERANGE, "; try %d", 7), -ERANGE);
	cr_expect_str_eq(why.text, "not a number; try 7");
}

Test(err, without_a_place_for_the_reason_only_the_error_is_returned)
{
	cr_expect_eq(err_why(NULL, -1, "x"), -1);
	cr_expect_eq(err_prefix(NULL, -2, "x"), -2);
	cr_expect_eq(err_append(NULL, -3, "x"), -3);
}

Test(err, what_does_not_fit_is_cut)
{
	static char text[4096];
	struct why why;
	memset(text, 'a', sizeof text - 1);
	err_why(&why, 0, "%s", text);
	cr_expect_eq(strlen(why.text), sizeof why.text - 1);
	err_append(&why, 0, "more");
	err_prefix(&why, 0, "b");
	cr_expect_eq(strlen(why.text), sizeof why.text - 1);
	cr_expect_eq(strncmp(why.text, "b: aaa", 6), 0);
	err_prefix(&why, 0, "%s", text);
	cr_expect_eq(strlen(why.text), sizeof why.text - 1);
	cr_expect_null(strchr(why.text, 'b'));
}

Test(err, a_system_call_s_failure_names_the_path_and_the_cause)
{
	struct why why;
	errno = ENOSPC;
	cr_expect_eq(file_failed(&why, "/x/y", "written"), -ENOSPC);
	cr_expect_str_eq(why.text, "/x/y cannot be written: No space left on device");
}
