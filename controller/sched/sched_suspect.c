/* sched_suspect.c - sequences that were running when a worker died.
 *
 * A job that kills every worker would move from one worker to the next forever.  So each sequence that is in
 * flight when a worker dies gets a strike.  Strikes count in a row, at the same place, without progress
 * between them.  After two, its group is a suspect: quarantined, it runs alone until it makes progress.
 * After a third, alone, it is poisoned.  So no group is failed for another group that ran at the same time.
 * A worker serves for a moment (probe_us) before suspects run on it, so that workers that die at start-up, or
 * are killed there, give no strikes.
 *
 *   strikes   0 ----> 1 ----> 2: suspect ----> 3, alone: poisoned
 *             ^       |       |
 *             +-------+-------+-- a token, or the prompt computed beyond the place: cleared */
#include "controller/sched/sched_impl.h"

enum { SUSPECT_STRIKES = 2, POISONED_STRIKES = 3 };

static struct inflight *flight_at(const struct sched *s, uint32_t i)
{
	return (struct inflight *)&s->flight[(s->first_flight + i) % SCHED_AHEAD];
}

static void update_suspect(struct sched *s, struct group *g)
{
	bool suspect = false;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		suspect = suspect || g->seqs[i].n_strikes >= SUSPECT_STRIKES;
	s->n_suspects += suspect;
	s->n_suspects -= g->suspect;
	g->suspect = suspect;
}

/* Plans in flight were computing the sequence's positions from..end-1. */
static void add_strike(struct sched *s, struct seq *q, uint32_t from, uint32_t end)
{
	bool same = from < q->strike_end && q->strike_from < end;
	if (!same || q->n_strikes == 0)
		q->n_strikes = 1;
	else if (q->n_strikes < POISONED_STRIKES)
		q->n_strikes++;
	q->strike_from = from;
	q->strike_end = end;
	q->strike_epoch = s->epoch;
	update_suspect(s, q->group);
}

bool sched_others_in_flight(const struct sched *s, const struct group *g)
{
	for (uint32_t i = 0; i < s->n_flight; i++)
		for (uint32_t k = 0; k < flight_at(s, i)->n_runs; k++)
			if (flight_at(s, i)->runs[k].group != g)
				return true;
	return false;
}

void sched_worker_died(struct sched *s)
{
	for (uint32_t i = 0; i < s->n_flight; i++)
		for (uint32_t k = 0; k < flight_at(s, i)->n_runs; k++) {
			const struct run *r = &flight_at(s, i)->runs[k];
			struct seq *q = r->seq;
			bool lives = q->state == SEQ_RUNNING || q->state == SEQ_WAITING;
			/* One strike per sequence: its runs in later plans begin where this run ends. */
			if (!r->group->n_live || !lives || q->strike_epoch == s->epoch)
				continue;
			uint32_t end = q->n_computed > r->end ? q->n_computed : r->end;
			add_strike(s, q, r->from, end > r->from ? end : r->from + 1);
			if (q->n_strikes == POISONED_STRIKES && !sched_others_in_flight(s, r->group))
				r->group->poisoned = true;
		}
}

void sched_clear_strikes(struct sched *s, struct seq *q)
{
	if (q->n_strikes == 0)
		return;
	q->n_strikes = 0;
	update_suspect(s, q->group);
}

const struct group *sched_next_suspect(const struct sched *s, int64_t now_us)
{
	if (s->n_suspects == 0 || now_us - s->served_us < s->cfg.probe_us)
		return NULL;
	const struct group *g = s->all.next;
	while (!g->suspect)
		g = g->next;
	return g;
}
