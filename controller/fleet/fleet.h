/* fleet.h - all replicas: forms tp_groups of idle workers, assigns jobs to replicas, and moves jobs when a
 * replica ends.
 * Owns: the worker link, the replicas, and `unassigned`, a scheduler without a worker that holds the jobs no
 * replica takes now.  Engine thread only.
 *
 * tp idle workers of one kind (same host, same kind of device) form a tp_group.  A rank that dies, hangs
 * or misses a message ends its whole tp_group; the other ranks become idle.  The jobs continue, with the
 * tokens they have, at another replica of the same numerics class, or wait unassigned, for at most
 * worker_wait_us. */
#ifndef QUERN_CONTROLLER_FLEET_FLEET_H
#define QUERN_CONTROLLER_FLEET_FLEET_H

#include "base/err.h"
#include "controller/fleet/emit.h"
#include "controller/fleet/engine_config.h"
#include "controller/sched/sched.h"

struct fleet;

/* Bind the worker bus.  cfg and emit are borrowed until fleet_close(). */
int fleet_open(void *zmq_context, const struct engine_config *cfg, struct emit *emit, struct fleet **out,
	       struct why *why);
void fleet_stop_workers(struct fleet *f); /* only fleet_close() may follow */
void fleet_close(struct fleet *f);        /* NULL is fine */
/* Return the sockets to poll for input, and the timeout. */
void fleet_poll(struct fleet *f, void **messages, void **ends);
long fleet_wait_ms(const struct fleet *f, int64_t now_us);
const char *fleet_bus(const struct fleet *f);

/* The stages of one iteration of the engine's loop, in order (engine.c). */

/* Receive the next event from a worker: a result, or the worker joins, is ready, is lost.  False: none left
 * in this iteration. */
bool fleet_receive(struct fleet *f, int64_t now_us);
/* Apply that event: a result to its sequences; a replica starts to serve, or ends. */
void fleet_apply(struct fleet *f, int64_t now_us);
/* Form tp_groups of idle workers, move jobs between replicas, and make every plan that can be made. */
void fleet_schedule(struct fleet *f, int64_t now_us);
/* Send the plans to the workers. */
void fleet_send(struct fleet *f, int64_t now_us);
/* Run the timers: workers that are silent or unreachable, deadlines, scale and drain. */
void fleet_tick(struct fleet *f, int64_t now_us);
/* Send events and the load to the front end. */
void fleet_publish(struct fleet *f, int64_t now_us);

/* Return the longest job accepted: the context of the largest replica; before any has served, the model's. */
uint32_t fleet_max_context(const struct fleet *f);
struct fleet_queue {
	uint32_t n_queued;      /* jobs that have not begun */
	uint64_t queued_tokens; /* in their prompts */
};
struct fleet_queue fleet_queue(const struct fleet *f);
struct fleet_queue fleet_queue_of(const struct fleet *f, uint64_t account); /* of one account */

/* Return the number of the numerics class (for group.numerics_class) of a job that began at a worker
 * reporting `numerics`.  No replica of the class need exist. */
uint32_t fleet_numerics_class(struct fleet *f, bool has_constraint, const char *numerics);
/* Take the group.  A group that is too long for every replica is rejected once the first replicas serve,
 * unless it is resumed from before a restart: a replica that is large enough may return. */
void fleet_submit(struct fleet *f, struct group **g, bool resumed, int64_t now_us);
void fleet_stop(struct fleet *f, uint64_t job, uint32_t index, int64_t now_us);
void fleet_cancel(struct fleet *f, uint64_t job, int64_t now_us);
/* Get the job's timeline, as if it ended now.  False: no such job. */
bool fleet_times(struct fleet *f, uint64_t job, int64_t now_us, struct timeline *out);
/* Carry out ENGINE_SCALE, ENGINE_DRAIN or ENGINE_FORGET; answered by ENGINE_ORDER_DONE, now or later. */
void fleet_order(struct fleet *f, const struct engine_cmd *c, int64_t now_us);
/* Add block maps to the replicas that fleet_status() has just filled in. */
void fleet_maps(const struct fleet *f, uint32_t n_cells, struct engine_status *out);
void fleet_status(const struct fleet *f, int64_t now_us, struct engine_status *out);

#endif
