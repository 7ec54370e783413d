/* engine.h - the engine thread: workers, replicas, schedulers; plan, send, receive, apply.
 * Commands come in and events go out as owned messages over inproc sockets: one frame holds
 * one pointer, and whoever receives it owns what it points at.
 *
 *   ENGINE_IN   (PULL, bound by the engine)      struct engine_cmd *
 *   ENGINE_OUT  (PULL, bound by the front end)   struct engine_event *
 *
 * For every ENGINE_SUBMIT there is one ENGINE_ACCEPTED or one ENGINE_REFUSED.  After ACCEPTED
 * come ENGINE_TOKENS, one ENGINE_OUTPUT_DONE per output, then one ENGINE_JOB_DONE; or one
 * ENGINE_JOB_FAILED at any point, which ends the job. */
#ifndef QUERN_CONTROLLER_ENGINE_H
#define QUERN_CONTROLLER_ENGINE_H

#include "controller/blocks.h"
#include "proto/codes.h"
#include "proto/params.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_IN "inproc://engine-in"
#define ENGINE_OUT "inproc://engine-out"

enum engine_cmd_kind {
	ENGINE_SUBMIT,          /* job, tokens, params, deadline_us */
	ENGINE_STOP,            /* job, index: the front end found a stop string; that output is over */
	ENGINE_CANCEL,          /* job: all its outputs are over (finish abort) */
	ENGINE_STATUS,          /* answered by ENGINE_STATUS_REPLY with the same tag; n_cells */
	ENGINE_SCALE,           /* tag, n_replicas, devices: answered by ENGINE_ORDER_DONE when so many serve */
	ENGINE_DRAIN,           /* tag, worker: likewise, when its jobs have moved and it has ended */
	ENGINE_QUIT,            /* tell the workers to stop, end the thread */
};

struct engine_cmd {
	enum engine_cmd_kind kind;
	uint64_t job;           /* the front end's number of the job, never used twice */
	uint32_t index;
	uint64_t tag;
	uint32_t n_cells;       /* of each replica's maps of blocks, 0: none are made */
	uint32_t *tokens;       /* owned: the prompt */
	uint32_t n_tokens;
	struct params params;   /* owned.  max_tokens has been cut to the context by the front end */
	int64_t deadline_us;    /* clock_us() after which the job fails with E_DEADLINE; 0: none */
	int32_t priority;       /* lower runs first */
	uint64_t user;          /* whose share it is served from */
	uint32_t share;         /* its size; 0 is 1 */
	uint64_t salt;          /* prefixes are shared only with the same */
	bool durable;           /* waits for a worker for as long as it takes */
	/* A job from before a crash: it was accepted, so that no bound of the queue refuses it.  What
	 * its outputs have already stands here, one after another; they go on behind it. */
	bool resumed;
	uint32_t *had;          /* owned */
	char *numerics;         /* owned: the numerics class that chose them; NULL: not known */
	uint32_t *n_had;        /* [params.n] owned, or NULL: nothing (always of a beam search); SEQ_OVER: that output has ended */
	uint32_t n_replicas;    /* SCALE */
	char (*devices)[32];    /* SCALE; owned: [n_devices] where new workers run; none: as at the start */
	uint32_t n_devices;
	double memory_fraction; /* SCALE: of its device, for each new worker; 0: as at the start */
	uint64_t worker;        /* DRAIN: engine_worker.id */
	int64_t wait_us;        /* SCALE, DRAIN: how long it may take; 0: 10 minutes */
};
#define SEQ_OVER UINT32_MAX

enum engine_event_kind {
	ENGINE_ACCEPTED,
	ENGINE_REFUSED,         /* code, why */
	ENGINE_TOKENS,          /* tokens: of any jobs, in the order in which they were chosen */
	ENGINE_PROMPT_LOGPROBS, /* job, tokens: logprobs of prompt tokens 1.., ascending, all at once */
	ENGINE_OUTPUT_DONE,     /* job, index, finish, stop_token */
	ENGINE_JOB_DONE,        /* job, cached_tokens, queued_us, first_token_us, total_us */
	ENGINE_JOB_FAILED,      /* job, code, why */
	ENGINE_STATE,           /* state: sent at start and whenever readiness changes */
	ENGINE_STATUS_REPLY,    /* tag, status */
	ENGINE_ORDER_DONE,      /* tag; code (CODE_OK: it is as was asked for), why */
};

