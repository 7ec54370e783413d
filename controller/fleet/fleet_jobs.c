/* fleet_jobs.c - jobs and replicas: assignment, moves, work stealing, deadlines. */
#include "controller/fleet/fleet_impl.h"
#include "controller/fleet/route.h"

#include "base/log.h"

#include <stdatomic.h>

enum { TAKE_MAX = 16 }; /* groups that an idle replica steals in one turn */

void fleet_emit_events(struct fleet *f, const struct replica *from, int64_t now_us)
{
	emit_events(f->emit, &f->events, from ? &f->result : NULL, from ? from->numerics : "", now_us);
}

/* ---- assignment ---- */

static bool fits(const struct replica *r, const struct group *g)
{
	return (uint64_t)g->n_prompt + g->params.max_tokens <= r->max_context;
}

/* The replicas that the group fits: of its numerics class, or of any before its first token. */
static uint32_t candidates(struct fleet *f, const struct group *g, const struct replica *but, bool any_class,
			   struct replica **out)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		if (r != but && r->state == REPLICA_SERVING && fits(r, g) &&
		    (any_class || !g->numerics_class || g->numerics_class == r->numerics_class))
			out[n++] = r;
	}
	return n;
}

/* The replica for the group, other than `but`; NULL: none now. */
static struct replica *choose(struct fleet *f, const struct group *g, const struct replica *but)
{
	struct replica *rows[ENGINE_REPLICAS_MAX];
	struct route_option o[ENGINE_REPLICAS_MAX];
	uint32_t n = candidates(f, g, but, false, rows);
	if (n == 0 && f->cfg->class_change)
		n = candidates(f, g, but, true, rows);
	if (n < 2)
		return n ? rows[0] : NULL;
	for (uint32_t i = 0; i < n; i++)
		o[i] = (struct route_option){
			.load = replica_load(rows[i]),
			.cached = g->params.prompt_logprobs >= 0
					  ? 0
					  : sched_cached(rows[i]->sched, g->prompt, g->n_prompt, g->salt),
			.speed = rows[i]->prefill_tps,
		};
	return rows[route_choose(o, n, g->n_prompt)];
}

/* From its first token on, the group is bound to the numerics class that computed it. */
static void bind_class(const struct replica *r, struct group *g)
{
	if (g->first_token_us)
		g->numerics_class = r->numerics_class;
}

static void assign(struct fleet *f, struct replica *r, struct group *g)
{
	/* Prompt logprobs must all be of one numerics class: those of an incomplete prompt are not sent yet,
	 * and are computed again. */
	if (!g->numerics_class && g->first_run_us && g->params.prompt_logprobs >= 0)
		emit_drop_prompt(f->emit, g->job);
	if (g->numerics_class && g->numerics_class != r->numerics_class) {
		log_warn("fleet", "job=%llu continues in another numerics class", (unsigned long long)g->job);
		g->numerics_class = r->numerics_class;
		g->class_changed = true;
	}
	g->parked_us = 0;
	g->unsized = false;
	sched_adopt(r->sched, &g);
}

/* Assigns the group to a replica, or leaves it unassigned. */
static void place(struct fleet *f, struct group *g, int64_t now_us)
{
	struct replica *r = choose(f, g, NULL);
	if (r) {
		assign(f, r, g);
		return;
	}
	g->parked_us = now_us;
	sched_adopt(f->unassigned, &g);
}

/* On any replica the group would kill the worker. */
static void fail_poisoned(struct fleet *f, struct replica *r, struct group *g)
{
	log_error("fleet", "job=%llu failed: every worker that computes it dies", (unsigned long long)g->job);
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
			log_warn("fleet", "job=%llu will run alone: it was under way when workers were lost",
				 (unsigned long long)g->job);
		bind_class(r, g);
		place(f, sched_detach(r->sched, g), now_us);
	}
	fleet_emit_events(f, NULL, now_us);
}

void fleet_assign_waiting(struct fleet *f)
{
	for (struct group *g = sched_first(f->unassigned), *next; g; g = next) {
		next = sched_next(f->unassigned, g);
		struct replica *r = choose(f, g, NULL);
		if (r)
			assign(f, r, sched_detach(f->unassigned, g));
	}
}

/* ---- drain and work stealing ---- */

