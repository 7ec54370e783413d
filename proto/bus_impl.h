/* bus_impl.h - what bus.c and bus_plan.c share: the envelope, and msgpack pieces. */
#ifndef QUERN_PROTO_BUS_IMPL_H
#define QUERN_PROTO_BUS_IMPL_H

#include "proto/bus.h"
#include "proto/cursor.h"

#include <msgpack.h>

/* msgpack's write callback, into a struct buf. */
int bus_to_buf(void *data, const char *bytes, size_t n);
/* Clears out and begins a message; the body follows. */
void bus_pack_head(msgpack_packer *pk, struct buf *out, enum bus_type type);
void bus_pack_bin(msgpack_packer *pk, const void *p, size_t bytes);

/* The envelope: the type, or a negative errno. */
int bus_read_head(struct cursor *c, const void *bytes, size_t n, char *why, size_t why_n);
/* 0 where the message was read without an error, to its end; else -EBADMSG. */
int bus_finish_read(const struct cursor *c, char *why, size_t why_n);

#endif
