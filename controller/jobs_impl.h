/* jobs_impl.h - what jobs.c (the table, listeners), jobs_durable.c (to the journal), jobs_recover.c (out of
 * it) and jobs_table.c (rows) share.  For these only. */
#ifndef QUERN_CONTROLLER_JOBS_IMPL_H
#define QUERN_CONTROLLER_JOBS_IMPL_H

#include "controller/jobs.h"
#include "controller/journal.h"
#include "controller/map.h"
#include "controller/output.h"

#include <stdlib.h>
#include <string.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_FAILED };

/* How far a listener has been told of one output. */
struct told {
	uint32_t token; /* next token */
	size_t text;    /* next byte; SIZE_MAX: where that token's text begins */
	bool end;       /* the delta with finish was sent */
};

struct watch {
	struct listener l;
	struct job *job;
	struct watch *next; /* of the same job */
	bool stream;
	struct told told[]; /* [n_told] */
};

struct job {
	uint64_t number; /* the engine's name for it */
	char id[JOBS_ID_SIZE];
	enum job_state state;
	bool keep;      /* goes on without listeners */
	bool cancelled; /* ENGINE_CANCEL was sent */
	bool dirty;     /* in jobs->dirty */
	char *user, *key, *cache_salt;
	char *owner; /* the authenticated key that it belongs to; NULL: nobody in particular */
	uint64_t seed;
	uint32_t prompt_tokens;
	uint32_t max_tokens;
	char **stop; /* owned; rules.stop */
	uint32_t n_stop;
	struct output_rules rules;
	uint32_t n_told;    /* outputs that listeners know of */
	uint32_t n_outputs; /* more than n_told while the best of them are not chosen: then nothing is told */
	struct output *outputs;
	bool private;             /* the tokens' log-probabilities are here, though nobody asked for them */
	struct toklog prompt_log; /* logprobs of the prompt's tokens 1.. */
	bool has_prompt_log, class_changed;
	struct watch *watches;
	uint32_t n_watches;
	struct job *same_key_hash;   /* chain of jobs->by_key */
	struct job *older, *younger; /* all jobs by submission, or finished ones by their end */
	int64_t submitted_us;        /* clock_us() */
	int64_t finished_us;
	size_t bytes; /* once finished: what it keeps */

	/* The end. */
	uint32_t completion_tokens, cached_tokens;
	int64_t queued_us, first_token_us, total_us;
	enum code code;
	char why[256];

	/* Durable: jobs_durable.c. */
	bool durable;
	bool settling;      /* accepted by the engine, not on the disk yet: listeners wait for both */
	bool resumed;       /* from before the controller's start: not told again that it is accepted */
	bool anew;          /* a beam search: after a crash it begins anew */
	bool recording;     /* it has ended, and its end is on its way to the disk: listeners wait for that */
	bool recorded;      /* once finished: its end is on the disk, memory may forget it */
	bool unsaved;       /* in jobs->unsaved */
	uint8_t body[16];   /* digest of what was asked, where there is a key */
	struct buf request; /* its record, until it is on the disk */
	int64_t accepted_unix_us;
	uint32_t *n_saved;          /* [n_outputs] tokens in the journal; SEQ_OVER: with its end */
	char *numerics;             /* owned: class of the tokens that it has; NULL: none, or not known */
	bool numerics_unsaved;      /* the journal has not that class */
	struct engine_event *ended; /* owned: the end came while it was settling */
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
	struct list finished;
	size_t finished_bytes;
	struct job **dirty; /* jobs with news for their listeners */
	uint32_t n_dirty, dirty_cap;
	struct token_logprob *logprobs; /* scratch for what listeners see */
	size_t logprobs_cap;
	struct output_view *views; /* scratch, [PARAMS_N_MAX] */

