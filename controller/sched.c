#include "controller/sched.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	HASH_SIZE = 4096, /* jobs; a power of two */
	WATERMARK = 100,  /* a new group leaves 1/100 of the pool free, for those that run */
};

/* One run of a plan under way that will bring a token. */
struct sample {
	struct seq *seq;
	uint32_t slot;
};

/* Any run of a plan under way. */
struct run {
	struct group *group; /* kept alive by its count n_inflight */
	uint32_t slot;
};

/* A plan whose result is not back. */
struct inflight {
	uint64_t number;
	struct sample *samples;
	uint32_t n_samples, cap_samples;
	struct run *runs;
	uint32_t n_runs, cap_runs;
	struct blocks_later later; /* let go of when the result is back */
};

struct sched {
	struct sched_config cfg;
	struct blocks *blocks; /* NULL until a worker serves */
	uint64_t epoch;
	uint64_t number; /* of the last plan */
	uint64_t order;  /* of the last group */

	struct seq **running; /* [n_running] by (order, index) */
	uint32_t n_running;
	struct seq wait; /* list head of the waiting queue, by (order, index) */
	uint32_t n_waiting;
	uint32_t *slots; /* [n_slots] free ones: a stack */
	uint32_t n_slots;
	uint32_t *drops; /* [n_drops] slots to name in the next plan */
	uint32_t n_drops;

	struct inflight flight[SCHED_AHEAD]; /* ring, oldest at first_flight */
	uint32_t first_flight, n_flight;
	struct blocks_later none; /* for what is let go while nothing is under way */

	struct group all; /* list head, by arrival */
	struct group *hash[HASH_SIZE];
	struct group *dead; /* over, but still in plans under way; by hash_next */
	uint32_t n_groups;
	int64_t next_deadline; /* INT64_MAX: none */
	uint32_t n_queued;
	uint64_t queued_tokens;
	uint64_t n_preempted, prompt_tokens, generated_tokens, n_plans;
};

/* ---- small helpers ---- */

static void *grow(void *array, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	*cap = *cap ? *cap * 2 : 64;
	return xrealloc(array, *cap, size);
}

static struct sched_event *add_event(struct sched_events *ev, enum sched_event_kind kind,
				     const struct group *g)
{
	ev->v = grow(ev->v, ev->n, &ev->cap, sizeof *ev->v);
	struct sched_event *e = &ev->v[ev->n++];
	*e = (struct sched_event){.kind = kind, .job = g->job, .logprob = -1, .stop_token = -1};
	return e;
}

void sched_events_fini(struct sched_events *e)
{
	free(e->v);
	*e = (struct sched_events){0};
}

static bool seq_before(const struct seq *a, const struct seq *b)
{
	if (a->group->order != b->group->order)
		return a->group->order < b->group->order;
	return a->index < b->index;
}

/* New sequences go to the end, preempted ones to their old place near the front: walk from
 * whichever end is nearer. */
static void wait_insert(struct sched *s, struct seq *q)
{
	struct seq *at = &s->wait; /* q goes before it */
	if (s->n_waiting && seq_before(q, s->wait.prev)) {
		at = s->wait.next;
		while (seq_before(at, q))
			at = at->next;
	}
	q->prev = at->prev;
	q->next = at;
	at->prev->next = q;
	at->prev = q;
	q->state = SEQ_WAITING;
	s->n_waiting++;
}

static void wait_remove(struct sched *s, struct seq *q)
{
	q->prev->next = q->next;
	q->next->prev = q->prev;
	q->prev = q->next = NULL;
	s->n_waiting--;
}

static void run_insert(struct sched *s, struct seq *q)
{
	uint32_t i = s->n_running++;
	assert(s->n_running <= s->cfg.max_seqs);
	for (; i > 0 && seq_before(q, s->running[i - 1]); i--)
		s->running[i] = s->running[i - 1];
	s->running[i] = q;
	q->state = SEQ_RUNNING;
	q->slot = s->slots[--s->n_slots];
}

