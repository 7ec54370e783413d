/* fleet_balance.c - work stealing: a replica with room takes jobs that wait elsewhere, if they are expected
 * to end earlier on it.
 *
 *   stays   [ prompts and outputs before it | its prompt, not cached there | its output ]
 *   moves   [ prompts taken in this pass | its prompt, not cached here | its output ]
 *
 * The times follow from the measured speeds of the two replicas.  The next job in the queue's order moves
 * first.  If no job gains by moving now, jobs further back may still gain, since the jobs before them are
 * counted. */
#include "controller/fleet/fleet_impl.h"
#include "controller/fleet/route.h"

#include "base/alloc.h"

#include <stdlib.h>

enum {
	TAKE_MAX = 16,    /* groups that a replica takes in one pass */
	LOOKUPS_MAX = 64, /* groups looked up in the prefix caches per pass */
	LINE_MAX = 1024,  /* waiting groups, by arrival, that get an estimated place in the queue */
	LEFT_MAX = 1024,  /* tokens: most outputs end long before an open-ended max_tokens */
	LOOK_US = 20000,  /* pause after a pass in which all jobs would end earlier where they are */
};

/* The replica that takes groups, and the state of its pass. */
struct taker {
	struct fleet *f;
	struct replica *to, *from;
	uint64_t room, tokens; /* tokens of room left; tokens taken */
	uint32_t n_slots, n;   /* sequences of room left; groups taken */
	uint32_t n_lookups;
	int64_t now_us;
	bool declined; /* at least one group would end later here */
	/* The source replica, `from`: */
	struct sched_ahead running;
	struct sched_stats stats;
	uint64_t ahead_prompt, ahead_left; /* tokens of the waiting groups before the current group ... */
	uint64_t n_ahead;                  /* ... and the number of these groups */
	uint64_t seen, uncached;           /* tokens of the groups looked up; of these, not cached */
};

static const struct seq *longest(const struct group *g)
{
	const struct seq *most = &g->seqs[0];
	for (uint32_t i = 1; i < g->n_seqs; i++)
		most = g->seqs[i].n_tokens > most->n_tokens ? &g->seqs[i] : most;
	return most;
}

/* Return the expected maximum of tokens that an output of the group still produces. */
static uint32_t left_of(const struct group *g)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		uint32_t left = g->seqs[i].state == SEQ_WAITING ? sched_left(&g->seqs[i]) : 0;
		most = left > most ? left : most;
	}
	return most < LEFT_MAX ? most : LEFT_MAX;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Return the steps until the group is admitted at its present replica; 0 if there is room for it and for all
 * groups before it. */
static uint64_t steps_until_admitted(const struct taker *t, const struct group *g)
{
	const struct sched_stats *st = &t->stats;
	uint64_t room = (uint64_t)(st->n_free + st->n_cached) * t->from->block_size / t->from->kinds.n;
	uint64_t need = t->ahead_prompt + t->ahead_left + longest(g)->n_tokens;
	uint32_t n = t->running.n_running;
	if (n == 0 || (n + t->n_ahead < t->f->cfg->max_seqs && need < room))
		return 0;
	return min_u32(t->running.next_end, LEFT_MAX) + t->ahead_left / n;
}

static bool is_earlier(const struct taker *t, const struct group *g, uint32_t cached_to, uint32_t cached_from)
{
	uint32_t left = left_of(g), n = longest(g)->n_tokens;
	const struct route_path moves = {
		.prompt_tokens = t->tokens + n - min_u32(n, cached_to),
		.steps = left,
		.prefill_tps = t->to->prefill_tps,
		.decode_us = t->to->decode_us,
	};
	const struct route_path stays = {
		.prompt_tokens = t->running.prompt_rest + t->ahead_prompt + n - min_u32(n, cached_from),
		/* It waits at least for the next plan. */
		.steps = 1 + steps_until_admitted(t, g) + left,
		.prefill_tps = t->from->prefill_tps,
		.decode_us = t->from->decode_us,
	};
	return route_is_earlier(&moves, &stays);
}