	/* Durable; NULL, 0 without a journal. */
	struct journal *journal;
	struct journal_db *reader;
	void (*settled)(void *user, const char *id, bool end, int rc, const char *why);
	struct job **unsaved; /* jobs with tokens that the journal has not */
	uint32_t n_unsaved, unsaved_cap;
	uint32_t n_unsaved_tokens;
	int64_t save_us;  /* when they are to be saved at the latest; INT64_MAX: none */
	int64_t sweep_us; /* when the disk is swept next */
};

/* What jobs->by_id is by. */
static inline uint64_t job_id_key(const char *id)
{
	char half[17];
	memcpy(half, id, 16);
	half[16] = 0;
	return strtoull(half, NULL, 16);
}

/* Of that id, among those in memory; NULL: none. */
static inline struct job *jobs_in_memory(const struct jobs *j, const char *id)
{
	struct job *job = map_get(&j->by_id, job_id_key(id));
	return job && strcmp(job->id, id) == 0 ? job : NULL;
}

/* jobs.c */
struct job *jobs_new_job(struct jobs *j, struct submit *s, const char *id, uint64_t number, int64_t now);
void jobs_send_submit(struct jobs *j, struct job *job, struct submit *s);
struct engine_cmd *jobs_command(enum engine_cmd_kind kind, const struct job *job);
void jobs_finish(struct jobs *j, struct job *job, enum job_state state, int64_t now);
void jobs_told(struct jobs *j, struct job *job, int64_t now); /* the end of one that has ended, to its listeners */
void jobs_end_of(struct jobs *j, struct job *job, const struct engine_event *e, int64_t now);
void jobs_accept(struct jobs *j, struct job *job);
void jobs_refuse(struct jobs *j, struct job *job, enum code code, const char *why);
/* A job from the journal that has ended: among the finished ones from now on. */
void jobs_file(struct jobs *j, struct job *job, int64_t finished_us);
void jobs_drop(struct jobs *j, struct job *job); /* out of every table, its listeners gone */

/* jobs_table.c */
json_t *jobs_row(const struct job *job, int64_t now);

/* What a job's records are like. */
enum {
	END_VERSION = 1,
	END_FIELDS = 13,   /* and the outputs */
	OUTPUT_ENDED = -1, /* tokens.first of an output that has ended */
	JOB_CLASS = -2,    /* and of what is no tokens, but the numerics class of those that follow */
};

/* jobs_durable.c */
/* "WHAT ID": what a record of the job is sealed with. */
void durable_name(char *out, size_t n, const char *what, const struct job *job);
/* Tokens of it have come from a replica of this numerics class. */
void durable_class(struct job *job, const char *numerics);
/* Whether a durable job can be taken now: 0, or the code and why it is refused with. */
enum code durable_refuses(struct jobs *j, char *why, size_t why_n);
/* A new job: its record is made while the request is still there. */
void durable_begin(struct job *job, const struct submit *s, int64_t now);
/* The engine has accepted it. */
void durable_accept(struct jobs *j, struct job *job);
/* It has tokens that the journal has not. */
void durable_mark(struct jobs *j, struct job *job, uint32_t n_tokens, int64_t now);
/* It has ended: the end goes to the journal; recording: listeners are told when it is there. */
void durable_end(struct jobs *j, struct job *job, int64_t now);
void durable_cancel(struct jobs *j, struct job *job);
/* It is refused while it is on its way to the disk: no trace of it stays. */
void durable_retract(struct jobs *j, struct job *job);
void durable_sweep(struct jobs *j, int64_t now);
void durable_forget(struct jobs *j, struct job *job); /* out of jobs->unsaved; frees what is ours */

/* jobs_recover.c */
/* The submit of a job from before a crash: with what its outputs have. */
void durable_resume(struct job *job, struct engine_cmd *c);
/* From the disk, into the finished ones; NULL: not there. */
struct job *durable_find(struct jobs *j, const char *id);
struct job *durable_find_key(struct jobs *j, const char *key, const char *owner);
/* Rows of finished jobs that are not in memory, youngest first. */
void durable_table(const struct jobs *j, json_t *rows, const char *owner, size_t max);

#endif
