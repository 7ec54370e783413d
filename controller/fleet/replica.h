/* replica.h - one replica: a tp_group of workers that serves the whole model, with its own scheduler.
 * Plans go to all ranks, results come from rank 0.
 * Knows nothing of other replicas.  Engine thread only.
 *
 *                     all ranks ready              drain order, or scale down
 *   new ----> LOADING ---------------> SERVING --------------------------------> DRAINING
 *                |                        |                                         |
 *                |                        | a rank is lost, or missed a message     | no jobs left:
 *                v                        v                                         v retired
 *              ended: jobs move to other replicas, live workers are idle again (fleet_take_down()) */
#ifndef QUERN_CONTROLLER_FLEET_REPLICA_H
#define QUERN_CONTROLLER_FLEET_REPLICA_H

#include "base/err.h"
#include "base/numerics.h"
#include "controller/fleet/engine_config.h"
#include "controller/fleet/constraints.h"
#include "controller/sched/pace.h"
#include "controller/sched/sched.h"
#include "controller/fleet/worker_link.h"

enum replica_state {
	REPLICA_LOADING,
	REPLICA_SERVING,
	REPLICA_DRAINING, /* takes no new jobs; its jobs move, or finish here */
};

enum { REPLICA_RATE_SECONDS = 8 }; /* window of the tokens-per-second counters */

struct replica {
	uint64_t id;    /* never used twice */
	uint64_t epoch; /* epoch of its tp_group */
	enum replica_state state;
	uint32_t n_ranks, n_ready;
	struct worker *ranks[BUS_RANKS_MAX]; /* borrowed */
	struct sched *sched;                 /* owned */
	struct constraints *constraints;     /* owned: the constraints that its workers have */
	bool started;                        /* the scheduler has blocks */
	int64_t started_us;
	bool paused; /* makes no new plans: its jobs move when no plan is in flight */
	/* Reported by its workers with ready: */
	char numerics[NUMERICS_MAX]; /* fingerprint of its numerics class ... */
	uint32_t numerics_class;     /* ... and its number (fleet_numerics_class()) */
	uint32_t plain_class;        /* class of outputs without structured output (numerics_of_output()) */
	uint32_t max_context;        /* the longest sequence it accepts */
	uint64_t block_bytes, link_bps;
	uint32_t stream_above_rows; /* rows of a step, as in bus_ready */
	/* Measured: */
	double step_us_mean;
	struct pace pace;
	double prefill_tps;         /* moving average over steps that are mostly prompts; 0: none seen */
	double decode_us;           /* moving average of steps without prompts; 0: none seen */
	int64_t look_us;            /* no work stealing before this time: jobs would end later here */
	uint32_t rows[SCHED_AHEAD]; /* rows of the plans in flight, by number ... */
	uint32_t prompt_rows[SCHED_AHEAD]; /* ... and the prompt rows among them */
	struct {                           /* counts at the beginning of each of the last seconds */
		int64_t second;
		uint64_t prompt, generated;
	} rate[REPLICA_RATE_SECONDS];
	uint32_t block_size, model_context;
	uint32_t chunk;         /* most prompt tokens of a sequence in a step */
	struct kinds kinds;     /* of layers, as the workers report them */
	uint64_t full_kv_bytes; /* bytes of a pool that would hold model_context; 0: the pool does */
	struct {                /* [n_out] encoded plans that are not sent yet */
		struct buf bytes;
		uint64_t number;
	} out[SCHED_AHEAD];
	uint32_t n_out;
};

/* Create a replica of n workers that have not been sent load yet. */
struct replica *replica_new(const struct engine_config *cfg, uint64_t id, uint64_t epoch,
			    struct worker *const *ranks, uint32_t n);
void replica_free(struct replica *r); /* with the groups that it still has; NULL is fine */

/* Create a scheduler with a replica's settings; until sched_start() it only holds waiting groups. */
struct sched *replica_sched_new(const struct engine_config *cfg);

/* All ranks are ready: from now on plans can be made.  -EINVAL: rank *odd differs from rank 0. */
int replica_start(struct replica *r, uint32_t *odd, struct why *why);
/* Make every plan that can be made now; replica_send() sends them to all ranks. */
void replica_plan(struct replica *r, struct plan *scratch, int64_t now_us);
void replica_send(struct replica *r, struct worker_link *link, int64_t now_us);
/* Record the rows of a plan, to measure speeds when its result arrives. */
void replica_planned(struct replica *r, const struct plan *p);
/* Apply a result of rank 0; events are appended.  -EPROTO: it matches no plan. */
int replica_result(struct replica *r, const struct result *result, int64_t now_us, struct sched_events *ev);
/* Return the rows of the plan that the result answers. */
uint32_t replica_rows(const struct replica *r, const struct result *result);

/* Sample the counters for the tokens-per-second figures; called at least once a second. */
void replica_tick(struct replica *r, int64_t now_us);
/* Return the tokens queued or held: the work ahead of a new job. */
uint64_t replica_load(const struct replica *r);
void replica_counts(const struct replica *r, struct counts *out); /* all but the tokens per second */
void replica_status(const struct replica *r, int64_t now_us, struct engine_replica *out);

#endif
