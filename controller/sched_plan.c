/* sched_plan.c - the next plan: who runs, who is let in, who must go. */
#include "controller/sched_impl.h"

#include <assert.h>
#include <string.h>

/* In to_host and to_device. */
#define NIL    UINT32_MAX
#define MARKED (UINT32_MAX - 1)

enum {
	WATERMARK = 100, /* who is let in leaves 1/100 of the pool free, for those that run */
	/* Served tokens by which a user must be ahead of another of its priority that waits before it
	 * is preempted for it; and plans between two preemptions for somebody who waits. */
	FAIR_LEAD = 16384,
	FAIR_PLANS = 8,
	/* Plans until one that was refused for want of blocks is looked at again although there are no
	 * more of them: others may have computed, meanwhile, what it has in common with them. */
	REFUSED_PLANS = 16,
	/* What an output token counts against a prompt token in a user's share. */
	OUTPUT_WEIGHT = 2,
};

struct planning {
	struct plan *plan;
	struct inflight *flight;
	int64_t now_us;
	uint32_t budget;        /* rows that may still be added */
	uint32_t prompt_budget; /* of those, rows of prompts */
	bool blocked;           /* somebody who runs got no blocks: nobody is let in */
	struct seq *seq;        /* whose table is changing */
	bool all_decode;        /* a pass over those that run found none that computes its prompt */
	const struct group *alone; /* a suspect, and nobody else runs; NULL: no suspect runs */
	bool silent;            /* its table travels whole: entries are not listed */
};

/* ---- rows of one sequence ---- */

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

static bool may_run(const struct planning *p, const struct group *g)
{
	return p->alone ? g == p->alone : !g->suspect;
}

/* It can compute something: there is a token whose K and V are missing, and one more to choose. */
static bool runnable(const struct planning *p, const struct seq *q)
{
	if (!may_run(p, q->group))
		return false;
	return q->n_computed < seq_total(q) && seq_n_out(q) + q->n_pending < q->group->params.max_tokens &&
	       !(q->n_pending && q->group->beam);
}

static bool decoding(const struct seq *q)
{
	return seq_total(q) - q->n_computed == 1;
}

static void add_run(struct sched *s, struct planning *p, struct seq *q, uint32_t rows, uint32_t from)
{
	struct group *g = q->group;
	struct plan *plan = p->plan;
	struct inflight *f = p->flight;
	struct plan_run *r = plan_add_run(plan);
	*r = (struct plan_run){.slot = q->slot, .pos0 = q->n_computed, .n_rows = rows, .from = from};
	if (q->n_computed < g->n_prompt)
		s->prompt_tokens += rows;
	q->n_before = q->n_computed;
	q->n_computed += rows;
	q->planned = plan->number;
	plan->n_rows += rows;
	p->budget -= rows;
	f->runs = sched_grow(f->runs, f->n_runs, &f->cap_runs, sizeof *f->runs);
	f->runs[f->n_runs++] = (struct run){g, q, q->slot, q->n_before, q->n_computed};
	g->n_inflight++;
	g->since_us = p->now_us;
	sched_begin(s, g, p->now_us);
	bool sample = q->n_computed == seq_total(q);
	queue_charge(s->queue, g, rows + (sample ? OUTPUT_WEIGHT : 0));
	sched_publish(s, q);
	if (!sample)
		return;
	r->flags = PLAN_SAMPLE;
	plan->n_samples++;
	q->n_pending++;
	f->samples = sched_grow(f->samples, f->n_samples, &f->cap_samples, sizeof *f->samples);
	f->samples[f->n_samples++] = (struct sample){q, q->slot};
	f->n_searched += g->beam != NULL;
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
		seq_own_tokens(q);
		blocks_share(s->blocks, &q->table, &leader->table, leader->table.n);
		sched_enter(s, q);
		q->n_computed = g->n_prompt;
		q->n_hashed = leader->n_hashed;
		q->chain = leader->chain;
		*plan_add_fork(p->plan) = (struct plan_fork){leader->slot, q->slot, q->index};
		add_run(s, p, q, 0, leader->slot);
		q->n_before = leader->n_before;
	}
}

