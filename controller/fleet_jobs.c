/* fleet_jobs.c - which replica has which job, and how jobs move between them. */
#include "controller/fleet_impl.h"
#include "controller/route.h"

#include "base/log.h"

#include <stdatomic.h>

enum { TAKE_MAX = 16 }; /* groups that an idle replica takes over in one turn */

void fleet_flush(struct fleet *f, const struct replica *from, int64_t now_us)
{
	emit_events(f->emit, &f->events, from ? &f->result : NULL, from ? from->numerics : "", now_us);
}

/* ---- where to ---- */

static bool fits(const struct replica *r, const struct group *g)
{
	return (uint64_t)g->n_prompt + g->params.max_tokens <= r->max_context;
}

/* Replicas that take it: those of its class, or any while it has chosen nothing. */
static uint32_t options(struct fleet *f, const struct group *g, const struct replica *but, bool any_class,
			struct replica **out)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		if (r != but && r->state == REPLICA_SERVING && fits(r, g) &&
		    (any_class || !g->class || g->class == r->class))
			out[n++] = r;
	}
	return n;
}

struct replica *fleet_choose(struct fleet *f, const struct group *g, const struct replica *but)
{
	struct replica *rows[ENGINE_REPLICAS_MAX];
	struct route_option o[ENGINE_REPLICAS_MAX];
	uint32_t n = options(f, g, but, false, rows);
	if (n == 0 && f->cfg->class_change)
		n = options(f, g, but, true, rows);
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

/* It has a first token, and is bound to the class that chose it. */
static void note_class(const struct replica *r, struct group *g)
{
	if (g->first_token_us)
		g->class = r->class;
}

static void give(struct fleet *f, struct replica *r, struct group *g)
{
	/* Prompt logprobs are those of one class: of a prompt that was not complete, none were told. */
	if (!g->class && g->first_run_us && g->params.prompt_logprobs >= 0)
		emit_forget(f->emit, g->job);
	if (g->class && g->class != r->class) {
		log_warn("fleet", "job=%llu goes on in another numerics class", (unsigned long long)g->job);
		g->class = r->class;
		g->class_changed = true;
	}
	g->parked_us = 0;
	g->unsized = false;
	sched_adopt(r->sched, &g);
}

/* Wherever it can go, or to wait. */
static void place(struct fleet *f, struct group *g, int64_t now_us)
{
	struct replica *r = fleet_choose(f, g, NULL);
	if (r) {
		give(f, r, g);
		return;
	}
	g->parked_us = now_us;
	sched_adopt(f->lobby, &g);
}

/* Wherever it went, it would cost the worker there. */
static void end_guilty(struct fleet *f, struct replica *r, struct group *g)
{
	log_error("fleet", "job=%llu ends: every worker that computes it is lost",
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
		if (g->guilty) {
			end_guilty(f, r, g);
			continue;
		}
		if (g->suspect)
			log_warn("fleet", "job=%llu is to run alone: it was under way when workers were lost",
				 (unsigned long long)g->job);
		note_class(r, g);
		place(f, sched_detach(r->sched, g), now_us);
	}
	fleet_flush(f, NULL, now_us);
}

void fleet_empty_lobby(struct fleet *f)
{
	for (struct group *g = sched_first(f->lobby), *next; g; g = next) {
		next = sched_next(f->lobby, g);
		struct replica *r = fleet_choose(f, g, NULL);
		if (r)
			give(f, r, sched_detach(f->lobby, g));
	}
}

/* ---- who has too much, who has nothing ---- */

/* Everything it has could go on elsewhere. */
static bool all_can_go(struct fleet *f, struct replica *r)
{
	for (struct group *g = sched_first(r->sched); g; g = sched_next(r->sched, g)) {
		note_class(r, g);
		if (!fleet_choose(f, g, r))
			return false;
	}
	return true;
}

static void hand_on_new(struct fleet *f, struct replica *r)
{
	for (struct group *g = sched_first(r->sched), *next; g; g = next) {
		next = sched_next(r->sched, g);
		struct replica *to = g->first_run_us ? NULL : fleet_choose(f, g, r);
		if (to)
			give(f, to, sched_detach(r->sched, g));
	}
}

void fleet_drain_jobs(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		if (r->state != REPLICA_DRAINING || !sched_first(r->sched))
			continue;
		hand_on_new(f, r);
		/* What runs leaves all at once, when nothing is under way; else it finishes here. */
		r->paused = all_can_go(f, r);
		if (!r->paused || !sched_quiet(r->sched))
			continue;
		sched_lost(r->sched);
		fleet_move_all(f, r, now_us);
	}
}

