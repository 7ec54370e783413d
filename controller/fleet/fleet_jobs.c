/* fleet_jobs.c - jobs and replicas: assignment, moves, deadlines. */
#include "controller/fleet/fleet_impl.h"
#include "controller/fleet/route.h"

#include "base/log.h"

#include <stdatomic.h>

void fleet_emit_events(struct fleet *f, const struct replica *from, int64_t now_us)
{
	emit_events(f->emit, &f->events, from ? &f->result : NULL, from ? from->numerics : "", now_us);
}

/* ---- assignment ---- */

bool fleet_fits(const struct replica *r, const struct group *g)
{
	return (uint64_t)g->n_prompt + g->params.max_tokens <= r->max_context;
}

/* Collect the replicas that the group fits: of its numerics class, or of any class before its first token. */
static uint32_t candidates(struct fleet *f, const struct group *g, const struct replica *but, bool any_class,
			   struct replica **out)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		if (r != but && r->state == REPLICA_SERVING && fleet_fits(r, g) &&
		    (any_class || !g->numerics_class || g->numerics_class == fleet_class_at(r, g)))
			out[n++] = r;
	}
	return n;
}

/* Return the replica for the group, other than `but`; NULL: none now. */
static struct replica *choose(struct fleet *f, const struct group *g, const struct replica *but)
{
	struct replica *rows[ENGINE_REPLICAS_MAX];
	struct route_option o[ENGINE_REPLICAS_MAX];
	uint32_t n = candidates(f, g, but, false, rows);
	if (n == 0 && f->cfg->class_change)
		n = candidates(f, g, but, true, rows);
	if (n < 2)
		return n ? rows[0] : NULL;
	bool prompts = true, decodes = true;
	for (uint32_t i = 0; i < n; i++) {
		prompts = prompts && rows[i]->prefill_tps > 0;
		decodes = decodes && rows[i]->decode_us > 0;
	}
	for (uint32_t i = 0; i < n; i++)
		o[i] = (struct route_option){
			.load = replica_load(rows[i]),
			.cached = params_needs_rows(&g->params)
					  ? 0
					  : sched_cached(rows[i]->sched, g->prompt, g->n_prompt, g->salt),
			/* Short prompts never measure prefill; then decode times show which replica is
			 * slow. */
			.speed = prompts || !decodes ? rows[i]->prefill_tps : 1e6 / rows[i]->decode_us,
		};
	return rows[route_choose(o, n, g->n_prompt)];
}

void fleet_bind_class(const struct replica *r, struct group *g)
{
	if (g->first_token_us)
		g->numerics_class = fleet_class_at(r, g);
}

void fleet_assign(struct fleet *f, struct replica *r, struct group *g, int64_t now_us)
{
	/* Prompt logprobs must all be of one numerics class: those of an incomplete prompt were not sent, and
	 * are recomputed. */
	if (!g->numerics_class && g->first_run_us && g->params.prompt_logprobs >= 0)
		emit_drop_prompt(f->emit, g->job);
	if (g->numerics_class && g->numerics_class != fleet_class_at(r, g)) {
		log_warn("fleet", "numerics class changed job=%llu", (unsigned long long)g->job);
		g->numerics_class = fleet_class_at(r, g);
		g->class_changed = true;
	}
	g->parked_us = 0;
	g->unsized = false;
	sched_clock(r->sched, now_us);
	sched_adopt(r->sched, &g);
}

/* Assign the group to a replica, or leave it unassigned. */
static void place(struct fleet *f, struct group *g, int64_t now_us)
{
	struct replica *r = choose(f, g, NULL);
	if (r) {
		fleet_assign(f, r, g, now_us);
		return;
	}
	g->parked_us = now_us;
	sched_clock(f->unassigned, now_us);
	sched_adopt(f->unassigned, &g);
}

/* Fail a group that would kill the worker of any replica. */
static void fail_poisoned(struct fleet *f, struct replica *r, struct group *g)
{
	log_error("fleet", "job failed job=%llu reason=\"every worker that computes it dies\"",
		  (unsigned long long)g->job);
	sched_fail(r->sched, g, E_INTERNAL,
		   "workers were lost three times in a row while they computed it, the third time it alone: "
		   "it is not tried again",
		   &f->events);
}

void fleet_move_all(struct fleet *f, struct replica *r, int64_t now_us)
{
	for (struct group *g = sched_first(r->sched), *next; g; g = next) {
		next = sched_next(r->sched, g);
		if (g->poisoned) {
			fail_poisoned(f, r, g);
			continue;
		}
		if (g->suspect)
			log_warn("fleet",
				 "job isolated job=%llu reason=\"it was in flight when workers were lost\"",
				 (unsigned long long)g->job);
		fleet_bind_class(r, g);
		place(f, sched_detach(r->sched, g), now_us);
	}
	fleet_emit_events(f, NULL, now_us);
}

void fleet_assign_waiting(struct fleet *f, int64_t now_us)
{
	for (struct group *g = sched_first(f->unassigned), *next; g; g = next) {
		next = sched_next(f->unassigned, g);
		struct replica *r = choose(f, g, NULL);
		if (r)
			fleet_assign(f, r, sched_detach(f->unassigned, g), now_us);
	}
}

