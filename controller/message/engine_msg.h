/* engine_msg.h - the messages between the engine thread and the rest of the controller.
 * Commands go in and events come out over inproc sockets.  A message is one frame that holds one pointer; the
 * receiver owns the command or event that it points to.
 *
 *   front end --struct engine_cmd *-->   ENGINE_IN  (PULL, bound by the engine)
 *   engine    --struct engine_event *--> ENGINE_OUT (PULL, bound by the front end)
 *
 * The events of a job, in order:
 *
 *   ENGINE_SUBMIT --> REFUSED
 *                 +-> ACCEPTED --> TOKENS, ... one OUTPUT_DONE per output --> JOB_DONE
 *                                  | POOLED, its OUTPUT_DONE --> JOB_DONE
 *                                  (or JOB_FAILED at any point, which ends the job) */
#ifndef QUERN_CONTROLLER_MESSAGE_ENGINE_MSG_H
#define QUERN_CONTROLLER_MESSAGE_ENGINE_MSG_H

#include "base/numerics.h"
#include "controller/sched/timeline.h"
#include "proto/codes.h"
#include "proto/counts.h"
#include "proto/params.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_IN  "inproc://engine-in"
#define ENGINE_OUT "inproc://engine-out"

enum engine_cmd_kind {
	ENGINE_SUBMIT,  /* job, tokens, params, deadline_us */
	ENGINE_STOP,    /* job, index: end this output, the front end found a stop string */
	ENGINE_CANCEL,  /* job: end all its outputs (finish abort) */
	ENGINE_EXPLAIN, /* tag, job: answered by ENGINE_EXPLAINED with the same tag */
	ENGINE_STATUS,  /* tag, n_cells: answered by ENGINE_STATUS_REPLY with the same tag */
	ENGINE_SCALE,   /* tag, n_replicas, devices: ENGINE_ORDER_DONE follows when n_replicas serve */
	ENGINE_DRAIN,  /* tag, worker: ENGINE_ORDER_DONE follows when its jobs have moved and it has exited */
	ENGINE_FORGET, /* tag: empty the prefix cache of every replica; ENGINE_ORDER_DONE follows */
	ENGINE_QUIT,   /* stop the workers and end the thread */
};

struct engine_cmd {
	enum engine_cmd_kind kind;
	uint64_t job; /* number of the job, chosen by the front end, never reused */
	uint32_t index;
	uint64_t tag;
	uint32_t n_cells; /* STATUS: cells of each replica's block maps; 0: no maps */
	uint32_t *tokens; /* owned: the prompt */
	uint32_t n_tokens;
	struct params params; /* owned; the front end has limited max_tokens to the context */
	int64_t deadline_us;  /* clock_us() after which the job fails with E_DEADLINE; 0: none */
	int32_t priority;     /* lower runs first */
	uint64_t account;     /* account charged in fair sharing; 0: none */
	uint64_t user;        /* user within the account */
	uint32_t share;       /* weight of the account; 0 counts as 1 */
	uint64_t salt;        /* prefix blocks are shared only between jobs of equal salt */
	bool durable;         /* waits for a worker without a time limit */
	/* The job was accepted before a crash: the queue's limits do not apply.  Generation continues after
	 * the tokens that its outputs had:
	 *   had = [ output 0: n_had[0] tokens | output 1: n_had[1] tokens | ... ] */
	bool resumed;
	uint32_t *had;       /* owned */
	int32_t *mus;        /* owned, [params.n] with params.mirostat: mu of each output after its tokens */
	char *numerics;      /* owned: numerics class that chose these tokens; NULL: unknown */
	uint32_t *n_had;     /* [params.n] owned; SEQ_OVER: the output has ended.  NULL: no tokens (always for
				beam search) */
	uint32_t n_replicas; /* SCALE */
	char (*devices)[32]; /* SCALE; owned: [n_devices] devices of new workers; none: as at start-up */
	uint32_t n_devices;
	double memory_fraction; /* SCALE: fraction of device memory per new worker; 0: as at start-up */
	uint64_t worker;        /* DRAIN: engine_worker.id */
	int64_t wait_us;        /* SCALE, DRAIN: time limit; 0: 10 minutes */
};
#define SEQ_OVER UINT32_MAX

