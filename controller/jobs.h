/* jobs.h - the table of jobs: from the request to the one final state and its record.
 * Owns: every job with its outputs, its listeners, the idempotency keys, finished jobs until
 * they are swept.  Commands to the engine leave through a function, its events come in as
 * arguments, and so does the time: no sockets, no clock (but the wall clock for the journal).  Single-threaded: the front end.
 *
 *   QUEUED --accepted--> RUNNING --job done--> DONE --swept-->
 *     |refused: gone        |job failed----> FAILED --swept-->
 *
 * Durable jobs are in the journal, too (journal.h): accepted when they are on the disk, their
 * tokens saved in groups, their end recorded; jobs_recover() makes them again.
 *
 * Listeners are called from within these functions and must not call back into the table. */
#ifndef QUERN_CONTROLLER_JOBS_H
#define QUERN_CONTROLLER_JOBS_H

#include "controller/front.h"

#include <jansson.h>

struct jobs;
struct job;

enum {
	JOBS_ID_SIZE = 33,       /* 32 hexadecimal digits of 128 random bits */
	JOBS_MAX = 65536,        /* unfinished; the engine's own bounds are tighter */
	JOBS_LISTENERS_MAX = 64, /* of one job */
};
#define JOBS_FINISHED_BYTES ((size_t)512 << 20) /* kept results, all together */

/* send takes the command. */
struct jobs *jobs_new(const struct service *svc, void (*send)(void *user, struct engine_cmd *c), void *user);
void jobs_free(struct jobs *j); /* listeners are gone by now: jobs_end() */

/* A request.  Takes *s.  The listener gets JOB_ACCEPTED or JOB_ERROR, at once or later.  With a
 * key that is known it listens to that job instead. */
void jobs_submit(struct jobs *j, struct submit **s, const struct listener *l, int64_t now);
/* Before anything else, where there is a journal: unfinished jobs go on, finished ones can be asked
 * for.  `settled` is called on the journal's thread (user: as for send) and has jobs_settled() called
 * on ours. */
struct journal;
int jobs_recover(struct jobs *j, struct journal *journal,
		 void (*settled)(void *user, const char *id, bool end, int rc, const char *why), int64_t now,
		 char *why, size_t why_n);
void jobs_settled(struct jobs *j, const char *id, bool end, int rc, const char *why, int64_t now);
/* Hands the tokens of durable jobs to the journal; due at jobs_save_at() (clock_us). */
void jobs_save(struct jobs *j);
int64_t jobs_save_at(const struct jobs *j);

/* What the engine says of jobs (the other kinds are passed over).  Borrows e. */
void jobs_event(struct jobs *j, const struct engine_event *e, int64_t now);

struct job *jobs_find(struct jobs *j, const char *id); /* NULL: no such job */
const char *job_id(const struct job *job);
const char *job_user(const struct job *job); /* NULL: it named none */
bool job_is_of(const struct job *job, const char *owner); /* owner NULL: nobody in particular */
bool job_finished(const struct job *job);
uint32_t job_n_outputs(const struct job *job);
uint32_t job_n_listeners(const struct job *job);

/* Listen to a job, running or finished: deltas of each output from its token from[i] on
 * ([n_outputs], NULL: from 0), then done or error.  -EBUSY: too many listeners. */
int jobs_attach(struct jobs *j, struct job *job, const struct listener *l, bool stream, const uint32_t *from);
/* Tell the end of a finished job, once. */
void jobs_result(struct jobs *j, struct job *job, const struct listener *l);
/* That listener is gone.  A job that nobody listens to and that is not kept is cancelled. */
void jobs_unlisten(struct jobs *j, uint64_t listener);
/* All outputs that are not finished end with finish abort.  Nothing for a finished job. */
void jobs_cancel(struct jobs *j, struct job *job);

/* Forget finished jobs that are too old or too many.  Returns when to call again (clock_us). */
int64_t jobs_sweep(struct jobs *j, int64_t now);
/* The service ends: every unfinished job becomes DONE, with finish abort; listeners are told. */
void jobs_end(struct jobs *j, int64_t now);

/* An array of maps: the owner's jobs, youngest first, at most max. */
json_t *jobs_table(const struct jobs *j, const char *owner, size_t max, int64_t now);
/* The same for who watches what goes on: unfinished ones oldest first, at most max; then those that
 * ended last, of which there is always room for a fifth of max.  None that belongs to a key. */
json_t *jobs_now(const struct jobs *j, size_t max, int64_t now);
struct jobs_counts {
	uint32_t n_queued, n_running, n_finished, n_listeners;
	size_t finished_bytes;
};
void jobs_counts(const struct jobs *j, struct jobs_counts *out);
void jobs_check(const struct jobs *j); /* asserts the invariants */

#endif
