/* event_ids.h - number the events of a stream of any API.  Server-sent events get a line `id: N`; lines of
 * JSON get none, and the client counts them.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_EVENT_IDS_H
#define QUERN_CONTROLLER_APIS_EVENT_IDS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_ids {
	bool lines;     /* events are lines of JSON; false: events end with an empty line */
	uint64_t after; /* the client has the events up to this number: they are left out */
	uint64_t n;     /* events so far; the first is number 1 */
};

/* Number the events in out after mark, all of them whole. */
void event_ids_put(struct event_ids *e, struct buf *out, size_t mark);

#endif
