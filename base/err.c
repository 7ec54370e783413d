#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_why(struct why *why, int err, const char *fmt, ...)
{
	if (why) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(why->text, sizeof why->text, fmt, ap);
		va_end(ap);
	}
	return err;
}

int err_prefix(struct why *why, int err, const char *fmt, ...)
{
	if (!why)
		return err;
	const struct why old = *why;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why->text, sizeof why->text, fmt, ap);
	va_end(ap);
	return err_append(why, err, ": %s", old.text);
}

int err_append(struct why *why, int err, const char *fmt, ...)
{
	if (why) {
		const size_t len = strlen(why->text);
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(why->text + len, sizeof why->text - len, fmt, ap);
		va_end(ap);
	}
	return err;
}
