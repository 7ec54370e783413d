/* framing.h - check that a request's head has one meaning only (RFC 9112).  If a proxy in front of quern
 * reads another length or another header from the same bytes, one client's body can become another's request
 * (request smuggling).
 *
 * libmicrohttpd (0.9.75) accepts more than the grammar, and shows only the result: a NUL or a bare LF ends a
 * line, a folded line becomes part of the name before it, blanks before a colon belong to the name.  It
 * parses in place, so the addresses of the parsed strings reveal the hidden bytes.  In a correct head every
 * string follows the previous one at a known distance, and the last one ends where the head ends.
 *
 *   method          target            version     CRLF  name   colon, blanks  value   CRLF ... CRLF CRLF
 *   |G|E|T|0|       |/|h|e|a|l|t|h|0| |H|T|..|0|  |0|   |H|o..|0|             |x|     |0|0|    |0|0|0|0|
 *
 * (From 1.0 on libmicrohttpd refuses such heads itself, and trims values, so there is nothing to measure.)
 *
 * libmicrohttpd also frames chunks, and takes a bare LF there too.  So a connection is closed after the reply
 * to a chunked request, and nothing after its body is read as a request. */
#ifndef QUERN_CONTROLLER_HTTP_FRAMING_H
#define QUERN_CONTROLLER_HTTP_FRAMING_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

/* Return the length in bytes of the target as received, before libmicrohttpd unescapes it in place.
 * SIZE_MAX: no target, a byte that no target may have, or an absolute form with an authority that is not a
 * host and a port. */
size_t framing_target(const char *target);

/* Return the path of a target, unescaped and without its query.  In absolute form (RFC 9112, 3.2.2) the path
 * follows the authority, host[0..*host_n), which replaces the header Host; else *host is NULL. */
const char *framing_path(const char *url, const char **host, size_t *host_n);

/* Return why the head of c's request is refused, or NULL.  *chunked: the body is chunked.  n_target: from
 * framing_target().  Removes blanks at the ends of header values, which do not belong to the values (RFC
 * 9110, 5.5). */
const char *framing_fault(struct MHD_Connection *c, const char *method, const char *version, size_t n_target,
			  bool *chunked);

#endif
