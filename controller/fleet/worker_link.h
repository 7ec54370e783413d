/* worker_link.h - the controller's end of the worker bus: messages in and out.
 * Speaks the protocol (proto/bus.h) and detects lost workers; worker_table.h holds the workers and their
 * states.  Knows nothing of sequences, nor why workers form a tp_group.  Engine thread only.
 *
 * A peer that sends any other message before hello is sent stop. */
#ifndef QUERN_CONTROLLER_FLEET_WORKER_LINK_H
#define QUERN_CONTROLLER_FLEET_WORKER_LINK_H

#include "base/err.h"
#include "controller/fleet/engine_config.h"
#include "controller/fleet/worker_table.h"

enum link_event_kind {
	LINK_NONE,
	LINK_HELLO,  /* the worker is JOINING.  epoch: the tp_group that this ends, because the worker's
			connection or the tp_group broke; 0: none */
	LINK_READY,  /* it has loaded the model as requested for its epoch */
	LINK_RESULT, /* from rank 0 */
	LINK_AWAKE,  /* from rank 0: masks are ready; result->held has their slots, and nothing else is set */
	LINK_MISSED, /* a plan or a result was lost in transit: the worker needs the full state again */
	LINK_LEAVES, /* its host requested its end: it serves until its jobs have moved; repeated */
	LINK_GONE,   /* the worker is LOST: why; epoch: its tp_group */
	LINK_FAILED, /* the worker is LOST by its own report: a retry would fail the same way */
	LINK_LEFT,   /* it was LEAVING, and has exited */
};

struct link_event {
	enum link_event_kind kind;
	struct worker *worker;
	uint64_t epoch; /* epoch of the tp_group that it was in; 0: none */
	struct why why;
};

struct worker_link;

/* Bind the ROUTER. */
int worker_link_open(void *zmq_context, const struct engine_config *cfg, struct worker_link **out,
		     struct why *why);
void worker_link_close(struct worker_link *w); /* stops all workers; NULL is fine */
/* Return the sockets to poll for input (messages, and closed connections), and the timeout. */
void worker_link_poll(struct worker_link *w, void **messages, void **ends);
long worker_link_wait_ms(const struct worker_link *w, int64_t now_us);
const char *worker_link_endpoint(const struct worker_link *w);
struct worker_table *worker_link_table(struct worker_link *w);

/* Return the next event of this iteration: first from messages, up to a bound, then from worker_link_tick().
 * RESULT, AWAKE: result is filled.  False: no more in this iteration. */
bool worker_link_recv(struct worker_link *w, int64_t now_us, struct result *result, struct link_event *ev);
/* Send heartbeats that are due.  Return the next event of a worker that is silent, stuck (watchdog.h), or
 * without connection or key; false: none. */
bool worker_link_tick(struct worker_link *w, int64_t now_us, struct link_event *ev);

/* Form a tp_group of the n JOINING workers, by rank: each is sent its load. */
void worker_link_load(struct worker_link *w, struct worker *const *ranks, uint32_t n, uint64_t epoch,
		      int64_t now_us);
/* Send an encoded plan to all ranks of a tp_group.  worker_link_tick() reports ranks that cannot be
 * reached. */
void worker_link_send_plan(struct worker_link *w, struct worker *const *ranks, uint32_t n, uint64_t number,
			   const struct buf *bytes, int64_t now_us);
/* Send chunks of the model that were read for workers that lack it; a few per iteration. */
void worker_link_send_files(struct worker_link *w);
/* Give the worker up: it is sent stop and is LOST. */
void worker_link_drop(struct worker_link *w, struct worker *k, int64_t now_us);
/* Send the worker stop; it is LEAVING, and LINK_LEFT follows. */
void worker_link_retire(struct worker_link *w, struct worker *k, int64_t now_us);

#endif