/* ---- drain ---- */

/* Return whether every group of the replica could continue elsewhere. */
static bool can_all_move(struct fleet *f, struct replica *r)
{
	for (struct group *g = sched_first(r->sched); g; g = sched_next(r->sched, g)) {
		fleet_bind_class(r, g);
		if (!choose(f, g, r))
			return false;
	}
	return true;
}

static void move_new(struct fleet *f, struct replica *r, int64_t now_us)
{
	for (struct group *g = sched_first(r->sched), *next; g; g = next) {
		next = sched_next(r->sched, g);
		struct replica *to = g->first_run_us ? NULL : choose(f, g, r);
		if (to)
			fleet_assign(f, to, sched_detach(r->sched, g), now_us);
	}
}

void fleet_drain_jobs(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		if (r->state != REPLICA_DRAINING || !sched_first(r->sched))
			continue;
		move_new(f, r, now_us);
		/* Running groups leave together, once no plan is in flight; otherwise they finish here. */
		r->paused = can_all_move(f, r);
		if (!r->paused || !sched_quiet(r->sched))
			continue;
		sched_clock(r->sched, now_us);
		sched_lost(r->sched);
		fleet_move_all(f, r, now_us);
	}
}

/* ---- jobs ---- */

void fleet_submit(struct fleet *f, struct group **gp, bool resumed, int64_t now_us)
{
	struct group *g = *gp;
	*gp = NULL;
	/* A replica that held a resumed job may still return, whatever context the first replicas have. */
	g->unsized = !f->served && !resumed;
	f->unsized = f->unsized || g->unsized;
	g->order = ++f->last_order;
	g->arrival_us = now_us;
	place(f, g, now_us);
}

/* Return the scheduler that has the job; NULL: it has ended. */
static struct sched *find_holder(struct fleet *f, uint64_t job)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		if (sched_find(f->replicas[i]->sched, job))
			return f->replicas[i]->sched;
	return sched_find(f->unassigned, job) ? f->unassigned : NULL;
}

void fleet_stop(struct fleet *f, uint64_t job, uint32_t index, int64_t now_us)
{
	struct sched *s = find_holder(f, job);
	if (s)
		sched_stop(s, job, index, &f->events);
	fleet_emit_events(f, NULL, now_us);
}

bool fleet_times(struct fleet *f, uint64_t job, int64_t now_us, struct timeline *out)
{
	struct sched *s = find_holder(f, job);
	const struct group *g = s ? sched_find(s, job) : NULL;
	if (!g)
		return false;
	sched_times(s, g, now_us, out);
	return true;
}

void fleet_cancel(struct fleet *f, uint64_t job, int64_t now_us)
{
	struct sched *s = find_holder(f, job);
	if (s)
		sched_cancel(s, job, &f->events);
	fleet_emit_events(f, NULL, now_us);
}

static bool any_loading(const struct fleet *f)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		if (f->replicas[i]->state == REPLICA_LOADING)
			return true;
	return false;
}

void fleet_reject_oversized(struct fleet *f, int64_t now_us)
{
	if (!f->unsized || !f->served || any_loading(f))
		return;
	f->unsized = false;
	for (struct group *g = sched_first(f->unassigned), *next; g; g = next) {
		next = sched_next(f->unassigned, g);
		if (g->unsized && (uint64_t)g->n_prompt + g->params.max_tokens > f->max_context)
			sched_fail(f->unassigned, g, E_TOO_LONG, NULL, &f->events);
		else
			g->unsized = false;
	}
	fleet_emit_events(f, NULL, now_us);
}

void fleet_expire(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		sched_expire(f->replicas[i]->sched, now_us, &f->events);
	sched_expire(f->unassigned, now_us, &f->events);
	for (struct group *g = sched_first(f->unassigned), *next; g; g = next) {
		next = sched_next(f->unassigned, g);
		/* Durable jobs wait without limit. */
		if (!g->durable && now_us - g->parked_us > f->cfg->worker_wait_us)
			sched_fail(f->unassigned, g, E_WORKER_LOST, NULL, &f->events);
	}
	fleet_emit_events(f, NULL, now_us);
}

struct fleet_queue fleet_queue_of(const struct fleet *f, uint64_t account)
{
	struct sched_queued all = sched_queued(f->unassigned, account);
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct sched_queued here = sched_queued(f->replicas[i]->sched, account);
		all.n += here.n;
		all.tokens += here.tokens;
	}
	return (struct fleet_queue){all.n, all.tokens};
}

struct fleet_queue fleet_queue(const struct fleet *f)
{
	struct sched_stats st;
	sched_stats(f->unassigned, &st);
	struct fleet_queue q = {st.n_queued, st.queued_tokens};
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		sched_stats(f->replicas[i]->sched, &st);
		q.n_queued += st.n_queued;
		q.queued_tokens += st.queued_tokens;
	}
	return q;
}
