#include "bench/costmodel.h"

#include "base/buf.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

/* Of the memory, what weights and KV may take: the rest is activations and the runtime's. */
static const double memory_share = 0.9;

/* Qwen3-8B: 36 layers, 8 KV heads of 128, KV in 16 bits; 8.19e9 parameters.  AWQ: 4 bits and a
 * scale and a zero point per 128; the head in 16 bits.  The embedding is not read in a step, but
 * stays in memory, which the share above covers. */
#define QWEN3_8B_AWQ                                                                                         \
	.weights_bytes = 4.9e9, .flop_per_token = 2 * 8.19e9, .kv_token_bytes = 2.0 * 36 * 8 * 128 * 2

/* Bandwidths are about 9/10 of the data sheet's, FLOP rates (dense, 16 bits) half of it. */
static const struct costmodel devices[] = {
	{"h200", 1300, 4.3e12, 790e12 * 0.5, 55e9, 141e9, QWEN3_8B_AWQ},
	{"h100", 1300, 3.0e12, 790e12 * 0.5, 55e9, 80e9, QWEN3_8B_AWQ},
	{"a100", 1500, 1.8e12, 312e12 * 0.5, 25e9, 80e9, QWEN3_8B_AWQ},
	{"4090", 1300, 0.91e12, 165e12 * 0.5, 25e9, 24e9, QWEN3_8B_AWQ},
	{"cpu", 500, 40e9, 2e12 * 0.5, 40e9, 64e9, QWEN3_8B_AWQ},
};
enum { N_DEVICES = sizeof devices / sizeof *devices };

int costmodel_named(const char *name, struct costmodel *out, char *why, size_t why_n)
{
	struct buf names = {0};
	for (size_t i = 0; i < N_DEVICES; i++) {
		if (strcmp(devices[i].name, name) == 0) {
			*out = devices[i];
			buf_fini(&names);
			return 0;
		}
		buf_printf(&names, "%s%s", i ? ", " : "", devices[i].name);
	}
	int rc = err_why(why, why_n, -EINVAL, "no device \"%.40s\"; there are %s", name, names.p);
	buf_fini(&names);
	return rc;
}

double costmodel_kv_bytes(const struct costmodel *c)
{
	return fmax(0, c->memory_bytes * memory_share - c->weights_bytes);
}

uint32_t costmodel_blocks(const struct costmodel *c, double kv_bytes, uint32_t block_size)
{
	double n = floor(kv_bytes / (c->kv_token_bytes * block_size));
	return n < 1 ? 0 : (uint32_t)fmin(n, COSTMODEL_BLOCKS_MAX);
}

double costmodel_step_us(const struct costmodel *c, const struct plan *p, uint32_t block_size)
{
	double block_bytes = c->kv_token_bytes * block_size;
	double positions = 0;
	for (uint32_t i = 0; i < p->n_runs; i++)
		if (p->runs[i].n_rows)
			positions += (double)p->runs[i].pos0 + p->runs[i].n_rows;
	double memory_s = (c->weights_bytes + positions * c->kv_token_bytes) / c->bytes_per_s;
	double compute_s = p->n_rows * c->flop_per_token / c->flop_per_s;
	double copies_s = 2 * p->n_copies * block_bytes / c->bytes_per_s;
	double swaps_s = ((double)p->n_swap_in + p->n_swap_out) * block_bytes / c->link_bytes_per_s;
	double step_us = c->base_us + (fmax(memory_s, compute_s) + copies_s + swaps_s) * 1e6;
	return fmin(step_us, COSTMODEL_STEP_MAX_US);
}
