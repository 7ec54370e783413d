/* sched_plan.c - makes the next plan: rows of running sequences, prompts in turn, admissions between them. */
#include "base/alloc.h"
#include "controller/sched/sched_impl.h"

#include <assert.h>
#include <math.h>

enum {
	FIXED_PART = 8,          /* a step of prompts alone takes at least this many times its fixed cost */
	ROWS_TOGETHER = 16,      /* rows that kernels compute at once */
	PATIENT_US = 100 * 1000, /* bound on a step's time: ten tokens a second per stream, if the device
				    is fast enough */
};

/* ---- rows of one sequence ---- */

/* State for the callbacks that add blocks_grow()'s changes to the plan. */
struct growth {
	struct plan *plan;
	uint32_t slot;
	bool whole_table;
};

static void on_entry(void *user, uint32_t kind, uint32_t logical, uint32_t block)
{
	const struct growth *w = user;
	if (!w->whole_table)
		*plan_add_table(w->plan) = (struct plan_table){w->slot, logical, block, kind};
}

static void on_copy(void *user, uint32_t from, uint32_t to)
{
	const struct growth *w = user;
	*plan_add_copy(w->plan) = (struct plan_pair){from, to};
}

bool sched_may_run(const struct planning *p, const struct group *g)
{
	return p->alone ? g == p->alone : !g->suspect;
}

/* Return whether there is a token without K and V, and a further token to choose. */
static bool runnable(const struct planning *p, const struct seq *q)
{
	if (q->held || !sched_may_run(p, q->group))
		return false;
	return q->n_computed < seq_total(q) && seq_n_out(q) + q->n_pending < q->group->params.max_tokens &&
	       !(q->n_pending && q->group->beam);
}

/* Add a run of `rows` rows and this many drafts.  A run with drafts is open, as is one that follows open runs
 * in flight, since its first position is not known. */
static void add_run(struct sched *s, struct planning *p, struct seq *q, uint32_t rows, uint32_t drafts,
		    uint32_t from)
{
	struct group *g = q->group;
	const bool open = drafts || q->n_slack;
	struct plan *plan = p->plan;
	struct inflight *f = p->flight;
	struct plan_run *r = plan_add_run(plan);
	*r = (struct plan_run){.slot = q->slot, .pos0 = q->n_computed, .n_rows = rows + drafts, .from = from};
	if (q->n_computed < g->n_prompt)
		s->counts.prompt_tokens += rows;
	if (g->phase != PHASE_DECODE)
		sched_times_rows(q, rows);
	if (q->n_computed < q->n_reached)
		s->counts.recomputed_tokens +=
			rows < q->n_reached - q->n_computed ? rows : q->n_reached - q->n_computed;
	q->n_before = q->n_computed;
	q->n_computed += rows;
	q->planned = plan->number;
	q->n_slack += drafts;
	plan->n_rows += rows + drafts;
	p->budget -= rows + drafts;
	p->draft_budget -= drafts;
	array_grow(f->runs, f->cap_runs, f->n_runs + 1);
	const bool pooled = sched_pool_brings(q, q->n_computed);
	f->runs[f->n_runs++] = (struct run){g, q, q->slot, q->n_before, sched_reach(q, 0), pooled};
	f->n_pooled += pooled;
	g->n_inflight++;
	g->since_us = p->now_us;
	sched_begin(s, g, p->now_us);
	bool sample = q->n_computed == seq_total(q) && !g->params.pool;
	queue_charge(g, rows + (sample ? SCHED_OUTPUT_WEIGHT : 0));
	sched_publish(s, q);
	if (!sample)
		return;
	r->flags = PLAN_SAMPLE | (open ? PLAN_OPEN : 0);
	plan->n_samples++;
	q->n_pending++;
	array_grow(f->samples, f->cap_samples, f->n_samples + 1);
	f->samples[f->n_samples++] = (struct sample){q, q->slot, open ? 1 + drafts : 0};
	f->n_open += open;
	f->n_searched += g->beam != NULL;
	f->n_mirostat += g->params.mirostat != 0;
}

/* The leader's prompt is complete in this plan: outputs that have not begun sample their first token from the
 * same row, and share the leader's blocks. */
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
		sched_name(s, q, leader->n_named, leader->node);
		*plan_add_fork(p->plan) = (struct plan_fork){leader->slot, q->slot, q->index};
		add_run(s, p, q, 0, 0, leader->slot);
		q->n_before = leader->n_before;
	}
}

