/* cursor.h - reads msgpack front to back, with bounds checks, without a tree.
 * For messages of a known shape.  Each call reads the next value.  After a failure every call returns
 * zeros, so that a decoder checks once, at the end.  Allocates nothing and trusts no count in a header:
 * strings and blobs are checked against the bytes present.  (msgpack specification:
 * github.com/msgpack/msgpack/blob/master/spec.md) */
#ifndef QUERN_PROTO_CURSOR_H
#define QUERN_PROTO_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
	const uint8_t *p;
	const uint8_t *end;
	bool bad;
	char what[96]; /* the first failure */
};

void cursor_init(struct cursor *c, const void *bytes, size_t n);
/* Fail with a reason; the first reason is kept. */
void cursor_fail(struct cursor *c, const char *what);
uint32_t cursor_array(struct cursor *c, const char *name);
uint32_t cursor_map(struct cursor *c, const char *name);
/* Read an integer; the ranges 0..hi and lo..hi are inclusive. */
uint64_t cursor_uint(struct cursor *c, const char *name, uint64_t hi);
int64_t cursor_int(struct cursor *c, const char *name, int64_t lo, int64_t hi);
double cursor_float(struct cursor *c, const char *name);
bool cursor_bool(struct cursor *c, const char *name);
/* Copy a string into out[0..n), NUL-terminated.  A longer string is a failure. */
void cursor_str(struct cursor *c, const char *name, char *out, size_t n);
/* Read a blob of whole elements of `size` bytes, at most max of them; *count is set to their number.  The
 * result is borrowed and not aligned. */
const void *cursor_bin(struct cursor *c, const char *name, size_t size, size_t max, uint32_t *count);
/* Skip a value of any kind (nested at most 16 deep). */
void cursor_skip(struct cursor *c);

#endif
