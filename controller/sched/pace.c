#include "controller/sched/pace.h"

/* The weight of the latest step.  Prompts adapt sooner: there are fewer such steps, and the next part of a
 * prompt is sized by them. */
static const double decode_weight = 0.1, prompt_weight = 0.25;
/* A step counts as at most this much longer than the mean, row by row. */
static const double spike = 1.3;

static void note(struct pace_mean *m, double rows, double us, double weight)
{
	const double w = m->us > 0 ? weight : 1, most = spike * m->us * (rows > m->rows ? rows / m->rows : 1);
	if (m->us > 0 && us > most)
		us = most;
	m->rows += w * (rows - m->rows);
	m->us += w * (us - m->us);
}

void pace_note(struct pace *p, uint32_t rows, uint32_t prompt_rows, uint32_t us)
{
	if (!rows || !us)
		return;
	if (!prompt_rows) {
		note(&p->decodes, rows, us, decode_weight);
		return;
	}
	note(rows < PACE_MANY ? &p->few : &p->many, rows, us, prompt_weight);
}

/* The line through both; where it does not rise, or would cut the axis below 0, the one through the origin.
 */
static void line(const struct pace_mean *a, const struct pace_mean *b, double *fixed_us, double *row_us)
{
	*fixed_us = 0;
	*row_us = b->us / b->rows;
	if (a->us <= 0 || b->us <= a->us || b->rows <= a->rows)
		return;
	const double row = (b->us - a->us) / (b->rows - a->rows), fixed = a->us - row * a->rows;
	if (fixed < 0)
		return;
	*row_us = row;
	*fixed_us = fixed;
}

struct sched_costs pace_costs(const struct pace *p)
{
	const struct pace_mean *prompts[] = {&p->few, &p->many};
	struct sched_costs c = {0};
	for (int i = 0; i < 2; i++) {
		double fixed, row;
		if (prompts[i]->us <= 0)
			continue;
		line(&p->decodes, prompts[i], &fixed, &row);
		if (c.row_us > 0 && row >= c.row_us)
			continue;
		c.fixed_us = fixed;
		c.row_us = row;
	}
	if (c.row_us <= 0 && p->decodes.us > 0)
		c.row_us = p->decodes.us / p->decodes.rows;
	return c;
}
