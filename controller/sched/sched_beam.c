/* sched_beam.c - beam searches: carries out the steps of a search on sequences, slots and blocks. */
#include "base/alloc.h"
#include "controller/sched/beam.h"
#include "controller/sched/sched_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end ---- */

static void add_logprob(struct result *to, const struct beam_token *t)
{
	*result_add_logprob(to) = (struct result_logprob){.token = t->token,
							  .logprob = t->logprob,
							  .rank = t->rank,
							  .n_top = t->n_top,
							  .top0 = to->n_top};
	for (uint32_t i = 0; i < t->n_top; i++)
		result_add_top(to, t->top_ids[i], t->top_logprobs[i]);
}

static void add_tokens(const struct group *g, uint32_t index, struct sched_events *ev)
{
	uint32_t n = beam_length(g->beam, index);
	struct beam_token *tokens = xmalloc(n * sizeof *tokens);
	beam_tokens(g->beam, index, tokens);
	for (uint32_t i = 0; i < n; i++) {
		struct sched_event *e = sched_add_event(ev, SCHED_TOKEN, g);
		e->index = index;
		e->token = tokens[i].token;
		e->stop = i + 1 == n && beam_stopped(g->beam, index);
		e->searched = true;
		e->logprob = (int32_t)ev->beam_logprobs.n_logprobs;
		add_logprob(&ev->beam_logprobs, &tokens[i]);
	}
	free(tokens);
}

static void add_output_done(const struct group *g, uint32_t index, enum finish finish,
			    struct sched_events *ev)
{
	uint32_t n = ev->n;
	int64_t stop_token = finish == FINISH_STOP ? (int64_t)ev->v[n - 1].token : -1;
	struct sched_event *e = sched_add_event(ev, SCHED_OUTPUT_DONE, g);
	e->index = index;
	e->finish = finish;
	e->stop_token = stop_token;
}

static void end_group(struct sched *s, struct group *g, struct sched_events *ev)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		sched_end(s, &g->seqs[i]);
	g->n_live = 0;
	sched_group_done(s, g, ev);
}

/* Report the n best hypotheses; if fewer were found, the remaining outputs are empty. */
static void report_best(struct sched *s, struct group *g, struct sched_events *ev)
{
	for (uint32_t i = 0; i < g->params.n; i++) {
		bool found = i < beam_n_finished(g->beam);
		if (found)
			add_tokens(g, i, ev);
		add_output_done(g, i, found && beam_stopped(g->beam, i) ? FINISH_STOP : FINISH_LENGTH, ev);
	}
	end_group(s, g, ev);
}

void sched_beam_abort(struct sched *s, struct group *g, struct sched_events *ev)
{
	for (uint32_t i = 0; i < g->params.n; i++)
		add_output_done(g, i, FINISH_ABORT, ev);
	end_group(s, g, ev);
}

void sched_beam_forget(struct sched *s, struct group *g)
{
	if (!g->decided)
		return;
	for (uint32_t i = 0; i < s->n_decided; i++)
		if (s->decided[i] == g)
			s->decided[i] = s->decided[--s->n_decided];
	for (uint32_t i = 0; i < g->n_seqs; i++)
		g->seqs[i].fork_of = SEQ_NO_PLACE;
	g->decided = false;
}

/* ---- a step of the search ---- */

/* The hypothesis at this place has died: free the place. */
static void vacate(struct sched *s, struct seq *q)
{
	sched_end(s, q);
	q->state = SEQ_IDLE;
	q->planned = 0;
	q->set_due = false;
	q->fork_of = SEQ_NO_PLACE;
}

/* Fill a free place with the parent's tokens and one more. */
static void fork(struct sched *s, struct seq *child, const struct seq *parent, uint32_t token)
{
	assert(child->state == SEQ_IDLE);
	seq_copy_tokens(child, parent);
	seq_append(child, token);
	child->fork_of = parent->index;
	sched_wait(s, child);
}