enum engine_event_kind {
	ENGINE_ACCEPTED,
	ENGINE_REFUSED,         /* code, why */
	ENGINE_TOKENS,          /* tokens of any jobs, in the order of sampling */
	ENGINE_PROMPT_LOGPROBS, /* job, tokens: logprobs of prompt tokens 1.., ascending, in one event */
	ENGINE_POOLED,          /* job, values: of a pooled job (params.pool) */
	ENGINE_OUTPUT_DONE,     /* job, index, finish, stop_token */
	ENGINE_JOB_DONE,        /* job, cached_tokens, queued_us, first_token_us, total_us, times */
	ENGINE_JOB_FAILED,      /* job, code, why, times */
	ENGINE_STATE,           /* ready, max_context, full_kv_bytes: sent at start and on every change */
	ENGINE_WAITS,           /* why: the reason why a service that is not ready waits, on every change */
	ENGINE_STATUS_REPLY,    /* tag, status */
	ENGINE_EXPLAINED,       /* tag, times: NULL: the engine has no such job */
	ENGINE_ORDER_DONE, /* tag, code, why: the outcome of ENGINE_SCALE, ENGINE_DRAIN or ENGINE_FORGET */
};

struct engine_token {
	uint64_t job;
	uint32_t index; /* output of the job */
	uint32_t token;
	float logprob; /* valid if the job requested logprobs */
	uint32_t rank; /* 0: no logprobs */
	uint32_t n_top;
	uint32_t top0; /* index of its first entry in top_ids, top_logprobs */
	int32_t mu;    /* mu of its output after this token, if the job has mirostat */
	bool stop;     /* the stop token that ends the output: counted, but not part of the text */
};

struct engine_worker {
	uint64_t id;
	uint64_t replica; /* engine_replica.id of its replica; 0: unassigned */
	uint32_t rank;    /* rank within its replica */
	char host[128];
	int64_t pid;
	char device[32];
	char device_name[64];
	char isa[32];
	char state[16];    /* "joining" (unassigned), "loading", "serving", "draining", "lost" */
	uint32_t progress; /* permille while loading */
	char doing[16]; /* while loading: "waiting", "checking", "fetching" (the model), "loading"; else "" */
	uint32_t n_blocks, n_host_blocks;
	uint64_t weights_bytes, kv_bytes;   /* on the device */
	uint64_t stored_bytes;              /* bytes of those weights in the model's files */
	uint64_t scratch_bytes;             /* all other memory of the worker on the device */
	uint64_t host_bytes;                /* host pool for swapped blocks */
	uint64_t host_weights_bytes;        /* host experts (CPU offload) in host memory */
	uint64_t grammar_bytes;             /* compiled grammars and their masks in host memory, now */
	uint64_t device_used, device_bytes; /* device memory: in use by all processes, total */
	uint64_t steps;                     /* results so far */
	uint32_t step_us;                   /* device time of the last step */
	uint32_t n_threads;
};

enum { ENGINE_WORKERS_MAX = 64, ENGINE_REPLICAS_MAX = 64 };

/* A cell of a block map: n consecutive blocks of the pool.  Sequences hold `held` of them, only the prefix
 * cache holds `cached`, and the rest are free. */
struct engine_cell {
	uint32_t n, held, cached;
};

/* A group of tp workers that serves the whole model. */
struct engine_replica {
	uint64_t id;                 /* never reused */
	char state[16];              /* "loading", "serving", "draining" */
	uint32_t tp;                 /* workers, one rank each */
	char numerics[NUMERICS_MAX]; /* "" while loading */
	uint32_t n_workers;
	uint64_t workers[ENGINE_WORKERS_MAX]; /* [n_workers] engine_worker.id, by rank */
	uint32_t max_context;                 /* longest sequence that fits; 0 while loading */
	struct counts counts;
	struct engine_cell *map, *host_map; /* owned: [n_map], [n_host_map]; if n_cells was given */
	uint32_t n_map, n_host_map;
};

/* Rows of each expert of each layer of a mixture, over all workers; layers without experts have none. */
struct engine_experts {
	uint32_t n_layers, n_experts;
	uint64_t *rows; /* [n_layers][n_experts], owned; NULL: no rows were counted */
	bool listed;    /* --expert-metrics: /metrics lists each expert */
};

struct engine_status {
	bool ready;           /* a replica can serve */
	uint32_t max_context; /* longest job in tokens: the model's context, or what fits the largest pool */
	uint32_t block_size;
	bool no_cache;        /* no prefix cache */
	struct counts counts; /* sum over all replicas; COUNT_TOTAL: with removed ones */
	char note[256];       /* for the operator: why workers are idle or jobs wait; or "" */
	uint32_t n_replicas;
	struct engine_replica replicas[ENGINE_REPLICAS_MAX];
	uint32_t n_workers;
	struct engine_worker workers[ENGINE_WORKERS_MAX];
	struct engine_experts experts;
};

