#include "controller/fleet/route.h"

uint32_t route_choose(const struct route_option *options, uint32_t n, uint32_t n_prompt)
{
	double sum = 0, best_s = 0;
	uint32_t n_known = 0, best = 0;
	for (uint32_t i = 0; i < n; i++) {
		sum += options[i].speed;
		n_known += options[i].speed > 0;
	}
	double mean = n_known ? sum / n_known : 1;
	for (uint32_t i = 0; i < n; i++) {
		const struct route_option *o = &options[i];
		uint32_t rest = n_prompt > o->cached ? n_prompt - o->cached : 0;
		double s = ((double)o->load + rest) / (o->speed > 0 ? o->speed : mean);
		if (i == 0 || s < best_s) {
			best_s = s;
			best = i;
		}
	}
	return best;
}

/* Assumed speeds, used for both replicas while neither speed is known. */
static const double guess_prefill_tps = 5000, guess_decode_us = 10000;

static double known(double own, double other, double guess)
{
	return own > 0 ? own : other > 0 ? other : guess;
}

static double path_us(const struct route_path *p, const struct route_path *other)
{
	return (double)p->prompt_tokens * 1e6 / known(p->prefill_tps, other->prefill_tps, guess_prefill_tps) +
	       (double)p->steps * known(p->decode_us, other->decode_us, guess_decode_us);
}

bool route_is_earlier(const struct route_path *a, const struct route_path *b)
{
	return path_us(a, b) < path_us(b, a);
}