/* Give up the blocks before the windows of q.  Plans in flight read them; this one does not, but may copy
 * them if it admits q.  If the last SCHED_AHEAD runs sit out (struct result), as many rows are computed
 * again. */
static void leave_windows(struct sched *s, struct planning *p, struct seq *q)
{
	const uint32_t keep[] = {q->group->n_prompt, q->n_branch};
	struct blocks_later *later = q->entered == p->plan->number ? &p->flight->later[STORE_DEVICE]
								   : sched_later(s, STORE_DEVICE);
	if (q->n_computed > SCHED_AHEAD)
		blocks_trim(s->blocks, &q->table, q->n_computed - SCHED_AHEAD, keep, 2, later);
}

bool sched_run_seq(struct sched *s, struct planning *p, struct seq *q, bool whole_table)
{
	uint32_t rows = seq_total(q) - q->n_computed, drafts, end;
	if (rows > 1 && rows > s->cfg.chunk)
		rows = s->cfg.chunk;
	if (rows > p->budget)
		rows = p->budget;
	if (!seq_decodes(q) && rows > p->prompt_budget)
		rows = p->prompt_budget;
	if (rows == 0 || p->plan->n_runs >= s->cfg.max_seqs)
		return false;
	/* The room for a sequence that this plan admits, or for others of its group, was counted without
	 * drafts. */
	drafts = seq_decodes(q) && !whole_table ? sched_drafts(s, p, q) : 0;
	end = sched_reach(q, rows + drafts);
	/* n_writable avoids reading the last block's reference count, which would be half of a step's
	 * cost. */
	if (end > q->table.n_writable) {
		leave_windows(s, p, q);
		if (!sched_make_room(s, p, q, end)) {
			p->blocked = true;
			return false;
		}
		struct growth growth = {p->plan, q->slot, whole_table};
		struct blocks_change change = {on_entry, on_copy, &growth};
		blocks_grow(s->blocks, &q->table, end, q->n_computed, &change,
			    &p->flight->later[STORE_DEVICE]);
	}
	bool first = seq_n_out(q) == 0 && q->n_pending == 0;
	if (!seq_decodes(q))
		p->prompt_budget -= rows;
	add_run(s, p, q, rows, drafts, q->slot);
	if (first && q->n_pending)
		fork_siblings(s, p, q);
	return true;
}

/* ---- all sequences ---- */

static void run_running(struct sched *s, struct planning *p, bool decodes)
{
	p->all_decode = decodes;
	/* The list changes during the loop: preempted sequences leave its end, forks are inserted after their
	 * leader. */
	for (uint32_t i = 0; i < s->n_running && p->budget; i++) {
		struct seq *q = s->running[i];
		sched_prefetch(i + SCHED_FAR < s->n_running ? s->running[i + SCHED_FAR] : NULL,
			       i + SCHED_NEAR < s->n_running ? s->running[i + SCHED_NEAR] : NULL);
		if (q->planned == p->plan->number || !runnable(p, q))
			continue;
		if (seq_decodes(q) == decodes)
			sched_run_seq(s, p, q, false);
		else
			p->all_decode = false;
	}
}

static bool in_prefill(const struct planning *p, const struct seq *q)
{
	return q->planned != p->plan->number && runnable(p, q) && !seq_decodes(q);
}

/* Return the next running sequence that computes its prompt. */
static struct seq *next_prefill(const struct sched *s, const struct planning *p)
{
	struct seq *best = NULL;
	for (uint32_t i = 0; i < s->n_running; i++) {
		struct seq *q = s->running[i];
		if (in_prefill(p, q) && (!best || queue_before(q, best)))
			best = q;
	}
	return best;
}

/* In one plan of QUEUE_AGED_EVERY the first chunk is of the earliest prompt: an admitted prompt makes
 * progress, however many prompts of better priorities arrive. */
static void run_earliest(struct sched *s, struct planning *p)
{
	struct seq *earliest = NULL;
	if (p->plan->number % QUEUE_AGED_EVERY)
		return;
	for (uint32_t i = 0; i < s->n_running; i++) {
		struct seq *q = s->running[i];
		if (in_prefill(p, q) && (!earliest || q->group->order < earliest->group->order))
			earliest = q;
	}
	if (earliest)
		sched_run_seq(s, p, earliest, false);
}

static bool has_free_slot(const struct sched *s, const struct planning *p)
{
	return s->n_slots && p->plan->n_runs < s->cfg.max_seqs;
}

/* Run prompts of running and waiting sequences in the queue's order, so that a flood of one user's prompts
 * does not hold up another user's.  Once a running sequence gets no blocks, the order is that of arrival,
 * which always terminates. */
