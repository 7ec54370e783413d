#include "bench/kernels_measure.h"

#include "base/clock.h"

#include <math.h>

enum {
	PASS_US = 2000,
	CALLS_MAX = 2000, /* calls per pass */
	PAIRS_LEAST = 3,
	FIRST_PASSES = 5,
};

static double probe_pass(struct kernels_meter *m, enum probe_kind k)
{
	double rate = probe_rate(m->probe, k, m->n_threads, PASS_US) * 1e-9;
	samples_add(&m->rates[k], rate);
	return rate;
}

void kernels_meter_begin(struct kernels_meter *m)
{
	for (int i = 0; m->probe && i < FIRST_PASSES; i++)
		for (int k = 0; k < PROBE_KINDS; k++)
			if (probe_can((enum probe_kind)k))
				probe_pass(m, (enum probe_kind)k);
}

void kernels_meter_fini(struct kernels_meter *m)
{
	for (int k = 0; k < PROBE_KINDS; k++)
		samples_fini(&m->rates[k]);
}

double kernels_meter_rate(struct kernels_meter *m, enum probe_kind k)
{
	return k < PROBE_KINDS ? samples_percentile(&m->rates[k], 50) : 0;
}

/* Time n calls, from call i + 1 on.  Call i is not timed; it wakes the threads.  Returns the microseconds per
 * call. */
static double calls(struct kernels_meter *m, const struct kernels_case *c, int i, int n)
{
	c->call(c->arg, i);
	m->ops->stream_sync(m->stream);
	const int64_t begin = clock_us();
	for (int k = 1; k <= n; k++)
		c->call(c->arg, i + k);
	m->ops->stream_sync(m->stream);
	const int64_t us = clock_us() - begin;
	return (double)(us ? us : 1) / n;
}

/* The limits of a case in bytes per second: memory bandwidth, and the compute peak at its intensity. */
struct roof {
	double memory, peak; /* 1e9 bytes per second; peak INFINITY: none */
};

static double lower(struct roof r)
{
	return fmin(r.memory, r.peak);
}

static double peak_gbs(const struct kernels_case *c, double peak_gops)
{
	return c->ops > 0 && peak_gops > 0 ? peak_gops * c->peak_part * c->bytes / c->ops : INFINITY;
}

void kernels_measure(struct kernels_meter *m, const struct kernels_case *c, struct kernels_point *out)
{
	struct samples us = {0}, shares = {0}, roofs = {0};
	struct roof roof = {.memory = kernels_meter_rate(m, c->memory),
			    .peak = peak_gbs(c, kernels_meter_rate(m, c->peak))};
	const bool by_memory = roof.memory <= roof.peak;
	int at = 4;
	calls(m, c, 0, 1);
	double first = calls(m, c, 2, 1), n = floor(PASS_US / first);
	const int n_calls = n < 1 ? 1 : n > CALLS_MAX ? CALLS_MAX : (int)n;
	const int64_t end = clock_us() + (int64_t)(m->seconds * 1e6);
	for (int pair = 0; pair < PAIRS_MAX && (pair < PAIRS_LEAST || clock_us() < end); pair++) {
		if (m->probe && by_memory)
			roof.memory = probe_pass(m, c->memory);
		else if (m->probe)
			roof.peak = peak_gbs(c, probe_pass(m, c->peak));
		double t = calls(m, c, at, n_calls);
		at += n_calls + 1;
		samples_add(&us, t);
		if (m->probe) {
			samples_add(&roofs, lower(roof));
			samples_add(&shares, c->bytes / t * 1e-3 / lower(roof));
		}
	}
	*out = (struct kernels_point){.op = c->op,
				      .kv = "",
				      .rows = c->rows,
				      .us = samples_percentile(&us, 50),
				      .intensity = c->ops / c->bytes,
				      .roof_gbs = samples_percentile(&roofs, 50),
				      .share = samples_percentile(&shares, 50),
				      .pairs = (int)us.n};
	out->gbs = c->bytes / out->us * 1e-3;
	out->gops = c->ops / out->us * 1e-3;
	out->roof_gops = out->roof_gbs * out->intensity;
	samples_fini(&us);
	samples_fini(&shares);
	samples_fini(&roofs);
}
