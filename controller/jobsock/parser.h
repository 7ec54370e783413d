/* parser.h - hands large and costly requests of the job socket to the pool of preparing threads.
 * So tokenizing a long prompt does not stall the streams of all clients.  Owns: the parsed requests until
 * they are taken.  Requests of one client are parsed one after another, in the order of parser_put(). */
#ifndef QUERN_CONTROLLER_JOBSOCK_PARSER_H
#define QUERN_CONTROLLER_JOBSOCK_PARSER_H

#include "base/err.h"
#include "controller/jobsock/job_request.h"

#include <zmq.h>

struct mailbox;
struct parser;

/* svc: holds the pool.  mailbox: gives the current max_context.  Return NULL if no descriptor is
 * available. */
struct parser *parser_new(const struct service *svc, const struct mailbox *mailbox);
/* Wait until no request of this parser is in the pool; call drop(user) for each request that was not
 * taken. */
void parser_free(struct parser *p, void (*drop)(void *user)); /* NULL is fine */

/* Take the content of message, which is empty then.  client: its name for the pool.  costly: as in
 * work_pool.h.  -EAGAIN, -ENOBUFS: too many requests or bytes wait, of this client or of all; why says
 * which. */
int parser_put(struct parser *p, const char *client, zmq_msg_t *message, bool costly, void *user,
	       struct why *why);
/* Take the next parsed request: move it to *req and return its user.  NULL: none is ready. */
void *parser_take(struct parser *p, struct job_request *req);
int parser_fd(const struct parser *p); /* readable when a request is ready */

#endif
