#include "controller/apis/event_ids.h"

#include <inttypes.h>
#include <string.h>

/* Return the end of the event that begins at p: after its line, or after its empty line. */
static const char *event_end(const struct event_ids *e, const char *p, const char *end)
{
	while (p < end) {
		const char *line = memchr(p, '\n', (size_t)(end - p));
		if (!line)
			break;
		if (e->lines || (line + 1 < end && line[1] == '\n'))
			return line + (e->lines ? 1 : 2);
		p = line + 1;
	}
	return end;
}

void event_ids_put(struct event_ids *e, struct buf *out, size_t mark)
{
	struct buf events = {0};
	if (out->len == mark)
		return;
	buf_put(&events, out->p + mark, out->len - mark);
	out->len = mark;
	out->p[mark] = '\0';
	const char *const end = events.p + events.len;
	for (const char *next, *p = events.p; p < end; p = next) {
		next = event_end(e, p, end);
		if (++e->n <= e->after)
			continue;
		if (!e->lines)
			buf_printf(out, "id: %" PRIu64 "\n", e->n);
		buf_put(out, p, (size_t)(next - p));
	}
	buf_fini(&events);
}
