#include "proto/params.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

void params_init(struct params *p)
{
	*p = (struct params){.n = 1,
			     .length_penalty = 1,
			     .temperature = 1,
			     .top_p = 1,
			     .repetition = 1,
			     .typical_p = 1,
			     .xtc_threshold = 0.1f,
			     .dry_base = 1.75f,
			     .dry_allowed = 2,
			     .dry_last_n = -1,
			     .mirostat_tau = 5,
			     .mirostat_eta = 0.1f,
			     .logprobs = -1,
			     .prompt_logprobs = -1};
}

void params_fini(struct params *p)
{
	free(p->stop_ids);
	free(p->bias_ids);
	free(p->bias);
	free(p->allowed);
	free(p->bad);
	free(p->bad_len);
	free(p->breakers);
	form_free(p->form);
	params_init(p);
}

static void *copy_array(const void *p, uint32_t n, size_t size)
{
	return n ? xmemdup(p, n * size) : NULL;
}

void params_copy(struct params *to, const struct params *from)
{
	*to = *from;
	to->stop_ids = copy_array(from->stop_ids, from->n_stop_ids, sizeof *from->stop_ids);
	to->bias_ids = copy_array(from->bias_ids, from->n_bias, sizeof *from->bias_ids);
	to->bias = copy_array(from->bias, from->n_bias, sizeof *from->bias);
	to->allowed = copy_array(from->allowed, from->n_allowed, sizeof *from->allowed);
	to->bad = copy_array(from->bad, from->n_bad_ids, sizeof *from->bad);
	to->bad_len = copy_array(from->bad_len, from->n_bad, sizeof *from->bad_len);
	to->breakers = copy_array(from->breakers, from->n_breakers, sizeof *from->breakers);
	to->form = form_ref(from->form);
}

bool params_needs_rows(const struct params *p)
{
	return p->prompt_logprobs >= 0 || p->pool == PARAMS_POOL_MEAN;
}

int32_t params_mirostat_units(float bits)
{
	return (int32_t)lrintf(bits * (float)PARAMS_MIROSTAT_ONE);
}

int32_t params_first_mu(const struct params *p)
{
	return p->mirostat ? 2 * params_mirostat_units(p->mirostat_tau) : 0;
}

bool params_is_stop(const struct params *p, uint32_t token)
{
	for (uint32_t i = 0; i < p->n_stop_ids; i++)
		if (p->stop_ids[i] == token)
			return true;
	return false;
}
