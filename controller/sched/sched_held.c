/* sched_held.c - runs that sit a step out (struct result): the mask of a structured output is not ready.
 * The sequence keeps its slot and blocks.  It is in no plan until the worker reports that the mask is ready,
 * or until a plan that was in flight returns its token. */
#include "controller/sched/sched_impl.h"

void sched_hold(struct sched *s, struct seq *q, bool held)
{
	s->n_held += held;
	s->n_held -= q->held;
	q->held = held;
}

bool sched_held_fits(const struct inflight *f, const struct result *r)
{
	uint32_t n = 0;
	for (uint32_t i = 0; n < r->n_held && i < f->n_samples; i++)
		n += f->samples[i].slot == r->held[n];
	return n == r->n_held;
}

bool sched_is_held(const struct result *r, uint32_t slot)
{
	for (uint32_t i = 0; i < r->n_held; i++)
		if (r->held[i] == slot)
			return true;
	return false;
}

void sched_held_apply(struct sched *s, struct seq *q)
{
	s->counts.masks_held++;
	if (q->state == SEQ_FINISHED)
		return;
	q->n_pending--;
	if (q->n_computed >= seq_total(q))
		q->n_computed = seq_total(q) - 1;
	if (q->n_reached > q->n_computed)
		q->n_reached = q->n_computed;
	if (q->n_before > q->n_computed)
		q->n_before = q->n_computed;
	q->table.n_writable = 0; /* the row's block may have been published and shared by now */
	if (q->state == SEQ_RUNNING)
		sched_hold(s, q, true);
}

void sched_awake(struct sched *s, uint32_t slot)
{
	for (uint32_t i = 0; s->n_held && i < s->n_running; i++)
		if (s->running[i]->slot == slot)
			sched_hold(s, s->running[i], false);
}
