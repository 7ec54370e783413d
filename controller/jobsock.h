/* jobsock.h - the job socket: a ROUTER, its clients, what each of them waits for.
 * Owns: the socket and its monitor, a thread that parses large requests, a record per client.
 * Runs on the front end's thread.  A send never blocks: a client that does not read loses what
 * it listens to, and its jobs that are not kept are cancelled; so are those of a client whose
 * connection ends. */
#ifndef QUERN_CONTROLLER_JOBSOCK_H
#define QUERN_CONTROLLER_JOBSOCK_H

#include "controller/jobs.h"

struct jobsock;

/* Binds cfg->jobs.  -EPERM for one that others can reach, unless insecure; errors of binding.
 * front is asked for readiness, context, status and listener ids; jobs may be set later. */
int jobsock_open(void *zmq, const struct service *svc, const struct front_config *cfg, struct front *front,
		 struct jobs *jobs, struct jobsock **out, char *why, size_t why_n);
/* Waits at most a second for what is still to be sent. jobs_end() was called. */
void jobsock_close(struct jobsock *s);                 /* NULL is fine */
const char *jobsock_endpoint(const struct jobsock *s); /* with the port that was chosen */

/* What to poll for reading: two sockets and a descriptor. */
void jobsock_poll(struct jobsock *s, void **router, void **monitor, int *parsed_fd);

/* Answer what has come, a bounded part of it.  True: there may be more. */
bool jobsock_read(struct jobsock *s, int64_t now);
/* Drop the clients that were found gone or not reading.  Called after anything that sends. */
void jobsock_reap(struct jobsock *s);

struct jobsock_counts {
	uint32_t n_clients, n_calls;
	size_t unsent_bytes;
};
void jobsock_counts(const struct jobsock *s, struct jobsock_counts *out);

#endif
