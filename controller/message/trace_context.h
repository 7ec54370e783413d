/* trace_context.h - the trace that a request belongs to: W3C Trace Context, traceparent and tracestate.
 *
 *   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 *   version  trace id                   span id of the caller  flags: 01 sampled */
#ifndef QUERN_CONTROLLER_MESSAGE_TRACE_CONTEXT_H
#define QUERN_CONTROLLER_MESSAGE_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { TRACE_ID_HEX = 33, TRACE_STATE_MAX = 512 };

struct trace_context {
	uint8_t trace[16], span[8]; /* span: the parent of what is recorded next; zero: it is a root */
	bool set;                   /* there is a trace */
	bool remote;                /* the trace was begun by a client */
	bool sampled;               /* its spans are recorded */
	char *state;                /* owned: the client's tracestate; NULL: none */
};

/* Read the headers; either may be NULL.  False: there is no valid traceparent, and *t is empty.  A tracestate
 * that is too long or not printable is dropped. */
bool trace_context_read(struct trace_context *t, const char *traceparent, const char *tracestate);
/* Return whether a tracestate is passed on: printable, 1 to TRACE_STATE_MAX bytes. */
bool trace_context_is_state(const char *text);
/* Begin a new trace: its first span has no parent. */
void trace_context_draw(struct trace_context *t, bool sampled);
void trace_context_copy(struct trace_context *to, const struct trace_context *from);
void trace_context_fini(struct trace_context *t);

/* Write the trace's id in hexadecimal digits. */
void trace_context_hex(const struct trace_context *t, char out[TRACE_ID_HEX]);
/* Draw a span's id, never zero. */
void trace_context_span(uint8_t out[8]);

#endif
