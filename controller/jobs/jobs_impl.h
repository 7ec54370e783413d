/* jobs_impl.h - what jobs.c (the table), jobs_events.c (from the engine), jobs_listeners.c (to listeners),
 * jobs_durable.c (into the journal), jobs_explain.c and jobs_trace.c (where the time went), jobs_recover.c
 * (out of it) and jobs_table.c (rows) share.  For these only. */
#ifndef QUERN_CONTROLLER_JOBS_JOBS_IMPL_H
#define QUERN_CONTROLLER_JOBS_JOBS_IMPL_H

#include "controller/jobs/jobs.h"
#include "controller/jobs/journal.h"
#include "base/map.h"
#include "controller/jobs/output.h"

#include <stdlib.h>
#include <string.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_FAILED }; /* jobs.h draws them */

/* A listener's position in one output: where its next delta begins. */
struct position {
	uint32_t token; /* next token */
	size_t text;    /* next byte; SIZE_MAX: where that token's text begins */
	bool end;       /* the delta with finish was published */
};

/* A listener of a job. */ struct watch {
	struct listener l;
	struct job *job;
	struct watch *next; /* of the same job */
	bool stream;
	bool again;           /* of a later request with the job's key */
	struct position at[]; /* [n_returned] */
};

struct job {
	uint64_t number; /* the engine's id of it */
	char id[JOBS_ID_SIZE];
	enum job_state state;
	bool keep;                     /* continues without listeners */
	bool cancelled;                /* ENGINE_CANCEL was sent */
	bool dirty;                    /* in jobs->dirty */
	bool of_http;                  /* its span is in that of an HTTP request */
	const char *operation;         /* static: "chat", "text_completion" or "embeddings" */
	struct trace_context trace;    /* owned */
	char *user, *key, *cache_salt; /* key: idempotency key */
	char *owner;                   /* the authenticated key that it belongs to; NULL: none */
	uint64_t seed;
	uint32_t prompt_tokens;
	uint32_t max_tokens;
	char **stop; /* owned; rules.stop */
	uint32_t n_stop;
	struct output_rules rules;
	uint32_t n_returned; /* outputs that listeners get */
	uint32_t n_outputs;  /* more than n_returned until the best are chosen: no deltas before */
	struct output *outputs;
	bool hide_logprobs;       /* kept to choose by, not requested */
	bool has_form;            /* its outputs must look like something: params.form */
	struct toklog prompt_log; /* logprobs of the prompt's tokens 1.. */
	bool has_prompt_log, class_changed;
	bool service_ended; /* which cut it */
	float *pooled;      /* owned, [n_pooled]; NULL: it is not pooled, or not yet */
	uint32_t n_pooled;
	struct watch *watches;
	uint32_t n_watches;
	struct job *same_key_hash;   /* chain of jobs->by_key */
	struct job *older, *younger; /* all jobs by submission, or finished ones by their end */
	int64_t received_us;         /* clock_us(); 0: not known */
	int64_t submitted_us;        /* clock_us() */
	int64_t accepted_unix_us;
	int64_t ended_us;       /* the engine had ended it */
	int64_t finished_us;    /* and its end was recorded */
	struct timeline *times; /* owned; NULL: it has not ended, or its end is of the journal */
	size_t bytes;           /* once finished: memory that it holds */

	/* The end. */
	uint32_t completion_tokens, cached_tokens;
	int64_t queued_us, first_token_us, total_us;
	enum code code;
	char why[256];

	/* Durable: jobs_durable.c. */
	bool durable;
	bool settling;         /* accepted by the engine, not on the disk yet: JOB_ACCEPTED waits for both */
	bool resumed;          /* accepted in an earlier life of the controller */
	bool restarts;         /* a beam search: after a crash it starts from its prompt again */
	bool recording;        /* ended, and the end is on its way to the disk: JOB_DONE waits for that */
	bool recorded;         /* the end is on the disk: memory may forget the job */
	bool unsaved;          /* in jobs->unsaved */
	uint8_t body[16];      /* api_digest() of the request, with a key */
	struct buf request;    /* the request's record, until it is on the disk */
	uint32_t *n_saved;     /* [n_outputs] tokens in the journal; SEQ_OVER: and their end */
	char *numerics;        /* owned: class of its tokens; NULL: none, or not known */
	bool numerics_unsaved; /* not in the journal yet */
	struct engine_event *ended; /* owned: the end, which came while it was settling */
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
	bool draining; /* no new jobs */
	struct list finished;
	size_t finished_bytes;
	struct job **dirty; /* jobs with something new for their listeners */
	uint32_t n_dirty, dirty_cap;
	struct token_logprob *logprobs; /* scratch for events */
	size_t logprobs_cap;
	struct output_view *views; /* scratch, [PARAMS_N_MAX] */

	/* Durable; NULL, 0 without a journal. */
	struct journal *journal;
	struct journal_db *reader; /* NULL: its jobs have not been read */
	void (*settled)(void *user, const char *id, bool end, int rc, const char *why);
	struct job **unsaved; /* jobs with tokens that are not in the journal */
	uint32_t n_unsaved, unsaved_cap;
	uint32_t n_unsaved_tokens;
	int64_t save_us;  /* when they are saved at the latest; INT64_MAX: none */
	int64_t sweep_us; /* when the disk is swept next */
};

