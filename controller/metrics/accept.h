/* accept.h - what a request's Accept says of a media type: RFC 9110, 12.5.1.  Pure. */
#ifndef QUERN_CONTROLLER_METRICS_ACCEPT_H
#define QUERN_CONTROLLER_METRICS_ACCEPT_H

#include <stdbool.h>

enum accept_range {
	ACCEPT_NONE, /* no media range names the type */
	ACCEPT_ANY,  /* by a star for all types */
	ACCEPT_KIND, /* by a star behind "text/" */
	ACCEPT_TYPE,
	ACCEPT_VERSION, /* the type with this version */
};

struct accept {
	enum accept_range by; /* the most specific one that names it, which decides */
	int q;                /* its weight in thousandths; 0: not acceptable */
};

/* Of a type ("text/plain") in a version ("0.0.4").  accept: the field's value, NULL: none, then everything is
 * acceptable.  A media range with another version does not name the type; parameters besides version are
 * passed over, and so are members of the list that are malformed. */
struct accept accept_weigh(const char *accept, const char *type, const char *version);

#endif
