/* front.h - the front end: the table of jobs, detokenizing and stop strings, who listens.
 * Owns: every job from its request until it is swept; the job socket.  One thread.
 * HTTP threads and the job socket hand it validated requests (struct submit) and listen to
 * events; it talks to the engine by messages (engine.h). */
#ifndef QUERN_CONTROLLER_FRONT_H
#define QUERN_CONTROLLER_FRONT_H

#include "controller/chat.h"
#include "controller/engine.h"
#include "controller/tokenizer.h"
#include "controller/tools.h"
#include "formats/config.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front;
struct zap;
struct metrics;
struct journal;

/* What the front end and HTTP know of the service; lives as long as they do, immutable. */
struct service {
	const struct tokenizer *tokenizer;
	const struct model_config *config;
	const struct chat *chat;        /* the model's chat style; NULL with the reason in chat_why */
	char chat_why[256];
	enum tools_style tools;         /* how the model calls tools; TOOLS_NONE: not known */
	bool thoughts;                  /* its outputs may begin with <think> */
	bool thoughts_open;             /* they begin within a thought, whatever the prompt says */
	bool marks_special;             /* marks of these are special tokens */
	char model_name[256];           /* as /v1/models shows it */
	int64_t started_unix;
	uint32_t model_context;
	uint32_t max_request_bytes;     /* 16 MB */
	int64_t keep_finished_us;       /* how long a finished job can still be asked for */
	uint32_t max_finished;          /* and how many of them */
	int64_t keep_durable_us;        /* the same of durable ones, on the disk */
	struct journal *journal;        /* of durable jobs, for its health; NULL: none */
	int64_t journal_bytes;          /* beyond, the oldest finished ones are forgotten first */
	bool strict;                    /* HTTP: refuse unknown fields */
	const struct engine_load *load; /* the queue, and its bounds; NULL: not known */
	uint32_t max_queued_jobs;
	uint64_t max_queued_tokens;
	struct metrics *metrics;        /* metrics.h; NULL: none are kept */
};

/* Whether the queue is full, and what to say then: E_OVERLOADED.  A look at two numbers, from any
 * thread, so that who is refused costs next to nothing; the engine decides again. */
bool service_full(const struct service *svc, char *why, size_t why_n);

/* A validated request.  Owned; handed over by front_submit(). */
struct submit {
	uint32_t *tokens;               /* the prompt's */
	uint32_t n_tokens;
	struct params params;
	uint32_t best_of;               /* sampled, of which the params.n likeliest are returned; 0: params.n */
	char **stop;                    /* stop strings, owned */
	uint32_t n_stop;
	bool include_stop;              /* include_stop_str_in_output */
	bool skip_special;              /* skip_special_tokens, true */
	bool stream;                    /* the listener wants DELTAs */
	bool keep;                      /* goes on when nobody listens any more */
	bool durable;                   /* accepted when it is on the disk, survives the controller */
	uint8_t body[16];               /* with a key: digest of what was asked, api_digest() */
	int64_t deadline_us;            /* clock_us(), 0: none */
	char *user, *key;               /* owned or NULL */
	char *owner;                    /* owned or NULL: the authenticated key that it belongs to */
	char *cache_salt;               /* owned or NULL: prefixes are shared only with the same salt */
	int32_t priority;               /* lower runs first */
	uint32_t share;                 /* of the user, against others; 0 is 1 */
};
void submit_free(struct submit *s);     /* NULL is fine */

struct logprob_top {
	uint32_t token;
	float logprob;
};
struct token_logprob {
	uint32_t token;
	float logprob;
	uint32_t rank;
	uint32_t n_top;
	const struct logprob_top *top;  /* most likely first */
};

/* One output of a job, as listeners see it.  Borrowed during the call. */
struct output_view {
	uint32_t index;
	const char *text;
	size_t text_n;
	const uint32_t *tokens;
	uint32_t n_tokens;
	const struct token_logprob *logprobs;   /* [n_tokens] or NULL */
	enum finish finish;
	int64_t stop_token;             /* that ended it: the last of tokens; -1: none */
	const char *stop_string;        /* the one that matched, or NULL */
	double cumulative_logprob;      /* NaN unless logprobs were asked for, or outputs chosen by it */
};

enum job_event_kind { JOB_ACCEPTED, JOB_DELTA, JOB_DONE, JOB_ERROR };

