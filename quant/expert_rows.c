#include "quant/expert_rows.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

void expert_rows_init(struct expert_rows *x, const struct layer_plan *p, int n_tokens)
{
	const size_t n = (size_t)n_tokens;
	*x = (struct expert_rows){.n = n_tokens, .hidden = p->c->hidden, .n_chosen = p->c->experts.n_chosen};
	if (!p->w->n_experts)
		return;
	x->rows = xmalloc(n * (size_t)x->hidden * sizeof *x->rows);
	x->routed = xmalloc(n * (size_t)x->n_chosen * sizeof *x->routed);
}

void expert_rows_fini(struct expert_rows *x)
{
	free(x->rows);
	free(x->routed);
}

void expert_rows_see(struct expert_rows *x, enum model_point at, int first, int n, const void *rows)
{
	if (!x->rows)
		return;
	if (at == MODEL_AT_ROUTED)
		memcpy(x->routed + (size_t)first * (size_t)x->n_chosen, rows,
		       (size_t)n * (size_t)x->n_chosen * sizeof *x->routed);
	if (at == MODEL_AT_GATEUP)
		memcpy(x->rows + (size_t)first * (size_t)x->hidden, rows,
		       (size_t)n * (size_t)x->hidden * sizeof *x->rows);
}

int expert_rows_of(const struct expert_rows *x, int expert, float *out)
{
	const size_t h = (size_t)x->hidden;
	int n = 0;
	for (int i = 0; i < x->n; i++)
		for (int j = 0; j < x->n_chosen; j++)
			if (x->routed[(size_t)i * (size_t)x->n_chosen + (size_t)j] == expert)
				memcpy(out + (size_t)n++ * h, x->rows + (size_t)i * h, h * sizeof *out);
	return n;
}

int expert_rows_inner(const struct model_config *c, const struct weights_expert *e, struct runner *r,
		      const float *rows, int n, float *out, struct why *why)
{
	const size_t size = (size_t)e->gate.n * (size_t)e->gate.k;
	float *gate = xmalloc(2 * size * sizeof *gate), *up = gate + size;
	layer_floats(&e->gate, gate);
	layer_floats(&e->up, up);
	const struct runner_expert x = {
		.act = c->act, .gate = gate, .up = up, .inter = e->gate.n, .k = e->gate.k};
	const int rc = runner_gateup(r, &x, rows, n, out, why);
	free(gate);
	return rc;
}