struct engine_token {
	uint64_t job;
	uint32_t index;         /* output */
	uint32_t token;
	float logprob;          /* valid where the job asked for logprobs */
	uint32_t rank;          /* 0: no logprobs */
	uint32_t n_top;
	uint32_t top0;          /* first of its entries in top_ids, top_logprobs */
	bool stop;              /* the stop token that ends the output: counted, but no text */
};

struct engine_worker {
	uint64_t id;
	uint64_t replica;       /* engine_replica.id of the group that it belongs to; 0: none, it waits */
	uint32_t rank;          /* in that group */
	char host[128];
	int64_t pid;
	char device[32];
	char device_name[64];
	char isa[32];
	char state[16];         /* "joining" (waits for work), "loading", "serving", "draining", "lost" */
	uint32_t progress;      /* permille while loading */
	uint32_t n_blocks, n_host_blocks;
	uint64_t weights_bytes, kv_bytes;   /* on the device */
	uint64_t stored_bytes;  /* of those weights, in the model's files */
	uint64_t scratch_bytes; /* all else of the worker on the device */
	uint64_t host_bytes;    /* its host pool */
	uint64_t device_used, device_bytes; /* of the device's memory, by anybody; all of it */
	uint64_t steps;         /* results so far */
	uint32_t step_us;       /* device time of the last step */
	uint32_t n_threads;
};

enum { ENGINE_WORKERS_MAX = 64, ENGINE_REPLICAS_MAX = 64 };

/* A group of tp workers that serves the whole model. */
struct engine_replica {
	uint64_t id;            /* never used twice */
	char state[16];         /* "loading", "serving", "draining" */
	uint32_t tp;            /* workers, one rank each */
	char numerics[256];     /* its numerics class; "" while it loads */
	uint32_t n_workers;
	uint64_t workers[ENGINE_WORKERS_MAX];   /* engine_worker.id, by rank */
	uint32_t max_context;   /* the longest sequence that it takes; 0 while it loads */
	uint32_t n_running, n_waiting, n_swapped;   /* sequences */
	uint64_t queued_tokens;
	uint32_t n_blocks, n_free, n_cached, n_held;
	uint32_t n_host_blocks, n_host_free;
	uint64_t n_preempted, n_swapped_out;
	uint64_t prefix_queries, prefix_hits;
	uint64_t prompt_tokens, generated_tokens;
	uint64_t n_steps;
	double step_us_mean;
	double prompt_tps, decode_tps;
	struct blocks_cell *map, *host_map;         /* [n_map], [n_host_map] owned; where asked for */
	uint32_t n_map, n_host_map;
};

/* What is not said to be of a replica is the sum over all of them. */
struct engine_status {
	bool ready;             /* a replica can serve */
	uint32_t max_context;   /* what a job may hold: the model's, or what the largest pool holds */
	uint32_t n_running, n_waiting, n_swapped;   /* sequences */
	uint64_t queued_tokens;
	uint32_t block_size, n_blocks, n_free, n_cached, n_held;
	uint32_t n_host_blocks, n_host_free;
	uint64_t n_preempted;   /* since start */
	uint64_t n_swapped_out; /* of those, by swapping */
	uint64_t prefix_queries, prefix_hits;       /* prompt tokens looked up, found; since start */
	uint64_t prompt_tokens, generated_tokens;   /* since start */
	uint64_t n_steps;
	double step_us_mean;    /* device time, moving average; of all replicas: by their steps */
	double prompt_tps, decode_tps;              /* tokens per second over the last seconds */
	char note[256];         /* what an operator should know: why workers stand idle, or jobs wait; "" */
	uint32_t n_replicas;
	struct engine_replica replicas[ENGINE_REPLICAS_MAX];
	uint32_t n_workers;
	struct engine_worker workers[ENGINE_WORKERS_MAX];
};

void engine_status_free(struct engine_status *s);   /* NULL is fine */

struct engine_event {
	struct emit_home *home; /* where it goes back to when it is freed (emit.c); NULL: nowhere */
	struct engine_event *next_spare; /* emit.c's: spare, or not sent yet */
	uint32_t cap_tokens, cap_tops;  /* of an event that has a home */
	enum engine_event_kind kind;
	uint64_t job;
	uint32_t index;
	uint64_t tag;
	enum finish finish;
	int64_t stop_token;     /* the stop token that ended the output, the last of its TOKENS; -1: none */
	enum code code;
	char why[256];
	char numerics[256];             /* TOKENS: class of the replica that chose them, all of them */
	struct engine_token *tokens;    /* owned */
	uint32_t n_tokens;
	uint32_t *top_ids;              /* owned */
	float *top_logprobs;            /* owned */
	uint32_t cached_tokens;
	bool class_changed;             /* JOB_DONE: it went on in another numerics class (--allow-class-change) */
	int64_t queued_us, first_token_us, total_us;
	bool ready;                     /* STATE */
	uint32_t max_context;           /* STATE: what a job may hold */
	struct engine_status *status;   /* owned */
};