/* ---- who must go ---- */

/* Whether the plan has a run of it, or says something of its slot: then its slot cannot go. */
static bool named(const struct seq *q, uint64_t number)
{
	return q->planned == number || q->entered == number;
}

static bool in_plan(const struct group *g, uint64_t number)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_RUNNING && named(&g->seqs[i], number))
			return true;
	return false;
}

/* Distinct blocks that hold what the group has computed; each is marked in to_host. */
static uint32_t mark_blocks(struct sched *s, const struct group *g)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		uint32_t used = q->state == SEQ_RUNNING ? blocks_for(s->blocks, q->n_computed) : 0;
		for (uint32_t k = 0; k < used; k++)
			if (s->to_host[q->table.ids[k]] == NIL) {
				s->to_host[q->table.ids[k]] = MARKED;
				n++;
			}
	}
	return n;
}

static void unmark_blocks(struct sched *s, const struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		for (uint32_t k = 0; k < g->seqs[i].table.n; k++)
			s->to_host[g->seqs[i].table.ids[k]] = NIL;
}

static bool swapping_pays(const struct sched *s, const struct group *g, uint32_t n_blocks)
{
	if (s->cfg.preempt != SCHED_AUTO)
		return s->cfg.preempt == SCHED_SWAP;
	if (s->prefill_tps <= 0 || s->link_bps <= 0)
		return false;
	double tokens = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_RUNNING)
			tokens += g->seqs[i].n_computed;
	/* Out and in again. */
	return 2.0 * n_blocks * (double)s->block_bytes / s->link_bps < tokens / s->prefill_tps;
}

/* Copies of its blocks go to the host pool; blocks that the group shares, once. */
static void swap_out_seq(struct sched *s, struct planning *p, struct seq *q)
{
	uint32_t used = blocks_for(s->blocks, q->n_computed);
	for (uint32_t k = 0; k < used; k++) {
		uint32_t id = q->table.ids[k];
		if (s->to_host[id] == MARKED) {
			s->to_host[id] = blocks_take(s->host);
			*plan_add_swap_out(p->plan) = (struct plan_pair){id, s->to_host[id]};
		} else {
			blocks_ref(s->host, s->to_host[id]);
		}
		blocks_push(&q->host, s->to_host[id]);
	}
	q->n_before = q->n_computed;
	s->n_swapped += used > 0;
	s->n_swapped_out++;
}

/* All of the group's running sequences, none of which is in this plan. */
static void preempt_group(struct sched *s, struct planning *p, struct group *g)
{
	uint32_t n = mark_blocks(s, g);
	bool swap = n <= blocks_n_free(s->host) && swapping_pays(s, g, n);
	if (swap)
		for (uint32_t i = 0; i < g->n_seqs; i++)
			if (g->seqs[i].state == SEQ_RUNNING)
				swap_out_seq(s, p, &g->seqs[i]);
	unmark_blocks(s, g);
	for (uint32_t i = g->n_seqs; i-- > 0;) {
		struct seq *q = &g->seqs[i];
		if (q->state != SEQ_RUNNING)
			continue;
		if (!swap) {
			sched_recompute(s, q, sched_later(s));
			continue;
		}
		/* The device's blocks are read by this plan. */
		blocks_drop(s->blocks, &q->table, &p->flight->later);
		sched_exit(s, q);
	}
}

/* Make one step towards room for q: the youngest group of the lowest priority goes; of q's own
 * group, the last sequence.  False: nobody stands behind q, or all are in this plan. */
static bool preempt_for(struct sched *s, struct planning *p, const struct seq *q)
{
	uint64_t number = p->plan->number;
	for (uint32_t i = s->n_running; i-- > 0;) {
		struct seq *v = s->running[i];
		if (v == q)
			break;
		if (v->group == q->group) {
			if (named(v, number))
				continue;
			sched_recompute(s, v, sched_later(s));
			return true;
		}
		if (in_plan(v->group, number))
			continue;
		preempt_group(s, p, v->group);
		return true;
	}
	return q->group->beam && sched_beam_yield(s, q->group, number);
}