/* The key of jobs->by_id. */
static inline uint64_t job_id_key(const char *id)
{
	char half[17];
	memcpy(half, id, 16);
	half[16] = 0;
	return strtoull(half, NULL, 16);
}

/* NULL: no such job in memory. */
static inline struct job *jobs_in_memory(const struct jobs *j, const char *id)
{
	struct job *job = map_get(&j->by_id, job_id_key(id));
	return job && strcmp(job->id, id) == 0 ? job : NULL;
}

/* Outputs are chosen at the end: until then none of them is shown. */
static inline bool job_is_choosing(const struct job *job)
{
	return job->n_outputs > job->n_returned;
}

/* jobs.c */
/* id NULL, number 0: drawn.  Takes names and stop strings of s. */
struct job *jobs_new_job(struct jobs *j, struct submit *s, const char *id, uint64_t number, int64_t now);
void jobs_send_submit(struct jobs *j, struct job *job, struct submit *s);
struct engine_cmd *jobs_command(enum engine_cmd_kind kind, const struct job *job);
/* The only way into JOB_FINISHED and JOB_FAILED: ends the outputs, records, publishes. */
void jobs_finish(struct jobs *j, struct job *job, enum job_state state, int64_t now);
/* The second half of it, at once or when the end is on the disk: JOB_DONE or JOB_ERROR to the listeners. */
void jobs_conclude(struct jobs *j, struct job *job, int64_t now);
/* An ended job moves from the unfinished to the finished ones. */
void jobs_add_finished(struct jobs *j, struct job *job, int64_t finished_us);
/* A job that was never accepted: JOB_ERROR, no record of it stays, its key is free again. */
void jobs_refuse(struct jobs *j, struct job *job, enum code code, const char *why);

/* jobs_events.c */
void jobs_accept(struct jobs *j, struct job *job);
void jobs_on_end(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now);

/* jobs_trace.c */
/* The job is over: its spans go to the collector.  code: CODE_OK, or why it failed. */
void jobs_trace(struct jobs *j, const struct job *job, enum code code, const char *why, int64_t now);

/* jobs_listeners.c */
struct watch *jobs_add_listener(struct jobs *j, struct job *job, const struct listener *l, bool stream);
void jobs_remove_listener(struct jobs *j, struct watch *w);
void jobs_remove_listeners(struct jobs *j, struct job *job); /* all of them */
void jobs_publish_accepted(const struct watch *w);
/* What one output has beyond the listener's position, if anything. */
void jobs_publish_delta(struct jobs *j, struct watch *w, const struct output *o);
void jobs_publish_deltas(struct jobs *j, struct job *job); /* of all dirty outputs, to all that stream */
void jobs_publish_end(struct jobs *j, const struct job *job, const struct listener *l);
/* To all listeners; id: the job's, or NULL where it is not known to clients. */
void jobs_publish_error(const struct job *job, const char *id, enum code code, const char *why);
void jobs_mark_dirty(struct jobs *j, struct job *job, struct output *o);
void jobs_flush(struct jobs *j); /* the deltas of all dirty jobs */

/* jobs_table.c */
json_t *jobs_row(const struct job *job, int64_t now);

/* The format of a job's records. */
enum {
	END_VERSION = 2,
	END_FIELDS = 13,   /* and the outputs */
	OUTPUT_ENDED = -1, /* tokens.first of an output that has ended */
	JOB_CLASS = -2,    /* tokens.first of the numerics class of the rows that follow */
	JOB_TRACE = -3,    /* tokens.first of the job's trace, with OF_THE_JOB for an output */
	OF_THE_JOB = -1, /* tokens.output of what belongs to no output: a reader passes over what it does not
			    know */
};

/* jobs_durable.c */
/* "WHAT ID": the name that a record of the job is sealed with. */
void durable_name(char *out, size_t n, const char *what, const struct job *job);
/* Tokens have come from a replica that reports this numerics class. */
void durable_class(struct job *job, const char *reported);
/* Whether a durable job can be accepted now: CODE_OK, or the error and its reason. */
enum code durable_refuses(struct jobs *j, char *why, size_t why_n);
/* A new job: its record is made while the request is still there. */
void durable_begin(struct job *job, const struct submit *s, int64_t now);
/* The engine has accepted it. */
void durable_accept(struct jobs *j, struct job *job);
/* n_tokens more are not in the journal. */
void durable_mark(struct jobs *j, struct job *job, uint32_t n_tokens, int64_t now);
/* It has ended: puts the end into the journal.  Sets job->recording unless the disk fails. */
void durable_end(struct jobs *j, struct job *job, int64_t now);
void durable_cancel(struct jobs *j, struct job *job);
/* Refused while it is settling: its row is deleted again. */
void durable_retract(struct jobs *j, struct job *job);
void durable_sweep(struct jobs *j, int64_t now);
void durable_forget(struct jobs *j, struct job *job); /* out of jobs->unsaved */

/* jobs_recover.c */
/* Reads the journal if that was not possible before. */
void durable_recover_late(struct jobs *j, int64_t now);
/* Completes the submit of a resumed job with the tokens of its outputs. */
void durable_resume(struct job *job, struct engine_cmd *c);
/* Reads a finished job from the disk into the table; NULL: not there. */
struct job *durable_find(struct jobs *j, const char *id);
struct job *durable_find_key(struct jobs *j, const char *key, const char *owner);
/* Rows of finished jobs that are not in memory, youngest first. */
void durable_table(const struct jobs *j, json_t *rows, const char *owner, size_t max);

#endif
