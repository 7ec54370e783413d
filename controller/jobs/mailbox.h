/* mailbox.h - commands to the front end's thread, from any thread.
 * Owns: the list of commands sent and not yet taken, and the state that other threads read without a message
 * (ready, max_context).  Senders never wait for the front end: a command is appended to the list, and an
 * eventfd wakes the receiver.  The list is not bounded; its senders are (connections, requests in progress).
 *
 *   HTTP threads, journal thread --mailbox_*()--> [list, eventfd] --mailbox_take()--> front.c
 *
 * The callback of a command is called exactly once: on the front end's thread, or, if the mailbox has been
 * closed, on the caller's thread before the function returns (except mailbox_call()). */
#ifndef QUERN_CONTROLLER_JOBS_MAILBOX_H
#define QUERN_CONTROLLER_JOBS_MAILBOX_H

#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/message/submit.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct mailbox;

/* --- senders: any thread --- */

uint64_t mailbox_listener_id(struct mailbox *m);
/* Submit a job; takes *s.  The first event for the listener is JOB_ACCEPTED or JOB_ERROR. */
void mailbox_submit(struct mailbox *m, struct submit **s, const struct listener *l);
/* Remove a listener: its client has disconnected.  A job without listeners that is not kept is cancelled. */
void mailbox_unlisten(struct mailbox *m, uint64_t listener_id);

/* State that is read without a message. */
bool mailbox_ready(const struct mailbox *m); /* a replica can serve, and new jobs are accepted */
/* Describe what a service that is not ready waits for; "": not known yet. */
void mailbox_waits(struct mailbox *m, char *out, size_t n);
bool mailbox_draining(const struct mailbox *m); /* mailbox_drain() was called */
uint32_t mailbox_max_context(const struct mailbox *m);
int64_t mailbox_loop_us(const struct mailbox *m); /* clock_us() of the last iteration of the receiver's
						     * loop */

/* Request the engine's status.  cb borrows it; NULL: the engine does not answer in time, or the service
 * stops. */
void mailbox_status(struct mailbox *m, void (*cb)(void *user, const struct engine_status *s), void *user);

/* Send an order to the engine (ENGINE_SCALE, ENGINE_DRAIN, ENGINE_FORGET).  Takes *c; the front end sets its
 * tag.  cb gets CODE_OK or the reason, however long the order takes. */
void mailbox_order(struct mailbox *m, struct engine_cmd **c,
		   void (*cb)(void *user, enum code code, const char *why), void *user);

/* State of the service for the page's live stream. */
struct mailbox_snapshot {
	struct engine_status *status;             /* owned; NULL: no answer in time, or the service stops */
	json_t *jobs;                             /* owned: rows of jobs_now(); NULL: max_jobs was 0 */
	uint32_t n_queued, n_running, n_finished; /* jobs */
};
/* Request the status with block maps of n_cells cells (0: no maps), and at most max_jobs rows of jobs.  cb
 * takes ownership of status or jobs by setting the member to NULL. */
void mailbox_snapshot(struct mailbox *m, uint32_t n_cells, uint32_t max_jobs,
		      void (*cb)(void *user, struct mailbox_snapshot *s), void *user);

/* End a job as jobs_cancel() does, also if it has listeners.  Jobs submitted with a key of the job socket are
 * not found.  owner: only a job of this owner; "": a job without an owner; NULL: any HTTP job.  cb (may be
 * NULL) gets CODE_OK, E_NO_SUCH_JOB, or E_INTERNAL if the service stops. */
void mailbox_cancel(struct mailbox *m, const char *job, const char *owner,
		    void (*cb)(void *user, enum code code), void *user);

/* Request where a job's time went (jobs_explain()).  cb borrows it, or gets NULL with the reason.  owner: as
 * for mailbox_cancel(), but never NULL. */
void mailbox_explain(struct mailbox *m, const char *job, const char *owner,
		     void (*cb)(void *user, json_t *explained, enum code code, const char *why), void *user);

/* For jobs_recover(), on the journal's thread: report that the start or the end of a durable job is on disk,
 * or could not be written (rc, why). */
void mailbox_written(struct mailbox *m, const char *job, bool end, int rc, const char *why);
/* Call fn(user) on the front end's thread, also when the mailbox has been closed: fn uses data of that thread
 * only, and the thread takes commands until no such call can follow. */
void mailbox_call(struct mailbox *m, void (*fn)(void *user), void *user);
void mailbox_connect(struct mailbox *m); /* report that ENGINE_IN is bound */
/* Prepare to stop: new jobs and orders are refused, accepted jobs continue. */
void mailbox_drain(struct mailbox *m);
/* Return the number of jobs that a stop would cut (jobs_n_draining()), counted since mailbox_drain();
 * UINT32_MAX: not counted yet. */
uint32_t mailbox_n_draining(const struct mailbox *m);
void mailbox_quit(struct mailbox *m); /* ends the front end's thread */

/* --- receiver: the front end's thread --- */

enum mailbox_cmd_kind {
	MAILBOX_SUBMIT,
	MAILBOX_UNLISTEN,
	MAILBOX_STATUS,
	MAILBOX_SNAPSHOT,
	MAILBOX_CANCEL,
	MAILBOX_EXPLAIN,
	MAILBOX_ORDER,
	MAILBOX_SETTLED,
	MAILBOX_CALL,
	MAILBOX_CONNECT,
	MAILBOX_DRAIN,
	MAILBOX_QUIT,
};

struct mailbox_cmd {
	struct mailbox_cmd *next;
	enum mailbox_cmd_kind kind;
	struct submit *submit; /* SUBMIT; owned */
	struct listener listener;
	uint64_t listener_id;                                         /* UNLISTEN */
	void (*on_status)(void *user, const struct engine_status *s); /* STATUS */
	uint32_t n_cells, max_jobs;                                   /* SNAPSHOT */
	void (*on_snapshot)(void *user, struct mailbox_snapshot *s);
	struct engine_cmd *order; /* ORDER; owned */
	void (*on_done)(void *user, enum code code, const char *why);
	char *job;   /* CANCEL, EXPLAIN, SETTLED; owned */
	char *owner; /* CANCEL, EXPLAIN; owned or NULL */
	void (*on_cancelled)(void *user, enum code code);
	void (*on_explained)(void *user, json_t *explained, enum code code, const char *why);
	void (*call)(void *user); /* CALL */
	void *user;               /* argument of the callback */
	bool end;                 /* SETTLED */
	int rc;
	char why[256];
};

/* Make a mailbox.  NULL: see errno. */
struct mailbox *mailbox_new(uint32_t max_context);
void mailbox_free(struct mailbox *m); /* NULL is fine.  Commands not taken are freed without an answer */

int mailbox_fd(const struct mailbox *m); /* readable while there are commands */
/* Take all commands, oldest first; NULL: none.  The caller frees them.  last: closes the mailbox. */
struct mailbox_cmd *mailbox_take(struct mailbox *m, bool last);
void mailbox_cmd_free(struct mailbox_cmd *c);
void mailbox_set_ready(struct mailbox *m, bool ready);
void mailbox_set_waits(struct mailbox *m, const char *why);
void mailbox_set_loop(struct mailbox *m, int64_t now_us);
void mailbox_set_n_draining(struct mailbox *m, uint32_t n);
void mailbox_set_max_context(struct mailbox *m, uint32_t max_context);

#endif
