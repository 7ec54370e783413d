/* expert_table.h - rows of each expert of each layer, over all workers since the controller began.
 * A worker reports its counts since its load, some cells at a time; the table adds the increase since the
 * worker's previous report.  Pure.  Engine thread only. */
#ifndef QUERN_CONTROLLER_FLEET_EXPERT_TABLE_H
#define QUERN_CONTROLLER_FLEET_EXPERT_TABLE_H

#include "controller/message/engine_msg.h"
#include "proto/bus.h"

struct expert_table {
	uint32_t n, n_experts; /* cells in total, and per layer; 0: no report yet */
	uint64_t *rows;        /* [n] */
	struct expert_reports {
		uint64_t epoch;
		uint64_t *rows; /* [n] counts in the worker's last report of each cell; NULL: no report yet */
	} workers[ENGINE_WORKERS_MAX];
};

void expert_table_fini(struct expert_table *t);

/* Add a report of the worker in this row of the worker table; every load has its own epoch.  False: the
 * report contradicts itself or the model of earlier reports, and is ignored. */
bool expert_table_add(struct expert_table *t, uint32_t row, uint64_t epoch, const struct bus_cells *c);

/* Copy the table for the status. */
void expert_table_status(const struct expert_table *t, struct engine_experts *out);

#endif