static uint32_t n_later(const struct sched *s, const struct planning *p)
{
	uint32_t n = p->flight->later.n;
	for (uint32_t i = 0; i < s->n_flight; i++)
		n += s->flight[(s->first_flight + i) % SCHED_AHEAD].later.n;
	return n;
}

/* Blocks for rows more tokens of q, preempting those behind it if need be. False: not now. */
static bool make_room(struct sched *s, struct planning *p, struct seq *q, uint32_t rows)
{
	uint32_t end = q->n_computed + rows;
	uint32_t missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
	while (missing > blocks_n_free(s->blocks)) {
		/* What is already on its way back may do. */
		if (missing <= blocks_n_free(s->blocks) + n_later(s, p))
			return false;
		if (!preempt_for(s, p, q))
			return false;
		p->blocked = true; /* what they left is for those that run */
		missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
	}
	return true;
}

/* Rows of q for this step, with their blocks and copies. False: it did not get any. */
static bool run_seq(struct sched *s, struct planning *p, struct seq *q, bool silent)
{
	uint32_t rows = seq_total(q) - q->n_computed;
	if (rows > 1 && rows > s->cfg.chunk)
		rows = s->cfg.chunk;
	if (rows > p->budget)
		rows = p->budget;
	if (!decoding(q) && rows > p->prompt_budget)
		rows = p->prompt_budget;
	if (rows == 0 || p->plan->n_runs >= s->cfg.max_seqs)
		return false;
	/* A look at the reference counts of every sequence's last block, in every step, would be half
	 * of what a step costs. */
	if (q->n_computed + rows > q->table.n_writable) {
		if (!make_room(s, p, q, rows)) {
			p->blocked = true;
			return false;
		}
		p->seq = q;
		p->silent = silent;
		struct blocks_change change = {on_entry, on_copy, p};
		blocks_grow(s->blocks, &q->table, q->n_computed + rows, q->n_computed, &change,
			    &p->flight->later);
	}
	bool first = seq_n_out(q) == 0 && q->n_pending == 0;
	if (!decoding(q))
		p->prompt_budget -= rows;
	add_run(s, p, q, rows, q->slot);
	if (first && q->n_pending)
		fork_siblings(s, p, q);
	return true;
}

/* ---- who is let in ---- */

/* How much of q is in the cache when the copies of plan `number` are made: they come before its
 * runs. */
static uint32_t cached_before(const struct seq *q, uint64_t number)
{
	return q->planned == number ? q->n_before : q->n_computed;
}

/* A running sibling that has the whole prompt in its blocks.  Not one that was let in by this very
 * plan: what it found in the prefix cache may be computed by this plan too, after the copies. */
static struct seq *prompt_holder(const struct seq *q, uint64_t number)
{
	struct group *g = q->group;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *o = &g->seqs[i];
		if (o != q && o->state == SEQ_RUNNING && o->entered != number &&
		    cached_before(o, number) >= g->n_prompt)
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

static bool any_pending(const struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_WAITING && g->seqs[i].n_pending)
			return true;
	return false;
}

static enum queue_ready is_ready(const struct seq *q, void *user)
{
	const struct planning *p = user;
	if (!may_run(p, q->group))
		return QUEUE_SKIP;
	if (!q->group->first_run_us)
		return QUEUE_READY;
	if (sched_beam_stalled(q))
		return QUEUE_SKIP;
	/* Preempted, with a token under way; swapped groups come back whole. */
	if (q->n_pending || (q->host.n && any_pending(q->group)))
		return QUEUE_HOLD;
	if (q->host.n == 0 && prompt_under_way(q, p->plan->number))
		return QUEUE_SKIP;
	return QUEUE_READY;
}