void engine_status_free(struct engine_status *s); /* NULL is fine */

struct engine_event {
	/* Private to the sender's pool of events (emit.c).  recycle: called instead of free(), or NULL. */
	void (*recycle)(struct engine_event *e);
	struct emit_home *home;
	struct engine_event *next_spare; /* in the list of spare or unsent events */
	uint32_t cap_tokens, cap_tops;   /* capacity of a recycled event's arrays */

	enum engine_event_kind kind;
	uint64_t job;
	uint32_t index;
	uint64_t tag;
	enum finish finish;
	int64_t stop_token; /* OUTPUT_DONE: stop token that ended the output, its last token; -1: none */
	enum code code;
	char why[256];
	char numerics[NUMERICS_MAX]; /* TOKENS: numerics class of the replica that chose all of them */
	struct engine_token *tokens; /* owned */
	uint32_t n_tokens;
	uint32_t *top_ids;   /* owned */
	float *top_logprobs; /* owned */
	float *values;       /* POOLED: owned, [n_values] */
	uint32_t n_values;
	uint32_t cached_tokens;
	bool class_changed; /* JOB_DONE: continued in another numerics class (--allow-class-change) */
	int64_t queued_us, first_token_us, total_us;
	bool ready;             /* STATE */
	uint32_t max_context;   /* STATE: engine_status.max_context */
	uint64_t full_kv_bytes; /* STATE: bytes of a worker's KV pool that would hold model_context; 0: the
				   pool holds it */
	struct engine_status *status; /* owned */
	struct timeline *times;       /* owned, all phases ended; or NULL */
};

void engine_cmd_free(struct engine_cmd *c); /* NULL is fine */
void engine_event_free(struct engine_event *e);
void engine_event_fini(struct engine_event *e); /* frees its members, not the event */

/* Pass an owned message through ENGINE_IN or ENGINE_OUT: one frame holds one pointer.  send: on 0 the
 * receiver owns msg; on -errno the caller still does.  recv: NULL: no message now. */
int engine_msg_send(void *socket, void *msg);
void *engine_msg_recv(void *socket);

/* Length of the queue.  Written by the engine's thread, read by any thread without a message. */
struct engine_load {
	atomic_uint n_queued;               /* jobs that have not started */
	atomic_uint_fast64_t queued_tokens; /* tokens of their prompts */
	atomic_int_fast64_t loop_us;        /* clock_us() of the last iteration of the engine's loop; 0:
					       none yet */
};
/* Return the name of the thread that all requests need and that has not run for a minute, and for how long:
 * "front" (front_loop_us: its last iteration) or "engine" (load; NULL: it has not begun).  NULL: both
 * run. */
const char *engine_load_hangs(const struct engine_load *load, int64_t front_loop_us, int64_t now_us,
			      int64_t *us);

/* Summary of the loads in progress. */
struct engine_loading {
	uint32_t n_workers;
	const char *doing;    /* activity of the load that is furthest behind, in words */
	uint64_t done, total; /* bytes of the model's files; total 0: not known yet */
	int64_t us;           /* since the first load began */
};

enum engine_notice_kind {
	ENGINE_NOTICE_READY,   /* a replica serves */
	ENGINE_NOTICE_UNREADY, /* no replica serves any more: why */
	ENGINE_NOTICE_FAILED,  /* a worker reported that it cannot serve: why */
	ENGINE_NOTICE_LOST,    /* pid: this worker of this host was given up and may hang */
	ENGINE_NOTICE_SCALE,   /* n_workers, devices, memory_fraction: run n_workers on this host */
	ENGINE_NOTICE_RETIRE,  /* pid: this worker of this host ends on purpose */
	ENGINE_NOTICE_LOADING, /* loading: several times a second, while none serves */
	ENGINE_NOTICE_KEEP,    /* pids: the scale is complete; this host keeps these workers only */
};

/* A message to the supervisor, the process that started the controller and its workers (`quern serve`).
 * Borrowed during the call. */
struct engine_notice {
	enum engine_notice_kind kind;
	const char *why;
	int64_t pid;
	uint32_t n_workers;
	const char (*devices)[32]; /* SCALE: [n_devices] devices of new workers; none: as at start-up */
	uint32_t n_devices;
	double memory_fraction; /* SCALE: fraction of device memory per new worker; 0: as at start-up */
	const struct engine_loading *loading;
	const int64_t *pids; /* KEEP: [n_pids]; may include processes of other hosts */
	uint32_t n_pids;
};

#endif