/* The slot is named as dropped in the next plan, and may be given out in that same plan. */
static void run_remove(struct sched *s, struct seq *q)
{
	uint32_t i = 0;
	while (s->running[i] != q)
		i++;
	memmove(s->running + i, s->running + i + 1, (s->n_running - i - 1) * sizeof *s->running);
	s->n_running--;
	s->slots[s->n_slots++] = q->slot;
	s->drops[s->n_drops++] = q->slot;
}

/* Where blocks that are let go of now are kept until no plan under way can use them. */
static struct blocks_later *later(struct sched *s)
{
	if (s->n_flight == 0)
		return NULL;
	return &s->flight[(s->first_flight + s->n_flight - 1) % SCHED_AHEAD].later;
}

static uint32_t n_later(const struct sched *s)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->n_flight; i++)
		n += s->flight[(s->first_flight + i) % SCHED_AHEAD].later.n;
	return n;
}

/* ---- groups: lifecycle ---- */

static struct group **hash_at(struct sched *s, uint64_t job)
{
	return &s->hash[(job * 0x9e3779b97f4a7c15u) >> 52 & (HASH_SIZE - 1)];
}

struct sched *sched_new(const struct sched_config *cfg)
{
	struct sched *s = xcalloc(1, sizeof *s);
	s->cfg = *cfg;
	if (s->cfg.chunk == 0 || s->cfg.chunk > s->cfg.max_rows)
		s->cfg.chunk = s->cfg.max_rows;
	s->running = xcalloc(cfg->max_seqs, sizeof *s->running);
	s->slots = xcalloc(cfg->max_seqs, sizeof *s->slots);
	s->drops = xcalloc(cfg->max_seqs, sizeof *s->drops);
	s->wait.prev = s->wait.next = &s->wait;
	s->all.prev = s->all.next = &s->all;
	s->next_deadline = INT64_MAX;
	return s;
}

static void free_dead(struct sched *s)
{
	struct group **at = &s->dead;
	while (*at) {
		struct group *g = *at;
		if (g->n_inflight) {
			at = &g->hash_next;
			continue;
		}
		*at = g->hash_next;
		group_free(g);
	}
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	while (s->all.next != &s->all) {
		struct group *g = s->all.next;
		s->all.next = g->next;
		group_free(g);
	}
	while (s->dead) {
		struct group *g = s->dead;
		s->dead = g->hash_next;
		group_free(g);
	}
	for (int i = 0; i < SCHED_AHEAD; i++) {
		free(s->flight[i].samples);
		free(s->flight[i].runs);
		blocks_later_fini(&s->flight[i].later);
	}
	blocks_free(s->blocks);
	free(s->running);
	free(s->slots);
	free(s->drops);
	free(s);
}

void sched_add(struct sched *s, struct group **gp, int64_t now_us)
{
	struct group *g = *gp;
	*gp = NULL;
	g->order = ++s->order;
	g->arrival_us = now_us;
	g->next = &s->all;
	g->prev = s->all.prev;
	g->prev->next = g;
	s->all.prev = g;
	struct group **h = hash_at(s, g->job);
	g->hash_next = *h;
	*h = g;
	s->n_groups++;
	s->n_queued++;
	s->queued_tokens += g->n_prompt;
	if (g->deadline_us && g->deadline_us < s->next_deadline)
		s->next_deadline = g->deadline_us;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		wait_insert(s, &g->seqs[i]);
}

struct group *sched_find(struct sched *s, uint64_t job)
{
	struct group *g = *hash_at(s, job);
	while (g && g->job != job)
		g = g->hash_next;
	return g;
}

static void unqueue(struct sched *s, struct group *g)
{
	s->n_queued--;
	s->queued_tokens -= g->n_prompt;
}

/* Take the group out of every list; it dies when no plan under way names it. */
static void group_remove(struct sched *s, struct group *g)
{
	g->prev->next = g->next;
	g->next->prev = g->prev;
	struct group **h = hash_at(s, g->job);
	while (*h != g)
		h = &(*h)->hash_next;
	*h = g->hash_next;
	s->n_groups--;
	if (!g->first_run_us)
		unqueue(s, g);
	g->hash_next = s->dead;
	s->dead = g;
	free_dead(s);
}