/* All that the worker must know of q; after its run, so that the table is complete. */
static void send_state(struct planning *p, struct seq *q)
{
	*plan_add_seq(p->plan) = (struct plan_seq){
		.slot = q->slot,
		.seq = q->group->job,
		.index = q->index,
		.n_prompt = q->group->n_prompt,
		.n_tokens = q->n_tokens,
		.n_blocks = q->table.n,
		.tokens = q->tokens,
		.blocks = q->table.ids,
		.params = &q->group->params,
	};
}

/* What q need not compute: the prompt that a sibling holds, or blocks found by their tokens. */
static bool take_prefix(struct sched *s, struct planning *p, struct seq *q)
{
	struct group *g = q->group;
	struct seq *holder = prompt_holder(q, p->plan->number);
	uint32_t total = seq_total(q), size = s->cfg.block_size;
	if (holder) {
		blocks_share(s->blocks, &q->table, &holder->table, blocks_for(s->blocks, g->n_prompt));
		/* One row at least must be computed, to choose a token from. */
		q->n_computed = g->n_prompt < total ? g->n_prompt : total - 1;
		return true;
	}
	/* The logprobs of a prompt come from its rows: they must be computed. */
	if (g->params.prompt_logprobs >= 0)
		return false;
	q->chain = blocks_root(s->blocks, g->salt);
	q->n_hashed = blocks_match(s->blocks, &q->table, q->tokens, (total - 1) / size, &q->chain);
	q->n_computed = q->n_hashed * size;
	return false;
}

static void untake_prefix(struct sched *s, struct seq *q)
{
	blocks_drop(s->blocks, &q->table, NULL);
	q->n_computed = 0;
	q->n_hashed = 0;
}

/* Blocks that who is let in leaves free: those that run grow, and some have not got all blocks for
 * their prompts yet. */
static uint32_t spare_blocks(const struct sched *s)
{
	uint32_t n = s->n_running ? blocks_total(s->blocks) / WATERMARK : 0;
	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct seq *q = s->running[i];
		uint32_t all = decoding(q) ? 0 : blocks_for(s->blocks, seq_total(q) + 1);
		n += all > q->table.n ? all - q->table.n : 0;
	}
	return n;
}

/* What q need not compute, if there is room for the rest. */
static bool take_room(struct sched *s, struct planning *p, struct seq *q)
{
	uint32_t n_free = blocks_n_free(s->blocks);
	if (q == s->refused && n_free <= s->refused_free && s->number - s->refused_number < REFUSED_PLANS)
		return false;
	seq_own_tokens(q);
	bool shares = take_prefix(s, p, q);
	/* Room for all it has and the next token; the tail of what it shares will be copied. */
	uint32_t need = blocks_for(s->blocks, seq_total(q) + 1) - q->table.n + shares;
	need += spare_blocks(s);
	if (need > blocks_n_free(s->blocks)) {
		s->refused_lacks = need - blocks_n_free(s->blocks);
		untake_prefix(s, q);
		s->refused = q;
		s->refused_free = n_free;
		s->refused_number = s->number;
		return false;
	}
	return true;
}

/* Let a waiting sequence in, with its first rows. */
static bool admit(struct sched *s, struct planning *p, struct seq *q)
{
	struct group *g = q->group;
	if (!take_room(s, p, q))
		return false;
	if (!g->first_run_us) {
		s->prefix_queries += g->n_prompt;
		s->prefix_hits += q->n_computed;
		g->cached_tokens = q->n_computed;
	}
	queue_let_in(s->queue, g, p->now_us);
	sched_enter(s, q);
	/* What it needs was free, so it does run: a sequence with a slot is known to the worker. */
	bool ran = run_seq(s, p, q, true);
	assert(ran);
	send_state(p, q);
	return true;
}

/* ---- swapped groups ---- */

