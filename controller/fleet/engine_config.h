/* engine_config.h - the settings of the engine, fixed at start. */
#ifndef QUERN_CONTROLLER_FLEET_ENGINE_CONFIG_H
#define QUERN_CONTROLLER_FLEET_ENGINE_CONFIG_H

#include "base/buf.h"
#include "base/option_table.h"
#include "controller/message/engine_msg.h"
#include "proto/local_token.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics;
struct model_server;
struct zap;

/* Defaults of the autoscaling rule (autoscale.h), also in deploy/kubernetes/autoscaling.yaml. */
enum {
	AUTOSCALE_TARGET = OPTION_SCALE_AT, /* target load per replica: requests running plus waiting */
	AUTOSCALE_WINDOW_S = 30,            /* averaging window of the load */
	AUTOSCALE_PERIOD_S = OPTION_SCALE_PERIOD_S, /* time between two decisions */
	AUTOSCALE_DOWN_S = OPTION_SCALE_DOWN_S,     /* time for which a lower number must have been wished */
};
struct autoscale_config {
	uint32_t min, max; /* replicas; max 0: no autoscaling */
	double target;     /* in this field and the following, 0 is the default */
	double tolerance;  /* range of load over target within which nothing changes: 0.1 */
	int64_t window_us, period_us, down_us;
	int64_t up_us; /* time for which a higher number must have been wished; 0: the last wish decides */
};

struct engine_config {
	char model[2048]; /* directory, as workers see it */
	/* Serves the model's files; NULL: this host has no weights, workers neither compare nor fetch files.
	 * Borrowed. */
	struct model_server *model_server;
	char bus[256];   /* endpoint to bind */
	struct zap *zap; /* keys allowed on the bus (zap.h); NULL: any peer.  Borrowed */
	/* Token that workers started by the supervisor send over TCP; "": no token. */
	char local_token[LOCAL_TOKEN_SIZE];
	char compute[8];
	char head[8]; /* bus_load.head */
	char kv[8];   /* bus_load.kv */
	bool fast;    /* faster modes are allowed in which bits depend on the batch */
	uint32_t n_vocab;
	/* The model's vocabulary, as sent to workers (bus_encode_vocabulary()); borrowed.  NULL: workers
	 * get none, and structured output is impossible. */
	const struct buf *vocabulary;
	uint32_t model_context; /* the model's context, or a smaller one by option */
	uint32_t block_size;    /* 16 */
	uint32_t max_seqs;      /* sequences in a step, 256 */
	uint32_t max_rows;      /* token budget of a step, 2048 */
	uint32_t chunk;         /* largest chunk of a prompt in a step; 0: the whole budget */
	int64_t step_us;        /* target time of a step with prompts; 0: the whole budget */
	bool step_auto;         /* allow slow decodes a longer step, as sched_config.step_auto */
	uint32_t mixture_rows;  /* with step_auto: as sched_config.mixture_rows */
	bool prefill_separate;  /* prompts and decodes run in separate steps */
	bool no_prefix_cache;
	uint32_t drafts;   /* most drafted tokens of a sequence in a step; 0: no speculation */
	char preempt[16];  /* "auto", "swap", "recompute" */
	uint64_t kv_bytes; /* 0: the worker chooses */
	uint64_t swap_bytes;
	uint32_t n_threads;
	struct engine_load *load; /* kept up to date by the engine; NULL: none */
	struct metrics *metrics;  /* records the tokens of each step; NULL: no metrics */
	uint64_t seed;            /* seed of hash tables, so that clients cannot provoke collisions */
	uint32_t max_jobs;        /* limit of queued jobs, 4096 */
	uint64_t max_tokens;      /* limit of queued tokens, 8 million */
	int64_t worker_wait_us;   /* how long a job waits for a worker before E_WORKER_LOST */
	uint32_t tp;              /* tensor parallelism: workers per replica; 0: 1 */
	bool ep;                  /* expert parallelism: ranks hold whole experts, not shards (bus_load.ep) */
	bool expert_metrics;      /* /metrics has the rows of each expert */
	bool class_change;        /* a job that has begun may move to another numerics class */
	int64_t silent_us;        /* a worker without a message for this long is lost; 0: 2 s, -1: never */
	int64_t stuck_us;         /* a worker without progress for this long is lost; 0: 120 s, -1: never */
	int64_t stop_us;          /* at shutdown, time for workers to confirm stop; 0: 1.5 s */
	bool keep_workers;        /* at shutdown workers get no stop: they wait for the next controller */
	bool supervised;          /* on_notice starts and stops workers of this host */
	struct autoscale_config autoscale;
	/* Called on the engine thread; must not block.  May be NULL. */
	void (*on_notice)(void *user, const struct engine_notice *n);
	void *on_notice_user;
};

#endif
