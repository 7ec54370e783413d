/* front.h - the front end's loop: commands of the mailbox, events of the engine, the job socket.
 * Owns: the mailbox, the table of jobs, the job socket, the queries and orders that the engine has not
 * answered yet.  One thread: other threads send to its mailbox, the engine exchanges messages with it
 * (engine_msg.h). */
#ifndef QUERN_CONTROLLER_FRONT_H
#define QUERN_CONTROLLER_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front;
struct journal;
struct mailbox;
struct service;
struct zap;

struct front_config {
	char jobs[256];          /* endpoint of the job socket; "": none */
	struct journal *journal; /* of durable jobs, or NULL; outlives the front end */
	bool insecure;
	bool no_orders;  /* the job socket refuses scale and drain (jobsock.h) */
	struct zap *zap; /* borrowed: authenticates peers of the job socket; NULL: all peers may use it */
	/* A replica serves, and none did before; clients see that state already.  full_kv_bytes: as in
	 * engine_event.  On the front end's thread.  May be NULL. */
	void (*on_ready)(void *user, uint32_t max_context, uint64_t full_kv_bytes);
	void *on_ready_user;
};
/* Binds ENGINE_OUT and the job socket, starts the thread. */
int front_start(void *zmq_context, const struct service *svc, const struct front_config *cfg,
		struct front **out, char *why, size_t why_n);
/* Connects to ENGINE_IN.  Called once, after engine_start() has bound it. */
void front_connect(struct front *f);
struct mailbox *front_mailbox(const struct front *f);   /* valid until front_free() */
const char *front_jobs_endpoint(const struct front *f); /* with the port that was chosen */
/* Cancels all jobs, notifies their listeners, ends the thread.  The caller stops the engine next... */
void front_stop(struct front *f);
/* ... and then calls this, which also frees the engine's events from the meantime.  Without a running engine
 * front_stop() may be left out.  NULL is fine. */
void front_free(struct front *f);

#endif
