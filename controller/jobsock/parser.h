/* parser.h - hands large requests of the job socket to the pool of preparing threads, so that tokenizing a
 * long prompt does not stall the streams of all clients. Owns: the parsed requests until they are taken.
 * Those of a client are parsed one after another, in the order of parser_put(). */
#ifndef QUERN_CONTROLLER_JOBSOCK_PARSER_H
#define QUERN_CONTROLLER_JOBSOCK_PARSER_H

#include "controller/jobsock/job_request.h"

#include <zmq.h>

struct mailbox;
struct parser;

/* svc: with the pool.  mailbox: for the current max_context.  NULL: no descriptor can be had. */
struct parser *parser_new(const struct service *svc, const struct mailbox *mailbox);
/* Waits until no request of this parser is in the pool; calls drop(user) for each that was not taken. */
void parser_free(struct parser *p, void (*drop)(void *user)); /* NULL is fine */

/* Takes the content of message, which is empty then.  client: its name for the pool.  -EAGAIN, -ENOBUFS: too
 * many requests or bytes wait, of this client or of all; why says which. */
int parser_put(struct parser *p, const char *client, zmq_msg_t *message, void *user, char *why, size_t why_n);
/* Takes the next parsed request: moves it to *req and returns its user.  NULL: none is ready. */
void *parser_take(struct parser *p, struct job_request *req);
int parser_fd(const struct parser *p); /* readable when a request is ready */

#endif