static void swap_in_seq(struct sched *s, struct planning *p, struct seq *q)
{
	for (uint32_t k = 0; k < q->host.n; k++) {
		uint32_t h = q->host.ids[k];
		if (s->to_device[h] == NIL) {
			s->to_device[h] = blocks_take(s->blocks);
			*plan_add_swap_in(p->plan) = (struct plan_pair){h, s->to_device[h]};
		} else {
			blocks_ref(s->blocks, s->to_device[h]);
		}
		blocks_push(&q->table, s->to_device[h]);
	}
	q->n_hashed = 0;
	s->n_swapped--;
}

static bool swapped(const struct seq *q)
{
	return q->state == SEQ_WAITING && q->host.n > 0;
}

/* Distinct host blocks of the group. */
static uint32_t count_host(struct sched *s, const struct group *g)
{
	uint32_t n = 0;
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < g->n_seqs; i++)
			for (uint32_t k = 0; k < g->seqs[i].host.n; k++) {
				uint32_t *m = &s->to_device[g->seqs[i].host.ids[k]];
				n += pass == 0 && *m == NIL;
				*m = pass == 0 ? MARKED : NIL;
			}
	return n;
}

/* Nothing else runs and the group still does not fit at once: its outputs have grown.  They
 * compute their tokens anew, and go on one after another. */
static void forget_swapped(struct sched *s, struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!swapped(q))
			continue;
		blocks_drop(s->host, &q->host, sched_host_later(s));
		q->n_computed = q->n_before = 0;
		s->n_swapped--;
	}
}

/* All of the group's swapped sequences come back, with the blocks that they shared. */
static bool admit_swapped(struct sched *s, struct planning *p, struct group *g)
{
	uint32_t n = 0, need = count_host(s, g);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		if (!swapped(q))
			continue;
		/* Room for all it has and the next token; a shared tail will be copied. */
		n++;
		need += blocks_for(s->blocks, seq_total(q) + 1) - q->host.n + 1;
	}
	if (n > s->n_slots || p->plan->n_runs + n > s->cfg.max_seqs || n > p->budget ||
	    need + spare_blocks(s) > blocks_n_free(s->blocks)) {
		if (s->n_running == 0 && s->n_flight == 0 && p->plan->n_runs == 0)
			forget_swapped(s, g);
		return false;
	}
	queue_let_in(s->queue, g, p->now_us);
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (swapped(&g->seqs[i]))
			swap_in_seq(s, p, &g->seqs[i]);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!swapped(q))
			continue;
		for (uint32_t k = 0; k < q->host.n; k++)
			s->to_device[q->host.ids[k]] = NIL;
		blocks_drop(s->host, &q->host, &p->flight->host_later);
		sched_enter(s, q);
		bool ran = run_seq(s, p, q, true);
		assert(ran || p->budget == 0 || p->prompt_budget == 0 || sched_beam_stalled(q));
		send_state(p, q);
	}
	return true;
}

/* ---- the turn ---- */

/* Whether q finds no slot, or not the blocks that it needs; how many it lacks (0: it lacks a slot). */
static bool stands_outside(struct sched *s, struct planning *p, struct seq *q, uint32_t *lacks)
{
	uint32_t n_free = blocks_n_free(s->blocks);
	uint32_t need = blocks_for(s->blocks, seq_total(q) + 1) + spare_blocks(s);
	*lacks = 0;
	if (s->n_slots == 0)
		return true;
	if (need <= n_free)
		return false;
	*lacks = need - n_free;
	if (q->host.n)
		return true;
	/* Those that run may hold much of what it needs. */
	if (take_room(s, p, q)) {
		untake_prefix(s, q);
		return false;
	}
	*lacks = s->refused_lacks + s->refused_free - n_free;
	return true;
}

/* Whether those of lower priority than q's hold so many blocks: else it were no help to q if they
 * all made place. */
static bool lower_hold(const struct sched *s, const struct seq *q, uint32_t n_blocks)
{
	uint32_t n = 0;
	for (uint32_t i = s->n_running; n < n_blocks && i-- > 0;) {
		if (s->running[i]->group->priority <= q->group->priority)
			break;
		n += s->running[i]->table.n;
	}
	return n >= n_blocks;
}

