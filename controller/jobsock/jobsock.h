/* jobsock.h - the job socket: a ZeroMQ ROUTER, its clients, and their requests in progress.
 * Owns: the socket and its monitor, the hand-over of large requests to the parser (parser.h), the clients
 * (clients.h).  Runs on the front end's thread.
 *
 *   ROUTER --small request--------------------> act on it --> jobs, mailbox --events, replies--> ROUTER
 *          --large request--> pool of threads -->
 *
 * A send never blocks.  A client that does not read, or disconnects, loses its streams; its jobs are
 * cancelled unless submitted with on_disconnect=keep. */
#ifndef QUERN_CONTROLLER_JOBSOCK_JOBSOCK_H
#define QUERN_CONTROLLER_JOBSOCK_JOBSOCK_H

#include "base/err.h"
#include "controller/jobs/jobs.h"

struct jobsock;
struct mailbox;
struct zap;

struct jobsock_config {
	const char *endpoint; /* endpoint to bind; borrowed during jobsock_open() */
	bool insecure;
	bool no_orders;  /* scale and drain are refused: HTTP requires keys, and this socket none */
	struct zap *zap; /* borrowed: authenticates peers; NULL: all peers may use the socket */
};

/* Bind the endpoint.  -EPERM if other hosts can reach it, unless insecure; or an error of binding. */
int jobsock_open(void *zmq, const struct service *svc, const struct jobsock_config *cfg,
		 struct mailbox *mailbox, struct jobs *jobs, struct jobsock **out, struct why *why);
/* Close the socket, after jobs_end() and once jobsock_n_lines() is 0.  Waits at most a second for unsent
 * messages. */
void jobsock_close(struct jobsock *s);                 /* NULL is fine */
uint32_t jobsock_n_lines(const struct jobsock *s);     /* requests for HTTP routes in progress */
const char *jobsock_endpoint(const struct jobsock *s); /* with the port that was bound */

/* Return the two sockets and the descriptor to poll for reading. */
void jobsock_poll(struct jobsock *s, void **router, void **monitor, int *parsed_fd);

/* Handle a bounded number of messages.  True: there may be more. */
bool jobsock_read(struct jobsock *s, int64_t now);
/* Drop the clients that have disconnected or do not read.  Called after any function that sends. */
void jobsock_reap(struct jobsock *s);

#endif
