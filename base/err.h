/* err.h - the error idiom: return a negative errno, and a reason for a person.
 * A function takes a struct why * if a person must be able to read why it failed; it may be NULL.
 * The text has no newline and no final full stop. */
#ifndef QUERN_BASE_ERR_H
#define QUERN_BASE_ERR_H

#include <errno.h>

/* The reason of a failure.  Callers own it; text is always terminated. */
struct why {
	char text[2048];
};

/* Format the reason into *why, cut to fit.  Returns err, so that callers can
 * write: return err_why(why, -EINVAL, "x must be > 0"); */
int err_why(struct why *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Insert "prefix: " before the text in *why; returns err. */
int err_prefix(struct why *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Add to the end of the text in *why; returns err. */
int err_append(struct why *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
