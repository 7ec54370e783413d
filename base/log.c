#include "base/log.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 1024, FORMAT_MAX = 512, ESCAPED_MAX = 6 * TEXT_MAX /* up to \u001f for each byte */ };

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static const char *log_program = "quern";
static enum log_level log_least = LOG_INFO;
static enum log_format log_how = LOG_TEXT;

void log_init(const char *program, enum log_level level, enum log_format format)
{
	log_program = program;
	log_least = level;
	log_how = format;
}

int log_level_parse(const char *name)
{
	for (int i = 0; i < 4; i++)
		if (strcmp(name, level_names[i]) == 0)
			return i;
	return -EINVAL;
}

int log_format_parse(const char *name)
{
	return strcmp(name, "text") == 0 ? LOG_TEXT : strcmp(name, "json") == 0 ? LOG_JSON : -EINVAL;
}

bool log_is_json(void)
{
	return log_how == LOG_JSON;
}

/* Format the time in ISO 8601 with milliseconds and the zone's offset: 2026-11-22T19:10:16.123+01:00. */
static size_t put_time(char *out, size_t n)
{
	struct timespec ts;
	struct tm tm;
	char zone[8] = "";
	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	strftime(zone, sizeof zone, "%z", &tm);
	size_t k = strftime(out, n, "%Y-%m-%dT%H:%M:%S", &tm);
	return k + (size_t)snprintf(out + k, n - k, ".%03ld%.3s:%.2s", ts.tv_nsec / 1000000, zone, zone + 3);
}

/* Escape text for a JSON string; bytes that are not UTF-8 become U+FFFD.  Allocates nothing, because lines
 * are also logged when memory is out. */
static size_t escape(const char *text, size_t n, char out[ESCAPED_MAX + 1])
{
	size_t k = 0;
	for (size_t i = 0; i < n;) {
		const int len = utf8_classify(text + i, n - i);
		const unsigned char c = (unsigned char)text[i];
		if (len <= 0) {
			k += (size_t)snprintf(out + k, ESCAPED_MAX + 1 - k, "\\ufffd");
			i += len < 0 ? (size_t)-len : n - i; /* the text is cut within a character */
			continue;
		}
		if (c < 0x20 || c == '"' || c == '\\')
			k += (size_t)snprintf(out + k, ESCAPED_MAX + 1 - k, c < 0x20 ? "\\u%04x" : "\\%c", c);
		else
			memcpy(out + k, text + i, (size_t)len), k += (size_t)len;
		i += (size_t)len;
	}
	out[k] = '\0';
	return k;
}

static void write_text(enum log_level level, const char *component, const char *text)
{
	char line[TEXT_MAX + 128];
	size_t n = put_time(line, sizeof line);
	n += (size_t)snprintf(line + n, sizeof line - n, " %s %s/%s: %s", level_names[level], log_program,
			      component, text);
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	/* Replace control characters, which names from clients and files may contain: they must not fake a
	 * line. */
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20)
			line[i] = '?';
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* there is nowhere else to report the failure */
}

static void write_json(enum log_level level, const char *component, const char *text)
{
	char when[48], message[ESCAPED_MAX + 1], line[ESCAPED_MAX + 256];
	put_time(when, sizeof when);
	escape(text, strlen(text), message);
	int n = snprintf(line, sizeof line,
			 "{\"time\":\"%s\",\"level\":\"%s\",\"program\":\"%s\",\"part\":\"%s\","
			 "\"message\":\"%s\"}\n",
			 when, level_names[level], log_program, component, message);
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* there is nowhere else to report the failure */
}

static size_t count_of(const char *text, const char *set)
{
	size_t n = 0;
	for (; *(text += strcspn(text, set)); text++)
		n++;
	return n;
}

/* Format again a text with quotes or backslashes that are not the format's: within the format's quotes, a
 * backslash goes before each, so that no value can end itself.  A control character that the text does not
 * have stands for the format's quotes meanwhile. */
static void format_escaped(char text[TEXT_MAX], const char *fmt, va_list ap)
{
	char marked[FORMAT_MAX], raw[TEXT_MAX], mark = 1;
	while (mark < 0x20 && strchr(text, mark))
		mark++;
	const size_t len = strlen(fmt);
	if (mark == 0x20 || len >= sizeof marked)
		return;
	for (size_t i = 0; i <= len; i++)
		marked[i] = fmt[i] == '"' ? mark : fmt[i];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	vsnprintf(raw, sizeof raw, marked, ap);
#pragma GCC diagnostic pop
	bool quoted = false;
	size_t n = 0;
	for (const char *p = raw; *p && n < TEXT_MAX - 2; p++) {
		quoted ^= *p == mark;
		if (quoted && (*p == '"' || *p == '\\'))
			text[n++] = '\\';
		text[n++] = *p == mark ? '"' : *p;
	}
	text[n] = '\0';
}

void log_line(enum log_level level, const char *component, const char *fmt, ...)
{
	if (level < log_least)
		return;
	char text[TEXT_MAX];
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	vsnprintf(text, sizeof text, fmt, ap);
	if (count_of(text, "\"\\") > count_of(fmt, "\"\\"))
		format_escaped(text, fmt, again);
	va_end(again);
	va_end(ap);
	if (log_how == LOG_JSON)
		write_json(level, component, text);
	else
		write_text(level, component, text);
}
