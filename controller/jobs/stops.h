/* stops.h - finding stop strings in text that arrives in pieces.
 * The first byte at which any of the strings is complete ends the text, however it is cut into pieces; of
 * several that are complete at the same byte, the one listed first counts.  Between pieces, stops_held() is
 * the length of the longest end of the text that may still become a stop string, and must not be shown yet.
 * Knuth-Morris-Pratt for each string: constant time per byte.  Pure. */
#ifndef QUERN_CONTROLLER_JOBS_STOPS_H
#define QUERN_CONTROLLER_JOBS_STOPS_H

#include "proto/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stops; /* the strings of a job; immutable */

/* How far each string has matched; one for each output. Zeroed: at the start of a text. */
struct stops_at {
	uint16_t matched[PARAMS_STOP_MAX];
};

/* n strings (1..PARAMS_STOP_MAX), none empty, none longer than PARAMS_STOP_BYTES_MAX. Copied. */
struct stops *stops_new(char *const *strings, size_t n);
void stops_free(struct stops *s); /* NULL is fine */

struct stops_hit {
	size_t end;    /* bytes of this piece up to and with the stop string's last */
	size_t length; /* of the stop string (it may begin in an earlier piece) */
	unsigned which;
};

/* Feeds a piece.  True: found; the rest of the piece was not read. */
bool stops_push(const struct stops *s, struct stops_at *at, const char *text, size_t n,
		struct stops_hit *hit);
/* Bytes at the end of the fed text that may be the beginning of a stop string. */
size_t stops_held(const struct stops *s, const struct stops_at *at);

#endif
