/* jscan.h - a pull reader for the two long arrays of tokenizer.json.
 * jansson takes half a second for the 300,000 small values of a large vocabulary; this reader returns
 * strings that mostly point into the text.  It never recurses, and accepts what RFC 8259 accepts
 * (strings must be valid UTF-8, checked beforehand). */
#ifndef QUERN_CONTROLLER_TOKENIZER_JSCAN_H
#define QUERN_CONTROLLER_TOKENIZER_JSCAN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jscan {
	const char *p; /* next byte */
	const char *end;
	const char *begin; /* of the file: errors give offsets from here */
	char *why;
	size_t why_n;
};

struct jscan_text {
	const char *p; /* into the text, or into the buffer given to jscan_string() */
	size_t n;
};

/* The next byte that is not white space, -1 at the end. */
int jscan_peek(struct jscan *j);
/* Takes c; -EINVAL: another byte. */
int jscan_take(struct jscan *j, char c);
/* Takes a string.  If it has escapes it lies in tmp, which must outlive its use. */
int jscan_string(struct jscan *j, struct jscan_text *s, struct buf *tmp);
/* Takes an unsigned integer up to max; what: its name in the error. */
int jscan_uint(struct jscan *j, uint64_t max, const char *what, uint64_t *out);
/* Skips any value, and gives its range; only strings and brackets are checked. */
int jscan_skip(struct jscan *j, struct jscan_text *span);
/* Behind an element: *more is true for ',', false for close. */
int jscan_more(struct jscan *j, char close, bool *more);
/* -EINVAL with the offset of the next byte. */
int jscan_fail(struct jscan *j, const char *what);

#endif