static uint32_t cached(const struct replica *r, const struct group *g)
{
	const struct seq *q = longest(g);
	if (params_needs_rows(&g->params))
		return 0;
	return sched_cached(r->sched, q->tokens ? q->tokens : g->prompt, q->n_tokens, g->salt);
}

/* Return whether the group gains by moving.  The caches are looked up only if they decide.  A draining
 * replica gives up all its groups. */
static bool gains(struct taker *t, const struct group *g)
{
	uint32_t all = longest(g)->n_tokens;
	bool yes = t->from->state == REPLICA_DRAINING || is_earlier(t, g, 0, all);
	if (!yes && is_earlier(t, g, all, 0) && t->n_lookups < LOOKUPS_MAX) {
		t->n_lookups++;
		yes = is_earlier(t, g, cached(t->to, g), cached(t->from, g));
	}
	t->declined = t->declined || !yes;
	return yes;
}

static bool accepts(const struct group *g, void *user)
{
	struct taker *t = user;
	/* fleet_bind_class() is called only when the group leaves. */
	uint32_t bound = g->first_token_us ? fleet_class_at(t->from, g) : g->numerics_class;
	return longest(g)->n_tokens < t->room && fleet_fits(t->to, g) &&
	       (!bound || bound == fleet_class_at(t->to, g)) && gains(t, g);
}

static bool is_full(const struct taker *t)
{
	return t->n >= TAKE_MAX || t->n_slots == 0 || t->tokens >= t->f->cfg->max_rows;
}

static void take(struct taker *t, struct group *g)
{
	uint32_t tokens = longest(g)->n_tokens;
	t->n++;
	t->n_slots -= min_u32(t->n_slots, g->n_live);
	t->tokens += tokens;
	t->room -= tokens;
	fleet_bind_class(t->from, g);
	fleet_assign(t->f, t->to, sched_detach(t->from->sched, g), t->now_us);
}

/* ---- further back in the queue ---- */

/* A waiting group and its estimated place. */
struct place {
	struct group *g;
	uint64_t before; /* tokens of its user's groups before it; later of its account's groups, divided
			    by the share */
	uint32_t left;
};

/* Return -1, 0 or 1. */
static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_account(const struct group *a, const struct group *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority ? -1 : 1;
	return compare(a->account, b->account);
}

static int by_user(const void *pa, const void *pb)
{
	const struct group *a = ((const struct place *)pa)->g, *b = ((const struct place *)pb)->g;
	int account = by_account(a, b);
	if (account)
		return account;
	return a->user != b->user ? compare(a->user, b->user) : compare(a->order, b->order);
}

/* Compare two groups by place: the users of an account take turns. */
static int by_user_turn(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;
	int account = by_account(a->g, b->g);
	if (account)
		return account;
	return a->before != b->before ? compare(a->before, b->before) : compare(a->g->order, b->g->order);
}

/* Compare two groups by place: the accounts of one priority take turns. */
static int by_turn(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;
	if (a->g->priority != b->g->priority)
		return a->g->priority < b->g->priority ? -1 : 1;
	return a->before != b->before ? compare(a->before, b->before) : compare(a->g->order, b->g->order);
}

static bool is_waiting(const struct group *g)
{
	bool waits = false;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		if (g->seqs[i].state == SEQ_RUNNING)
			return false;
		waits = waits || g->seqs[i].state == SEQ_WAITING;
	}
	return waits;
}

