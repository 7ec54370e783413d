/* jscan.h - a pull parser for the two long arrays of tokenizer.json.
 * jansson takes half a second for the 300,000 small values of a large vocabulary; this parser returns
 * strings that mostly point into the text. It never recurses, and accepts what RFC 8259 accepts (the caller
 * checks beforehand that the text is valid UTF-8). */
#ifndef QUERN_CONTROLLER_TOKENIZER_JSCAN_H
#define QUERN_CONTROLLER_TOKENIZER_JSCAN_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jscan {
	const char *p; /* next byte */
	const char *end;
	const char *begin; /* the beginning of the file: errors give offsets from here */
	struct why *why;
};

struct jscan_text {
	const char *p; /* points into the text, or into the buffer given to jscan_string() */
	size_t n;
};

/* Return the next byte that is not white space, or -1 at the end. */
int jscan_peek(struct jscan *j);
/* Read c.  -EINVAL if another byte is next. */
int jscan_take(struct jscan *j, char c);
/* Read a string.  A string with escapes is stored in tmp, which must live as long as s is used. */
int jscan_string(struct jscan *j, struct jscan_text *s, struct buf *tmp);
/* Read an unsigned integer up to max.  what: its name in the error. */
int jscan_uint(struct jscan *j, uint64_t max, const char *what, uint64_t *out);
/* Skip any value and return its range in span; only strings and brackets are checked. */
int jscan_skip(struct jscan *j, struct jscan_text *span);
/* After an element: set *more to true for ',' and to false for close. */
int jscan_more(struct jscan *j, char close, bool *more);
/* Record an error with the offset of the next byte.  Returns -EINVAL. */
int jscan_fail(struct jscan *j, const char *what);

#endif
