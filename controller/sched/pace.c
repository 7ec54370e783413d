#include "controller/sched/pace.h"

/* The weight of the latest step.  Prompts adapt sooner: there are fewer such steps, and the next part of a
 * prompt is sized by them. */
static const double decode_weight = 0.1, prompt_weight = 0.25;
/* A handful of rows that took too long is tried again after some hundred steps: the machine may have been
 * busy. */
static const double forgotten = 0.999;

static void note(struct pace_mean *m, double rows, double us, double weight)
{
	const double w = m->us > 0 ? weight : 1;
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
	if (rows >= SCHED_HANDFUL * 3 / 4 && rows <= SCHED_HANDFUL * 3 / 2)
		p->handful_us += (p->handful_us > 0 ? prompt_weight : 1) * (us - p->handful_us);
	else
		p->handful_us *= forgotten;
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
	struct sched_costs c = {.handful_us = p->handful_us};
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
