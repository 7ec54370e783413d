/* expert_load.h - how the rows of steps are distributed over experts.
 * Counted by the thread that computes, read by the thread that sends heartbeats. */
#ifndef QUERN_WORKER_EXPERTS_EXPERT_LOAD_H
#define QUERN_WORKER_EXPERTS_EXPERT_LOAD_H

#include <stdatomic.h>
#include <stdint.h>

/* Rows of each expert of each layer since the epoch began: rows[layer * n_experts + expert]. */
struct expert_cells {
	struct expert_cells *older; /* cells of an earlier model */
	uint32_t n_experts, n;      /* cells of a layer, and of all layers */
	atomic_ullong rows[];
};

struct expert_load {
	atomic_ullong rows;    /* rows times experts per row, over all layers */
	atomic_ullong reads;   /* experts read by steps: those with at least one row, summed over layers */
	atomic_ullong busiest; /* the part of `rows` that belongs to the busiest expert of each layer */
	_Atomic(struct expert_cells *) cells; /* cells of the loaded model; NULL: not counted */
	struct expert_cells *all;             /* owned; used only by the thread that computes */
};

/* For the thread that computes: provide cells for the next model's shape, set to 0; 0 x 0: no cells.  Cells
 * of earlier models are kept until expert_load_fini(), since the other thread may read them. */
void expert_load_shape(struct expert_load *l, uint32_t n_layers, uint32_t n_experts);
void expert_load_reset(struct expert_load *l); /* sets the cells to 0 */
void expert_load_rows(struct expert_cells *c, uint32_t layer, uint32_t expert, uint32_t n);
void expert_load_fini(struct expert_load *l);

/* Position of the thread that sends heartbeats, which reports a range of the cells at a time; zeroed: the
 * start. */
struct expert_cursor {
	uint32_t at; /* the next cell */
	/* total rows when this round over the cells began, and when the last complete round began */
	uint64_t since, reached;
};
/* Return the cells and the next range to report: n, at most max, starting at `from`.  NULL: there are no
 * cells, or no row was counted since the last round began. */
struct expert_cells *expert_load_next(const struct expert_load *l, struct expert_cursor *t, uint32_t max,
				      uint32_t *from, uint32_t *n);

/* The experts that rows get: the router's, or, for measurements, random ones: uniform, or the i-th with a
 * frequency of 1 / i.  Random experts make the outputs meaningless. */
enum experts_skew { EXPERTS_ROUTED, EXPERTS_UNIFORM, EXPERTS_ZIPF };

#endif