/* The sequence holds nothing any more: slot, blocks, place in a queue. */
static void seq_leave(struct sched *s, struct seq *q)
{
	if (q->state == SEQ_WAITING) {
		wait_remove(s, q);
	} else if (q->state == SEQ_RUNNING) {
		run_remove(s, q);
		blocks_drop(s->blocks, &q->table, later(s));
	}
}

static void seq_finish(struct sched *s, struct seq *q, enum finish finish, int64_t stop_token,
		       struct sched_events *ev)
{
	struct group *g = q->group;
	seq_leave(s, q);
	q->state = SEQ_FINISHED;
	q->finish = finish;
	struct sched_event *e = add_event(ev, SCHED_OUTPUT_DONE, g);
	e->index = q->index;
	e->finish = finish;
	e->stop_token = stop_token;
	if (--g->n_live)
		return;
	e = add_event(ev, SCHED_GROUP_DONE, g);
	e->arrival_us = g->arrival_us;
	e->first_run_us = g->first_run_us;
	e->first_token_us = g->first_token_us;
	group_remove(s, g);
}

static void group_fail(struct sched *s, struct group *g, enum code code, struct sched_events *ev)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (q->state == SEQ_FINISHED)
			continue;
		seq_leave(s, q);
		q->state = SEQ_FINISHED;
	}
	add_event(ev, SCHED_GROUP_FAILED, g)->code = code;
	group_remove(s, g);
}

void sched_stop(struct sched *s, uint64_t job, uint32_t index, struct sched_events *ev)
{
	struct group *g = sched_find(s, job);
	if (g && index < g->n_seqs && g->seqs[index].state != SEQ_FINISHED)
		seq_finish(s, &g->seqs[index], FINISH_STOP, -1, ev);
}

void sched_cancel(struct sched *s, uint64_t job, struct sched_events *ev)
{
	struct group *g = sched_find(s, job);
	if (!g)
		return;
	/* The last one to finish takes the group away. */
	uint32_t n = g->n_seqs;
	for (uint32_t i = 0, live = g->n_live; i < n && live; i++)
		if (g->seqs[i].state != SEQ_FINISHED) {
			live--;
			seq_finish(s, &g->seqs[i], FINISH_ABORT, -1, ev);
		}
}

void sched_expire(struct sched *s, int64_t now_us, struct sched_events *ev)
{
	if (now_us < s->next_deadline)
		return;
	s->next_deadline = INT64_MAX;
	for (struct group *g = s->all.next, *next; g != &s->all; g = next) {
		next = g->next;
		if (!g->deadline_us)
			continue;
		if (g->deadline_us <= now_us)
			group_fail(s, g, E_DEADLINE, ev);
		else if (g->deadline_us < s->next_deadline)
			s->next_deadline = g->deadline_us;
	}
}

void sched_fail_all(struct sched *s, enum code code, struct sched_events *ev)
{
	while (s->all.next != &s->all)
		group_fail(s, s->all.next, code, ev);
}

void sched_fail_larger(struct sched *s, uint32_t max_context, struct sched_events *ev)
{
	for (struct group *g = s->all.next, *next; g != &s->all; g = next) {
		next = g->next;
		if ((uint64_t)g->n_prompt + g->params.max_tokens > max_context)
			group_fail(s, g, E_TOO_LONG, ev);
	}
}

/* ---- worker ---- */

void sched_start(struct sched *s, uint32_t n_blocks, uint64_t epoch)
{
	assert(s->n_running == 0 && s->n_flight == 0);
	blocks_free(s->blocks);
	s->blocks = blocks_new(n_blocks, s->cfg.block_size);
	s->epoch = epoch;
	s->number = 0;
	s->n_drops = 0;
	s->n_slots = s->cfg.max_seqs;
	for (uint32_t i = 0; i < s->n_slots; i++)
		s->slots[i] = s->n_slots - 1 - i;
}

static void preempt_one(struct sched *s, struct seq *q)
{
	run_remove(s, q);
	blocks_drop(s->blocks, &q->table, later(s));
	q->n_computed = q->n_before = 0;
	q->planned = 0;
	q->n_preempted++;
	s->n_preempted++;
	wait_insert(s, q);
}

