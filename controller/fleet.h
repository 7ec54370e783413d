/* fleet.h - all replicas: workers become groups, jobs find a replica, and move when it goes.
 * Owns: the worker link, the replicas, and the lobby, a scheduler without a worker that keeps the
 * jobs which no replica takes now.  Engine thread only.
 *
 * A group of workers is formed when enough idle ones of a kind (same host, same kind of device) are
 * there; one that dies, hangs or falls out of step takes its group down as a whole, and the others
 * are idle again.  What ran there goes on, with the tokens it has, at another replica of the same
 * numerics class, or waits in the lobby, for at most worker_wait_us. */
#ifndef QUERN_CONTROLLER_FLEET_H
#define QUERN_CONTROLLER_FLEET_H

#include "controller/emit.h"
#include "controller/engine.h"
#include "controller/sched.h"

struct fleet;

/* Binds the worker bus.  cfg and emit are borrowed for its life. */
int fleet_open(void *zmq_context, const struct engine_config *cfg, struct emit *emit, struct fleet **out,
	       char *why, size_t why_n);
void fleet_tell_stop(struct fleet *f);  /* the workers are told to stop; nothing but fleet_close() after it */
void fleet_close(struct fleet *f);      /* NULL is fine */
/* To poll for input, and how long at most. */
void fleet_poll(struct fleet *f, void **messages, void **ends);
long fleet_wait_ms(const struct fleet *f, int64_t now_us);
const char *fleet_bus(const struct fleet *f);

/* What has come in since the last turn: results, workers that come and go. */
void fleet_receive(struct fleet *f, int64_t now_us);
/* What follows from it, from the commands since, and from the time: groups are formed, jobs moved,
 * plans sent. */
void fleet_turn(struct fleet *f, int64_t now_us);

/* The longest job that is taken: what the largest replica holds; before one served, the model's. */
uint32_t fleet_max_context(const struct fleet *f);
struct fleet_queue {
	uint32_t n_queued;      /* jobs that have not begun */
	uint64_t queued_tokens; /* of their prompts */
};
struct fleet_queue fleet_queue(const struct fleet *f);

/* The number of a numerics class, which need not be there: group.class of a job that has begun in it. */
uint32_t fleet_class(struct fleet *f, const char *numerics);
/* Takes it.  resumed: it is from before a restart, and waits for a replica like the one that held it; others
 * are judged by what there is when the first ones serve. */
void fleet_submit(struct fleet *f, struct group **g, bool resumed, int64_t now_us);
void fleet_stop(struct fleet *f, uint64_t job, uint32_t index, int64_t now_us);
void fleet_cancel(struct fleet *f, uint64_t job, int64_t now_us);
/* ENGINE_SCALE, ENGINE_DRAIN: answered by ENGINE_ORDER_DONE, now or later. */
void fleet_order(struct fleet *f, const struct engine_cmd *c, int64_t now_us);
/* Maps of their blocks into the rows that fleet_status() has just made. */
void fleet_maps(const struct fleet *f, uint32_t n_cells, struct engine_status *out);
void fleet_status(const struct fleet *f, int64_t now_us, struct engine_status *out);

#endif
