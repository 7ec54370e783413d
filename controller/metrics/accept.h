/* accept.h - how acceptable a media type is to a request's Accept header: RFC 9110, 12.5.1.  Pure. */
#ifndef QUERN_CONTROLLER_METRICS_ACCEPT_H
#define QUERN_CONTROLLER_METRICS_ACCEPT_H

#include <stdbool.h>

enum accept_range {
	ACCEPT_NONE, /* no media range names the type */
	ACCEPT_ANY,  /* named by a star for all types */
	ACCEPT_KIND, /* named by a star after "text/" */
	ACCEPT_TYPE,
	ACCEPT_VERSION, /* the type with this version */
};

struct accept {
	enum accept_range by; /* the most specific media range that names the type; it decides */
	int q;                /* weight in thousandths; 0: not acceptable */
};

/* Weigh a type ("text/plain") in a version ("0.0.4").  accept: the field's value; NULL: no header, everything
 * is acceptable.  A media range with another version does not name the type.  Other parameters and malformed
 * list members are ignored. */
struct accept accept_weigh(const char *accept, const char *type, const char *version);

#endif
