/* parser.h - a thread that parses large requests of the job socket, so that tokenizing a long prompt does not
 * stall the streams of all clients.
 * Owns: the thread and its two queues, both in the order of parser_put(). */
#ifndef QUERN_CONTROLLER_JOBSOCK_PARSER_H
#define QUERN_CONTROLLER_JOBSOCK_PARSER_H

#include "controller/jobsock/job_request.h"

#include <zmq.h>

struct mailbox;
struct parser;

/* mailbox: for the current max_context.  NULL: the thread cannot be started. */
struct parser *parser_start(const struct service *svc, const struct mailbox *mailbox);
/* Waits for the request being parsed; calls drop(user) for each request that was not taken. */
void parser_stop(struct parser *p, void (*drop)(void *user)); /* NULL is fine */

/* Takes the content of message, which is empty then.  -EAGAIN: too many requests or bytes are waiting. */
int parser_put(struct parser *p, zmq_msg_t *message, void *user);
/* Takes the next parsed request: moves it to *req and returns its user.  NULL: none is ready. */
void *parser_take(struct parser *p, struct job_request *req);
int parser_fd(const struct parser *p); /* readable when a request is ready */

#endif
