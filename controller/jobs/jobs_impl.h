/* jobs_impl.h - shared by jobs.c (the table), jobs_events.c (from the engine), jobs_listeners.c (to
 * listeners), jobs_durable.c (to the journal), jobs_recover.c (from the journal), jobs_explain.c and
 * jobs_trace.c (where the time went) and jobs_table.c (rows).  Private to them. */
#ifndef QUERN_CONTROLLER_JOBS_JOBS_IMPL_H
#define QUERN_CONTROLLER_JOBS_JOBS_IMPL_H

#include "base/err.h"
#include "controller/jobs/jobs.h"
#include "controller/jobs/journal.h"
#include "base/map.h"
#include "controller/jobs/output.h"

#include <stdlib.h>
#include <string.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_FAILED }; /* drawn in jobs.h */

/* A listener's position in one output: the start of its next delta. */
struct position {
	uint32_t token; /* next token */
	size_t text;    /* next byte; SIZE_MAX: where the text of `token` begins */
	bool end;       /* the delta with the finish reason was published */
};

/* A listener of a job. */
struct watch {
	struct listener l;
	struct job *job;
	struct watch *next; /* next watch of the same job */
	bool stream;
	bool again;           /* added by a later request with the job's key */
	struct position at[]; /* [n_returned] */
};

struct job_times {
	int64_t received_us;  /* clock_us(); 0: not known */
	int64_t submitted_us; /* clock_us() */
	int64_t accepted_unix_us;
	int64_t ended_us;          /* clock_us() when the engine ended it */
	int64_t finished_us;       /* clock_us() when its end was recorded */
	struct timeline *timeline; /* owned; NULL: not ended yet, or its end was read from the journal */
};

struct job_result {
	uint32_t completion_tokens, cached_tokens;
	int64_t queued_us, first_token_us, total_us;
	float *pooled; /* owned, [n_pooled]; NULL: not a pooled job, or no result yet */
	uint32_t n_pooled;
	enum code code;
	char why[256];
};

/* A durable job in the journal: jobs_durable.c. */
struct job_disk {
	bool durable;
	bool pending;          /* accepted by the engine, not on disk yet: JOB_ACCEPTED waits for both */
	bool resumed;          /* accepted in an earlier run of the controller */
	bool restarts;         /* a beam search: after a crash it restarts from its prompt */
	bool recording;        /* ended, and the end is being written to disk: JOB_DONE waits for it */
	bool recorded;         /* the end is on disk: memory may forget the job */
	bool unsaved;          /* in jobs->unsaved */
	bool numerics_unsaved; /* numerics is not in the journal yet */
	char *numerics;        /* owned: numerics class of its tokens; NULL: none, or not known */
	uint8_t body[16];      /* api_digest() of the request, if it has a key */
	struct buf request;    /* the request's record, until it is on disk */
	uint32_t *n_saved;     /* [n_outputs] tokens in the journal; SEQ_OVER: all of them, and the end */
	struct engine_event *ended; /* owned: end event that arrived while pending */
};

struct job {
	uint64_t number; /* the engine's id of the job */
	char id[JOBS_ID_SIZE];
	enum job_state state;
	bool keep;                     /* continues without listeners */
	bool cancelled;                /* ENGINE_CANCEL was sent */
	bool dirty;                    /* in jobs->dirty */
	bool of_http;                  /* its span is a child of an HTTP request's span */
	const char *operation;         /* static: "chat", "text_completion" or "embeddings" */
	struct trace_context trace;    /* owned */
	char *user, *key, *cache_salt; /* key: idempotency key */
	char *owner;                   /* the authenticated key that owns the job; NULL: none */
	uint64_t seed;
	uint32_t prompt_tokens;
	uint32_t max_tokens;
	char **stop; /* owned; rules.stop */
	uint32_t n_stop;
	struct output_rules rules;
	uint32_t n_returned; /* outputs that listeners receive */
	uint32_t n_outputs;  /* more than n_returned until the best are chosen; no deltas before that */
	struct output *outputs;
	bool hide_logprobs;       /* logprobs are computed to choose the best, not requested */
	bool has_constraint;      /* structured output: params.constraint is set */
	struct toklog prompt_log; /* logprobs of the prompt's tokens from 1 on */
	bool has_prompt_log, class_changed;
	bool service_ended; /* the service stopped and cut the job */
	struct watch *watches;
	uint32_t n_watches;
	struct job *same_key_hash;   /* chain of jobs->by_key */
	struct job *older, *younger; /* list of unfinished jobs by submission, or of finished jobs by their
				      * end */
	size_t bytes;                /* memory held once it has finished */
	struct job_times times;
	struct job_result result;
	struct job_disk disk;
};