/* Who has room, and whose groups it looks at. */
struct taker {
	const struct replica *to, *from;
	uint64_t room; /* tokens */
};

/* Tokens that it needs room for at once. */
static uint32_t longest(const struct group *g)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		most = g->seqs[i].n_tokens > most ? g->seqs[i].n_tokens : most;
	return most;
}

static bool wants(const struct group *g, void *user)
{
	const struct taker *t = user;
	/* note_class() comes when it leaves. */
	uint32_t class = g->first_token_us ? t->from->class : g->class;
	return longest(g) < t->room && fits(t->to, g) && (!class || class == t->to->class);
}

/* The replica with the most that waits, of those not marked in but[]. */
static struct replica *fullest(const struct fleet *f, const bool *but, uint32_t *at)
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

/* Nobody waits at r, and there is room: it takes those whose turn is next elsewhere, as many as it
 * can begin in a step. */
static void take_over(struct fleet *f, struct replica *r, uint64_t room, int64_t now_us)
{
	bool passed[ENGINE_REPLICAS_MAX] = {false}; /* itself, and those that have nothing for it */
	uint64_t tokens = 0;
	uint32_t at;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		passed[i] = f->replicas[i] == r;
	for (int n = 0; n < TAKE_MAX && tokens < f->cfg->max_rows;) {
		struct replica *from = fullest(f, passed, &at);
		if (!from)
			return;
		struct taker t = {r, from, room};
		struct group *g = sched_next_idle(from->sched, now_us, wants, &t);
		if (!g) {
			passed[at] = true;
			continue;
		}
		n++;
		tokens += g->n_prompt;
		room -= longest(g);
		note_class(from, g);
		give(f, r, sched_detach(from->sched, g));
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
		replica_plan(r, f->link, &f->plan, now_us);
	}
}

/* ---- jobs ---- */

void fleet_submit(struct fleet *f, struct group **gp, bool resumed, int64_t now_us)
{
	struct group *g = *gp;
	*gp = NULL;
	/* A replica held the resumed one, and may come back: who comes first says nothing of it. */
	g->unsized = !f->served && !resumed;
	f->unsized = f->unsized || g->unsized;
	g->order = ++f->last_order;
	g->arrival_us = now_us;
	place(f, g, now_us);
}

/* Who has the job; NULL: nobody any more. */
static struct sched *holder(struct fleet *f, uint64_t job)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		if (sched_find(f->replicas[i]->sched, job))
			return f->replicas[i]->sched;
	return sched_find(f->lobby, job) ? f->lobby : NULL;
}

void fleet_stop(struct fleet *f, uint64_t job, uint32_t index, int64_t now_us)
{
	struct sched *s = holder(f, job);
	if (s)
		sched_stop(s, job, index, &f->events);
	fleet_flush(f, NULL, now_us);
}

void fleet_cancel(struct fleet *f, uint64_t job, int64_t now_us)
{
	struct sched *s = holder(f, job);
	if (s)
		sched_cancel(s, job, &f->events);
	fleet_flush(f, NULL, now_us);
}

static bool any_loads(const struct fleet *f)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		if (f->replicas[i]->state == REPLICA_LOADING)
			return true;
	return false;
}

void fleet_judge_unsized(struct fleet *f, int64_t now_us)
{
	if (!f->unsized || !f->served || any_loads(f))
		return;
	f->unsized = false;
	for (struct group *g = sched_first(f->lobby), *next; g; g = next) {
		next = sched_next(f->lobby, g);
		if (g->unsized && (uint64_t)g->n_prompt + g->params.max_tokens > f->max_context)
			sched_fail(f->lobby, g, E_TOO_LONG, NULL, &f->events);
		else
			g->unsized = false;
	}
	fleet_flush(f, NULL, now_us);
}

void fleet_expire(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		sched_expire(f->replicas[i]->sched, now_us, &f->events);
	sched_expire(f->lobby, now_us, &f->events);
	for (struct group *g = sched_first(f->lobby), *next; g; g = next) {
		next = sched_next(f->lobby, g);
		/* A durable one waits for as long as it takes. */
		if (!g->durable && now_us - g->parked_us > f->cfg->worker_wait_us)
			sched_fail(f->lobby, g, E_WORKER_LOST, NULL, &f->events);
	}
	fleet_flush(f, NULL, now_us);
}

struct fleet_queue fleet_queue(const struct fleet *f)
{
	struct sched_stats st;
	sched_stats(f->lobby, &st);
	struct fleet_queue q = {st.n_queued, st.queued_tokens};
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		sched_stats(f->replicas[i]->sched, &st);
		q.n_queued += st.n_queued;
		q.queued_tokens += st.queued_tokens;
	}
	return q;
}
