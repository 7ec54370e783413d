/* span.h - a range of bytes within a text. */
#ifndef QUERN_BASE_SPAN_H
#define QUERN_BASE_SPAN_H

#include <stddef.h>

struct text_span {
	size_t start, end; /* bytes [start, end) */
};

#endif
