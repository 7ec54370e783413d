#include "controller/sched/timeline.h"

#include <assert.h>

const char *timeline_phase_name(enum phase p)
{
	static const char *const names[PHASES] = {"none",      "unassigned", "queued", "prefill",  "decode",
						  "preempted", "swapped",    "moved",  "recompute"};
	assert(p < PHASES);
	return names[p];
}

const char *timeline_hold_name(enum hold h)
{
	static const char *const names[HOLDS] = {"turn", "blocks", "slots", "step", "alone"};
	assert(h < HOLDS);
	return names[h];
}

void timeline_end(struct timeline *t, int64_t now_us)
{
	if (t->phase == PHASE_NONE)
		return;
	if (now_us < t->since_us)
		now_us = t->since_us;
	t->us[t->phase] += now_us - t->since_us;
	struct timeline_span *last = t->n_spans ? &t->spans[t->n_spans - 1] : 0;
	if (last && last->to_us == 0)
		last->to_us = now_us;
	t->phase = PHASE_NONE;
	t->since_us = now_us;
}

void timeline_enter(struct timeline *t, enum phase p, int64_t now_us)
{
	if (t->phase == p)
		return;
	timeline_end(t, now_us);
	if (now_us > t->since_us)
		t->since_us = now_us;
	t->phase = p;
	t->times[p]++;
	if (t->n_spans == TIMELINE_SPANS)
		t->n_left_out++;
	else
		t->spans[t->n_spans++] = (struct timeline_span){.phase = p, .from_us = t->since_us};
}
