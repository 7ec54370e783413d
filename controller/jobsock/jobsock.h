/* jobsock.h - the job socket: a ZeroMQ ROUTER, its clients, and their requests in progress.
 * Owns: the socket and its monitor, the thread that parses large requests (parser.h), the clients
 * (clients.h).  Runs on the front end's thread.
 *
 *   ROUTER --small request--------------------> act on it --> jobs, mailbox --events, replies--> ROUTER
 *          --large request--> parser's thread -->
 *
 * A send never blocks.  A client that does not read, or disconnects, loses its streams; its jobs are
 * cancelled unless submitted with on_disconnect=keep. */
#ifndef QUERN_CONTROLLER_JOBSOCK_JOBSOCK_H
#define QUERN_CONTROLLER_JOBSOCK_JOBSOCK_H

#include "controller/jobs/jobs.h"

struct jobsock;
struct mailbox;
struct zap;

struct jobsock_config {
	const char *endpoint; /* to bind; borrowed during jobsock_open() */
	bool insecure;
	bool no_orders;  /* scale and drain are refused: HTTP has keys, and this socket none */
	struct zap *zap; /* borrowed: authenticates peers; NULL: all peers may use the socket */
};

/* Binds the endpoint.  -EPERM for one that other hosts can reach, unless insecure; errors of binding. */
int jobsock_open(void *zmq, const struct service *svc, const struct jobsock_config *cfg,
		 struct mailbox *mailbox, struct jobs *jobs, struct jobsock **out, char *why, size_t why_n);
/* After jobs_end().  Waits at most a second for unsent messages. */
void jobsock_close(struct jobsock *s);                 /* NULL is fine */
const char *jobsock_endpoint(const struct jobsock *s); /* with the port that was chosen */

/* To poll for reading: two sockets and a descriptor. */
void jobsock_poll(struct jobsock *s, void **router, void **monitor, int *parsed_fd);

/* Handles a bounded number of messages.  True: there may be more. */
bool jobsock_read(struct jobsock *s, int64_t now);
/* Drops the clients that were found disconnected or not reading.  Called after anything that sends. */
void jobsock_reap(struct jobsock *s);

#endif
