/* sched_pool.c - sequences with a pooled prompt (params.pool): handling of their runs' pooled rows.
 *
 * A sequence ends with the result of the run that completes its prompt.  A mean is computed from the sums of
 * its runs, added in the order of positions:
 *
 *   runs         [0, 32)  [32, 64)  preempted, recomputed     [0, 48)  [48, 70)
 *   n_summed        32       64                                   48       70 = n_prompt: the mean
 *
 * A run from position 0 starts the sums again.  A run that does not continue at n_summed was planned before
 * the sequence was preempted, and is ignored. */
#include "base/alloc.h"
#include "controller/sched/sched_impl.h"

#include <math.h>
#include <string.h>

bool sched_pool_brings(const struct seq *q, uint32_t end)
{
	const struct group *g = q->group;
	return g->params.pool == PARAMS_POOL_MEAN || (g->params.pool && end == g->n_prompt);
}

static bool is_mean(const struct group *g)
{
	return g->params.pool == PARAMS_POOL_MEAN;
}

/* Return whether an entry of the result matches its run. */
static bool fits(const struct run *run, const struct result_pool *p)
{
	const struct group *g = run->group;
	if (p->slot != run->slot || p->pos0 != run->from || p->n_rows != run->end - run->from || !p->n_words)
		return false;
	if (g->params.pool == PARAMS_POOL_LOGITS)
		return p->n_words == g->params.n_allowed;
	/* A group that has ended has kept no sums. */
	return !is_mean(g) ||
	       (p->n_words % 2 == 0 && (run->from == 0 || !g->n_live || p->n_words / 2 == g->n_sums));
}

bool sched_pool_fits(const struct inflight *f, const struct result *r)
{
	uint32_t at = 0;
	if (r->n_pools != f->n_pooled)
		return false;
	for (uint32_t i = 0; f->n_pooled && i < f->n_runs; i++)
		if (f->runs[i].pooled && !fits(&f->runs[i], &r->pools[at++]))
			return false;
	return true;
}

/* Add the sums of one further run.  False: it does not continue at n_summed. */
static bool add_sums(struct group *g, const struct run *run, const struct result_pool *p,
		     const uint32_t *words)
{
	if (run->from == 0) {
		g->n_sums = p->n_words / 2;
		g->sums = xrealloc(g->sums, g->n_sums, sizeof *g->sums);
		memset(g->sums, 0, g->n_sums * sizeof *g->sums);
		g->n_summed = 0;
	}
	if (run->from != g->n_summed)
		return false;
	g->n_summed = run->end;
	for (uint32_t k = 0; k < g->n_sums; k++) {
		int64_t x;
		memcpy(&x, words + 2 * (size_t)k, sizeof x);
		if (g->sums[k] == RESULT_POOL_NAN || x == RESULT_POOL_NAN ||
		    __builtin_add_overflow(g->sums[k], x, &g->sums[k]))
			g->sums[k] = RESULT_POOL_NAN;
	}
	return true;
}

static float mean(int64_t sum, uint32_t n)
{
	return sum == RESULT_POOL_NAN ? NAN : (float)((double)sum / RESULT_POOL_ONE / n);
}

static void end(struct sched *s, const struct run *run, const struct result_pool *p, const uint32_t *words,
		int64_t now_us, struct sched_events *ev)
{
	struct group *g = run->group;
	const uint32_t n = is_mean(g) ? g->n_sums : p->n_words;
	struct sched_event *e = sched_add_event(ev, SCHED_POOLED, g);
	e->index = run->seq->index;
	e->value0 = ev->n_values;
	e->n_values = n;
	array_grow(ev->values, ev->cap_values, ev->n_values + n);
	if (is_mean(g))
		for (uint32_t k = 0; k < n; k++)
			ev->values[ev->n_values + k] = mean(g->sums[k], g->n_prompt);
	else
		memcpy(ev->values + ev->n_values, words, n * sizeof *words);
	ev->n_values += n;
	g->first_token_us = now_us;
	sched_finish(s, run->seq, FINISH_STOP, -1, ev);
}

void sched_pool_apply(struct sched *s, const struct inflight *f, const struct result *r, int64_t now_us,
		      struct sched_events *ev)
{
	uint32_t at = 0;
	for (uint32_t i = 0; i < f->n_runs; i++) {
		const struct run *run = &f->runs[i];
		if (!run->pooled)
			continue;
		const struct result_pool *p = &r->pools[at++];
		const uint32_t *words = r->pool_words + p->at;
		if (!run->group->n_live || (is_mean(run->group) && !add_sums(run->group, run, p, words)))
			continue;
		if (run->end == run->group->n_prompt)
			end(s, run, p, words, now_us, ev);
	}
}