struct list {
	struct job *oldest, *youngest;
	uint32_t n;
};

struct jobs {
	const struct service *svc;
	void (*send)(void *user, struct engine_cmd *c);
	void *user;
	uint64_t last_number;
	uint64_t hash_seed;
	struct map by_number;   /* unfinished: number -> job */
	struct map by_id;       /* first half of the id -> job */
	struct map by_key;      /* hash of the key -> chain of jobs */
	struct map by_listener; /* listener id -> watch */
	struct list unfinished;
	bool draining; /* new jobs are refused */
	struct list finished;
	size_t finished_bytes;
	struct job **dirty; /* jobs with news for their listeners */
	uint32_t n_dirty, dirty_cap;
	struct token_logprob *logprobs; /* scratch for events */
	size_t logprobs_cap;
	struct output_view *views; /* scratch, [PARAMS_N_MAX] */

	/* Durable jobs; NULL or 0 without a journal. */
	struct journal *journal;
	struct journal_db *reader; /* NULL: the journal's jobs have not been read */
	void (*written)(void *user, const char *id, bool end, int rc, const char *why);
	struct job **unsaved; /* jobs with tokens not yet in the journal */
	uint32_t n_unsaved, unsaved_cap;
	uint32_t n_unsaved_tokens;
	int64_t save_us;  /* latest time to save them; INT64_MAX: no tokens to save */
	int64_t sweep_us; /* time of the next sweep of the disk */
};

/* The key of jobs->by_id. */
static inline uint64_t job_id_key(const char *id)
{
	char half[17];
	memcpy(half, id, 16);
	half[16] = 0;
	return strtoull(half, NULL, 16);
}

/* Return the job with this id; NULL if it is not in memory. */
static inline struct job *jobs_in_memory(const struct jobs *j, const char *id)
{
	struct job *job = map_get(&j->by_id, job_id_key(id));
	return job && strcmp(job->id, id) == 0 ? job : NULL;
}

/* Return true if the outputs are still to be chosen: none is shown until the end. */
static inline bool job_is_choosing(const struct job *job)
{
	return job->n_outputs > job->n_returned;
}

/* jobs.c */
/* Make a job.  id NULL, number 0: drawn.  Takes names and stop strings of s. */
struct job *jobs_new_job(struct jobs *j, struct submit *s, const char *id, uint64_t number, int64_t now);
void jobs_send_submit(struct jobs *j, struct job *job, struct submit *s);
struct engine_cmd *jobs_command(enum engine_cmd_kind kind, const struct job *job);
/* End the outputs, record the end and publish it.  The only way into JOB_FINISHED and JOB_FAILED. */
void jobs_finish(struct jobs *j, struct job *job, enum job_state state, int64_t now);
/* Second half of jobs_finish(), run at once or when the end is on disk: send JOB_DONE or JOB_ERROR to the
 * listeners. */
void jobs_conclude(struct jobs *j, struct job *job, int64_t now);
/* Move an ended job from the unfinished to the finished jobs. */
void jobs_add_finished(struct jobs *j, struct job *job, int64_t finished_us);
/* Refuse a job that was never accepted: send JOB_ERROR, keep no record, free its key. */
void jobs_refuse(struct jobs *j, struct job *job, enum code code, const char *why);

