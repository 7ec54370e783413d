/* err.h - the error idiom: return a negative errno, and a reason for a person.
 * A function takes (char *why, size_t why_n) if a person must be able to read why it failed; why may be NULL.
 * The text has no newline and no final full stop. */
#ifndef QUERN_BASE_ERR_H
#define QUERN_BASE_ERR_H

#include <errno.h>
#include <stddef.h>

/* Format the reason into why[0..n), cut to fit and always terminated.  Returns err, so that callers can
 * write: return err_why(why, n, -EINVAL, "x must be > 0"); */
int err_why(char *why, size_t n, int err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Insert "prefix: " before the text in why; returns err. */
int err_prefix(char *why, size_t n, int err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
