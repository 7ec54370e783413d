#include "controller/chat/marker.h"

#include <string.h>

size_t marker_partial(const char *p, size_t n, const char *marker)
{
	size_t k = strlen(marker) - 1;
	for (k = k < n ? k : n; k; k--)
		if (!memcmp(p + n - k, marker, k))
			break;
	return k;
}

int marker_begins(const char *p, size_t n, const char *marker)
{
	size_t k = strlen(marker);
	if (memcmp(p, marker, n < k ? n : k) != 0)
		return -1;
	return n >= k;
}

void marker_drop(struct buf *held, size_t n)
{
	if (!n)
		return;
	memmove(held->p, held->p + n, held->len - n + 1);
	held->len -= n;
}
