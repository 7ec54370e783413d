/* sse.h - the events of a text/event-stream, from bytes in pieces of any size.
 * WHATWG HTML Living Standard, "Interpreting an event stream"; of an event only its data is kept:
 * names, ids and retry times are ignored. */
#ifndef QUERN_BENCH_SSE_H
#define QUERN_BENCH_SSE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Of one line and of one event's data. */
enum { SSE_BYTES_MAX = 8 << 20 };

/* Zero-initialised is the beginning of a stream. */
struct sse {
	struct buf line; /* the part of a line that has come */
	struct buf data; /* of the event that is being read, each line ended by '\n' */
	bool after_cr;   /* a '\n' that comes now belongs to the line end before it */
	bool begun;      /* a byte order mark would be data from now on */
};

/* An event: n bytes and a NUL behind them, borrowed for the call.  Not 0 ends sse_feed(). */
typedef int sse_event(void *ctx, const char *data, size_t n);

/* 0, -EMSGSIZE (a line or an event is beyond SSE_BYTES_MAX), or what on_event returned.  After
 * an error only sse_reset() and sse_fini() may follow. */
int sse_feed(struct sse *s, const char *bytes, size_t n, sse_event *on_event, void *ctx);
void sse_reset(struct sse *s); /* to the beginning of a stream; keeps the memory */
void sse_fini(struct sse *s);

#endif