void sched_lost(struct sched *s)
{
	for (uint32_t i = 0; i < s->n_flight; i++) {
		struct inflight *f = &s->flight[(s->first_flight + i) % SCHED_AHEAD];
		for (uint32_t k = 0; k < f->n_samples; k++)
			f->samples[k].seq->n_pending = 0;
		for (uint32_t k = 0; k < f->n_runs; k++)
			f->runs[k].group->n_inflight--;
		blocks_release(s->blocks, &f->later);
	}
	s->n_flight = 0;
	while (s->n_running)
		preempt_one(s, s->running[s->n_running - 1]);
	free_dead(s);
	blocks_free(s->blocks);
	s->blocks = NULL;
}

/* ---- planning ---- */

struct planning {
	struct plan *plan;
	struct inflight *flight;
	int64_t now_us;
	uint32_t budget; /* rows that may still be added */
	bool blocked;    /* a running sequence got no blocks: nobody new is let in */
	struct seq *seq; /* whose table is changing */
	bool silent;     /* its table travels whole: entries are not listed */
};

static void on_entry(void *user, uint32_t logical, uint32_t block)
{
	struct planning *p = user;
	if (!p->silent)
		*plan_add_table(p->plan) = (struct plan_table){p->seq->slot, logical, block};
}

static void on_copy(void *user, uint32_t from, uint32_t to)
{
	struct planning *p = user;
	*plan_add_copy(p->plan) = (struct plan_pair){from, to};
}

/* It can compute something: there is a token whose K and V are missing, and one more to choose. */
static bool runnable(const struct seq *q)
{
	return q->n_computed < seq_total(q) && seq_n_out(q) + q->n_pending < q->group->params.max_tokens;
}

static bool decoding(const struct seq *q)
{
	return seq_total(q) - q->n_computed == 1;
}

/* Preempt the youngest group (all of it that is not in this plan); of the group of `of`, only
 * sequences younger than `of`.  False: there is none. */
static bool preempt_for(struct sched *s, const struct seq *of, uint64_t number)
{
	struct group *victim = NULL;
	for (uint32_t i = s->n_running; i-- > 0;) {
		struct seq *q = s->running[i];
		if (!seq_before(of, q) || (victim && q->group != victim))
			break;
		if (q->planned == number)
			continue;
		victim = q->group;
		preempt_one(s, q);
		if (victim == of->group)
			break;
	}
	return victim != NULL;
}

/* Blocks for rows more tokens of q, preempting the younger if need be. False: not now. */
static bool make_room(struct sched *s, struct planning *p, struct seq *q, uint32_t rows)
{
	uint32_t end = q->n_computed + rows;
	uint32_t missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
	while (missing > blocks_n_free(s->blocks)) {
		/* What is already on its way back may do. */
		if (missing <= blocks_n_free(s->blocks) + n_later(s))
			return false;
		if (!preempt_for(s, q, p->plan->number))
			return false;
		missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
	}
	return true;
}

static void add_run(struct sched *s, struct planning *p, struct seq *q, uint32_t rows, uint32_t from)
{
	struct group *g = q->group;
	struct plan *plan = p->plan;
	struct plan_run *r = plan_add_run(plan);
	*r = (struct plan_run){.slot = q->slot, .pos0 = q->n_computed, .n_rows = rows, .from = from};
	q->n_before = q->n_computed;
	q->n_computed += rows;
	q->planned = plan->number;
	plan->n_rows += rows;
	p->budget -= rows;
	struct inflight *f = p->flight;
	f->runs = grow(f->runs, f->n_runs, &f->cap_runs, sizeof *f->runs);
	f->runs[f->n_runs++] = (struct run){g, q->slot};
	g->n_inflight++;
	if (!g->first_run_us) {
		g->first_run_us = p->now_us;
		unqueue(s, g);
	}
	if (q->n_computed < seq_total(q))
		return;
	r->flags = PLAN_SAMPLE;
	plan->n_samples++;
	q->n_pending++;
	f->samples = grow(f->samples, f->n_samples, &f->cap_samples, sizeof *f->samples);
	f->samples[f->n_samples++] = (struct sample){q, q->slot};
}