static void run_prompts(struct sched *s, struct planning *p)
{
	bool open = true;
	bool none = p->all_decode;
	if (!none && p->prompt_budget)
		run_earliest(s, p);
	while (p->budget && p->prompt_budget) {
		struct seq *r = none ? NULL : next_prefill(s, p), *w = NULL;
		if (open && !p->blocked && has_free_slot(s, p))
			w = queue_pick(s->queue, p->now_us, sched_is_ready, p, &p->for_age);
		if (w && (!r || p->for_age || queue_before(w, r)))
			p->refused = !(open = sched_admit(s, p, w));
		else if (!r || !sched_run_seq(s, p, r, false))
			break;
		none = false;
	}
	if (!none)
		run_running(s, p, false);
}

static void add_drops(struct sched *s, struct plan *plan)
{
	for (uint32_t i = 0; i < s->n_drops; i++)
		*plan_add_drop(plan) = s->drops[i];
	s->n_drops = 0;
}

uint32_t sched_mixture_rows(uint32_t n_experts, uint32_t n_chosen)
{
	return n_experts ? ROWS_TOGETHER * n_experts / n_chosen : 0;
}

/* Return the target time of a step with prompts and n decodes, which alone take decode_us.  Without decodes
 * no stream is held up: the step is long enough that its fixed cost counts little.  If the decodes alone take
 * as long as the target, a quarter of their time is added, so that prompts progress.  With step_auto a slow
 * device gets more time, since small chunks would cost it too much. */
static double prompt_step_us(const struct sched *s, uint32_t n, double decode_us)
{
	const double step_us = (double)s->cfg.step_us;
	if (!n)
		return fmax(step_us, FIXED_PART * s->costs.fixed_us);
	if (!s->cfg.step_auto)
		return fmax(step_us, 1.25 * decode_us);
	if (2 * decode_us <= step_us)
		return step_us;
	return fmax(2 * decode_us, fmin(4 * decode_us, PATIENT_US));
}

/* Return whether any running sequence decodes.  The plan alone does not show it: a beam group with tokens in
 * flight is only in every other plan. */
static bool some_decodes(const struct sched *s)
{
	for (uint32_t i = 0; i < s->n_running; i++)
		if (seq_decodes(s->running[i]))
			return true;
	return false;
}

/* Return the number of prompt rows next to n decodes; a step of prompts alone gets at least `alone` rows.
 * All rows of the step together are a multiple of ROWS_TOGETHER, unless that leaves too few: the nearest
 * multiple, since the next rows cost little, or for many rows the multiple below. */
static uint32_t rows_by_costs(const struct sched *s, uint32_t n, uint32_t alone)
{
	if (s->costs.row_us <= 0)
		return alone > s->cfg.first_prompt_rows ? alone : s->cfg.first_prompt_rows;
	const double alone_us = s->costs.fixed_us + n * s->costs.decode_us;
	const double rows = (prompt_step_us(s, n, alone_us) - alone_us) / s->costs.row_us;
	if (rows >= s->cfg.max_rows)
		return s->cfg.max_rows;
	if (rows < alone)
		return alone;
	/* With step_auto there is a minimum, whatever rows seem to cost: on a busy machine the estimate may
	 * be wrong, and as long as prompts run in the smallest chunks, decodes are never measured alone. */
	const uint32_t least = !s->cfg.step_auto || !n ? 1
			       : n < ROWS_TOGETHER     ? 2 * ROWS_TOGETHER - n
						       : ROWS_TOGETHER;
	const uint32_t r = rows < least ? least : (uint32_t)rows, odd = (r + n) % ROWS_TOGETHER;
	if (r <= 2 * ROWS_TOGETHER)
		return r;
	return r <= 8 * ROWS_TOGETHER && odd > ROWS_TOGETHER / 2 ? r + ROWS_TOGETHER - odd : r - odd;
}

/* Return the number of prompt rows of a step with n decodes.  The costs exclude the time to stream weights,
 * so a step that streams them would seem to fit.  Instead a chunk stays small enough that no weights are
 * streamed, unless the decodes alone nearly reach that limit. */
