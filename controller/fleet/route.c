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