/* Whether every group of the replica could continue elsewhere. */
static bool can_all_move(struct fleet *f, struct replica *r)
{
	for (struct group *g = sched_first(r->sched); g; g = sched_next(r->sched, g)) {
		bind_class(r, g);
		if (!choose(f, g, r))
			return false;
	}
	return true;
}

static void move_new(struct fleet *f, struct replica *r)
{
	for (struct group *g = sched_first(r->sched), *next; g; g = next) {
		next = sched_next(r->sched, g);
		struct replica *to = g->first_run_us ? NULL : choose(f, g, r);
		if (to)
			assign(f, to, sched_detach(r->sched, g));
	}
}

void fleet_drain_jobs(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		if (r->state != REPLICA_DRAINING || !sched_first(r->sched))
			continue;
		move_new(f, r);
		/* Running groups leave all together, once no plan is under way; else they finish here. */
		r->paused = can_all_move(f, r);
		if (!r->paused || !sched_quiet(r->sched))
			continue;
		sched_lost(r->sched);
		fleet_move_all(f, r, now_us);
	}
}

/* A replica with room that steals from another. */
struct taker {
	const struct replica *to, *from;
	uint64_t room; /* tokens */
};

/* Tokens that the group needs room for at once. */
static uint32_t longest(const struct group *g)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		most = g->seqs[i].n_tokens > most ? g->seqs[i].n_tokens : most;
	return most;
}

static bool taker_accepts(const struct group *g, void *user)
{
	const struct taker *t = user;
	/* bind_class() is called only when it leaves. */
	uint32_t bound = g->first_token_us ? t->from->numerics_class : g->numerics_class;
	return longest(g) < t->room && fits(t->to, g) && (!bound || bound == t->to->numerics_class);
}

/* The replica with the most waiting tokens, of those not marked in but[]. */
static struct replica *most_queued(const struct fleet *f, const bool *but, uint32_t *at)
{
	struct replica *most = NULL;
	uint64_t most_tokens = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct sched_stats st;
		struct replica *r = f->replicas[i];
		if (but[i] || !r->started)
			continue;
		sched_stats(r->sched, &st);
		uint64_t tokens = st.queued_tokens + st.begun_tokens;
		if (tokens > most_tokens) {
			most = r;
			most_tokens = tokens;
			*at = i;
		}
	}
	return most;
}

/* r has room and nothing waits there: it takes the groups that are next elsewhere, as many as it can
 * begin in a step. */
static void take_over(struct fleet *f, struct replica *r, uint64_t room, int64_t now_us)
{
	bool passed[ENGINE_REPLICAS_MAX] = {false}; /* r itself, and replicas without a group for it */
	uint64_t tokens = 0;
	uint32_t at;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		passed[i] = f->replicas[i] == r;
	for (int n = 0; n < TAKE_MAX && tokens < f->cfg->max_rows;) {
		struct replica *from = most_queued(f, passed, &at);
		if (!from)
			return;
		struct taker t = {r, from, room};
		struct group *g = sched_next_idle(from->sched, now_us, taker_accepts, &t);
		if (!g) {
			passed[at] = true;
			continue;
		}
		n++;
		tokens += g->n_prompt;
		room -= longest(g);
		bind_class(from, g);
		assign(f, r, sched_detach(from->sched, g));
	}
}

void fleet_balance(struct fleet *f, int64_t now_us)
{
	if (f->n_replicas < 2)
		return;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		struct sched_stats st;
		if (r->state != REPLICA_SERVING)
			continue;
		sched_stats(r->sched, &st);
		if (st.n_waiting || st.n_running >= f->cfg->max_seqs || st.n_free + st.n_cached == 0)
			continue;
		take_over(f, r, (uint64_t)(st.n_free + st.n_cached) * r->block_size, now_us);
		replica_plan(r, &f->plan, now_us);
	}
}

/* ---- jobs ---- */

void fleet_submit(struct fleet *f, struct group **gp, bool resumed, int64_t now_us)
{
	struct group *g = *gp;
	*gp = NULL;
	/* A replica that held a resumed job may still come back, whatever the first ones hold. */
	g->unsized = !f->served && !resumed;
	f->unsized = f->unsized || g->unsized;
	g->order = ++f->last_order;
	g->arrival_us = now_us;
	place(f, g, now_us);
}

/* The scheduler that has the job; NULL: it has ended. */
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