/* It was preempted, and has not got a token since it came back: were it preempted for fairness
 * again and again, neither it nor those that it keeps from running would ever get on. */
static bool catches_up(const struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		if (q->state == SEQ_RUNNING && q->n_preempted && seq_total(q) == q->n_entered &&
		    !sched_beam_stalled(q))
			return true;
	}
	return false;
}

/* Whose place q may take: that of the youngest group of the lowest priority, if that is lower than
 * its own; else, of those whose user was served far more than its own, that of the youngest of the one
 * that was served the most.  What users of several priorities were served cannot be compared. */
static struct group *find_victim(const struct sched *s, const struct planning *p, const struct seq *q,
				 uint32_t lacks)
{
	struct group *victim = NULL;
	bool enough = lower_hold(s, q, lacks);
	for (uint32_t i = s->n_running; i-- > 0;) {
		struct group *g = s->running[i]->group;
		if (g->priority < q->group->priority)
			break;
		/* Not one whose turn would be first again. */
		if (!queue_before(s->queue, q, s->running[i], p->now_us) || catches_up(g))
			continue;
		if (g->priority > q->group->priority) {
			if (enough && !queue_keeps(g, p->now_us))
				return g;
		} else if (queue_served(g) > queue_served(q->group) + FAIR_LEAD &&
			   (!victim || queue_served(g) > queue_served(victim))) {
			victim = g;
		}
	}
	return victim;
}

/* Who has the turn finds what it needs held by others that must make place for it.  Before anything
 * is planned: later, all that decode would be in this plan. */
static void preempt_for_turn(struct sched *s, struct planning *p)
{
	uint64_t number = p->plan->number;
	if (p->alone || queue_n(s->queue) == 0 || s->n_running == 0 || number - s->fair_number < FAIR_PLANS)
		return;
	/* Whose turn it is takes a look at every user that waits: not in every plan. */
	s->fair_number = number;
	struct seq *q = queue_pick(s->queue, p->now_us, is_ready, p);
	uint32_t lacks;
	if (!q || !stands_outside(s, p, q, &lacks))
		return;
	struct group *victim = find_victim(s, p, q, lacks);
	if (victim)
		preempt_group(s, p, victim);
}

static void run_running(struct sched *s, struct planning *p, bool decodes)
{
	p->all_decode = decodes;
	/* The list changes when somebody is preempted (from its end) or forked (behind its leader). */
	for (uint32_t i = 0; i < s->n_running && p->budget; i++) {
		struct seq *q = s->running[i];
		sched_prefetch(i + SCHED_FAR < s->n_running ? s->running[i + SCHED_FAR] : NULL,
			       i + SCHED_NEAR < s->n_running ? s->running[i + SCHED_NEAR] : NULL);
		if (q->planned == p->plan->number || !runnable(p, q))
			continue;
		if (decoding(q) == decodes)
			run_seq(s, p, q, false);
		else
			p->all_decode = false;
	}
}

/* Of those that compute their prompts, the one whose turn it is. */
static struct seq *next_prefill(const struct sched *s, const struct planning *p)
{
	struct seq *best = NULL;
	for (uint32_t i = 0; i < s->n_running; i++) {
		struct seq *q = s->running[i];
		if (q->planned != p->plan->number && runnable(p, q) && !decoding(q) &&
		    (!best || queue_before(s->queue, q, best, p->now_us)))
			best = q;
	}
	return best;
}

static bool room_for_one(const struct sched *s, const struct planning *p)
{
	return s->n_slots && p->plan->n_runs < s->cfg.max_seqs;
}

/* Prompts in the order of their users' turns, those that run and those that are let in alike, so
 * that a flood of one user's prompts does not stand before another's; where one that runs gets no
 * blocks, in the order of arrival, which always ends. */
