/* expert_table.h - rows of each expert of each layer, over all workers since the controller began.
 * Workers report what they have counted since their load, a part of it at a time; the table adds what a
 * report has more than the one before.  Pure.  Engine thread only. */
#ifndef QUERN_CONTROLLER_FLEET_EXPERT_TABLE_H
#define QUERN_CONTROLLER_FLEET_EXPERT_TABLE_H

#include "controller/message/engine_msg.h"
#include "proto/bus.h"

struct expert_table {
	uint32_t n, n_experts; /* cells, and those of a layer; 0: no report yet */
	uint64_t *rows;        /* [n] */
	struct expert_reports {
		uint64_t epoch;
		uint64_t *rows; /* [n] in the last report of each; NULL: no report yet */
	} workers[ENGINE_WORKERS_MAX];
};

void expert_table_fini(struct expert_table *t);

/* A report of the worker in that row of the table of workers, of an epoch that no other load has.  One that
 * contradicts itself, or the model of the reports before, is ignored: false. */
bool expert_table_add(struct expert_table *t, uint32_t row, uint64_t epoch, const struct bus_cells *c);

/* A copy for the status. */
void expert_table_status(const struct expert_table *t, struct engine_experts *out);

#endif
