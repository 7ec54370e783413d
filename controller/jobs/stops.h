/* stops.h - find stop strings in text that arrives in chunks.
 * The first byte at which any of the strings is complete ends the text, however the text is split into
 * chunks.  If several are complete at the same byte, the string listed first counts.  Between chunks,
 * stops_held() is the length of the longest suffix of the text that may still become a stop string, and must
 * not be shown yet.  Knuth-Morris-Pratt for each string: constant time per byte.  Pure. */
#ifndef QUERN_CONTROLLER_JOBS_STOPS_H
#define QUERN_CONTROLLER_JOBS_STOPS_H

#include "proto/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stops; /* the strings of a job; immutable */

/* Matched length of each string; one struct per output.  Zeroed: at the start of a text. */
struct stops_at {
	uint16_t matched[PARAMS_STOP_MAX];
};

/* Compile n strings (1..PARAMS_STOP_MAX), none empty, none longer than PARAMS_STOP_BYTES_MAX.  Copied. */
struct stops *stops_new(char *const *strings, size_t n);
void stops_free(struct stops *s); /* NULL is fine */

struct stops_hit {
	size_t end;    /* bytes of this chunk up to and including the stop string's last */
	size_t length; /* bytes of the stop string (it may begin in an earlier chunk) */
	unsigned which;
};

/* Feed a chunk.  true: found; the rest of the chunk was not read. */
bool stops_push(const struct stops *s, struct stops_at *at, const char *text, size_t n,
		struct stops_hit *hit);
/* Return the number of bytes at the end of the fed text that may begin a stop string. */
size_t stops_held(const struct stops *s, const struct stops_at *at);

#endif
