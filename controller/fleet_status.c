/* fleet_status.c - what `quern status` shows. */
#include "base/alloc.h"
#include "controller/fleet_impl.h"

#include <stdio.h>
#include <string.h>

static void add(struct engine_status *out, const struct engine_replica *r)
{
	out->n_running += r->n_running;
	out->n_waiting += r->n_waiting;
	out->n_swapped += r->n_swapped;
	out->queued_tokens += r->queued_tokens;
	out->n_blocks += r->n_blocks;
	out->n_free += r->n_free;
	out->n_cached += r->n_cached;
	out->n_held += r->n_held;
	out->n_host_blocks += r->n_host_blocks;
	out->n_host_free += r->n_host_free;
	out->n_preempted += r->n_preempted;
	out->n_swapped_out += r->n_swapped_out;
	out->prefix_queries += r->prefix_queries;
	out->prefix_hits += r->prefix_hits;
	out->prompt_tokens += r->prompt_tokens;
	out->generated_tokens += r->generated_tokens;
	out->prompt_tps += r->prompt_tps;
	out->decode_tps += r->decode_tps;
}

static void put_replicas(const struct fleet *f, int64_t now_us, struct engine_status *out)
{
	uint64_t steps = 0;
	double weighted = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct engine_replica *r = &out->replicas[out->n_replicas++];
		replica_status(f->replicas[i], now_us, r);
		add(out, r);
		steps += r->n_steps;
		weighted += r->step_us_mean * (double)r->n_steps;
	}
	out->n_steps += steps;
	out->step_us_mean = steps ? weighted / (double)steps : 0;
}

static void put_workers(const struct fleet *f, struct engine_status *out)
{
	uint32_t idle = 0;
	for (uint32_t i = 0; i < wlink_rows(f->link); i++) {
		const struct wlink_worker *k = wlink_at(f->link, i);
		if (k->state == WLINK_FREE)
			continue;
		struct engine_worker *w = &out->workers[out->n_workers++];
		const struct replica *r = fleet_by_epoch(f, k->epoch);
		wlink_status(k, w);
		w->replica = r ? r->id : 0;
		if (r && r->state == REPLICA_DRAINING)
			snprintf(w->state, sizeof w->state, "draining");
		idle += k->state == WLINK_JOINING;
	}
	if (idle && f->tp > 1)
		snprintf(out->note, sizeof out->note,
			 "%u worker%s wait%s: a replica takes %u of one kind on one host", idle,
			 idle == 1 ? "" : "s", idle == 1 ? "s" : "", f->tp);
}

/* Jobs that no replica takes, though one serves. */
static void note_lobby(const struct fleet *f, struct engine_status *out)
{
	uint32_t n = 0;
	uint64_t longest = 0;
	for (const struct group *g = f->ready ? sched_first(f->lobby) : NULL; g; g = sched_next(f->lobby, g)) {
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
		snprintf(out->note + at, sizeof out->note - at, "computes as theirs did (numerics)");
}

void fleet_status(const struct fleet *f, int64_t now_us, struct engine_status *out)
{
	struct sched_stats st;
	sched_stats(f->lobby, &st);
	*out = (struct engine_status){
		.ready = f->ready,
		.max_context = f->max_context,
		.block_size = f->cfg->block_size,
		.n_waiting = st.n_waiting,
		.queued_tokens = st.queued_tokens,
		.n_preempted = f->gone.n_preempted,
		.n_swapped_out = f->gone.n_swapped_out,
		.prefix_queries = f->gone.prefix_queries,
		.prefix_hits = f->gone.prefix_hits,
		.prompt_tokens = f->gone.prompt_tokens,
		.generated_tokens = f->gone.generated_tokens,
		.n_steps = f->gone.n_plans,
	};
	put_replicas(f, now_us, out);
	put_workers(f, out);
	note_lobby(f, out);
}

static struct blocks_cell *map_new(const struct blocks *b, uint32_t n_cells, uint32_t *n)
{
	if (!b)
		return NULL;
	struct blocks_cell *cells = xcalloc(n_cells, sizeof *cells);
	*n = blocks_cells(b, cells, n_cells);
	return cells;
}

void fleet_maps(const struct fleet *f, uint32_t n_cells, struct engine_status *out)
{
	for (uint32_t i = 0; i < f->n_replicas && i < out->n_replicas; i++) {
		struct engine_replica *r = &out->replicas[i];
		r->map = map_new(sched_blocks(f->replicas[i]->sched), n_cells, &r->n_map);
		r->host_map = map_new(sched_host_blocks(f->replicas[i]->sched), n_cells, &r->n_host_map);
	}
}
