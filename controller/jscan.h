/* jscan.h - a pull reader for the two long arrays of tokenizer.json.
 * jansson takes half a second for the 300,000 small values of a large vocabulary; this one
 * walks the text and hands out strings that mostly point into it.  It never recurses, and
 * accepts what RFC 8259 accepts (strings must be valid UTF-8, checked beforehand). */
#ifndef QUERN_CONTROLLER_JSCAN_H
#define QUERN_CONTROLLER_JSCAN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jscan {
	const char *p; /* next byte */
	const char *end;
	const char *begin; /* of the file: errors name the offset from here */
	char *why;
	size_t why_n;
};

struct jstr {
	const char *p; /* into the text, or into the buffer given to jscan_string() */
	size_t n;
};

/* The next byte that is no white space, -1 at the end. */
int jscan_peek(struct jscan *j);
/* Take c, or -EINVAL naming what stands there. */
int jscan_take(struct jscan *j, char c);
/* Take a string; tmp holds it when it has escapes, and must live as long as it is used. */
int jscan_string(struct jscan *j, struct jstr *s, struct buf *tmp);
/* Take an unsigned integer up to max; what names it in the error. */
int jscan_uint(struct jscan *j, uint64_t max, const char *what, uint64_t *out);
/* Skip any value and say where it lay; only strings and brackets are looked at. */
int jscan_skip(struct jscan *j, struct jstr *span);
/* After an element: ',' gives *more = true, close gives false. */
int jscan_more(struct jscan *j, char close, bool *more);
/* -EINVAL with the offset of the next byte. */
int jscan_fail(struct jscan *j, const char *what);

#endif
