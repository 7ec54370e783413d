/* cursor.h - reads msgpack front to back, with bounds, without a tree.
 * For messages of a known shape: each call takes the next value, or fails for good; a failed cursor returns
 * zeros, so that a decoder checks once, at the end.  Allocates nothing and trusts no count of a header:
 * strings and blobs are checked against the bytes that are there.  (msgpack specification:
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
/* Fail with a reason; the first one stays. */
void cursor_fail(struct cursor *c, const char *what);
uint32_t cursor_array(struct cursor *c, const char *name);
uint32_t cursor_map(struct cursor *c, const char *name);
/* lo..hi inclusive. */
uint64_t cursor_uint(struct cursor *c, const char *name, uint64_t hi);
int64_t cursor_int(struct cursor *c, const char *name, int64_t lo, int64_t hi);
double cursor_float(struct cursor *c, const char *name);
bool cursor_bool(struct cursor *c, const char *name);
/* Into out[0..n), terminated; too long is a failure. */
void cursor_str(struct cursor *c, const char *name, char *out, size_t n);
/* A blob of whole elements of `size` bytes, at most max of them; *count gets how many.
 * Borrowed, not aligned. */
const void *cursor_bin(struct cursor *c, const char *name, size_t size, size_t max, uint32_t *count);
/* Skip a value of any kind (nested at most 16 deep). */
void cursor_skip(struct cursor *c);

#endif