/* The leader's prompt is complete in this plan: outputs that have not begun choose their first
 * token from the same row, and share its blocks. */
static void fork_siblings(struct sched *s, struct planning *p, struct seq *leader)
{
	struct group *g = leader->group;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (q == leader || q->state != SEQ_WAITING || q->tokens || s->n_slots == 0 ||
		    p->plan->n_runs >= s->cfg.max_seqs)
			continue;
		wait_remove(s, q);
		seq_own_tokens(q);
		blocks_share(s->blocks, &q->table, &leader->table, leader->table.n);
		run_insert(s, q);
		q->n_computed = g->n_prompt;
		*plan_add_fork(p->plan) = (struct plan_fork){leader->slot, q->slot, q->index};
		add_run(s, p, q, 0, leader->slot);
		q->n_before = leader->n_before;
	}
}

/* Rows of q for this step, with their blocks and copies. False: it did not get any. */
static bool run_seq(struct sched *s, struct planning *p, struct seq *q, bool silent)
{
	uint32_t rows = seq_total(q) - q->n_computed;
	if (rows > 1 && rows > s->cfg.chunk)
		rows = s->cfg.chunk;
	if (rows > p->budget)
		rows = p->budget;
	if (rows == 0 || p->plan->n_runs >= s->cfg.max_seqs)
		return false;
	if (!make_room(s, p, q, rows)) {
		p->blocked = true;
		return false;
	}
	p->seq = q;
	p->silent = silent;
	struct blocks_change change = {on_entry, on_copy, p};
	blocks_grow(s->blocks, &q->table, q->n_computed + rows, q->n_computed, &change, &p->flight->later);
	if (q->n_computed < q->group->n_prompt)
		s->prompt_tokens += rows;
	bool first = seq_n_out(q) == 0 && q->n_pending == 0;
	add_run(s, p, q, rows, q->slot);
	if (first && q->n_pending)
		fork_siblings(s, p, q);
	return true;
}

/* How much of q is in the cache when the copies of plan `number` are made: they come before its
 * runs. */
static uint32_t cached_before(const struct seq *q, uint64_t number)
{
	return q->planned == number ? q->n_before : q->n_computed;
}

/* A running sibling that has the whole prompt in its blocks. */
static struct seq *prompt_holder(const struct seq *q, uint64_t number)
{
	struct group *g = q->group;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *o = &g->seqs[i];
		if (o != q && o->state == SEQ_RUNNING && cached_before(o, number) >= g->n_prompt)
			return o;
	}
	return NULL;
}

/* A sibling is computing the prompt: q had better wait and share it. */
static bool prompt_under_way(const struct seq *q, uint64_t number)
{
	struct group *g = q->group;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (&g->seqs[i] != q && g->seqs[i].state == SEQ_RUNNING &&
		    cached_before(&g->seqs[i], number) < g->n_prompt)
			return true;
	return false;
}

/* Let a waiting sequence in, with its first rows. */
static bool admit(struct sched *s, struct planning *p, struct seq *q)
{
	struct group *g = q->group;
	struct seq *holder = prompt_holder(q, p->plan->number);
	uint32_t shared = holder ? blocks_for(s->blocks, g->n_prompt) : 0;
	uint32_t total = seq_total(q);
	/* Room for all it has and the next token; the tail of what it shares will be copied. */
	uint32_t need = blocks_for(s->blocks, total + 1) - shared + (shared ? 1 : 0);
	uint32_t spare = s->n_running ? blocks_total(s->blocks) / WATERMARK : 0;
	if (s->n_slots == 0 || p->budget == 0 || p->plan->n_runs >= s->cfg.max_seqs)
		return false;
	if (need + spare > blocks_n_free(s->blocks))
		return false;
	wait_remove(s, q);
	seq_own_tokens(q);
	run_insert(s, q);
	if (holder) {
		blocks_share(s->blocks, &q->table, &holder->table, shared);
		/* One row at least must be computed, to choose a token from. */
		q->n_computed = g->n_prompt < total ? g->n_prompt : total - 1;
	}
	/* `need` was free, so it does run: a sequence with a slot is known to the worker. */
	bool ran = run_seq(s, p, q, true);
	assert(ran);
	struct plan_seq *ps = plan_add_seq(p->plan);
	*ps = (struct plan_seq){
		.slot = q->slot,
		.seq = g->job,
		.index = q->index,
		.n_prompt = g->n_prompt,
		.n_tokens = q->n_tokens,
		.n_blocks = q->table.n,
		.tokens = q->tokens,
		.blocks = q->table.ids,
		.params = &g->params,
	};
	return true;
}

