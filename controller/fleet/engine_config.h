/* engine_config.h - the settings of the engine, fixed at start. */
#ifndef QUERN_CONTROLLER_FLEET_ENGINE_CONFIG_H
#define QUERN_CONTROLLER_FLEET_ENGINE_CONFIG_H

#include "base/buf.h"
#include "controller/message/engine_msg.h"
#include "proto/local_token.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics;
struct model_server;
struct zap;

/* The rule by which a service changes the number of its replicas itself (autoscale.h), and its defaults,
 * which deploy/kubernetes/autoscaling.yaml has as well. */
enum {
	AUTOSCALE_TARGET = 16,   /* requests that run or wait, of each replica */
	AUTOSCALE_WINDOW_S = 30, /* the load is its mean over this time */
	AUTOSCALE_PERIOD_S = 15, /* between two decisions */
	AUTOSCALE_DOWN_S = 120,  /* a lower number must have been wished for this long */
};
struct autoscale_config {
	uint32_t min, max; /* replicas; max 0: the service does not scale itself */
	double target;     /* the rest: 0 is the default */
	double tolerance;  /* of load over target, within which nothing changes: 0.1 */
	int64_t window_us, period_us, down_us;
	int64_t up_us; /* the same for a higher number; 0: the last wish decides */
};

struct engine_config {
	char model[2048]; /* directory, as workers see it */
	/* Of the model's files; NULL: this host has no weights, workers compare and fetch nothing.  Borrowed.
	 */
	struct model_server *model_server;
	char bus[256];   /* endpoint to bind */
	struct zap *zap; /* keys that may join the bus (zap.h); NULL: any peer.  Borrowed */
	/* What workers that the supervisor started send over TCP; "": it gives none. */
	char local_token[LOCAL_TOKEN_SIZE];
	char compute[8];
	char head[8]; /* bus_load.head */
	char kv[8];   /* bus_load.kv */
	bool fast;    /* bits may depend on the batch where that is faster */
	uint32_t n_vocab;
	const struct buf *vocabulary; /* its tokens, as workers get them (bus_encode_vocabulary()); borrowed.
				       * NULL: they get none, and outputs can have no form */
	uint32_t model_context;       /* the model's, or less by option */
	uint32_t block_size;          /* 16 */
	uint32_t max_seqs;            /* sequences in a step, 256 */
	uint32_t max_rows;            /* token budget of a step, 2048 */
	uint32_t chunk;               /* largest part of a prompt in a step; 0: the whole budget */
	int64_t step_us;              /* target length of a step that holds prompts; 0: the whole budget */
	bool step_auto;               /* or twice as long as its decodes alone, where that is longer */
	uint32_t mixture_rows;        /* with step_auto, of a step of prompts alone: sched_mixture_rows() */
	bool prefill_separate;        /* prompts in steps of their own */
	bool no_prefix_cache;
	char preempt[16];  /* "auto", "swap", "recompute" */
	uint64_t kv_bytes; /* 0: the worker chooses */
	uint64_t swap_bytes;
	uint32_t n_threads;
	struct engine_load *load; /* kept up to date; NULL: none */
	struct metrics *metrics;  /* tokens of each step; NULL: none are kept */
	uint64_t seed;            /* of hash tables, so that clients cannot provoke collisions */
	uint32_t max_jobs;        /* queued, 4096 */
	uint64_t max_tokens;      /* queued, 8 million */
	int64_t worker_wait_us;   /* how long a job waits for a worker, then E_WORKER_LOST */
	uint32_t tp;              /* workers of a replica; 0: 1 */
	bool ep;                  /* they have whole experts of a mixture, not parts of all (bus_load.ep) */
	bool expert_metrics;      /* /metrics has the rows of each expert */
	bool class_change;        /* a job that has begun may move to another numerics class */
	int64_t silent_us;        /* a worker without a message for this long is lost; 0: 2 s, -1: never */
	int64_t stuck_us;         /* likewise, with heartbeats but no progress; 0: 120 s, -1: never */
	int64_t stop_us;          /* at the end, for workers to confirm stop; 0: 1.5 s */
	bool keep_workers;        /* at the end they get no stop: they wait for the next controller */
	bool supervised;          /* on_notice starts and stops workers of this host */
	struct autoscale_config autoscale;
	/* Called on the engine thread; must not block.  May be NULL. */
	void (*on_notice)(void *user, const struct engine_notice *n);
	void *on_notice_user;
};

#endif
