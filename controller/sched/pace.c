#include "controller/sched/pace.h"

#include <math.h>

/* Weight of the latest step: in the speed, and in the averages at that speed. */
static const double speed_weight = 0.5, weight = 0.1;
/* A step counts as at most this much longer than expected. */
static const double spike = 1.3;
/* Least spread (standard deviation over mean) of the number of decodes that shows the cost of a decode. */
static const double spread = 0.1;

/* Fit the line through the averages of steps without prompts and of m's steps with prompts, at speed 1.
 * row_us 0: no steps with prompts seen.  If the cost of a decode is unknown, a decode costs as much as a
 * prompt row.  If more rows took no longer, or the rows account for all of the time, fixed_us is 0. */
static struct sched_costs line(const struct pace *p, const struct pace_mean *m)
{
	const struct pace_mean *a = &p->alone;
	const double decode = p->decode_us, more = m->decodes - a->decodes;
	struct sched_costs c = {0};
	if (m->us > 0 && a->us > 0) {
		c.row_us = !p->decode_known ? (m->us - a->us) / (m->prompts + more)
					    : (m->us - a->us - more * decode) / m->prompts;
		c.decode_us = !p->decode_known ? c.row_us : decode;
		c.fixed_us = a->us - a->decodes * c.decode_us;
	}
	if (isfinite(c.row_us) && c.row_us > 0 && c.fixed_us >= 0)
		return c;
	const double row = m->us > 0 ? m->us / (m->decodes + m->prompts) : 0;
	return (struct sched_costs){.row_us = row, .decode_us = row};
}

/* Return the costs at speed 1. */
static struct sched_costs costs(const struct pace *p)
{
	const struct sched_costs few = line(p, &p->few), many = line(p, &p->many);
	if (few.row_us > 0 || many.row_us > 0)
		return many.row_us > 0 ? many : few;
	const double row = p->alone.us > 0 ? p->alone.us / p->alone.decodes : 0;
	return (struct sched_costs){.row_us = row, .decode_us = row};
}

/* Return the expected time of a step of m's kind at speed 1. */
static double expected(const struct pace *p, const struct pace_mean *m, double decodes, double prompts)
{
	if (m == &p->alone)
		return m->us + (decodes - m->decodes) * p->decode_us;
	const struct sched_costs c = line(p, m);
	return c.fixed_us + decodes * c.decode_us + prompts * c.row_us;
}

static void note(struct pace_mean *m, double decodes, double prompts, double us)
{
	const double w = m->us > 0 ? weight : 1;
	m->decodes += w * (decodes - m->decodes);
	m->prompts += w * (prompts - m->prompts);
	m->us += w * (us - m->us);
}

/* Update the variance and covariance by a step without prompts, before the step is added to the mean. */
static void note_spread(struct pace *p, double decodes, double us)
{
	const double d = decodes - p->alone.decodes;
	if (p->alone.us <= 0)
		return;
	p->var = (1 - weight) * (p->var + weight * d * d);
	p->cov = (1 - weight) * (p->cov + weight * d * (us - p->alone.us));
	const double mean = p->alone.decodes, least = spread * spread * mean * mean;
	if (p->var < least)
		return;
	p->decode_us = fmin(fmax(p->cov / p->var, 0), p->alone.us / mean);
	p->decode_known = true;
}

void pace_note(struct pace *p, uint32_t rows, uint32_t prompt_rows, uint32_t us)
{
	struct pace_mean *m = !prompt_rows ? &p->alone : rows < PACE_MANY ? &p->few : &p->many;
	const double prompts = prompt_rows, decodes = rows - prompts;
	double took = us;
	if (!rows || !us)
		return;
	if (p->slower <= 0)
		p->slower = 1;
	/* Compare with steps of the same kind: a row's cost differs between kinds.  A different number of
	 * decodes says nothing about the speed as long as the cost of a decode is unknown. */
	if (p->alone.us > 0 && m->us > 0 && (prompt_rows || decodes == m->decodes || p->decode_known)) {
		const double e = p->slower * expected(p, m, decodes, prompts);
		took = fmin(took, spike * e);
		p->slower *= 1 + speed_weight * (took / e - 1);
	}
	took /= p->slower;
	if (!prompt_rows)
		note_spread(p, decodes, took);
	note(m, decodes, prompts, took);
	if (prompt_rows && line(p, &p->few).row_us < line(p, &p->many).row_us)
		*(m == &p->few ? &p->many : &p->few) = (struct pace_mean){0};
}

struct sched_costs pace_costs(const struct pace *p)
{
	struct sched_costs c = costs(p);
	c.fixed_us *= p->slower;
	c.row_us *= p->slower;
	c.decode_us *= p->slower;
	return c;
}
