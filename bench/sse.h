/* sse.h - parses the events of a text/event-stream from chunks of any size.
 * See the WHATWG HTML Living Standard, "Interpreting an event stream".  Only an event's data is kept: names,
 * ids and retry times are ignored. */
#ifndef QUERN_BENCH_SSE_H
#define QUERN_BENCH_SSE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Limit for one line and for one event's data. */
enum { SSE_BYTES_MAX = 8 << 20 };

/* Zero-initialised is the beginning of a stream. */
struct sse {
	struct buf line; /* the incomplete line received so far */
	struct buf data; /* data of the current event, each line ended by '\n' */
	bool after_cr;   /* a '\n' received next belongs to the previous line end */
	bool begun;      /* the first line has ended: a byte order mark is now data */
};

/* Receives an event: n bytes followed by a NUL, borrowed for the call.  A nonzero result ends sse_feed(). */
typedef int sse_event(void *ctx, const char *data, size_t n);

/* Parse bytes.  0, -EMSGSIZE (a line or an event exceeds SSE_BYTES_MAX), or the result of on_event.  After an
 * error only sse_reset() and sse_fini() may follow. */
int sse_feed(struct sse *s, const char *bytes, size_t n, sse_event *on_event, void *ctx);
void sse_reset(struct sse *s); /* returns to the beginning of a stream; keeps the memory */
void sse_fini(struct sse *s);

#endif
