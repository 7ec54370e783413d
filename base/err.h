/* err.h - the one error idiom: return a negative errno, and a reason for a person.
 * A function that can fail for a reason that a person must read takes (char *why, size_t why_n); why may be
 * NULL.  The text has no newline and no final full stop. */
#ifndef QUERN_BASE_ERR_H
#define QUERN_BASE_ERR_H

#include <errno.h>
#include <stddef.h>

/* Format the reason into why[0..n) (cut to fit, always terminated); returns err,
 * so that one can write: return err_why(why, n, -EINVAL, "x must be > 0"); */
int err_why(char *why, size_t n, int err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Insert "prefix: " before the text in why; returns err. */
int err_prefix(char *why, size_t n, int err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
