/* viewers.h - who watches the service live, and the thread that looks at it once a second.
 * Owns: the last minutes (live.h), the streams of those who watch.  One look serves all of them;
 * while nobody watches only the numbers of the history are asked for. */
#ifndef QUERN_CONTROLLER_VIEWERS_H
#define QUERN_CONTROLLER_VIEWERS_H

#include "controller/exchange.h"

#include <stddef.h>

struct viewers;

enum { VIEWERS_MAX = 256 };

/* front and svc outlive it. */
int viewers_start(struct front *f, const struct service *svc, struct viewers **out, char *why, size_t why_n);
/* Lets go of all exchanges.  The front end's thread must still run. */
void viewers_stop(struct viewers *v); /* NULL is fine */

/* The exchange becomes a stream that shows the service until the client goes.  -EAGAIN: VIEWERS_MAX
 * watch already, x is as it was.  From the access handler. */
int viewers_add(struct viewers *v, struct exchange *x);

#endif