struct job_event {
	enum job_event_kind kind;
	const char *job;                /* public id, cannot be guessed; NULL in an error without a job */
	uint32_t prompt_tokens;
	/* JOB_DELTA: what is new of one output.  offset: index of its first token in the output.
	 * The text of a delta may be empty (half a character, or a possible stop string, is held
	 * back); finish is set in the output's last delta. */
	uint32_t offset;
	struct output_view delta;
	/* JOB_DONE: all of it. */
	const struct output_view *outputs;
	uint32_t n_outputs;
	const struct token_logprob *prompt_logprobs;    /* [prompt_tokens - 1] of tokens 1.., or NULL */
	uint32_t completion_tokens, cached_tokens;
	bool class_changed;             /* engine.h */
	int64_t queued_us, first_token_us, total_us;
	/* JOB_ERROR */
	enum code code;
	const char *why;
};

/* Called on the front end's thread; must not block.  After JOB_DONE or JOB_ERROR, or after
 * front_unlisten() has been carried out, it is not called again. `gone` (may be NULL) is called
 * exactly once, last: user may be freed then. */
struct listener {
	void (*event)(void *user, const struct job_event *e);
	void (*gone)(void *user);
	void *user;
	uint64_t id;                    /* chosen by front_listener_id(), unique */
};

uint64_t front_listener_id(struct front *f);                    /* any thread */
/* Any thread; takes *s.  The listener gets JOB_ACCEPTED or JOB_ERROR first. */
void front_submit(struct front *f, struct submit **s, const struct listener *l);
/* Any thread: the client has gone.  A job that nobody listens to and that is not kept is cancelled. */
void front_unlisten(struct front *f, uint64_t listener_id);
/* Any thread, at once, without asking the front end's thread. */
bool front_ready(const struct front *f);                        /* a replica can serve */
uint32_t front_max_context(const struct front *f);
/* Any thread: the engine's status; cb is called once on the front end's thread with a borrowed
 * status, or with NULL when the engine does not answer in time or the service ends. */
void front_status(struct front *f, void (*cb)(void *user, const struct engine_status *s), void *user);

/* Any thread: an order to the engine (ENGINE_SCALE, ENGINE_DRAIN); takes *c, whose tag is ours.  cb
 * is called once on the front end's thread, however long it takes, with CODE_OK or the reason. */
void front_order(struct front *f, struct engine_cmd **c,
		 void (*cb)(void *user, enum code code, const char *why), void *user);

/* What live.h shows. */
struct front_snapshot {
	struct engine_status *status;   /* owned; NULL: the engine did not answer in time, or the service ends */
	json_t *jobs;                   /* owned: rows of jobs_now(); NULL: none were asked for */
	uint32_t n_queued, n_running, n_finished;       /* jobs */
};
/* Any thread: the status, with maps of so many cells, and at most so many rows of jobs.  cb is
 * called once on the front end's thread, and may take what is owned by setting it to NULL. */
void front_snapshot(struct front *f, uint32_t n_cells, uint32_t max_jobs,
		    void (*cb)(void *user, struct front_snapshot *s), void *user);
/* Any thread: ends a job as jobs_cancel() does, whoever listens to it, but for jobs of the job socket's
 * keys; owner: only one of this user (NULL: any).  cb (NULL: it does not matter) is called once on the
 * front end's thread: CODE_OK, E_NO_SUCH_JOB, or E_INTERNAL when the service ends. */
void front_cancel(struct front *f, const char *job, const char *owner,
		  void (*cb)(void *user, enum code code), void *user);

struct front_config {
	char jobs[256];                 /* job socket endpoint to bind; "" for none */
	struct journal *journal;        /* of durable jobs, or NULL; outlives the front end */
	bool insecure;
	struct zap *zap;                /* who may use it; NULL: whoever reaches it.  Borrowed */
};
/* Binds ENGINE_OUT and the job socket, starts the thread. */
int front_start(void *zmq_context, const struct service *svc, const struct front_config *cfg,
		struct front **out, char *why, size_t why_n);
/* Connects to ENGINE_IN, which is bound by now: called once, after engine_start(). */
void front_connect(struct front *f);
const char *front_jobs_endpoint(const struct front *f);        /* with the port that was chosen */
/* Cancels what runs, tells listeners, ends the thread.  The engine is stopped by the caller afterwards... */
void front_stop(struct front *f);
/* ... and has ended by now: what it said meanwhile is freed, too.  NULL is fine. */
void front_free(struct front *f);

#endif
