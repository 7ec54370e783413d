/* The limit on the depth of JSON, which quern adds to its parser. */
#include "base/buf.h"
#include "base/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct why why;

static int parse(const char *text)
{
	json_t *v = NULL;
	why.text[0] = '\0';
	int rc = json_parse(text, strlen(text), &v, &why);
	json_decref(v);
	return rc;
}

/* Parse `before`, then n opening brackets, then `after`. */
static int nested(const char *before, int n, const char *after)
{
	static char text[4096];
	size_t at = (size_t)snprintf(text, sizeof text, "%s", before);
	memset(text + at, '[', (size_t)n);
	snprintf(text + at + n, sizeof text - at - (size_t)n, "%s", after);
	return parse(text);
}

Test(json_depth, brackets_in_strings_do_not_count)
{
	cr_expect_eq(nested("\"", 3 * JSON_DEPTH_MAX, "\""), 0, "%s", why.text);
	cr_expect_eq(nested("\"\\\"", 3 * JSON_DEPTH_MAX, "\""), 0, "a quote with a backslash: %s", why.text);
	cr_expect_eq(nested("{\"\\\\\":\"", 3 * JSON_DEPTH_MAX, "\"}"), 0, "two of them: %s", why.text);
}

Test(json_depth, deeper_values_are_refused)
{
	static char closing[JSON_DEPTH_MAX + 2];
	memset(closing, ']', JSON_DEPTH_MAX);
	cr_expect_eq(nested("", JSON_DEPTH_MAX, closing), 0, "%s", why.text);
	closing[JSON_DEPTH_MAX] = ']';
	cr_expect_eq(nested("", JSON_DEPTH_MAX + 1, closing), -EINVAL);
	cr_expect(strstr(why.text, "deeper than"), "%s", why.text);
	/* After a string that ends in an escaped backslash. */
	cr_expect_eq(nested("[\"\\\\\",", JSON_DEPTH_MAX, closing), -EINVAL);
	cr_expect(strstr(why.text, "deeper than"), "%s", why.text);
}
