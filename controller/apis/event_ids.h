/* event_ids.h - numbers for the events of a stream, whatever API they are of: server-sent events get a line
 * `id: N`, lines of JSON have none and are counted by the client.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_EVENT_IDS_H
#define QUERN_CONTROLLER_APIS_EVENT_IDS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_ids {
	bool lines;     /* events are lines of JSON; else they end with an empty line */
	uint64_t after; /* events that the client has: they are left out */
	uint64_t n;     /* events so far; the first one is number 1 */
};

/* Numbers the events in out behind mark, all of them whole. */
void event_ids_put(struct event_ids *e, struct buf *out, size_t mark);

#endif
