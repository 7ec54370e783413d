#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_why(char *why, size_t n, int err, const char *fmt, ...)
{
	if (why && n) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(why, n, fmt, ap);
		va_end(ap);
	}
	return err;
}

int err_prefix(char *why, size_t n, int err, const char *fmt, ...)
{
	if (!why || !n)
		return err;
	char old[512];
	snprintf(old, sizeof old, "%s", why);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, n, fmt, ap);
	va_end(ap);
	size_t len = strlen(why);
	snprintf(why + len, n - len, ": %s", old);
	return err;
}
