/* sched_suspect.c - whom workers may be lost by.
 *
 * A job on which every worker dies would be moved from one to the next for ever.  So each sequence
 * that was under way when a worker was lost has its losses counted, as long as they happen at the
 * same place and it does not get on in between.  After the second its group is a suspect, and runs
 * alone until it has got on; it is guilty when it was lost a third time, alone: what shares a plan
 * with the culprit is never ended for it.  A worker that has begun to serve does so without suspects
 * for a moment: one that is killed, or dies by itself, whenever it comes up says nothing of them. */
#include "controller/sched_impl.h"

enum { SUSPECT_LOSSES = 2, GUILTY_LOSSES = 3 };

static struct inflight *flight_at(const struct sched *s, uint32_t i)
{
	return (struct inflight *)&s->flight[(s->first_flight + i) % SCHED_AHEAD];
}

static void judge(struct sched *s, struct group *g)
{
	bool suspect = false;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		suspect = suspect || g->seqs[i].n_lost >= SUSPECT_LOSSES;
	s->n_suspects += suspect;
	s->n_suspects -= g->suspect;
	g->suspect = suspect;
}

/* It was at from, and end was what plans under way would have brought it to. */
static void count(struct sched *s, struct seq *q, uint32_t from, uint32_t end)
{
	bool same = from < q->lost_end && q->lost_from < end;
	if (!same || q->n_lost == 0)
		q->n_lost = 1;
	else if (q->n_lost < GUILTY_LOSSES)
		q->n_lost++;
	q->lost_from = from;
	q->lost_end = end;
	q->lost_epoch = s->epoch;
	judge(s, q->group);
}

bool sched_others_fly(const struct sched *s, const struct group *g)
{
	for (uint32_t i = 0; i < s->n_flight; i++)
		for (uint32_t k = 0; k < flight_at(s, i)->n_runs; k++)
			if (flight_at(s, i)->runs[k].group != g)
				return true;
	return false;
}

void sched_blame(struct sched *s)
{
	for (uint32_t i = 0; i < s->n_flight; i++)
		for (uint32_t k = 0; k < flight_at(s, i)->n_runs; k++) {
			const struct run *r = &flight_at(s, i)->runs[k];
			struct seq *q = r->seq;
			bool lives = q->state == SEQ_RUNNING || q->state == SEQ_WAITING;
			/* Its runs in later plans begin where this one ends. */
			if (!r->group->n_live || !lives || q->lost_epoch == s->epoch)
				continue;
			uint32_t end = q->n_computed > r->end ? q->n_computed : r->end;
			count(s, q, r->from, end > r->from ? end : r->from + 1);
			if (q->n_lost == GUILTY_LOSSES && !sched_others_fly(s, r->group))
				r->group->guilty = true;
		}
}

void sched_absolve(struct sched *s, struct seq *q)
{
	if (q->n_lost == 0)
		return;
	q->n_lost = 0;
	judge(s, q->group);
}

const struct group *sched_suspect(const struct sched *s, int64_t now_us)
{
	if (s->n_suspects == 0 || now_us - s->served_us < s->cfg.probe_us)
		return NULL;
	const struct group *g = s->all.next;
	while (!g->suspect)
		g = g->next;
	return g;
}
