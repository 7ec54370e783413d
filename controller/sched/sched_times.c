/* sched_times.c - the timelines of groups (timeline.h).
 * The reasons for which queued groups wait are counted once per plan, for all groups.  Each group remembers
 * the counters at its arrival, and takes the differences when it begins. */
#include "base/alloc.h"
#include "controller/sched/sched_impl.h"

void sched_clock(struct sched *s, int64_t now_us)
{
	if (now_us > s->now_us)
		s->now_us = now_us;
}

static uint32_t bucket(int32_t priority)
{
	const int32_t half = TIMELINE_PRIORITIES / 2;
	return (uint32_t)((priority < -half ? -half : priority > half ? half : priority) + half);
}

static uint64_t begun_better(const struct sched *s, const struct group *g)
{
	uint64_t n = 0;
	for (uint32_t b = 0; b < bucket(g->priority); b++)
		n += s->begun_by[b];
	return n;
}

/* Add the time since the last plan to the reason that held up that plan. */
static void count_held(struct sched *s)
{
	if (s->held_since_us && s->now_us > s->held_since_us)
		s->held_us[s->held] += s->now_us - s->held_since_us;
	s->held_since_us = s->now_us;
}

void sched_times_plan(struct sched *s, enum hold held)
{
	count_held(s);
	s->held = held;
}

/* Add the changes since the group was queued. */
static void add_seen(const struct sched *s, const struct group *g, struct timeline *t)
{
	t->n_begun += (uint32_t)(s->n_begun - t->seen_begun);
	t->n_better += (uint32_t)(begun_better(s, g) - t->seen_better);
	for (int h = 0; h < HOLDS; h++)
		t->held_us[h] += s->held_us[h] - t->seen_held_us[h];
}

static void remember(const struct sched *s, const struct group *g, struct timeline *t)
{
	t->seen_begun = s->n_begun;
	t->seen_better = begun_better(s, g);
	for (int h = 0; h < HOLDS; h++)
		t->seen_held_us[h] = s->held_us[h];
}

void sched_times_queue(struct sched *s, struct group *g)
{
	struct timeline *t = g->times;
	if (!s->blocks) {
		sched_times_phase(g, PHASE_UNASSIGNED, s->now_us);
		return;
	}
	if (g->first_run_us) {
		t->n_moves++;
		sched_times_phase(g, PHASE_MOVED, s->now_us);
		return;
	}
	if (!t->times[PHASE_QUEUED])
		t->n_ahead = s->all_queued.n;
	count_held(s);
	remember(s, g, t);
	sched_times_phase(g, PHASE_QUEUED, s->now_us);
}

void sched_times_unqueue(struct sched *s, struct group *g)
{
	if (g->phase != PHASE_QUEUED)
		return;
	count_held(s);
	add_seen(s, g, g->times);
	remember(s, g, g->times);
}

void sched_times(struct sched *s, const struct group *g, int64_t now_us, struct timeline *out)
{
	*out = *g->times;
	sched_clock(s, now_us);
	if (g->phase == PHASE_QUEUED) {
		count_held(s);
		add_seen(s, g, out);
	}
	timeline_end(out, now_us);
	out->phase = (enum phase)g->phase;
}

void sched_times_enter(struct sched *s, const struct seq *q)
{
	struct group *g = q->group;
	if (!g->first_run_us) {
		sched_times_unqueue(s, g);
		s->n_begun++;
		s->begun_by[bucket(g->priority)]++;
		sched_times_phase(g, PHASE_PREFILL, s->now_us);
	} else if (g->phase != PHASE_PREFILL && g->phase != PHASE_DECODE && g->phase != PHASE_RECOMPUTE) {
		sched_times_phase(g, seq_decodes(q) ? PHASE_DECODE : PHASE_RECOMPUTE, s->now_us);
	}
}

void sched_times_exit(struct sched *s, const struct seq *q)
{
	struct group *g = q->group;
	bool swapped = false;
	if (g->phase == PHASE_MOVED) /* its worker was lost */
		return;
	g->times->n_seqs_preempted++;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		if (g->seqs[i].state == SEQ_RUNNING)
			return;
		swapped = swapped || seq_is_swapped(&g->seqs[i]);
	}
	sched_times_phase(g, swapped ? PHASE_SWAPPED : PHASE_PREEMPTED, s->now_us);
}

void sched_times_rows(const struct seq *q, uint32_t rows)
{
	const struct group *g = q->group;
	if (g->phase == PHASE_PREFILL && q->n_computed < g->n_prompt) {
		g->times->n_chunks++;
		g->times->n_rows += rows;
	} else if (g->phase == PHASE_RECOMPUTE && !seq_decodes(q)) {
		g->times->n_again += rows;
	}
}

void sched_times_end(struct sched *s, struct group *g, struct sched_events *ev, struct sched_event *e)
{
	sched_times_unqueue(s, g);
	array_grow(ev->times, ev->cap_times, ev->n_times + 1);
	e->times = ev->n_times++;
	ev->times[e->times] = *g->times;
}
