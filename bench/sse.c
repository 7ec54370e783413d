#include "bench/sse.h"

#include <errno.h>
#include <string.h>

static int end_event(struct sse *s, sse_event *on_event, void *ctx)
{
	if (!s->data.len)
		return 0; /* an event without data is no event */
	s->data.p[--s->data.len] = 0;
	int rc = on_event(ctx, s->data.p, s->data.len);
	buf_clear(&s->data);
	return rc;
}

static int end_line(struct sse *s, sse_event *on_event, void *ctx)
{
	static const char mark[] = "\xef\xbb\xbf";
	const char *p = s->line.p;
	size_t n = s->line.len;
	if (!s->begun && n >= 3 && memcmp(p, mark, 3) == 0) {
		p += 3;
		n -= 3;
	}
	s->begun = true;
	int rc = 0;
	if (!n)
		rc = end_event(s, on_event, ctx);
	else if (n >= 5 && memcmp(p, "data:", 5) == 0) {
		size_t skip = n > 5 && p[5] == ' ' ? 6 : 5;
		if (s->data.len + n > SSE_BYTES_MAX)
			return -EMSGSIZE;
		buf_put(&s->data, p + skip, n - skip);
		buf_putc(&s->data, '\n');
	} else if (n == 4 && memcmp(p, "data", 4) == 0) {
		buf_putc(&s->data, '\n');
	}
	buf_clear(&s->line);
	return rc;
}

/* Return the first line end in [p, end), or end. */
static const char *line_end(const char *p, const char *end)
{
	const char *lf = memchr(p, '\n', (size_t)(end - p));
	if (!lf)
		lf = end;
	const char *cr = memchr(p, '\r', (size_t)(lf - p));
	return cr ? cr : lf;
}

int sse_feed(struct sse *s, const char *bytes, size_t n, sse_event *on_event, void *ctx)
{
	const char *p = bytes, *end = bytes + n;
	while (p < end) {
		if (s->after_cr && *p == '\n')
			p++;
		s->after_cr = false;
		if (p == end)
			break;
		const char *eol = line_end(p, end);
		if (s->line.len + (size_t)(eol - p) > SSE_BYTES_MAX)
			return -EMSGSIZE;
		buf_put(&s->line, p, (size_t)(eol - p));
		if (eol == end)
			break;
		s->after_cr = *eol == '\r';
		int rc = end_line(s, on_event, ctx);
		if (rc)
			return rc;
		p = eol + 1;
	}
	return 0;
}

void sse_reset(struct sse *s)
{
	buf_clear(&s->line);
	buf_clear(&s->data);
	s->after_cr = s->begun = false;
}

void sse_fini(struct sse *s)
{
	buf_fini(&s->line);
	buf_fini(&s->data);
}
