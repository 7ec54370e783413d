/* viewers.h - the clients of the live stream.  Once a second the housekeeper takes a snapshot of the service
 * for them.
 * Owns: the history of the last minutes (live.h), the viewers' streams.  One snapshot serves all viewers;
 * without viewers it has no maps and no jobs, only the data for the history. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_VIEWERS_H
#define QUERN_CONTROLLER_ENDPOINTS_VIEWERS_H

#include "controller/http/exchange.h"

struct mailbox;
struct viewers;

enum { VIEWERS_MAX = 256 };

/* mailbox and svc must outlive the viewers. */
struct viewers *viewers_start(struct mailbox *mailbox, const struct service *svc);
/* Drop all streams.  The front end's thread must still run. */
void viewers_stop(struct viewers *v); /* NULL is fine */

/* Make the exchange a viewer's stream until its client disconnects.  -EAGAIN: there are already VIEWERS_MAX
 * viewers; x is unchanged.  Called from the access handler. */
int viewers_add(struct viewers *v, struct exchange *x);

#endif
