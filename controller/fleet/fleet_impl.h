/* fleet_impl.h - shared by fleet.c (workers and tp_groups), fleet_jobs.c (jobs and replicas),
 * fleet_balance.c (work stealing), fleet_order.c (scale, drain), fleet_autoscale.c, fleet_loading.c and
 * fleet_status.c.  No other file includes it. */
#ifndef QUERN_CONTROLLER_FLEET_FLEET_IMPL_H
#define QUERN_CONTROLLER_FLEET_FLEET_IMPL_H

#include "controller/fleet/autoscale.h"
#include "controller/fleet/fleet.h"
#include "controller/fleet/replica.h"
#include "controller/sched/sched_move.h"

enum { FLEET_ORDERS = 64 };

/* A scale or drain in progress. */
struct order {
	bool used;
	bool drain;
	uint64_t tag;
	int64_t until_us;
	uint64_t workers[BUS_RANKS_MAX]; /* drain: the ranks of the tp_group when the order came; */
	uint32_t n_workers;              /* the order is done when all have exited */
	uint32_t n_replicas;             /* scale */
};

/* A numerics class, identified by the fingerprint that its workers report. */
struct numerics_class {
	char numerics[NUMERICS_MAX];
};

struct fleet {
	const struct engine_config *cfg;
	struct emit *emit;
	struct worker_link *link;
	struct worker_table *workers; /* owned by link */
	struct sched *unassigned;     /* jobs that no replica takes now */
	struct replica *replicas[ENGINE_REPLICAS_MAX];
	uint32_t n_replicas;
	uint32_t tp;
	uint64_t last_replica, last_epoch, last_order;
	/* [n_numerics_classes]; the number of a class is its index + 1 */
	struct numerics_class *numerics_classes;
	uint32_t n_numerics_classes;
	bool ready, served; /* a replica serves; a replica has served */
	bool unsized;       /* groups may be unsized: fleet_reject_oversized() is due */
	uint32_t max_context;
	int64_t form_us;      /* no tp_group is formed before this time: the last one broke too soon */
	struct why last_loss; /* reason of the last loss of a worker */
	char waits[256];      /* why a fleet that is not ready waits, as last published */
	int64_t loading_us, waits_us; /* when loads were last checked, and when waits was last published */
	struct counts past;           /* totals of replicas that have ended */
	struct order orders[FLEET_ORDERS];
	int64_t ticked_us; /* last check of deadlines */
	/* Autoscaling: */
	struct autoscale autoscale;
	uint32_t n_wanted; /* replicas by the last decision; 0: it has not served yet */
	bool scale_failed; /* its last scale failed */
	int64_t scale_us;  /* no further scale before this time */
	/* Scratch of one iteration of the loop. */
	struct link_event event;
	struct plan plan;
	struct result result; /* valid if event is LINK_RESULT */
	struct sched_events events;
	struct place *line; /* scratch of fleet_balance.c; owned, NULL until it is needed */
};

/* ---- fleet.c ---- */

/* End the replica: its jobs move, its workers become idle. */
void fleet_take_down(struct fleet *f, struct replica *r, int64_t now_us, const char *why);
/* Return the replica of the tp_group with this epoch; NULL: none. */
struct replica *fleet_by_epoch(const struct fleet *f, uint64_t epoch);
/* Report readiness and max_context after a change: to the front end, and as a notice to the supervisor. */
void fleet_update(struct fleet *f, const char *why);
void fleet_notice(struct fleet *f, struct engine_notice n);
/* Return whether the workers could be ranks of one tp_group: same host, same kind of device. */
bool fleet_same_kind(const struct worker *a, const struct worker *b);
/* Stop the worker on purpose: the supervisor does not replace it. */
void fleet_retire(struct fleet *f, struct worker *k, int64_t now_us);

/* ---- fleet_loading.c ---- */

/* Report the progress of loads, several times a second: to the log, the supervisor and the front end. */
void fleet_report_loading(struct fleet *f, int64_t now_us);

/* ---- fleet_jobs.c ---- */

/* Move all jobs of a replica, none of which runs; poisoned jobs fail. */
void fleet_move_all(struct fleet *f, struct replica *r, int64_t now_us);
/* Assign the unassigned jobs that a replica takes now. */
void fleet_assign_waiting(struct fleet *f, int64_t now_us);
/* Fail jobs that were accepted before any size was known and are too long for every replica, once a replica
 * has served and none is loading (a loading replica might be larger). */
void fleet_reject_oversized(struct fleet *f, int64_t now_us);
/* Fail jobs past their deadline, or unassigned for too long. */
void fleet_expire(struct fleet *f, int64_t now_us);
/* Move jobs of draining replicas to replicas that take them. */
void fleet_drain_jobs(struct fleet *f, int64_t now_us);
/* Return whether the replica's context is long enough for the group. */
bool fleet_fits(const struct replica *r, const struct group *g);
/* Return the number of the numerics class that computes the group's tokens on r. */
static inline uint32_t fleet_class_at(const struct replica *r, const struct group *g)
{
	return g->params.constraint ? r->numerics_class : r->plain_class;
}

/* If the group has its first token, bind it to the numerics class of r, which computed it. */
void fleet_bind_class(const struct replica *r, struct group *g);
/* Give the replica the group, which is in no scheduler. */
void fleet_assign(struct fleet *f, struct replica *r, struct group *g, int64_t now_us);
/* Queue f->events for the front end.  from: the replica that sent f->result; NULL: no result. */
void fleet_emit_events(struct fleet *f, const struct replica *from, int64_t now_us);

/* ---- fleet_balance.c ---- */

/* Work stealing: a replica with room takes jobs that wait elsewhere and are expected to end earlier on it,
 * and plans them. */
void fleet_balance(struct fleet *f, int64_t now_us);

/* ---- fleet_order.c ---- */

/* Called before tp_groups are formed: workers under a drain order form no group, except to finish unassigned
 * jobs. */
void fleet_reserve_drained(struct fleet *f, int64_t now_us);
void fleet_orders(struct fleet *f, int64_t now_us);
/* A rank of the replica asked to leave: treat it as a drain order, without an answer. */
void fleet_leave(struct fleet *f, struct replica *r, int64_t now_us);
/* A worker reported that it cannot serve: fail a scale that needs more replicas than exist. */
void fleet_orders_failed(struct fleet *f, const char *why);
/* Scale by the service's own decision: as ENGINE_SCALE, but no client waits for it. */
void fleet_scale(struct fleet *f, uint32_t n_replicas, int64_t now_us);
bool fleet_scales(const struct fleet *f); /* a scale is in progress */

/* ---- fleet_autoscale.c ---- */

/* Record the load, several times a second, and scale by it when a decision is due. */
void fleet_autoscale(struct fleet *f, int64_t now_us);

#endif
