/* fleet_status.c - the status of workers and replicas, for `quern status` and /metrics. */
#include "base/alloc.h"
#include "controller/fleet/fleet_impl.h"
#include "proto/counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_replicas(const struct fleet *f, int64_t now_us, struct engine_status *out)
{
	uint64_t steps = 0;
	double weighted = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct engine_replica *r = &out->replicas[out->n_replicas++];
		replica_status(f->replicas[i], now_us, r);
		counts_add(&out->counts, &r->counts, false);
		steps += r->counts.n_steps;
		weighted += r->counts.step_us_mean * (double)r->counts.n_steps;
	}
	out->counts.step_us_mean = steps ? weighted / (double)steps : 0;
}

static void put_workers(const struct fleet *f, struct engine_status *out)
{
	uint32_t idle = 0;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		const struct worker *k = &f->workers->rows[i];
		if (k->state == WORKER_FREE)
			continue;
		struct engine_worker *w = &out->workers[out->n_workers++];
		const struct replica *r = fleet_by_epoch(f, k->epoch);
		worker_status(k, w);
		w->replica = r ? r->id : 0;
		if (r && r->state == REPLICA_DRAINING)
			snprintf(w->state, sizeof w->state, "draining");
		idle += k->state == WORKER_JOINING;
	}
	if (idle && f->tp > 1)
		snprintf(out->note, sizeof out->note,
			 "%u worker%s wait%s: a replica takes %u of one kind on one host", idle,
			 idle == 1 ? "" : "s", idle == 1 ? "s" : "", f->tp);
}

/* Add a note about jobs that no replica takes although one serves. */
static void describe_unassigned(const struct fleet *f, struct engine_status *out)
{
	uint32_t n = 0;
	uint64_t longest = 0;
	for (const struct group *g = f->ready ? sched_first(f->unassigned) : NULL; g;
	     g = sched_next(f->unassigned, g)) {
		uint64_t total = (uint64_t)g->n_prompt + g->params.max_tokens;
		longest = total > longest ? total : longest;
		n++;
	}
	if (n == 0)
		return;
	size_t at = strlen(out->note);
	at += (size_t)snprintf(out->note + at, sizeof out->note - at, "%s%u job%s wait%s for a replica that ",
			       at ? "; " : "", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
	if (longest > f->max_context)
		snprintf(out->note + at, sizeof out->note - at, "holds %llu tokens: the largest holds %u",
			 (unsigned long long)longest, f->max_context);
	else
		snprintf(out->note + at, sizeof out->note - at, "has their numerics class");
}

void fleet_status(const struct fleet *f, int64_t now_us, struct engine_status *out)
{
	struct sched_stats st;
	sched_stats(f->unassigned, &st);
	*out = (struct engine_status){
		.ready = f->ready,
		.max_context = f->max_context,
		.block_size = f->cfg->block_size,
		.no_cache = f->cfg->no_prefix_cache,
		.counts = f->past,
	};
	out->counts.n_waiting = st.n_waiting;
	out->counts.queued_tokens = st.queued_tokens;
	put_replicas(f, now_us, out);
	put_workers(f, out);
	describe_unassigned(f, out);
	expert_table_status(&f->workers->experts, &out->experts);
	out->experts.listed = f->cfg->expert_metrics;
}

static struct engine_cell *map_new(const struct blocks *b, uint32_t n_cells, uint32_t *n)
{
	if (!b)
		return NULL;
	struct blocks_cell *cells = xcalloc(n_cells, sizeof *cells);
	*n = blocks_cells(b, cells, n_cells);
	struct engine_cell *map = xcalloc(n_cells, sizeof *map);
	for (uint32_t i = 0; i < *n; i++)
		map[i] = (struct engine_cell){
			.n = cells[i].n, .held = cells[i].held, .cached = cells[i].cached};
	free(cells);
	return map;
}

void fleet_maps(const struct fleet *f, uint32_t n_cells, struct engine_status *out)
{
	for (uint32_t i = 0; i < f->n_replicas && i < out->n_replicas; i++) {
		struct engine_replica *r = &out->replicas[i];
		r->map = map_new(sched_blocks(f->replicas[i]->sched, STORE_DEVICE), n_cells, &r->n_map);
		r->host_map =
			map_new(sched_blocks(f->replicas[i]->sched, STORE_HOST), n_cells, &r->n_host_map);
	}
}
