/* worker_table.h - the workers that the controller knows: identity, state, tp_group.
 * Owns the rows.  worker_link.c drives the states as messages arrive, fleet.c reads them to form tp_groups.
 * No sockets, no clock.  Engine thread only.
 *
 *              hello               load                ready
 *      FREE ----------> JOINING ----------> LOADING ----------> SERVING
 *                        ^  ^                  |                   |
 *                        |  '------------------+-------------------'
 *       hello again, or  |       its tp_group has ended, or hello again
 *       a message after  |
 *       silence          |
 *                       LOST <---- JOINING, LOADING, SERVING: connection broken, silent, stuck,
 *                        |         malformed message, key revoked, exit
 *                        '-> FREE  after a minute, or when another worker takes the row
 *
 *   JOINING, LOADING, SERVING ---- retired ----> LEAVING ---- it confirms, or 2 s ----> FREE */
#ifndef QUERN_CONTROLLER_FLEET_WORKER_TABLE_H
#define QUERN_CONTROLLER_FLEET_WORKER_TABLE_H

#include "controller/fleet/agree.h"
#include "controller/fleet/expert_table.h"
#include "controller/fleet/watchdog.h"
#include "controller/message/engine_msg.h"
#include "proto/bus.h"
#include "proto/curve.h"

enum { WORKER_ROUTE_MAX = 64 }; /* longest ZeroMQ routing id accepted, in bytes */

enum worker_state {
	WORKER_FREE,    /* unused row */
	WORKER_JOINING, /* idle */
	WORKER_LOADING, /* has a load message to carry out */
	WORKER_SERVING, /* ready for plans */
	WORKER_LEAVING, /* stopping on request */
	WORKER_LOST,    /* given up; its messages are ignored */
};

struct worker {
	enum worker_state state;
	uint64_t id; /* never used twice */
	struct bus_hello hello;
	bool rendezvous_used; /* hello.rendezvous was given to a tp_group: it serves only one tp_group */
	int64_t idle_us;      /* JOINING: when it became so */
	/* Its last load.  epoch 0: in no tp_group now; n_ranks 0: never loaded. */
	uint64_t epoch;
	uint32_t rank, n_ranks;
	struct agree_modes modes;
	struct bus_ready ready;                     /* valid once it has been SERVING */
	uint32_t progress;                          /* permille while loading */
	struct bus_beat load;                       /* LOADING: doing, done and total of the last heartbeat */
	int64_t load_us, load_logged_us;            /* when the load began, and when it was last logged */
	struct worker_counts counts, counts_before; /* as of its last heartbeat; at its last load */
	uint64_t grammar_bytes;                     /* as of its last heartbeat */
	uint64_t steps; /* results received; for ranks that send none, plans executed */
	uint32_t step_us;
	/* Fields of worker_link.c: */
	uint8_t route[WORKER_ROUTE_MAX];
	size_t route_n;
	int fd;               /* its connection, -1: unknown */
	uint64_t conn;        /* number of that connection (conns_keep()) */
	int64_t local_pid;    /* process on this host that is proven to be this worker; 0: none */
	char address[64];     /* address of its connection; "": this host */
	char key[CURVE_SIZE]; /* its verified public key; "": the bus requires none */
	uint64_t list;        /* zap_generation() of the key list that admitted this worker */
	bool broken;          /* a message could not be sent */
	bool silent;          /* LOST because of silence: it may return to JOINING */
	uint64_t sent;        /* number of the last plan sent */
	uint64_t received;    /* number of the last result received */
	/* Survives the end of its tp_group: the worker may hang in a step of that group. */
	struct watchdog watchdog;
	int64_t last_seen_us, beat_us, left_us;
	int64_t hello_us;  /* start of the current one-second window ... */
	uint32_t n_hellos; /* ... and the hellos in it */
};

struct worker_table {
	struct worker rows[ENGINE_WORKERS_MAX];
	uint64_t last_id;
	struct expert_table experts; /* sums of the workers' reports */
};

/* ---- rows ---- */

/* Return whether the worker is JOINING, LOADING or SERVING. */
bool worker_is_live(const struct worker *k);
/* Return the live worker with this id; NULL: none. */
struct worker *worker_table_find(struct worker_table *t, uint64_t id);
/* Return the worker, live or not, with this routing id; NULL: none. */
struct worker *worker_table_find_route(struct worker_table *t, const uint8_t *route, size_t n);
/* Add a new worker, JOINING.  It replaces a lost worker of the same device, else the one lost first.  NULL:
 * every row is in use. */
struct worker *worker_table_add(struct worker_table *t, const struct bus_hello *h, const uint8_t *route,
				size_t route_n, int64_t now_us);

/* Fill a row for `quern workers`; the caller fills in replica. */
void worker_status(const struct worker *k, struct engine_worker *out);

/* ---- state changes ---- */

/* Handle hello from a known worker: JOINING, in no tp_group.  A LOST worker gets a new id. */
void worker_rejoin(struct worker_table *t, struct worker *k, const struct bus_hello *h, int64_t now_us);
/* Handle a message from a worker that was LOST because of silence: JOINING. */
void worker_revive(struct worker *k, int64_t now_us);
/* Make it a rank of a new tp_group: LOADING. */
void worker_load(struct worker *k, uint64_t epoch, uint32_t rank, uint32_t n_ranks, int64_t now_us);
/* Its tp_group has ended: LOADING or SERVING to JOINING; no effect in other states. */
void worker_idle(struct worker *k, int64_t now_us);
void worker_lose(struct worker *k, int64_t now_us);  /* LOST */
void worker_leave(struct worker *k, int64_t now_us); /* LEAVING */

/* ---- progress ---- */

/* Count a hello.  True: there are too many, and each would end a tp_group. */
bool worker_hello_flood(struct worker *k, int64_t now_us);
void worker_plan_sent(struct worker *k, uint64_t number, int64_t now_us);
void worker_result_received(struct worker *k, const struct result *r);
/* Rank > 0, from its heartbeat: all plans before `expected` are executed. */
void worker_plans_executed(struct worker *k, uint64_t expected, int64_t now_us);

#endif