void engine_cmd_free(struct engine_cmd *c);         /* NULL is fine */
void engine_event_free(struct engine_event *e);

struct metrics;

/* How full the queue is, for those who would rather not ask: written by the engine's thread. */
struct engine_load {
	atomic_uint n_queued; /* jobs that have not begun */
	atomic_uint_fast64_t queued_tokens; /* of their prompts */
};
struct zap;

enum engine_notice_kind {
	ENGINE_NOTICE_READY,    /* a replica serves, for the first time or again */
	ENGINE_NOTICE_UNREADY,  /* none does any more: why */
	ENGINE_NOTICE_FAILED,   /* a worker says that it cannot serve: why */
	ENGINE_NOTICE_LOST,     /* pid: this worker of this host was given up, and may hang */
	ENGINE_NOTICE_SCALE,    /* n_workers: run so many on this host, on these devices (none: as at the start) */
	ENGINE_NOTICE_RETIRE,   /* pid: this worker of this host ends on purpose */
	ENGINE_NOTICE_KEEP,     /* pids: a scale is carried out with these, and no others of this host */
};

/* What concerns whoever started us; borrowed during the call. */
struct engine_notice {
	enum engine_notice_kind kind;
	const char *why;
	int64_t pid;
	uint32_t n_workers;
	const char (*devices)[32];
	uint32_t n_devices;
	double memory_fraction; /* SCALE: of its device, for each new one; 0: as at the start */
	const int64_t *pids;    /* KEEP: [n_pids]; some may be of other hosts */
	uint32_t n_pids;
};

struct engine_config {
	char model[2048];       /* directory, as workers see it */
	char bus[256];          /* endpoint to bind */
	struct zap *zap;        /* who may join the bus (zap.h); NULL: whoever reaches it.  Borrowed */
	char compute[8];
	bool fast;              /* bits may depend on the batch where that is faster */
	uint32_t n_vocab;
	uint32_t model_context; /* the model's, or less by option */
	uint32_t block_size;    /* 16 */
	uint32_t max_seqs;      /* sequences in a step, 256 */
	uint32_t max_rows;      /* token budget of a step, 2048 */
	uint32_t chunk;         /* largest part of a prompt in a step; 0: the budget allows */
	int64_t step_us;        /* how long prompts may make a step, about; 0: the budget allows */
	bool prefill_separate;  /* prompts in steps of their own */
	bool no_prefix_cache;
	char preempt[16];       /* "auto", "swap", "recompute" */
	uint64_t kv_bytes;      /* 0: the worker chooses */
	uint64_t swap_bytes;
	uint32_t n_threads;
	struct engine_load *load;       /* kept up to date; NULL: none */
	struct metrics *metrics;        /* tokens of each step; NULL: none are kept */
	uint64_t seed;          /* of hash tables, so that nobody outside can aim at them */
	uint32_t max_jobs;      /* queued, 4096 */
	uint64_t max_tokens;    /* queued, 8 million */
	int64_t worker_wait_us; /* how long jobs wait when no worker serves, then E_WORKER_LOST */
	uint32_t tp;            /* workers of a replica; 0: 1 */
	bool class_change;      /* a job that has begun may go on in another numerics class */
	int64_t silent_us;      /* a worker is lost when nothing comes from it for so long; 0: 2 s, -1: never */
	int64_t stuck_us;       /* likewise when it beats, but does not get on with a step; 0: 120 s, -1: never */
	/* There is somebody who starts and ends workers of this host when he is told so (on_notice). */
	bool supervised;
	/* Called on the engine's thread; must not block.  May be NULL. */
	void (*on_notice)(void *user, const struct engine_notice *n);
	void *on_notice_user;
};

struct engine;

/* Binds the bus and ENGINE_IN, connects to ENGINE_OUT (bound already), starts the thread. */
int engine_start(void *zmq_context, const struct engine_config *cfg, struct engine **out, char *why,
		 size_t why_n);
/* The bus's endpoint, with the port that was chosen where the configuration said *. */
const char *engine_bus(const struct engine *e);
/* After ENGINE_QUIT was sent: waits for the thread. */
void engine_join(struct engine *e);

#endif
