/* wlink.h - the controller's end of the worker bus: who is there, is it alive, bytes out and in.
 * Knows the protocol (proto/bus.h), nothing of sequences, nor of why workers form a group.  Used by
 * the engine thread only.
 *
 * A worker is in one of these states:
 *
 *   hello -> JOINING -> wlink_load() -> LOADING -> ready -> SERVING
 *               ^------- wlink_idle(), or it says hello anew -------'
 *
 * and LEAVING, LOST from any of them.  Whoever speaks without having said hello is told to stop. */
#ifndef QUERN_CONTROLLER_WLINK_H
#define QUERN_CONTROLLER_WLINK_H

#include "controller/engine.h"
#include "controller/pace.h"
#include "proto/bus.h"
#include "proto/curve.h"

enum { WLINK_IDENTITY_MAX = 64 };

enum wlink_state {
	WLINK_FREE,     /* no row */
	WLINK_JOINING,  /* has said hello, has nothing to do */
	WLINK_LOADING,  /* was told to load */
	WLINK_SERVING,  /* is ready */
	WLINK_LEAVING,  /* was told to stop, in good order */
	WLINK_LOST,     /* was given up; what it still sends is ignored */
};

/* A row of the table.  Read by whoever forms the groups, written by wlink.c. */
struct wlink_worker {
	enum wlink_state state;
	uint64_t id;                    /* never used twice */
	struct bus_hello hello;
	bool meet_used;                 /* hello.meet was given to others: it serves one group only */
	int64_t idle_us;                /* JOINING: since when */
	/* What it was told to load last; epoch 0: it is in no group now, n_ranks 0: nothing yet. */
	uint64_t epoch;
	uint32_t rank, n_ranks;
	struct bus_ready ready;         /* since it was SERVING for the first time */
	uint32_t progress;              /* permille while loading */
	uint64_t steps;                 /* results, or of a rank that sends none, plans that it carried out */
	uint32_t step_us;
	/* wlink.c's own */
	uint8_t route[WLINK_IDENTITY_MAX];
	size_t route_n;
	int fd;                         /* its connection, -1: unknown, ... */
	uint64_t conn;                  /* ... and the number that conns_keep() gave it */
	char key[CURVE_SIZE];           /* its public key, verified; "": the bus asks for none */
	uint64_t list;                  /* zap_generation() of the list that allowed it */
	bool broken;                    /* a message could not be sent */
	bool silent;                    /* LOST for being silent: it may speak again */
	uint64_t sent;                  /* number of the last plan */
	uint64_t received;              /* number of the last result */
	struct pace pace;               /* kept when its group is over: it may hang in a step of that */
	int64_t heard_us, beat_us, left_us;
	int64_t hello_us;               /* beginning of a second, ... */
	uint32_t n_hellos;              /* ... and the hellos since */
};

enum wlink_event_kind {
	WLINK_NONE,
	WLINK_HELLO,    /* it is JOINING; of a group before that is over for it (its connection broke, or
	                   the group did): epoch */
	WLINK_READY,    /* it has loaded what epoch asked for */
	WLINK_RESULT,   /* of the worker of rank 0 */
	WLINK_MISSED,   /* a plan, or a result of it, was lost on the way: its state must be built anew */
	WLINK_GONE,     /* it is LOST: why; it was in the group of epoch */
	WLINK_FAILED,   /* likewise, and it said itself why: another try would end alike */
	WLINK_LEFT,     /* it was LEAVING, and has ended */
};

struct wlink_event {
	enum wlink_event_kind kind;
	struct wlink_worker *worker;
	uint64_t epoch;                 /* of the group that it was in; 0: none */
	char why[640];
};

struct wlink;

/* Binds the ROUTER. */
int wlink_open(void *zmq_context, const struct engine_config *cfg, struct wlink **out, char *why, size_t why_n);
void wlink_close(struct wlink *w);              /* tells all workers to stop; NULL is fine */
/* To poll for input: messages, and connections that end; and how long at most. */
void wlink_poll(struct wlink *w, void **messages, void **ends);
long wlink_wait_ms(const struct wlink *w, int64_t now_us);
const char *wlink_endpoint(const struct wlink *w);

/* The next event of what has come in; false: nothing more to read (now).  RESULT: result is filled. */
bool wlink_recv(struct wlink *w, int64_t now_us, struct result *result, struct wlink_event *ev);
/* Heartbeats; the next event of what has not come: workers whose connection is gone, that have
 * been silent for too long, or that do not get on with what they were asked for (pace.h). */
bool wlink_tick(struct wlink *w, int64_t now_us, struct wlink_event *ev);

/* The n JOINING workers, by rank, form a group: each is told to load. */
void wlink_load(struct wlink *w, struct wlink_worker *const *ranks, uint32_t n, uint64_t epoch, int64_t now_us);
/* To all ranks of a group; the bytes are made once.  Who cannot be reached is reported by
 * wlink_tick(). */
void wlink_send_plan(struct wlink *w, struct wlink_worker *const *ranks, uint32_t n, const struct plan *p,
		     int64_t now_us);
/* Its group is over, it is JOINING again. */
void wlink_idle(struct wlink_worker *worker, int64_t now_us);
/* Give it up: it is told to stop, and whatever it still sends is ignored. */
void wlink_drop(struct wlink *w, struct wlink_worker *worker, int64_t now_us);
/* It is told to stop and LEAVING; WLINK_LEFT follows. */
void wlink_retire(struct wlink *w, struct wlink_worker *worker, int64_t now_us);

/* The table's rows one after another, those that are FREE, too. */
uint32_t wlink_rows(const struct wlink *w);
struct wlink_worker *wlink_at(struct wlink *w, uint32_t i);
struct wlink_worker *wlink_find(struct wlink *w, uint64_t id);  /* NULL: none that is there */

/* Its process id, if it runs on this host; 0 otherwise. */
int64_t wlink_local_pid(const struct wlink_worker *worker);
/* One row for `quern workers`; replica is the caller's to fill. */
void wlink_status(const struct wlink_worker *worker, struct engine_worker *out);

#endif
