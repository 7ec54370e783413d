#include "controller/fleet/autoscale.h"

#include <math.h>

static const int64_t second_us = 1000000;
/* Defaults for fields of the config that are 0. */
static const struct autoscale_config defaults = {
	.target = AUTOSCALE_TARGET,
	.tolerance = 0.1,
	.period_us = AUTOSCALE_PERIOD_S * 1000000LL,
	.window_us = AUTOSCALE_WINDOW_S * 1000000LL,
	.up_us = 1, /* the last wish decides */
	.down_us = AUTOSCALE_DOWN_S * 1000000LL,
};

static int64_t at_most(int64_t us, int64_t most)
{
	return us < most ? us : most;
}

void autoscale_init(struct autoscale *a, const struct autoscale_config *cfg)
{
	*a = (struct autoscale){.cfg = *cfg};
	struct autoscale_config *c = &a->cfg;
	c->target = c->target > 0 ? c->target : defaults.target;
	c->tolerance = c->tolerance > 0 ? c->tolerance : defaults.tolerance;
	c->period_us = c->period_us ? c->period_us : defaults.period_us;
	c->window_us =
		at_most(c->window_us ? c->window_us : defaults.window_us, (AUTOSCALE_LOADS - 1) * second_us);
	c->up_us = at_most(c->up_us ? c->up_us : defaults.up_us, (AUTOSCALE_WISHES - 1) * c->period_us);
	c->down_us =
		at_most(c->down_us ? c->down_us : defaults.down_us, (AUTOSCALE_WISHES - 1) * c->period_us);
	c->min = c->min ? c->min : 1;
	c->max = c->max > c->min ? c->max : c->min;
}

void autoscale_note(struct autoscale *a, double load, int64_t now_us)
{
	const struct autoscale_load *last = &a->loads[(a->n_loads - 1) % AUTOSCALE_LOADS];
	/* A window shorter than a few seconds needs more samples. */
	const int64_t gap_us = at_most(second_us, a->cfg.window_us / 8);
	if (a->n_loads && now_us - last->at_us < gap_us)
		return;
	if (!a->n_loads)
		a->decided_us = now_us;
	a->loads[a->n_loads++ % AUTOSCALE_LOADS] = (struct autoscale_load){now_us, load};
}

double autoscale_load(const struct autoscale *a, int64_t now_us)
{
	double sum = 0;
	uint64_t n = 0;
	while (n < a->n_loads && n < AUTOSCALE_LOADS) {
		const struct autoscale_load *l = &a->loads[(a->n_loads - 1 - n) % AUTOSCALE_LOADS];
		if (n && now_us - l->at_us > a->cfg.window_us)
			break;
		sum += l->n;
		n++;
	}
	return n ? sum / (double)n : 0;
}

bool autoscale_due(const struct autoscale *a, int64_t now_us)
{
	return a->n_loads && now_us - a->decided_us >= a->cfg.period_us;
}

static uint32_t bounded(const struct autoscale *a, double n)
{
	return n < a->cfg.min ? a->cfg.min : n > a->cfg.max ? a->cfg.max : (uint32_t)n;
}

static uint32_t wish(const struct autoscale *a, uint32_t now, uint32_t serving, int64_t now_us)
{
	const double n = sqrt(autoscale_load(a, now_us) / a->cfg.target * serving);
	if (now && fabs(n / now - 1) <= a->cfg.tolerance)
		return bounded(a, now);
	return bounded(a, ceil(n));
}

static void add_wish(struct autoscale *a, uint32_t n, int64_t now_us)
{
	a->wishes[a->n_wishes++ % AUTOSCALE_WISHES] = (struct autoscale_wish){now_us, n};
}

uint32_t autoscale_decide(struct autoscale *a, uint32_t now, uint32_t serving, int64_t now_us)
{
	if (!a->n_wishes) /* the number at the start is not lowered before down_us */
		add_wish(a, now, a->decided_us);
	add_wish(a, wish(a, now, serving, now_us), now_us);
	a->decided_us = now_us;
	uint32_t least = UINT32_MAX, most = 0;
	for (uint64_t i = 0; i < a->n_wishes && i < AUTOSCALE_WISHES; i++) {
		const struct autoscale_wish *w = &a->wishes[(a->n_wishes - 1 - i) % AUTOSCALE_WISHES];
		const int64_t age_us = now_us - w->at_us;
		if ((i == 0 || age_us < a->cfg.up_us) && w->n < least)
			least = w->n;
		if ((i == 0 || age_us < a->cfg.down_us) && w->n > most)
			most = w->n;
	}
	return bounded(a, now < least ? least : now > most ? most : now);
}
