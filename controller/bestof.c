#include "controller/bestof.h"

#include <assert.h>
#include <string.h>

/* Whole outputs go before those that were cut off, these before such that had not begun, though
 * nothing is likelier than no token. */
static double score_of(const struct output *o)
{
	double sum = o->finish == FINISH_STOP || o->finish == FINISH_LENGTH ? 0 : o->n_shown ? -1e12 : -2e12;
	for (uint32_t i = 0; i < o->n_shown; i++)
		sum += (double)o->log.logprob[i];
	return sum;
}

void bestof_choose(struct output *outputs, uint32_t n, uint32_t n_keep)
{
	double score[PARAMS_N_MAX];
	assert(n_keep <= n && n <= PARAMS_N_MAX);
	for (uint32_t i = 0; i < n; i++)
		score[i] = score_of(&outputs[i]);
	for (uint32_t i = 0; i < n_keep; i++) {
		uint32_t best = i;
		for (uint32_t k = i + 1; k < n; k++)
			if (score[k] > score[best])
				best = k;
		const struct output o = outputs[best];
		const double of = score[best];
		memmove(outputs + i + 1, outputs + i, (best - i) * sizeof o);
		memmove(score + i + 1, score + i, (best - i) * sizeof of);
		outputs[i] = o;
		score[i] = of;
		outputs[i].index = i;
		outputs[i].dirty = true;
	}
	while (n > n_keep)
		output_fini(&outputs[--n]);
}