static void run_prompts(struct sched *s, struct planning *p)
{
	bool open = true;
	bool none = p->all_decode;
	while (p->budget && p->prompt_budget) {
		struct seq *r = none ? NULL : next_prefill(s, p), *w = NULL;
		if (open && !p->blocked && room_for_one(s, p))
			w = queue_pick(s->queue, p->now_us, is_ready, p);
		if (w && (!r || queue_before(s->queue, w, r, p->now_us)))
			open = w->host.n ? admit_swapped(s, p, w->group) : admit(s, p, w);
		else if (!r || !run_seq(s, p, r, false))
			break;
		none = false;
	}
	if (!none)
		run_running(s, p, false);
}

static void take_drops(struct sched *s, struct plan *plan)
{
	for (uint32_t i = 0; i < s->n_drops; i++)
		*plan_add_drop(plan) = s->drops[i];
	s->n_drops = 0;
}

/* So many rows of prompts take as long as a step should. */
static uint32_t prompt_rows(const struct sched *s)
{
	double rows = s->prefill_tps * (double)s->cfg.step_us / 1e6;
	if (s->cfg.prefill_separate || rows <= 0 || rows >= s->cfg.max_rows)
		return s->cfg.max_rows;
	return rows < s->cfg.min_prompt_rows ? s->cfg.min_prompt_rows : (uint32_t)rows;
}

static bool plan_once(struct sched *s, const struct group *alone, int64_t now_us, struct plan *out)
{
	struct inflight *f = &s->flight[(s->first_flight + s->n_flight) % SCHED_AHEAD];
	struct planning p = {.plan = out, .flight = f, .now_us = now_us, .budget = s->cfg.max_rows};
	p.alone = alone;
	p.prompt_budget = prompt_rows(s);
	plan_reset(out);
	f->n_samples = f->n_runs = f->n_searched = 0;
	assert(f->later.n == 0 && f->host_later.n == 0);
	out->epoch = s->epoch;
	out->number = f->number = s->number + 1;
	preempt_for_turn(s, &p);
	sched_beam_tell(s, out);
	if (s->cfg.prefill_separate && !s->starved) {
		run_prompts(s, &p);
		if (out->n_runs == 0)
			run_running(s, &p, true);
	} else {
		/* Those that decode first: a long prompt must not hold them up, nor take the blocks that
		 * others were preempted for. */
		run_running(s, &p, true);
		if (!s->cfg.prefill_separate || out->n_runs == 0)
			run_prompts(s, &p);
	}
	s->starved = p.blocked;
	if (out->n_runs == 0 && out->n_swap_out == 0 && out->n_swap_in == 0 && out->n_sets == 0) {
		assert(f->later.n == 0 && f->host_later.n == 0);
		return false;
	}
	take_drops(s, out);
	s->number++;
	s->n_flight++;
	s->n_plans++;
	return true;
}

/* The last of those that run and may not; where all may, the last but for the only one. */
static struct seq *next_to_go(const struct sched *s, const struct group *alone)
{
	for (uint32_t i = alone ? s->n_running : 0; i-- > 0;)
		if (s->running[i]->group != alone)
			return s->running[i];
	return s->n_running >= 2 ? s->running[s->n_running - 1] : NULL;
}

bool sched_plan(struct sched *s, int64_t now_us, struct plan *out)
{
	if (!s->blocks || s->n_flight == SCHED_AHEAD)
		return false;
	s->served_us = s->served_us ? s->served_us : now_us;
	const struct group *alone = sched_suspect(s, now_us);
	if (alone && sched_others_fly(s, alone))
		return false;
	/* Nobody could run although nothing is under way: the first needs what others hold.
	 * Preempting those that have nothing to do, then the last, one after another, ends with the
	 * first alone, which fits. */
	for (int tries = 0; !plan_once(s, alone, now_us, out);) {
		if (s->n_flight)
			return false;
		if (sched_beam_yield(s, NULL, UINT64_MAX))
			continue;
		struct seq *q = next_to_go(s, alone);
		if (q)
			sched_recompute(s, q, NULL);
		else if (s->n_running || queue_n(s->queue) == 0 || tries++ > 1)
			return false;
	}
	return true;
}