static uint32_t prompt_rows(const struct sched *s, uint32_t n)
{
	const uint32_t above = s->stream_above_rows;
	if (s->cfg.prefill_separate || s->cfg.step_us == 0)
		return s->cfg.max_rows;
	const uint32_t least_alone = above ? s->cfg.max_rows : s->cfg.mixture_rows;
	const bool streams = n || !s->cfg.step_auto || !least_alone || some_decodes(s);
	const uint32_t rows = rows_by_costs(s, n, streams ? 0 : least_alone);
	if (!above || !streams || n + rows <= above)
		return rows;
	return above >= n + ROWS_TOGETHER ? above - n : s->cfg.max_rows;
}

/* Return why no further group was admitted. */
static enum hold held_by(const struct sched *s, const struct planning *p)
{
	if (queue_n(s->queue) == 0)
		return HOLD_TURN;
	if (p->alone)
		return HOLD_ALONE;
	if (p->refused || p->blocked)
		return HOLD_BLOCKS;
	if (!has_free_slot(s, p))
		return HOLD_SLOTS;
	return p->budget == 0 || p->prompt_budget == 0 ? HOLD_STEP : HOLD_TURN;
}

static bool plan_once(struct sched *s, const struct group *alone, int64_t now_us, struct plan *out)
{
	struct inflight *f = &s->flight[(s->first_flight + s->n_flight) % SCHED_AHEAD];
	struct planning p = {.plan = out, .flight = f, .now_us = now_us, .budget = s->cfg.max_rows};
	p.alone = alone;
	plan_reset(out);
	f->n_samples = f->n_runs = f->n_open = f->n_searched = f->n_mirostat = f->n_pooled = 0;
	assert(f->later[STORE_DEVICE].n == 0 && f->later[STORE_HOST].n == 0);
	out->epoch = s->epoch;
	out->number = f->number = s->number + 1;
	out->n_kinds = s->kinds.n;
	sched_trim_retained(s);
	sched_preempt_for_next(s, &p);
	sched_beam_plan(s, out);
	/* Drafts take no row of a sequence that decodes. */
	p.draft_budget = s->cfg.max_rows > s->cfg.max_seqs ? s->cfg.max_rows - s->cfg.max_seqs : 0;
	p.prompt_budget = prompt_rows(s, 0);
	if (s->cfg.prefill_separate && !s->starved) {
		run_prompts(s, &p);
		if (out->n_runs == 0)
			run_running(s, &p, true);
	} else {
		/* Decoding sequences first: a long prompt must not hold them up, nor take the blocks that
		 * preemption freed for them. */
		run_running(s, &p, true);
		p.prompt_budget = prompt_rows(s, out->n_rows);
		if (!s->cfg.prefill_separate || out->n_runs == 0)
			run_prompts(s, &p);
	}
	s->starved = p.blocked;
	sched_times_plan(s, held_by(s, &p));
	if (out->n_runs == 0 && out->n_swap_out == 0 && out->n_swap_in == 0 && out->n_sets == 0 &&
	    out->n_seqs == 0) {
		assert(f->later[STORE_DEVICE].n == 0 && f->later[STORE_HOST].n == 0);
		return false;
	}
	add_drops(s, out);
	s->number++;
	s->n_flight++;
	s->counts.n_steps++;
	return true;
}

/* Return the last running sequence of a group other than `alone`, a suspect; if there is none, the last
 * running sequence, unless it is the only one. */
static struct seq *last_preemptible(const struct sched *s, const struct group *alone)
{
	for (uint32_t i = alone ? s->n_running : 0; i-- > 0;)
		if (s->running[i]->group != alone)
			return s->running[i];
	return s->n_running >= 2 ? s->running[s->n_running - 1] : NULL;
}

bool sched_plan(struct sched *s, int64_t now_us, struct plan *out)
{
	sched_clock(s, now_us);
	if (!s->blocks || s->n_flight == SCHED_AHEAD)
		return false;
	s->served_us = s->served_us ? s->served_us : now_us;
	const struct group *alone = sched_next_suspect(s, now_us);
	if (alone && sched_others_in_flight(s, alone))
		return false;
	/* Nothing is in flight, no sequence is held, and none could run: the first sequence needs blocks that
	 * others hold.  Stalled hypotheses are preempted, then the last sequence, one at a time; in the end
	 * the first sequence is alone, and fits. */
	for (int tries = 0; !plan_once(s, alone, now_us, out);) {
		/* A held sequence continues when its mask is ready. */
		if (s->n_flight || s->n_held)
			return false;
		if (sched_beam_yield(s, NULL, UINT64_MAX))
			continue;
		struct seq *q = last_preemptible(s, alone);
		if (q)
			sched_recompute(s, q);
		else if (s->n_running || queue_n(s->queue) == 0 || tries++ > 1)
			return false;
	}
	return true;
}
