#include "bench/sim/fewest.h"

#include "base/alloc.h"
#include "base/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HALVINGS = 6, STRETCH = 16 /* slots in the first pass */ };

struct search {
	struct fleet_replay_config cfg;
	const struct trace *trace;
	uint32_t most;
	double share;
	double *work; /* [n] device seconds of a slot's requests, by their FLOP */
	void (*progress)(const struct fewest *f);
	struct fewest *found;
	int rc;
	char *why;
	size_t why_n;
};

/* Return whether the schedule keeps the objectives; if so, *report is its report. */
static bool keeps(struct search *s, const uint32_t *schedule, struct fleet_replay_report *report)
{
	if (s->rc)
		return false;
	s->cfg.schedule = schedule;
	s->rc = fleet_replay_run(&s->cfg, s->trace, report, s->why, s->why_n);
	s->found->n_runs++;
	if (s->rc)
		return false;
	if (s->progress)
		s->progress(s->found);
	if (!report->n_lost && fleet_replay_good(report) >= s->share)
		return true;
	fleet_replay_report_fini(report);
	return false;
}

/* Store a schedule that keeps the objectives. */
static void take(struct search *s, const uint32_t *schedule, const struct fleet_replay_report *report)
{
	fleet_replay_report_fini(&s->found->report);
	s->found->report = *report;
	memcpy(s->found->schedule, schedule, s->found->n * sizeof *schedule);
}

static uint32_t bounded(const struct search *s, double n)
{
	return n < 1 ? 1 : n > s->most ? s->most : (uint32_t)n;
}

/* ---- a constant number ---- */

static void find_constant(struct search *s, uint32_t *trial)
{
	struct fewest *f = s->found;
	uint32_t lo = 0, hi = s->most + 1; /* hi keeps the objectives, lo does not */
	while (hi - lo > 1 && !s->rc) {
		struct fleet_replay_report r;
		const uint32_t n = hi > s->most ? s->most : (lo + hi) / 2;
		for (size_t i = 0; i < f->n; i++)
			trial[i] = n;
		if (keeps(s, trial, &r)) {
			hi = n;
			f->constant_worker_s = r.worker_s;
			take(s, trial, &r);
		} else {
			lo = n;
		}
	}
	f->constant = hi;
	if (!s->rc && hi > s->most)
		s->rc = err_why(s->why, s->why_n, -ERANGE,
				"%u workers do not keep the objectives: more of them, or other objectives",
				s->most);
}

/* ---- by the load ---- */

static void measure_work(struct search *s)
{
	const struct costmodel *c = &s->cfg.cost;
	for (size_t i = 0; i < s->trace->n; i++) {
		const struct arrival *a = &s->trace->v[i];
		const size_t slot = (size_t)(a->at_us / s->cfg.slot_us);
		s->work[slot] += (a->n_prompt + a->n_output) * c->flop_per_token / c->flop_per_s;
	}
}

static void find_by_load(struct search *s, uint32_t *trial)
{
	struct fewest *f = s->found;
	double peak = 0, lo = 0, hi;
	for (size_t i = 0; i < f->n; i++)
		peak = fmax(peak, s->work[i]);
	hi = f->constant / peak * 1.5; /* workers per second of work */
	for (int k = 0; k < HALVINGS && !s->rc; k++) {
		struct fleet_replay_report r;
		const double x = (lo + hi) / 2;
		for (size_t i = 0; i < f->n; i++)
			trial[i] = bounded(s, ceil(s->work[i] * x));
		if (!keeps(s, trial, &r)) {
			lo = x;
			continue;
		}
		hi = x;
		if (r.worker_s < f->report.worker_s)
			take(s, trial, &r);
		else
			fleet_replay_report_fini(&r);
	}
}

/* ---- reduction by one ---- */

/* Take one worker from slots [from, to).  Returns false if the objectives are not kept, or no slot has a
 * worker to spare. */
static bool take_one(struct search *s, uint32_t *trial, size_t from, size_t to)
{
	struct fewest *f = s->found;
	struct fleet_replay_report r;
	bool any = false;
	memcpy(trial, f->schedule, f->n * sizeof *trial);
	for (size_t i = from; i < to && i < f->n; i++)
		if (trial[i] > 1) {
			trial[i]--;
			any = true;
		}
	if (!any || !keeps(s, trial, &r))
		return false;
	take(s, trial, &r);
	return true;
}

static void descend(struct search *s, uint32_t *trial)
{
	for (size_t stretch = STRETCH; stretch && !s->rc; stretch /= 2)
		for (size_t from = 0; from < s->found->n; from += stretch)
			while (take_one(s, trial, from, from + stretch))
				;
}

int fewest_find(const struct fleet_replay_config *cfg, const struct trace *trace, int64_t slot_us,
		uint32_t most, double share, void (*progress)(const struct fewest *f), struct fewest *out,
		char *why, size_t why_n)
{
	const int64_t end_us = trace->n ? trace->v[trace->n - 1].at_us : 0;
	*out = (struct fewest){.n = (size_t)(end_us / slot_us) + 1, .slot_us = slot_us};
	out->schedule = xcalloc(out->n, sizeof *out->schedule);
	struct search s = {.cfg = *cfg,
			   .trace = trace,
			   .most = most,
			   .share = share,
			   .work = xcalloc(out->n, sizeof *s.work),
			   .progress = progress,
			   .found = out,
			   .why = why,
			   .why_n = why_n};
	uint32_t *trial = xcalloc(out->n, sizeof *trial);
	s.cfg.slot_us = slot_us;
	s.cfg.n_slots = out->n;
	s.cfg.n_bad_max = (uint64_t)((double)trace->n * (1 - share)) + 1;
	measure_work(&s);
	find_constant(&s, trial);
	if (!s.rc)
		find_by_load(&s, trial);
	if (!s.rc)
		descend(&s, trial);
	free(trial);
	free(s.work);
	if (s.rc)
		fewest_fini(out);
	return s.rc;
}

void fewest_fini(struct fewest *f)
{
	free(f->schedule);
	fleet_replay_report_fini(&f->report);
	*f = (struct fewest){0};
}
