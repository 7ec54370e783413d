/* log.h - one function, one line on stderr: time, level, component, what happened, key=value.
 * Any thread may call it (one write(2) per line), also when memory is out.  Never called per token.
 *
 *   text   2026-11-22T19:10:16.123+01:00 info controller/main: ready model=demo
 *   json   {"time":"2026-11-22T19:10:16.123+01:00","level":"info","program":"controller","part":"main",
 *           "message":"ready model=demo"}      one line
 *
 * The text names the event; every value has a key.  Text with blanks is quoted; a quote or a backslash in it
 * has a backslash before it.  A key has one name in all lines (make lint checks this):
 *
 *   worker, replica, job, batch, pid, device, url       which one
 *   file; path                                          a file; a model's directory or file
 *   jobs, files, rows; total_files                      how many; how many there are of them
 *   ms, us, seconds, bytes, mib                         amounts
 *   reason, remedy                                      the cause, and what to do */
#ifndef QUERN_BASE_LOG_H
#define QUERN_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum log_format { LOG_TEXT, LOG_JSON };

/* program: a static string shown in every line ("controller"); level: the lowest level shown. */
void log_init(const char *program, enum log_level level, enum log_format format);
bool log_is_json(void);

/* Return the level for "debug", "info", "warn" or "error"; -EINVAL for anything else. */
int log_level_parse(const char *name);
/* Return the format for "text" or "json"; -EINVAL for anything else. */
int log_format_parse(const char *name);

void log_line(enum log_level level, const char *component, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_debug(component, ...) log_line(LOG_DEBUG, component, __VA_ARGS__)
#define log_info(component, ...)  log_line(LOG_INFO, component, __VA_ARGS__)
#define log_warn(component, ...)  log_line(LOG_WARN, component, __VA_ARGS__)
#define log_error(component, ...) log_line(LOG_ERROR, component, __VA_ARGS__)

#endif
