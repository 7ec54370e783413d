/* framing.h - whether a request's head has one meaning only (RFC 9112): a proxy before us that reads another
 * length or another header out of the same bytes would let one client's body be another's request (request
 * smuggling).
 *
 * libmicrohttpd (0.9.75) accepts more than the grammar, and shows the result only: a NUL or a bare LF ends
 * a line, a folded line becomes part of the name before it, blanks before a colon belong to the name.  It
 * parses in place, so the addresses of what it shows tell what it hides: in a head without faults every
 * part follows the one before at a known distance, and the last ends where the head does.
 *
 *   method          target            version     CRLF  name   colon, blanks  value   CRLF ... CRLF CRLF
 *   |G|E|T|0|       |/|h|e|a|l|t|h|0| |H|T|..|0|  |0|   |H|o..|0|             |x|     |0|0|    |0|0|0|0|
 *
 * (From 1.0 on libmicrohttpd refuses such heads itself, and trims values, so there is nothing to measure.)
 *
 * Chunks are framed by libmicrohttpd, which takes a bare LF there too: so a connection is closed after
 * the reply to a chunked request, and nothing behind its body is read as a request. */
#ifndef QUERN_CONTROLLER_HTTP_FRAMING_H
#define QUERN_CONTROLLER_HTTP_FRAMING_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

/* The target as it came, which libmicrohttpd unescapes in place.  Its bytes; SIZE_MAX: none, or one with
 * bytes that no target has. */
size_t framing_target(const char *target);

/* NULL, or why the head of c's request is refused; *chunked: its body is.  n_target: framing_target()'s. */
const char *framing_fault(struct MHD_Connection *c, const char *method, const char *version, size_t n_target,
			  bool *chunked);

#endif
