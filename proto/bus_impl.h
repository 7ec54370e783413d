/* bus_impl.h - shared by bus.c and the other bus_*.c: the envelope and msgpack helpers. */
#ifndef QUERN_PROTO_BUS_IMPL_H
#define QUERN_PROTO_BUS_IMPL_H

#include "base/err.h"
#include "proto/bus.h"
#include "proto/cursor.h"

#include <msgpack.h>

/* Clear out and begin a message; the body follows. */
void bus_pack_head(msgpack_packer *pk, struct buf *out, enum bus_type type);
void bus_pack_bin(msgpack_packer *pk, const void *p, size_t bytes);

/* Read the envelope; return the type or a negative errno. */
int bus_read_head(struct cursor *c, const void *bytes, size_t n, struct why *why);
/* Return 0 if the message was read to its end without an error; else -EBADMSG. */
int bus_finish_read(const struct cursor *c, struct why *why);

#endif
