/* json_write.h - append JSON text to a buffer, value by value.
 * Replies are written directly into the output buffer, without building a tree. */
#ifndef QUERN_BASE_JSON_WRITE_H
#define QUERN_BASE_JSON_WRITE_H

#include "base/buf.h"

#include <stdint.h>

/* Append a string with its quotes.  Bytes that are not UTF-8 become U+FFFD, so that the result is always
 * valid JSON. */
void json_write_string(struct buf *b, const char *s, size_t n);
void json_write_str(struct buf *b, const char *s); /* writes null for NULL */
void json_write_uint(struct buf *b, uint64_t x);
void json_write_int(struct buf *b, int64_t x);
/* Append a float with enough digits that it parses to the same float. */
void json_write_float(struct buf *b, float x);
/* [1,2,3] */
void json_write_ids(struct buf *b, const uint32_t *ids, size_t n);

#endif
