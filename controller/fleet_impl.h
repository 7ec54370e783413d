/* fleet_impl.h - what fleet.c (workers and groups), fleet_jobs.c (which replica has which job),
 * fleet_order.c (scale, drain) and fleet_status.c share.  For these only. */
#ifndef QUERN_CONTROLLER_FLEET_IMPL_H
#define QUERN_CONTROLLER_FLEET_IMPL_H

#include "controller/fleet.h"
#include "controller/replica.h"
#include "controller/sched_move.h"

enum { FLEET_ORDERS = 64 };

/* A scale or drain that is not carried out yet. */
struct order {
	bool used;
	bool drain;
	uint64_t tag;
	int64_t until_us;
	uint64_t workers[BUS_RANKS_MAX];        /* drain: whose end is waited for: all of the group ... */
	uint32_t n_workers;     /* ... that it was then */
	uint32_t n_replicas;    /* scale */
};

/* A numerics class, told apart by what its workers say of it. */
struct class {
	char numerics[256];
};

struct fleet {
	const struct engine_config *cfg;
	struct emit *emit;
	struct wlink *link;
	struct sched *lobby;
	struct replica *replicas[ENGINE_REPLICAS_MAX];
	uint32_t n_replicas;
	uint32_t tp;
	uint64_t last_replica, last_epoch, last_order;
	struct class *classes;  /* [n_classes]; class i + 1 */
	uint32_t n_classes;
	bool ready, served;     /* one serves; one has served */
	bool unsized;           /* there may be groups that are: fleet_judge_unsized() is due */
	uint32_t max_context;
	int64_t form_us;        /* not before: a group broke as soon as it was formed */
	char last_why[700];     /* what happened to the worker that was lost last */
	struct sched_stats gone; /* what replicas that are gone have done */
	struct order orders[FLEET_ORDERS];
	int64_t looked_us;      /* when deadlines were looked at last */
	struct plan plan;
	struct result result;
	struct sched_events events;
};

/* ---- fleet.c ---- */

/* The replica is over: what it has moves on, its workers are idle again. */
void fleet_take_down(struct fleet *f, struct replica *r, int64_t now_us, const char *why);
/* The replica whose group has this epoch; NULL: none. */
struct replica *fleet_by_epoch(const struct fleet *f, uint64_t epoch);
/* Tell the front end, and whoever started us, when this has changed. */
void fleet_update(struct fleet *f, const char *why);
void fleet_notice(struct fleet *f, struct engine_notice n);
/* Workers that could be ranks of one group. */
bool fleet_same_kind(const struct wlink_worker *a, const struct wlink_worker *b);
/* The worker ends on purpose, for good. */
void fleet_retire(struct fleet *f, struct wlink_worker *k, int64_t now_us);

/* ---- fleet_jobs.c ---- */

/* Where the group can go on, other than to `but`; NULL: nowhere now. */
struct replica *fleet_choose(struct fleet *f, const struct group *g, const struct replica *but);
/* All that a replica has, of which nothing runs, moves on; what is guilty ends. */
void fleet_move_all(struct fleet *f, struct replica *r, int64_t now_us);
/* What waits in the lobby goes to the replicas that take it. */
void fleet_empty_lobby(struct fleet *f);
/* Jobs that were taken before any size was known and that nothing holds end, once a replica has served
 * and none loads: one that loads may be larger. */
void fleet_judge_unsized(struct fleet *f, int64_t now_us);
/* Deadlines, and how long a job may wait for a replica. */
void fleet_expire(struct fleet *f, int64_t now_us);
/* Draining replicas hand on what others take. */
void fleet_drain_jobs(struct fleet *f, int64_t now_us);
/* Who has nothing to do takes what waits elsewhere. */
void fleet_balance(struct fleet *f, int64_t now_us);
/* What has happened is told; from: f->result is of this replica, NULL: there is none. */
void fleet_flush(struct fleet *f, const struct replica *from, int64_t now_us);

/* ---- fleet_order.c ---- */

/* Before groups are formed: workers that are to be drained form none, except to finish what waits. */
void fleet_insist(struct fleet *f, int64_t now_us);
void fleet_orders(struct fleet *f, int64_t now_us);
/* A worker says that it cannot serve: a scale that needs more replicas than there are ends with that. */
void fleet_orders_failed(struct fleet *f, const char *why);

#endif
