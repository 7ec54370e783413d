/* mp.h - msgpack messages of unknown shape to and from JSON trees, for the job socket.
 * A message is scanned before a tree is built, because msgpack-c allocates what a header claims: five bytes
 * can demand 4 billion elements.  The scan checks that the bytes exist that a header claims, and that the
 * message keeps to the limits of objects, depth and bytes.  Strings must be UTF-8, map keys must be strings
 * without duplicates, and there must be exactly one value. (msgpack specification:
 * github.com/msgpack/msgpack/blob/master/spec.md) */
#ifndef QUERN_PROTO_MP_H
#define QUERN_PROTO_MP_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct mp_limits {
	size_t bytes;   /* size of the message */
	size_t objects; /* values and keys in it */
	size_t tree;    /* bytes of memory for its tree (base/json.h) */
	unsigned depth; /* at most MP_DEPTH_MAX */
};
enum { MP_DEPTH_MAX = 24 }; /* below the unpacker's own stack of 32 */

/* Limits of a request to the job socket. */
struct mp_limits mp_limits_request(size_t bytes);
/* Limits for a client: replies are larger than requests. */
struct mp_limits mp_limits_reply(void);

/* Scan, then build a tree; the caller owns *out.  Integers beyond 2^63-1 become reals.  -EINVAL (-E2BIG:
 * beyond the limits) with a reason that names the offset or the key. */
int mp_decode(const void *bytes, size_t n, const struct mp_limits *limits, json_t **out, struct why *why);

/* Find the encoded value of `key` in a message that is a map; the bytes after the value may be damaged.
 * *value borrows from the message.  -ENOENT: not found. */
int mp_find(const void *bytes, size_t n, const char *key, const void **value, size_t *value_n);

/* Append a tree.  Strings may hold any text, NUL included. */
void mp_encode(struct buf *out, const json_t *v);

/* For messages that are written without a tree: each call appends one value or header. */
void mp_put_map(struct buf *out, uint32_t n);
void mp_put_array(struct buf *out, uint32_t n);
void mp_put_str(struct buf *out, const char *s, size_t n);
void mp_put_cstr(struct buf *out, const char *s);
void mp_put_bin(struct buf *out, size_t n); /* the header alone; the caller appends n bytes */
void mp_put_uint(struct buf *out, uint64_t v);
void mp_put_int(struct buf *out, int64_t v);
void mp_put_double(struct buf *out, double v);
void mp_put_float(struct buf *out, float v);
void mp_put_bool(struct buf *out, int v);
void mp_put_nil(struct buf *out);

#endif
