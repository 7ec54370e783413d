/* fleet_autoscale.c - changes the number of replicas by the service's load (autoscale.h). */
#include "controller/fleet/fleet_impl.h"

#include "base/log.h"

/* Pause after a scale that failed: a device that was in use may be free later. */
static const int64_t retry_us = 60 * 1000000LL;

/* Return the sequences that run or wait. */
static uint32_t load_of(const struct sched *s)
{
	struct sched_stats st;
	sched_stats(s, &st);
	return st.n_running + st.n_waiting;
}

static uint32_t count(const struct fleet *f, enum replica_state state)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		n += f->replicas[i]->state == state;
	return n;
}

void fleet_autoscale(struct fleet *f, int64_t now_us)
{
	if (!f->cfg->autoscale.max || !f->served)
		return;
	const uint32_t serving = count(f, REPLICA_SERVING), n = serving + count(f, REPLICA_LOADING);
	uint32_t load = load_of(f->unassigned);
	for (uint32_t i = 0; i < f->n_replicas; i++)
		load += load_of(f->replicas[i]->sched);
	autoscale_note(&f->autoscale, load, now_us);
	if (f->scale_failed) {
		f->scale_failed = false;
		f->scale_us = now_us + retry_us;
	}
	if (!autoscale_due(&f->autoscale, now_us) || now_us < f->scale_us)
		return;
	/* After a restart of the controller, its predecessor's replicas may exist. */
	const uint32_t before = f->n_wanted ? f->n_wanted : n;
	f->n_wanted = autoscale_decide(&f->autoscale, before, serving, now_us);
	if (f->n_wanted != before)
		log_info("fleet", "autoscale from=%u to=%u load=%.1f", before, f->n_wanted,
			 autoscale_load(&f->autoscale, now_us));
	/* Workers may have been lost, or drained by hand. */
	if (f->n_wanted != before || (f->n_wanted != n && !fleet_scales(f)))
		fleet_scale(f, f->n_wanted, now_us);
}
