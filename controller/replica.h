/* replica.h - one replica: a group of workers that serves the whole model, with a scheduler of its
 * own.  Plans go to all of its ranks, results come from rank 0.
 * Knows nothing of other replicas.  Engine thread only. */
#ifndef QUERN_CONTROLLER_REPLICA_H
#define QUERN_CONTROLLER_REPLICA_H

#include "controller/engine.h"
#include "controller/sched.h"
#include "controller/wlink.h"

enum replica_state {
	REPLICA_LOADING,
	REPLICA_SERVING,
	REPLICA_DRAINING, /* takes nothing new; what it has is moved, or finishes here */
};

enum { REPLICA_RATE_SECONDS = 8 }; /* window of the tokens-per-second figures */

struct replica {
	uint64_t id;            /* never used twice */
	uint64_t epoch;         /* of its workers */
	enum replica_state state;
	uint32_t n_ranks, n_ready;
	struct wlink_worker *ranks[BUS_RANKS_MAX];      /* borrowed */
	struct sched *sched;    /* owned */
	bool started;           /* the scheduler has blocks */
	int64_t started_us;
	bool paused;            /* nothing is planned: what it has leaves when nothing is under way */
	/* From what its workers said when they were ready: */
	char numerics[256];     /* its class ... */
	uint32_t class;         /* ... as a number, the fleet's to give */
	uint32_t max_context;   /* the longest sequence that it takes */
	uint64_t block_bytes, link_bps;
	/* measured: */
	double step_us_mean;
	double prefill_tps;     /* moving average over steps that are mostly prompts; 0: none seen */
	uint32_t rows[SCHED_AHEAD];     /* of the plans under way, by number ... */
	uint32_t prompt_rows[SCHED_AHEAD];      /* ... and of these, those of prompts */
	struct {                /* counts at the beginning of each of the last seconds */
		int64_t second;
		uint64_t prompt, generated;
	} rate[REPLICA_RATE_SECONDS];
	uint32_t block_size, model_context;
};

/* For n workers, which are yet to be told to load. */
struct replica *replica_new(const struct engine_config *cfg, uint64_t id, uint64_t epoch,
			    struct wlink_worker *const *ranks, uint32_t n);
void replica_free(struct replica *r);           /* with the groups that it still has; NULL is fine */

/* A scheduler as replicas have it; one without a worker only keeps groups that wait. */
struct sched *replica_sched_new(const struct engine_config *cfg);

/* All ranks are ready: it can plan.  -EINVAL: they do not fit together; why says how, *odd is the
 * rank that differs. */
int replica_start(struct replica *r, uint32_t *odd, char *why, size_t why_n);
/* Send what can be planned now. */
void replica_plan(struct replica *r, struct wlink *link, struct plan *scratch, int64_t now_us);
/* A plan was made: what its result tells of speeds depends on it. */
void replica_planned(struct replica *r, const struct plan *p);
/* A result of rank 0, of a plan that replica_planned() knows; events are appended.  -EPROTO: it fits no plan. */
int replica_result(struct replica *r, const struct result *result, int64_t now_us, struct sched_events *ev);
/* Rows of the plan that a result answers. */
uint32_t replica_rows(const struct replica *r, const struct result *result);

/* Once in a while: what the speeds are made of. */
void replica_tick(struct replica *r, int64_t now_us);
/* Tokens that are queued or held: what a new job stands behind. */
uint64_t replica_load(const struct replica *r);
void replica_status(const struct replica *r, int64_t now_us, struct engine_replica *out);

#endif
