/* front.h - the front end's loop: commands of the mailbox, events of the engine, the job socket.
 * Owns: the mailbox, the table of jobs, the job socket, the queries and orders that the engine has not
 * answered yet.  One thread: other threads send to its mailbox, the engine exchanges messages with it
 * (engine_msg.h). */
#ifndef QUERN_CONTROLLER_FRONT_H
#define QUERN_CONTROLLER_FRONT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front;
struct journal;
struct mailbox;
struct service;
struct zap;

struct front_config {
	char jobs[256];          /* endpoint of the job socket; "": no job socket */
	struct journal *journal; /* journal of durable jobs, or NULL; outlives the front end */
	bool insecure;
	bool no_orders;  /* the job socket refuses scale and drain (jobsock.h) */
	struct zap *zap; /* borrowed: authenticates peers of the job socket; NULL: all peers may use it */
	/* Called when a replica begins to serve and none served before; clients see that state already.
	 * full_kv_bytes: as in engine_event.  Runs on the front end's thread.  May be NULL. */
	void (*on_ready)(void *user, uint32_t max_context, uint64_t full_kv_bytes);
	void *on_ready_user;
};
/* Bind ENGINE_OUT and the job socket, and start the thread. */
int front_start(void *zmq_context, const struct service *svc, const struct front_config *cfg,
		struct front **out, struct why *why);
/* Connect to ENGINE_IN.  Called once, after engine_start() has bound it. */
void front_connect(struct front *f);
struct mailbox *front_mailbox(const struct front *f);   /* valid until front_free() */
const char *front_jobs_endpoint(const struct front *f); /* with the port that was bound */
/* Cancel all jobs, notify their listeners and end the thread.  The caller then stops the engine and calls
 * front_free(). */
void front_stop(struct front *f);
/* Free the front end and the events that the engine sent after front_stop().  If the engine never ran,
 * front_stop() may be skipped.  NULL is fine. */
void front_free(struct front *f);

#endif
