/* expert_load.h - how the rows of steps are spread over experts: counted by the thread that computes, read by
 * the one that sends heartbeats. */
#ifndef QUERN_WORKER_EXPERTS_EXPERT_LOAD_H
#define QUERN_WORKER_EXPERTS_EXPERT_LOAD_H

#include <stdatomic.h>
#include <stdint.h>

/* Rows of each expert of each layer since the epoch began: rows[layer * n_experts + expert]. */
struct expert_cells {
	struct expert_cells *older; /* of a model before */
	uint32_t n_experts, n;      /* of a layer, of all layers */
	atomic_ullong rows[];
};

struct expert_load {
	atomic_ullong rows;    /* rows times the experts that they had, over all layers */
	atomic_ullong reads;   /* experts that some row of a step had: what the steps read, layer by layer */
	atomic_ullong busiest; /* of `rows`, those of the expert of each layer that has had the most */
	_Atomic(struct expert_cells *) cells; /* of the model that is loaded; NULL: it counts none */
	struct expert_cells *all;             /* owned; of the thread that computes */
};

/* Of the thread that computes.  shape: what the next model has, 0 x 0: no counters of its own.  Cells of a
 * model before stay until fini(), since the other thread may read them. */
void expert_load_shape(struct expert_load *l, uint32_t n_layers, uint32_t n_experts);
void expert_load_reset(struct expert_load *l); /* cells to 0 */
void expert_load_rows(struct expert_cells *c, uint32_t layer, uint32_t expert, uint32_t n);
void expert_load_fini(struct expert_load *l);

/* Of the other thread: where it is in the cells, which it reports a part at a time; zeros: at the start. */
struct expert_turn {
	uint32_t at;             /* the next cell */
	uint64_t since, reached; /* rows when this turn began, and the one before */
};
/* The next cells to report, at most max, n from one on.  NULL: there are none, or no row was counted since
 * the last turn began. */
struct expert_cells *expert_load_next(const struct expert_load *l, struct expert_turn *t, uint32_t max,
				      uint32_t *from, uint32_t *n);

/* Which experts rows have: as the router says, or for measurements by chance, whatever it says: each alike,
 * or the i-th as often as 1 / i.  The outputs mean nothing then. */
enum experts_skew { EXPERTS_ROUTED, EXPERTS_UNIFORM, EXPERTS_ZIPF };

#endif
