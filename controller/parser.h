/* parser.h - a thread that parses large requests of the job socket, so that a long prompt being
 * tokenized holds up nobody's stream.  Requests come back in the order in which they went in. */
#ifndef QUERN_CONTROLLER_PARSER_H
#define QUERN_CONTROLLER_PARSER_H

#include "controller/jobreq.h"

#include <zmq.h>

struct parser;

/* front is asked for the context. */
struct parser *parser_start(const struct service *svc, const struct front *front);
/* Waits for the request in hand; what was not taken is freed with drop(user). */
void parser_stop(struct parser *p, void (*drop)(void *user)); /* NULL is fine */

/* Takes the message's content (it is empty then).  -EAGAIN: too much is waiting already. */
int parser_put(struct parser *p, zmq_msg_t *message, void *user);
/* The next that is ready: its request moves to *req.  NULL: none. */
void *parser_take(struct parser *p, struct jobreq *req);
int parser_fd(const struct parser *p); /* readable when there is one to take */

#endif
