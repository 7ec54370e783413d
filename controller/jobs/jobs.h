/* jobs.h - the table of jobs: from the request to the final state and its record.
 * Owns: every job with its outputs, its listeners, the idempotency keys, and finished jobs until they are
 * swept.  A function sends commands to the engine; the engine's events and the time are arguments.  No
 * sockets; no clock, except the wall clock for the journal.  Single-threaded: the front end.
 *
 *                                      state        in the journal (durable jobs)
 *   jobs_submit --> ENGINE_SUBMIT      queued       -
 *       | the engine refuses: JOB_ERROR, forgotten
 *   accepted by the engine            (pending)     being written: the request
 *       | the disk refuses: JOB_ERROR, forgotten
 *   JOB_ACCEPTED                       running      the request; tokens, saved every 250 ms
 *       |
 *   the engine has ended it           (recording)   being written: the end
 *       |
 *   JOB_DONE or JOB_ERROR              done, failed the end, without the tokens
 *       | jobs_sweep: too old, or too many
 *   forgotten in memory                -            the end, until it is swept: read again on request
 *
 * States in parentheses are those of a durable job that waits for the disk; clients still see queued or
 * running.  After a crash jobs_recover() resumes the jobs that are running in the journal.
 *
 * Listeners are called from within these functions and must not call back into the table. */
#ifndef QUERN_CONTROLLER_JOBS_JOBS_H
#define QUERN_CONTROLLER_JOBS_JOBS_H

#include "base/err.h"
#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/message/service.h"
#include "controller/message/submit.h"

#include <jansson.h>

struct jobs;

extern const char jobs_schema[];       /* SQL of the journal's job tables */
extern const char jobs_schema_model[]; /* SQL that upgrades those tables from format 2 */
/* Rewrite the requests of a journal of format 3 in format 4 (journal_migration.run).  A damaged request stays
 * as it is: its job fails when it is read. */
struct journal_db;
int jobs_migrate_requests(struct journal_db *db);

struct job;

enum {
	JOBS_ID_SIZE = 33,       /* 32 hexadecimal digits of 128 random bits */
	JOBS_MAX = 65536,        /* unfinished jobs; the engine's own limits are tighter */
	JOBS_LISTENERS_MAX = 64, /* per job */
};
#define JOBS_FINISHED_BYTES ((size_t)512 << 20) /* limit for all stored results together */

/* Make the table.  send takes ownership of the command. */
struct jobs *jobs_new(const struct service *svc, void (*send)(void *user, struct engine_cmd *c), void *user);
void jobs_free(struct jobs *j); /* no listeners may be left: jobs_end() */

/* Submit a request; takes *s.  The listener gets JOB_ACCEPTED or JOB_ERROR, at once or later.  If the
 * idempotency key belongs to a known job, the listener is added to that job instead.  With submit.existing
 * the request is refused if there is no such job. */
void jobs_submit(struct jobs *j, struct submit **s, const struct listener *l, int64_t now);
/* Read the journal, before any other call: unfinished jobs are resumed, finished jobs can be found.
 * `written` is called on the journal's thread (user: as for send); it must arrange a call of jobs_written()
 * with the same arguments on the table's thread. */
struct journal;
/* If the journal cannot be opened yet, jobs_sweep() reads it later. */
int jobs_recover(struct jobs *j, struct journal *journal,
		 void (*written)(void *user, const char *id, bool end, int rc, const char *why), int64_t now,
		 struct why *why);
void jobs_written(struct jobs *j, const char *id, bool end, int rc, const char *why, int64_t now);
/* Pass the tokens of durable jobs to the journal; due at jobs_save_at() (clock_us). */
void jobs_save(struct jobs *j);
int64_t jobs_save_at(const struct jobs *j);

/* Handle an event of the engine; events that concern no job are ignored.  Borrows e. */
void jobs_event(struct jobs *j, const struct engine_event *e, int64_t now);

struct job *jobs_find(struct jobs *j, const char *id); /* NULL: no such job */
/* Return true, with the reason, while the journal's jobs have not been read. */
bool jobs_unread(const struct jobs *j, struct why *why);
const char *job_id(const struct job *job);
bool job_is_of(const struct job *job, const char *owner); /* owner NULL: true if the job has no owner */
const char *job_api_key(const struct job *job);           /* name of its API key; NULL: none */
bool job_finished(const struct job *job);
uint32_t job_n_outputs(const struct job *job);
uint32_t job_n_listeners(const struct job *job);

/* Listen to a job, running or finished: get the deltas of each output from token from[i] on ([n_outputs];
 * NULL: from 0), then done or error.  -EBUSY: too many listeners. */
int jobs_attach(struct jobs *j, struct job *job, const struct listener *l, bool stream, const uint32_t *from);
/* Publish the end of a finished job to l, once. */
void jobs_result(struct jobs *j, struct job *job, const struct listener *l);
/* Remove a listener.  A job that is not kept is cancelled when its last listener is removed. */
void jobs_unlisten(struct jobs *j, uint64_t listener);
/* Cancel a job: unfinished outputs end with finish abort.  No effect on a finished job. */
void jobs_cancel(struct jobs *j, struct job *job);

/* Forget finished jobs that are too old or too many.  Returns when to call again (clock_us). */
int64_t jobs_sweep(struct jobs *j, int64_t now);
/* Prepare to stop: refuse new jobs with E_NOT_READY. */
void jobs_drain(struct jobs *j);
/* Count the unfinished jobs that jobs_end() would cut or refuse: all jobs except durable jobs in the journal,
 * plus durable jobs with listeners that wait for the recorded end. */
uint32_t jobs_n_draining(const struct jobs *j);
/* Stop: unfinished jobs are done, with finish abort.  Durable jobs stay in the journal, and their listeners
 * get an error that reports it. */
void jobs_end(struct jobs *j, int64_t now);

/* Return the owner's jobs as an array of maps, newest first, at most max. */
json_t *jobs_table(const struct jobs *j, const char *owner, size_t max, int64_t now);
/* Return at most max jobs for the live page: unfinished jobs (oldest first), then the jobs that ended last,
 * for which a fifth of max is reserved.  Only jobs without an owner and jobs of API keys, with the key's name
 * as `owner`. */
json_t *jobs_now(const struct jobs *j, size_t max, int64_t now);
/* Explain where the job's time went.  live: the engine's timeline of an unfinished job; NULL: none. */
json_t *jobs_explain(const struct job *job, const struct timeline *live, int64_t now);
uint64_t job_number(const struct job *job); /* the engine's id of the job */
/* Return true if the engine will send no more events for the job. */
bool job_has_ended(const struct job *job);
struct jobs_counts {
	uint32_t n_queued, n_running, n_finished, n_listeners;
	size_t finished_bytes;
};
void jobs_counts(const struct jobs *j, struct jobs_counts *out);
void jobs_check(const struct jobs *j); /* asserts the invariants */

/* The functions below change rows of jobs in the journal within another module's operation (journal.h), by
 * owner and idempotency key.  owner "": none.  They return SQLITE_OK, or an SQLite code. */
struct journal_db;
/* Mark the unfinished jobs with keys PREFIX/... to end as soon as they are read again. */
int jobs_rows_cancel(struct journal_db *db, const char *owner, const char *prefix);
/* Delete a job that has ended. */
int jobs_rows_delete(struct journal_db *db, const char *owner, const char *key);
/* Call job for each unfinished job with a key PREFIX/...; job must not use db. */
void jobs_rows_each_unfinished(struct journal_db *db, const char *owner, const char *prefix,
			       void (*job)(void *user, const char *id), void *user);

#endif
