/* marker.h - markers in generated text ("<think>", "<tool_call>"), looked for while the text still
 * arrives in pieces. */
#ifndef QUERN_CONTROLLER_CHAT_MARKER_H
#define QUERN_CONTROLLER_CHAT_MARKER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Length of the longest suffix of p that a marker may begin with. */
size_t marker_partial(const char *p, size_t n, const char *marker);
/* 1: p begins with the marker; 0: more text decides; -1: it does not. */
int marker_begins(const char *p, size_t n, const char *marker);
/* Removes the first n bytes of text that was held back. */
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
