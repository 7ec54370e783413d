#include "controller/metrics/span.h"

#include "base/clock.h"
#include "base/json_write.h"

#include <inttypes.h>
#include <string.h>

static void begin(struct buf *b, const char *name)
{
	buf_puts(b, b->len ? ",{\"key\":" : "{\"key\":");
	json_write_str(b, name);
	buf_puts(b, ",\"value\":{");
}

/* The JSON encoding of protocol buffers writes 64-bit integers as strings. */
void span_attribute_int(struct buf *b, const char *name, int64_t value)
{
	begin(b, name);
	buf_printf(b, "\"intValue\":\"%" PRId64 "\"}}", value);
}

void span_attribute_double(struct buf *b, const char *name, double value)
{
	begin(b, name);
	buf_printf(b, "\"doubleValue\":%.9g}}", value);
}

void span_attribute_text(struct buf *b, const char *name, const char *value)
{
	begin(b, name);
	buf_puts(b, "\"stringValue\":");
	json_write_str(b, value);
	buf_puts(b, "}}");
}

void span_attribute_texts(struct buf *b, const char *name, const char *const *values, size_t n)
{
	begin(b, name);
	buf_puts(b, "\"arrayValue\":{\"values\":[");
	for (size_t i = 0; i < n; i++) {
		buf_puts(b, i ? ",{\"stringValue\":" : "{\"stringValue\":");
		json_write_str(b, values[i]);
		buf_putc(b, '}');
	}
	buf_puts(b, "]}}}");
}

static void put_id(struct buf *b, const char *name, const uint8_t *id, size_t n)
{
	buf_printf(b, "\"%s\":\"", name);
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%02x", id[i]);
	buf_puts(b, "\",");
}

int64_t span_shift(void)
{
	return clock_unix_us() - clock_us();
}

void span_put(struct buf *b, const struct span *s)
{
	static const uint8_t none[8];
	const int64_t end_us = s->end_us > s->begin_us ? s->end_us : s->begin_us;
	buf_puts(b, b->len ? ",{" : "{");
	put_id(b, "traceId", s->of->trace, sizeof s->of->trace);
	put_id(b, "spanId", s->id, sizeof s->id);
	if (memcmp(s->parent, none, sizeof none) != 0)
		put_id(b, "parentSpanId", s->parent, sizeof s->parent);
	if (s->of->state) {
		buf_puts(b, "\"traceState\":");
		json_write_str(b, s->of->state);
		buf_putc(b, ',');
	}
	buf_puts(b, "\"name\":");
	json_write_str(b, s->name);
	buf_printf(b,
		   ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRId64 "000\",\"endTimeUnixNano\":\"%" PRId64
		   "000\"",
		   s->kind, s->begin_us + s->shift_us, end_us + s->shift_us);
	if (s->attributes && s->attributes->len) {
		buf_puts(b, ",\"attributes\":[");
		buf_put(b, s->attributes->p, s->attributes->len);
		buf_putc(b, ']');
	}
	if (s->error) {
		buf_puts(b, ",\"status\":{\"code\":2,\"message\":");
		json_write_str(b, s->error);
		buf_putc(b, '}');
	}
	buf_putc(b, '}');
}
