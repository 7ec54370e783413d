#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static const char *log_program = "quern";
static enum log_level log_least = LOG_INFO;

void log_init(const char *program, enum log_level level)
{
	log_program = program;
	log_least = level;
}

int log_level_parse(const char *name)
{
	for (int i = 0; i < 4; i++)
		if (strcmp(name, level_names[i]) == 0)
			return i;
	return -EINVAL;
}

void log_line(enum log_level level, const char *component, const char *fmt, ...)
{
	if (level < log_least)
		return;
	char line[1024];
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(line, sizeof line, "%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof line - n, ".%03ld %s %s/%s: ", ts.tv_nsec / 1000000,
			      level_names[level], log_program, component);
	va_list ap;
	va_start(ap, fmt);
	int k = vsnprintf(line + n, sizeof line - n, fmt, ap);
	va_end(ap);
	if (k > 0)
		n += (size_t)k;
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	/* Names from clients and files may hold control characters: they must not fake a line. */
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20)
			line[i] = '?';
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* nowhere left to report it */
}
