/* span.h - spans of a trace as OTLP's JSON. */
#ifndef QUERN_CONTROLLER_METRICS_SPAN_H
#define QUERN_CONTROLLER_METRICS_SPAN_H

#include "base/buf.h"
#include "controller/message/trace_context.h"

#include <stdint.h>

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2 };

struct span {
	const struct trace_context *of; /* the trace it belongs to; of->span is not used */
	uint8_t id[8], parent[8];       /* parent zero: a root span */
	const char *name;
	enum span_kind kind;
	int64_t begin_us, end_us;     /* clock_us() */
	int64_t shift_us;             /* span_shift(), equal for all spans of a trace */
	const char *error;            /* error text; NULL: success */
	const struct buf *attributes; /* attributes written by span_attribute_*(), or NULL */
};

/* Return the offset from clock_us() to microseconds since 1970. */
int64_t span_shift(void);

/* Append the span, after a comma unless b is empty. */
void span_put(struct buf *b, const struct span *s);

void span_attribute_int(struct buf *b, const char *name, int64_t value);
void span_attribute_double(struct buf *b, const char *name, double value);
void span_attribute_text(struct buf *b, const char *name, const char *value);
/* Write an array of texts. */
void span_attribute_texts(struct buf *b, const char *name, const char *const *values, size_t n);

#endif
