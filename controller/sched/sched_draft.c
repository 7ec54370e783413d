/* sched_draft.c - open runs (plan.h): how many drafts a run may have, and results of several tokens.
 * sched_impl.h draws the counts. */
#include "controller/sched/sched_impl.h"

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Return the most positions that q computes: the last token of an output needs no K and V. */
static uint32_t most_rows(const struct seq *q)
{
	return q->group->n_prompt + q->group->params.max_tokens - 1;
}

uint32_t sched_reach(const struct seq *q, uint32_t rows)
{
	return least(q->n_computed + q->n_slack + rows, most_rows(q));
}

/* Return whether tokens of q may be drafted.  This is the one place that decides it:
 *
 *   beam search          the controller chooses its tokens
 *   pooled               no token is sampled
 *   mirostat             its state, mu, changes with every token drawn, also with one that is not returned
 *   first token          its row ends the prompt; outputs of the job may fork from it */
static bool may_draft(const struct seq *q)
{
	const struct params *p = &q->group->params;
	return !q->group->beam && !p->pool && !p->mirostat && seq_n_out(q) + q->n_pending > 0;
}

uint32_t sched_drafts(const struct sched *s, const struct planning *p, const struct seq *q)
{
	/* With windows, a block may be given away while an open run in flight still uses it. */
	if (!s->cfg.drafts || !may_draft(q) || kinds_have_windows(&s->kinds))
		return 0;
	const uint32_t left = q->group->params.max_tokens - seq_n_out(q) - q->n_pending;
	const uint32_t n = least(least(s->cfg.drafts, left - 1), least(p->draft_budget, p->budget - 1));
	/* Drafts take no blocks for which a sequence would be preempted. */
	const uint32_t end = sched_reach(q, 1 + n);
	if (n && end > q->table.n_writable &&
	    blocks_missing(s->blocks, &q->table, end, q->n_computed) > sched_available(s, q))
		return 0;
	return n;
}

bool sched_counts_fit(const struct inflight *f, const struct result *r)
{
	uint32_t n = f->n_samples - f->n_open, k = 0;
	if (r->n_counts != f->n_open)
		return false;
	for (uint32_t i = 0; k < f->n_open; i++) {
		const struct sample *sample = &f->samples[i];
		if (!sample->open_rows)
			continue;
		const uint32_t count = r->counts[k++];
		/* No token: the output has all its tokens, by an earlier result, or the run sat out. */
		if (count > sample->open_rows ||
		    (count == 0 && sample->seq->state != SEQ_FINISHED && !sched_is_held(r, sample->slot)))
			return false;
		n += count;
	}
	return r->n_tokens == n;
}

void sched_draft_result(struct seq *q, uint32_t open_rows, uint32_t n)
{
	if (q->state == SEQ_FINISHED)
		return;
	sched_ensure(q->n_pending > 0 && q->n_slack >= open_rows - 1,
		     "tokens of an open run that has no slack");
	q->n_slack -= open_rows - 1;
	if (n <= 1)
		return;
	q->n_pending += n - 1;
	/* If these are the last tokens of the output, a later plan in flight computes nothing. */
	q->n_computed = least(q->n_computed + n - 1, most_rows(q));
	q->n_before = least(q->n_before + n - 1, q->n_computed);
	queue_charge(q->group, (n - 1) * (1 + SCHED_OUTPUT_WEIGHT));
}