/* jobs_events.c */
void jobs_accept(struct jobs *j, struct job *job);
void jobs_on_end(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now);

/* jobs_trace.c */
/* Send the spans of a finished job to the collector.  code: CODE_OK, or why it failed. */
void jobs_trace(struct jobs *j, const struct job *job, enum code code, const char *why, int64_t now);

/* jobs_listeners.c */
struct watch *jobs_add_listener(struct jobs *j, struct job *job, const struct listener *l, bool stream);
void jobs_remove_listener(struct jobs *j, struct watch *w);
void jobs_remove_listeners(struct jobs *j, struct job *job); /* all listeners of the job */
void jobs_publish_accepted(const struct watch *w);
/* Publish what an output has after the listener's position, if anything. */
void jobs_publish_delta(struct jobs *j, struct watch *w, const struct output *o);
void jobs_publish_deltas(struct jobs *j, struct job *job); /* all dirty outputs, to all listeners that
							    * stream */
void jobs_publish_end(struct jobs *j, const struct job *job, const struct listener *l);
/* Publish an error to all listeners.  id: the job's; NULL if clients do not know it. */
void jobs_publish_error(const struct job *job, const char *id, enum code code, const char *why);
void jobs_mark_dirty(struct jobs *j, struct job *job, struct output *o);
void jobs_flush(struct jobs *j); /* publish the deltas of all dirty jobs */

/* jobs_table.c */
json_t *jobs_row(const struct job *job, int64_t now);

/* Format of a job's records. */
enum {
	END_VERSION = 2,
	END_FIELDS = 13,   /* fields before the outputs */
	OUTPUT_ENDED = -1, /* tokens.first: the row is an ended output */
	JOB_CLASS = -2,    /* tokens.first: the row is the numerics class of the rows that follow */
	JOB_TRACE = -3,    /* tokens.first: the row is the job's trace; its output is OF_THE_JOB */
	OF_THE_JOB = -1,   /* tokens.output of a row that belongs to no output; a reader skips unknown rows */
};

/* jobs_durable.c */
/* Write "WHAT ID", the name with which a record of the job is sealed. */
void durable_name(char *out, size_t n, const char *what, const struct job *job);
/* Note that tokens came from a replica that reports this numerics class. */
void durable_class(struct job *job, const char *reported);
/* Return CODE_OK if a durable job can be accepted now, otherwise the error, with the reason. */
enum code durable_refuses(struct jobs *j, struct why *why);
/* Make the record of a new job, while its request still exists. */
void durable_begin(struct job *job, const struct submit *s, int64_t now);
/* Handle the engine's acceptance of the job. */
void durable_accept(struct jobs *j, struct job *job);
/* Note n_tokens more tokens that are not in the journal. */
void durable_mark(struct jobs *j, struct job *job, uint32_t n_tokens, int64_t now);
/* Write the end of the job to the journal.  Sets disk.recording unless the disk fails. */
void durable_end(struct jobs *j, struct job *job, int64_t now);
void durable_cancel(struct jobs *j, struct job *job);
/* Delete the row of a job that is refused while pending. */
void durable_retract(struct jobs *j, struct job *job);
void durable_sweep(struct jobs *j, int64_t now);
void durable_forget(struct jobs *j, struct job *job); /* remove the job from jobs->unsaved */

/* jobs_recover.c */
/* Read the journal if that was not possible before. */
void durable_recover_late(struct jobs *j, int64_t now);
/* Complete the submit command of a resumed job with the tokens of its outputs. */
void durable_resume(struct job *job, struct engine_cmd *c);
/* Read a finished job from disk into the table; NULL if it is not there. */
struct job *durable_find(struct jobs *j, const char *id);
struct job *durable_find_key(struct jobs *j, const char *key, const char *owner);
/* Append the rows of finished jobs that are not in memory, newest first. */
void durable_table(const struct jobs *j, json_t *rows, const char *owner, size_t max);

#endif