static void next_step(struct sched *s, struct group *g, struct sched_events *ev)
{
	struct beam_move moves[PARAMS_N_MAX];
	bool stays[PARAMS_N_MAX] = {false};
	uint32_t n = beam_step(g->beam, moves);
	if (n == 0) {
		report_best(s, g, ev);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		stays[moves[i].parent] = true;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (!stays[i] && g->seqs[i].state != SEQ_IDLE)
			vacate(s, &g->seqs[i]);
	/* Children first: they copy their parents' tokens before these grow. */
	for (uint32_t i = 0; i < n; i++)
		if (moves[i].place != moves[i].parent)
			fork(s, &g->seqs[moves[i].place], &g->seqs[moves[i].parent], moves[i].token);
	for (uint32_t i = 0; i < n; i++) {
		struct seq *q = &g->seqs[moves[i].place];
		if (moves[i].place != moves[i].parent)
			continue;
		seq_append(q, moves[i].token);
		q->set_due = q->state == SEQ_RUNNING;
	}
	g->decided = true;
	array_grow(s->decided, s->cap_decided, s->n_decided + 1);
	s->decided[s->n_decided++] = g;
}

void sched_beam_apply(struct sched *s, struct seq *q, const struct result *r, int32_t logprob, int64_t now_us,
		      struct sched_events *ev)
{
	struct group *g = q->group;
	const struct result_logprob *l = &r->logprobs[logprob];
	q->n_pending--;
	s->counts.generated_tokens++;
	sched_clear_strikes(s, q);
	if (!g->first_token_us)
		g->first_token_us = now_us;
	if (g->phase == PHASE_PREFILL || g->phase == PHASE_RECOMPUTE)
		sched_times_phase(g, PHASE_DECODE, now_us);
	if (beam_offer(g->beam, q->index, r->top_ids + l->top0, r->top_logprobs + l->top0, l->n_top))
		next_step(s, g, ev);
}

/* ---- planning ---- */

bool sched_beam_stalled(const struct seq *q)
{
	return q->group->beam && beam_offered(q->group->beam, q->index);
}

static void set_token(struct plan *plan, struct seq *q, uint32_t from)
{
	*plan_add_set(plan) = (struct plan_set){q->slot, from, q->n_tokens - 1, q->tokens[q->n_tokens - 1]};
}

/* Continue the child in a copy of its parent's slot, sharing its blocks, if the parent is running and a slot
 * is free; else the child waits, and its tokens are recomputed. */
static void fork_slot(struct sched *s, struct plan *plan, struct seq *child, struct seq *parent)
{
	child->fork_of = SEQ_NO_PLACE;
	if (!parent->set_due || s->n_slots == 0)
		return;
	blocks_share(s->blocks, &child->table, &parent->table, parent->table.n);
	sched_enter(s, child);
	child->n_computed = child->n_before = parent->n_computed;
	sched_name(s, child, parent->n_named, parent->node);
	set_token(plan, child, parent->slot);
}

void sched_beam_plan(struct sched *s, struct plan *plan)
{
	for (uint32_t k = 0; k < s->n_decided; k++) {
		struct group *g = s->decided[k];
		for (uint32_t i = 0; i < g->n_seqs; i++)
			if (g->seqs[i].fork_of != SEQ_NO_PLACE)
				fork_slot(s, plan, &g->seqs[i], &g->seqs[g->seqs[i].fork_of]);
		for (uint32_t i = 0; i < g->n_seqs; i++) {
			struct seq *q = &g->seqs[i];
			if (!q->set_due)
				continue;
			set_token(plan, q, q->slot);
			q->set_due = false;
			q->entered = plan->number;
		}
		g->decided = false;
	}
	s->n_decided = 0;
}

bool sched_beam_yield(struct sched *s, const struct group *g, uint64_t number)
{
	for (uint32_t i = s->n_running; i-- > 0;) {
		struct seq *q = s->running[i];
		if ((g && q->group != g) || !sched_beam_stalled(q) || q->entered == number)
			continue;
		sched_recompute(s, q);
		return true;
	}
	return false;
}

void sched_beam_check(const struct group *g)
{
	beam_check(g->beam);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		bool lives = beam_lives(g->beam, i), offered = beam_offered(g->beam, i);
		sched_ensure(lives == (q->state == SEQ_RUNNING || q->state == SEQ_WAITING),
			     "a hypothesis without a sequence, or a sequence without a hypothesis");
		sched_ensure(!offered || lives, "candidates of a dead hypothesis");
		sched_ensure(!offered || q->n_pending == 0, "candidates offered twice");
		sched_ensure(q->fork_of == SEQ_NO_PLACE || (g->decided && q->state == SEQ_WAITING),
			     "a fork that no plan has");
	}
}