static void run_running(struct sched *s, struct planning *p)
{
	/* Those that decode first: a long prompt must not hold them up.  The list changes when
	 * somebody is preempted (from its end) or forked (behind its leader). */
	for (int prefill = 0; prefill < 2; prefill++)
		for (uint32_t i = 0; i < s->n_running && p->budget; i++) {
			struct seq *q = s->running[i];
			if (q->planned != p->plan->number && runnable(q) && decoding(q) == !prefill)
				run_seq(s, p, q, false);
		}
}

static void admit_waiting(struct sched *s, struct planning *p)
{
	for (struct seq *q = s->wait.next, *next; q != &s->wait; q = next) {
		next = q->next;
		if (q->n_pending)
			break; /* preempted, with a token under way */
		if (prompt_under_way(q, p->plan->number))
			continue;
		if (!admit(s, p, q))
			break;
		/* Forks may have taken the next ones out of the queue. */
		next = s->wait.next;
		while (next != &s->wait && prompt_under_way(next, p->plan->number))
			next = next->next;
	}
}

static void take_drops(struct sched *s, struct plan *plan)
{
	for (uint32_t i = 0; i < s->n_drops; i++)
		*plan_add_drop(plan) = s->drops[i];
	s->n_drops = 0;
}

static bool plan_once(struct sched *s, int64_t now_us, struct plan *out)
{
	struct inflight *f = &s->flight[(s->first_flight + s->n_flight) % SCHED_AHEAD];
	struct planning p = {.plan = out, .flight = f, .now_us = now_us, .budget = s->cfg.max_rows};
	plan_reset(out);
	f->n_samples = f->n_runs = 0;
	assert(f->later.n == 0);
	out->epoch = s->epoch;
	out->number = f->number = s->number + 1;
	run_running(s, &p);
	if (!p.blocked)
		admit_waiting(s, &p);
	if (out->n_runs == 0) {
		assert(f->later.n == 0);
		return false;
	}
	take_drops(s, out);
	s->number++;
	s->n_flight++;
	s->n_plans++;
	return true;
}

bool sched_plan(struct sched *s, int64_t now_us, struct plan *out)
{
	if (!s->blocks || s->n_flight == SCHED_AHEAD)
		return false;
	/* Nobody could run although nothing is under way: the oldest needs what others hold.
	 * Preempting the youngest, one after another, ends with the oldest alone, which fits. */
	while (!plan_once(s, now_us, out)) {
		if (s->n_flight || s->n_running < 2)
			return false;
		preempt_one(s, s->running[s->n_running - 1]);
	}
	return true;
}

/* ---- results ---- */

/* The index of the logprob of this sample, searching on from *at; -1: none. */
static int32_t find_logprob(const struct result *r, uint32_t slot, uint32_t *at)
{
	for (uint32_t i = *at; i < r->n_logprobs; i++)
		if (!r->logprobs[i].prompt && r->logprobs[i].slot == slot) {
			*at = i + 1;
			return (int32_t)i;
		}
	return -1;
}

static void apply_token(struct sched *s, struct seq *q, uint32_t token, int32_t logprob, int64_t now_us,
			struct sched_events *ev)
{
	struct group *g = q->group;
	if (q->state == SEQ_FINISHED)
		return; /* its end was found late: what came after is cut */
	q->n_pending--;
	s->generated_tokens++;
	if (!g->first_token_us)
		g->first_token_us = now_us;
	struct sched_event *e = add_event(ev, SCHED_TOKEN, g);
	e->index = q->index;
	e->token = token;
	e->logprob = logprob;
	e->stop = params_is_stop(&g->params, token) && seq_n_out(q) >= g->params.min_tokens;
	if (e->stop) {
		seq_finish(s, q, FINISH_STOP, token, ev);
		return;
	}
	seq_append(q, token);
	if (seq_n_out(q) >= g->params.max_tokens)
		seq_finish(s, q, FINISH_LENGTH, -1, ev);
}

