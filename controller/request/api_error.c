#include "controller/request/api_error.h"

#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Replace bytes that are not UTF-8 by '?': snprintf() may have cut a name within a character. */
static void replace_invalid(char *s)
{
	size_t n = strlen(s);
	for (size_t i = 0; (i += utf8_valid(s + i, n - i)) < n; i++)
		s[i] = '?';
}

int api_fail(struct api_problem *p, enum code code, const char *param, const char *fmt, ...)
{
	va_list ap;
	p->code = code;
	snprintf(p->param, sizeof p->param, "%s", param);
	va_start(ap, fmt);
	vsnprintf(p->why, sizeof p->why, fmt, ap);
	va_end(ap);
	replace_invalid(p->param);
	replace_invalid(p->why);
	return -EINVAL;
}

int api_fail_big(struct api_problem *p, const char *name, const json_t *v)
{
	return api_fail(p, E_BAD_REQUEST, name, "%.64s is %.64s, beyond the range of numbers", name,
			json_big(v));
}
