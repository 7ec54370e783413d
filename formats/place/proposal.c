#include "formats/place/proposal.h"

#include "formats/place/placement.h"
#include "formats/shard.h"

#include <stdio.h>

/* Reserve next to the weights: K and V of this many tokens, and this share of the device. */
enum { TOKENS = 8192, SCRATCH_SHARE = 16 };

static int64_t device_bytes(const struct weights_linear *l)
{
	const int64_t bytes = shard_linear_bytes(l);
	return l->kind == WEIGHTS_DENSE && l->dtype == CONFIG_F32 ? bytes / 2 : bytes;
}

static void add_linear(void *sum, const struct weights_linear *l, bool head)
{
	(void)head;
	*(int64_t *)sum += device_bytes(l);
}

/* Return the bytes of a layer's experts on the GPU. */
static int64_t layer_bytes(const struct weights_layer *l)
{
	int64_t n = 0;
	for (int e = 0; e < l->n_experts; e++)
		n += device_bytes(&l->experts[e].gate) + device_bytes(&l->experts[e].up) +
		     device_bytes(&l->experts[e].down);
	return n;
}

/* Return the bytes to reserve; K and V have 16 bits. */
static int64_t room_wanted(const struct model_config *c, int64_t gpu_bytes)
{
	const int tokens = c->max_position < TOKENS ? c->max_position : TOKENS;
	return 2 * model_config_kv_values(c) * tokens + gpu_bytes / SCRATCH_SHARE;
}

static void put_options(struct proposal *p, const struct model_config *c)
{
	int first = 0;
	while (first < c->n_layers && !c->layers[first].sparse)
		first++;
	p->options[0] = '\0';
	if (p->n_cpu == p->n_sparse)
		snprintf(p->options, sizeof p->options, "--experts cpu");
	else if (p->n_cpu)
		snprintf(p->options, sizeof p->options,
			 "--place layers.%d-%d.experts=cuda," PLACEMENT_EXPERTS_CPU, first, p->last);
}

void proposal_make(struct proposal *out, const struct model_config *c, const struct weights *w,
		   int64_t gpu_bytes, enum packed_mode mode)
{
	const int n = c->experts.n ? c->experts.n : 1;
	const int64_t embed = 2 * (int64_t)w->embed.n; /* 16 bits on a GPU, whatever type the file has */
	int64_t linears = 0, experts = 0, device_experts = 0;
	*out = (struct proposal){.last = -1};
	weights_each(w, add_linear, &linears); /* with experts and head */
	for (int i = 0; i < w->n_layers; i++)
		experts += layer_bytes(&w->layers[i]);
	const int64_t rest = linears - experts + embed;
	out->device_bytes = rest;
	out->room_bytes = gpu_bytes - rest;
	out->fits = out->room_bytes >= room_wanted(c, gpu_bytes);
	bool full = false;
	for (int i = 0; i < w->n_layers; i++) {
		const int64_t bytes = layer_bytes(&w->layers[i]);
		if (!w->layers[i].n_experts)
			continue;
		out->n_sparse++;
		full = full || out->room_bytes - bytes < room_wanted(c, gpu_bytes);
		if (full) {
			out->n_cpu++;
			out->host_bytes += packed_experts(&w->layers[i], NULL, mode);
			continue;
		}
		out->last = i;
		out->device_bytes += bytes;
		out->room_bytes -= bytes;
		device_experts += bytes;
	}
	out->host_token_bytes = out->host_bytes / n * c->experts.n_chosen;
	/* A tied embedding is its own head. */
	out->device_token_bytes = rest - (w->head.w ? embed : 0) + device_experts / n * c->experts.n_chosen;
	out->hot_bytes = device_experts;
	put_options(out, c);
}