const struct group *sched_run_of(const struct sched *s, uint32_t slot)
{
	if (s->n_flight == 0)
		return NULL;
	const struct inflight *f = &s->flight[s->first_flight];
	for (uint32_t i = 0; i < f->n_runs; i++)
		if (f->runs[i].slot == slot)
			return f->runs[i].group;
	return NULL;
}

int sched_apply(struct sched *s, const struct result *r, int64_t now_us, struct sched_events *ev)
{
	if (s->n_flight == 0)
		return -EPROTO;
	struct inflight *f = &s->flight[s->first_flight];
	if (r->epoch != s->epoch || r->number != f->number || r->n_tokens != f->n_samples)
		return -EPROTO;
	/* No longer under way: what ends now lets go of its blocks by the plan after this one. */
	s->first_flight = (s->first_flight + 1) % SCHED_AHEAD;
	s->n_flight--;
	blocks_release(s->blocks, &f->later);
	uint32_t at = 0;
	for (uint32_t i = 0; i < f->n_samples; i++)
		apply_token(s, f->samples[i].seq, r->tokens[i], find_logprob(r, f->samples[i].slot, &at),
			    now_us, ev);
	for (uint32_t i = 0; i < f->n_runs; i++)
		f->runs[i].group->n_inflight--;
	free_dead(s);
	return 0;
}

void sched_stats(const struct sched *s, struct sched_stats *out)
{
	*out = (struct sched_stats){
		.n_running = s->n_running,
		.n_waiting = s->n_waiting,
		.n_groups = s->n_groups,
		.queued_tokens = s->queued_tokens,
		.n_queued = s->n_queued,
		.n_blocks = s->blocks ? blocks_total(s->blocks) : 0,
		.n_free = s->blocks ? blocks_n_free(s->blocks) : 0,
		.n_inflight = s->n_flight,
		.n_preempted = s->n_preempted,
		.prompt_tokens = s->prompt_tokens,
		.generated_tokens = s->generated_tokens,
		.n_plans = s->n_plans,
	};
}

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "sched: broken: %s\n", what);
	abort();
}

void sched_check(const struct sched *s)
{
	uint32_t n_running = 0, n_waiting = 0, n_tables = 0;
	size_t n_seqs = 0;
	for (struct group *g = s->all.next; g != &s->all; g = g->next)
		n_seqs += g->n_seqs;
	const struct block_table **tables = calloc(n_seqs + 1, sizeof *tables);
	check(tables != NULL, "memory for the check");
	for (struct group *g = s->all.next; g != &s->all; g = g->next) {
		uint32_t live = 0;
		for (uint32_t i = 0; i < g->n_seqs; i++) {
			const struct seq *q = &g->seqs[i];
			live += q->state != SEQ_FINISHED;
			n_running += q->state == SEQ_RUNNING;
			n_waiting += q->state == SEQ_WAITING;
			check(q->state == SEQ_RUNNING || q->table.n == 0,
			      "blocks held by a sequence that does not run");
			check(q->state != SEQ_RUNNING || q->n_computed <= q->table.n * s->cfg.block_size,
			      "a token computed without a block for it");
			if (q->state == SEQ_RUNNING)
				tables[n_tables++] = &q->table;
		}
		check(live == g->n_live && live > 0, "a group's count of live sequences");
	}
	check(n_running == s->n_running, "the running list");
	check(n_waiting == s->n_waiting, "the waiting queue");
	check(!s->blocks || s->n_slots + s->n_running == s->cfg.max_seqs, "slots");
	const struct blocks_later *laters[SCHED_AHEAD];
	for (uint32_t i = 0; i < s->n_flight; i++)
		laters[i] = &s->flight[(s->first_flight + i) % SCHED_AHEAD].later;
	if (s->blocks)
		blocks_check(s->blocks, tables, n_tables, laters, s->n_flight);
	free(tables);
}