/* Fill line with the replica's waiting groups in their expected order of admission. */
static uint32_t line_up(const struct replica *r, struct place *line)
{
	uint32_t n = 0;
	for (struct group *g = sched_first(r->sched); g && n < LINE_MAX; g = sched_next(r->sched, g))
		if (is_waiting(g))
			line[n++] = (struct place){.g = g, .left = left_of(g)};
	qsort(line, n, sizeof *line, by_user);
	for (uint32_t i = 1; i < n; i++) {
		const struct place *last = &line[i - 1];
		if (!by_account(last->g, line[i].g) && last->g->user == line[i].g->user)
			line[i].before = last->before + last->g->n_prompt + last->left;
	}
	qsort(line, n, sizeof *line, by_user_turn);
	uint64_t sum = 0; /* tokens of the account so far */
	for (uint32_t i = 0; i < n; i++) {
		const struct group *g = line[i].g;
		if (i && by_account(line[i - 1].g, g))
			sum = 0;
		line[i].before = sum / (g->share ? g->share : 1);
		sum += g->n_prompt + line[i].left;
	}
	qsort(line, n, sizeof *line, by_turn);
	return n;
}

/* Count a group that stays as being before the later groups in the line.  When the look-ups are used up, the
 * same fraction of a prompt is assumed to be cached as in earlier groups. */
static void pass(struct taker *t, const struct place *p)
{
	uint32_t n = longest(p->g)->n_tokens;
	uint64_t rest = t->seen ? n * t->uncached / t->seen : n;
	if (t->n_lookups < LOOKUPS_MAX) {
		t->n_lookups++;
		rest = n - min_u32(n, cached(t->from, p->g));
		t->seen += n;
		t->uncached += rest;
	}
	t->n_ahead++;
	t->ahead_prompt += rest;
	t->ahead_left += p->left;
}

static void take_from_line(struct taker *t)
{
	if (!t->f->line)
		t->f->line = xcalloc(LINE_MAX, sizeof *t->f->line);
	struct place *line = t->f->line;
	uint32_t n = line_up(t->from, line);
	for (uint32_t i = 0; i < n && !is_full(t); i++) {
		struct group *g = line[i].g;
		if (sched_is_idle(g) && accepts(g, t))
			take(t, g);
		else
			pass(t, &line[i]);
	}
}

/* ---- replicas ---- */

/* Return the replica with the most waiting tokens, excluding those marked in but[]. */
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

/* Let r, which has room and no waiting group, take groups that wait elsewhere, as many as it can begin in one
 * step. */
static void take_over(struct fleet *f, struct replica *r, const struct sched_stats *st, int64_t now_us)
{
	bool passed[ENGINE_REPLICAS_MAX] = {false}; /* r itself, and replicas that have no group for it */
	struct taker t = {.f = f, .to = r, .n_slots = f->cfg->max_seqs - st->n_running, .now_us = now_us};
	uint32_t at;
	t.room = (uint64_t)(st->n_free + st->n_cached) * r->block_size / r->kinds.n;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		passed[i] = f->replicas[i] == r;
	while (!is_full(&t) && (t.from = most_queued(f, passed, &at))) {
		t.ahead_prompt = t.ahead_left = t.n_ahead = t.seen = t.uncached = 0;
		sched_stats(t.from->sched, &t.stats);
		sched_running(t.from->sched, &t.running);
		struct group *g = sched_next_idle(t.from->sched, now_us, accepts, &t);
		if (g) {
			take(&t, g);
			continue;
		}
		take_from_line(&t);
		passed[at] = true;
	}
	if (t.n == 0 && t.declined)
		r->look_us = now_us + LOOK_US;
}

void fleet_balance(struct fleet *f, int64_t now_us)
{
	if (f->n_replicas < 2)
		return;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		struct sched_stats st;
		if (r->state != REPLICA_SERVING || now_us < r->look_us)
			continue;
		sched_stats(r->sched, &st);
		if (st.n_waiting || st.n_running >= f->cfg->max_seqs || st.n_free + st.n_cached == 0)
			continue;
		take_over(f, r, &st, now_us);
		replica_plan(r, &f->plan, now_us);
	}
}
