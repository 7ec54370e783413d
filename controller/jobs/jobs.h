/* jobs.h - the table of jobs: from the request to the one final state and its record.
 * Owns: every job with its outputs, its listeners, the idempotency keys, finished jobs until
 * they are swept.  Commands to the engine leave through a function; its events and the time are arguments:
 * no sockets, no clock (but the wall clock for the journal).  Single-threaded: the front end.
 *
 *                                      state        in the journal (durable jobs)
 *   jobs_submit --> ENGINE_SUBMIT      queued       -
 *       | the engine refuses: JOB_ERROR, forgotten
 *   accepted by the engine            (settling)    on its way: the request
 *       | the disk refuses: JOB_ERROR, forgotten
 *   JOB_ACCEPTED                       running      the request; tokens, saved every 250 ms
 *       |
 *   the engine has ended it           (recording)   on its way: the end
 *       |
 *   JOB_DONE or JOB_ERROR              done, failed the end, without the tokens
 *       | jobs_sweep: too old, or too many
 *   forgotten in memory                -            the end, until it is swept: read again on request
 *
 * States in parentheses are those of a durable job that waits for the disk: clients still see queued, or
 * running.  After a crash jobs_recover() resumes what the journal has as running.
 *
 * Listeners are called from within these functions and must not call back into the table. */
#ifndef QUERN_CONTROLLER_JOBS_JOBS_H
#define QUERN_CONTROLLER_JOBS_JOBS_H

#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/message/service.h"
#include "controller/message/submit.h"

#include <jansson.h>

struct jobs;

extern const char jobs_schema[];       /* SQL of the journal's tables of jobs */
extern const char jobs_schema_model[]; /* what they have more than in a journal of format 2 */

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

/* A request.  Takes *s.  The listener gets JOB_ACCEPTED or JOB_ERROR, at once or later.  With the
 * idempotency key of a known job, the listener is added to that job instead; one for an existing job alone
 * (submit.existing) is refused where there is none. */
void jobs_submit(struct jobs *j, struct submit **s, const struct listener *l, int64_t now);
/* Before anything else, with a journal: unfinished jobs are resumed, finished ones can be found.
 * `settled` is called on the journal's thread (user: as for send); it must have jobs_settled() called with
 * the same arguments on the table's thread. */
struct journal;
/* A journal that cannot be opened yet is read later, by jobs_sweep(). */
int jobs_recover(struct jobs *j, struct journal *journal,
		 void (*settled)(void *user, const char *id, bool end, int rc, const char *why), int64_t now,
		 char *why, size_t why_n);
void jobs_settled(struct jobs *j, const char *id, bool end, int rc, const char *why, int64_t now);
/* Hands the tokens of durable jobs to the journal; due at jobs_save_at() (clock_us). */
void jobs_save(struct jobs *j);
int64_t jobs_save_at(const struct jobs *j);

/* An event of the engine; those that are not of jobs are ignored.  Borrows e. */
void jobs_event(struct jobs *j, const struct engine_event *e, int64_t now);

struct job *jobs_find(struct jobs *j, const char *id); /* NULL: no such job */
/* True, with the reason: the journal's jobs are not known yet. */
bool jobs_unread(const struct jobs *j, char *why, size_t why_n);
const char *job_id(const struct job *job);
bool job_is_of(const struct job *job, const char *owner); /* owner NULL: the job has no owner */
const char *job_api_key(const struct job *job);           /* the name of its API key; NULL: has none */
bool job_finished(const struct job *job);
uint32_t job_n_outputs(const struct job *job);
uint32_t job_n_listeners(const struct job *job);

/* Listen to a job, running or finished: deltas of each output from its token from[i] on
 * ([n_outputs], NULL: from 0), then done or error.  -EBUSY: too many listeners. */
int jobs_attach(struct jobs *j, struct job *job, const struct listener *l, bool stream, const uint32_t *from);
/* Publishes the end of a finished job to l, once. */
void jobs_result(struct jobs *j, struct job *job, const struct listener *l);
/* Removes a listener.  A job that is not kept is cancelled with its last one. */
void jobs_unlisten(struct jobs *j, uint64_t listener);
/* Unfinished outputs end with finish abort.  Without effect on a finished job. */
void jobs_cancel(struct jobs *j, struct job *job);

/* Forgets finished jobs that are too old or too many.  Returns when to call again (clock_us). */
int64_t jobs_sweep(struct jobs *j, int64_t now);
/* The service is about to stop: from here on new jobs are refused with E_NOT_READY. */
void jobs_drain(struct jobs *j);
/* Unfinished jobs that jobs_end() would cut or refuse: all but durable ones that the journal has, and of
 * those the ones whose listeners wait for their recorded end. */
uint32_t jobs_n_draining(const struct jobs *j);
/* The service stops: unfinished jobs are done, with finish abort; durable ones stay in the journal, and their
 * listeners get an error that says so. */
void jobs_end(struct jobs *j, int64_t now);

/* An array of maps: the owner's jobs, youngest first, at most max. */
json_t *jobs_table(const struct jobs *j, const char *owner, size_t max, int64_t now);
/* For the live page: at most max, unfinished ones first (oldest first), then those that ended last, to which
 * a fifth of max is reserved.  Only jobs without an owner, and those of API keys, with its name as `owner`.
 */
json_t *jobs_now(const struct jobs *j, size_t max, int64_t now);
/* Where the job's time went.  live: an unfinished job's timeline, of the engine; NULL: it has none. */
json_t *jobs_explain(const struct job *job, const struct timeline *live, int64_t now);
uint64_t job_number(const struct job *job); /* the engine's id of it */
/* The engine has nothing to tell of it any more. */
bool job_has_ended(const struct job *job);
struct jobs_counts {
	uint32_t n_queued, n_running, n_finished, n_listeners;
	size_t finished_bytes;
};
void jobs_counts(const struct jobs *j, struct jobs_counts *out);
void jobs_check(const struct jobs *j); /* asserts the invariants */

/* Rows of jobs in the journal, for operations of others (journal.h), by owner and idempotency key.  owner: ""
 * is none.  SQLITE_OK, or a code of SQLite. */
struct journal_db;
/* The unfinished jobs with keys PREFIX/... end as soon as they are read again. */
int jobs_rows_cancel(struct journal_db *db, const char *owner, const char *prefix);
/* Deletes one that has ended. */
int jobs_rows_delete(struct journal_db *db, const char *owner, const char *key);
/* Calls job for each unfinished one with a key PREFIX/...; it must not use db. */
void jobs_rows_each_unfinished(struct journal_db *db, const char *owner, const char *prefix,
			       void (*job)(void *user, const char *id), void *user);

#endif
