/* span.h - spans of a trace as OTLP's JSON. */
#ifndef QUERN_CONTROLLER_METRICS_SPAN_H
#define QUERN_CONTROLLER_METRICS_SPAN_H

#include "base/buf.h"
#include "controller/message/trace_context.h"

#include <stdint.h>

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2 };

struct span {
	const struct trace_context *of; /* its trace; of->span is not used */
	uint8_t id[8], parent[8];       /* parent zero: a root */
	const char *name;
	enum span_kind kind;
	int64_t begin_us, end_us;     /* clock_us() */
	int64_t shift_us;             /* span_shift(), the same for all spans of a trace */
	const char *error;            /* NULL: it went well.  A text that is a fault's */
	const struct buf *attributes; /* what span_attribute_*() wrote, or NULL */
};

/* From clock_us() to microseconds since 1970. */
int64_t span_shift(void);

/* Appends the span, after a comma unless b is empty. */
void span_put(struct buf *b, const struct span *s);

void span_attribute_int(struct buf *b, const char *name, int64_t value);
void span_attribute_double(struct buf *b, const char *name, double value);
void span_attribute_text(struct buf *b, const char *name, const char *value);
/* An array of texts. */
void span_attribute_texts(struct buf *b, const char *name, const char *const *values, size_t n);

#endif
