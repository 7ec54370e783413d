/* marker.h - finds markers ("<think>", "<tool_call>") in generated text that arrives in chunks. */
#ifndef QUERN_CONTROLLER_CHAT_MARKER_H
#define QUERN_CONTROLLER_CHAT_MARKER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Return the length of the longest suffix of p that is a proper prefix of the marker. */
size_t marker_partial(const char *p, size_t n, const char *marker);
/* Return 1 if p begins with the marker, 0 if more text is needed, -1 if it does not. */
int marker_begins(const char *p, size_t n, const char *marker);
/* Remove the first n bytes of held. */
void marker_drop(struct buf *held, size_t n);

static inline bool marker_is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
static inline size_t marker_skip_blanks(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && marker_is_blank(p[i]))
		i++;
	return i;
}

#endif
