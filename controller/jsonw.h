/* jsonw.h - JSON text appended to a buffer, value by value: replies are written straight into
 * the bytes that go out, without a tree between. */
#ifndef QUERN_CONTROLLER_JSONW_H
#define QUERN_CONTROLLER_JSONW_H

#include "base/buf.h"

#include <stdint.h>

/* A string with its quotes.  Bytes that are not UTF-8 become U+FFFD, so that the result is
 * always valid JSON. */
void jsonw_string(struct buf *b, const char *s, size_t n);
void jsonw_str(struct buf *b, const char *s); /* NULL is null */
void jsonw_uint(struct buf *b, uint64_t x);
void jsonw_int(struct buf *b, int64_t x);
/* A float so that it reads back as the same float. */
void jsonw_float(struct buf *b, float x);
/* [1,2,3] */
void jsonw_ids(struct buf *b, const uint32_t *ids, size_t n);

#endif
