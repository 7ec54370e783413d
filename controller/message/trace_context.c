#include "controller/message/trace_context.h"

#include "base/alloc.h"
#include "base/entropy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARENT_CHARS = 55 };

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parse n bytes of lower-case hexadecimal digits. */
static bool get_hex(const char *p, size_t n, uint8_t *out)
{
	for (size_t i = 0; i < n; i++) {
		const int hi = digit(p[2 * i]), lo = hi < 0 ? -1 : digit(p[2 * i + 1]);
		if (lo < 0)
			return false;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return true;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* Parse a traceparent.  Later versions may have more fields after the flags. */
static bool get_parent(struct trace_context *t, const char *p)
{
	uint8_t version, flags;
	const size_t n = strlen(p);
	if (n < PARENT_CHARS || p[2] != '-' || p[35] != '-' || p[52] != '-')
		return false;
	if (!get_hex(p, 1, &version) || !get_hex(p + 3, 16, t->trace) || !get_hex(p + 36, 8, t->span) ||
	    !get_hex(p + 53, 1, &flags))
		return false;
	if (version == 0xff || (n > PARENT_CHARS && (version == 0 || p[PARENT_CHARS] != '-')))
		return false;
	t->sampled = flags & 1;
	return !is_zero(t->trace, sizeof t->trace) && !is_zero(t->span, sizeof t->span);
}

bool trace_context_is_state(const char *p)
{
	const size_t n = strlen(p);
	for (size_t i = 0; i < n; i++)
		if ((p[i] < ' ' && p[i] != '\t') || p[i] > '~')
			return false;
	return n > 0 && n <= TRACE_STATE_MAX;
}

bool trace_context_read(struct trace_context *t, const char *traceparent, const char *tracestate)
{
	*t = (struct trace_context){0};
	if (!traceparent || !get_parent(t, traceparent)) {
		*t = (struct trace_context){0};
		return false;
	}
	t->set = t->remote = true;
	t->state = tracestate && trace_context_is_state(tracestate) ? xstrdup(tracestate) : NULL;
	return true;
}

void trace_context_span(uint8_t out[8])
{
	do {
		const uint64_t x = entropy_u64();
		memcpy(out, &x, 8);
	} while (is_zero(out, 8));
}

void trace_context_draw(struct trace_context *t, bool sampled)
{
	*t = (struct trace_context){.set = true, .sampled = sampled};
	trace_context_span(t->trace);
	trace_context_span(t->trace + 8);
}

void trace_context_copy(struct trace_context *to, const struct trace_context *from)
{
	*to = *from;
	to->state = from->state ? xstrdup(from->state) : NULL;
}

void trace_context_fini(struct trace_context *t)
{
	free(t->state);
	t->state = NULL;
}

void trace_context_hex(const struct trace_context *t, char out[TRACE_ID_HEX])
{
	for (size_t i = 0; i < sizeof t->trace; i++)
		snprintf(out + 2 * i, 3, "%02x", t->trace[i]);
}
