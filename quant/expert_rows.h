/* expert_rows.h - rows of a text that a layer's router sends to an expert, and the expert's inner rows. */
#ifndef QUERN_QUANT_EXPERT_ROWS_H
#define QUERN_QUANT_EXPERT_ROWS_H

#include "base/err.h"
#include "quant/layer.h"
#include "quant/runner.h"

#include <stdint.h>

/* Rows at MODEL_AT_GATEUP of a layer with experts, and the experts of each (MODEL_AT_ROUTED). */
struct expert_rows {
	float *rows;     /* [T, hidden], owned; NULL: the layer has no experts */
	int32_t *routed; /* [T, n_chosen], owned */
	int n, hidden, n_chosen;
};

void expert_rows_init(struct expert_rows *x, const struct layer_plan *p, int n_tokens);
void expert_rows_fini(struct expert_rows *x);
/* Take what an observer sees; other points are ignored. */
void expert_rows_see(struct expert_rows *x, enum model_point at, int first, int n, const void *rows);
/* Copy the rows of an expert to out; return their number. */
int expert_rows_of(const struct expert_rows *x, int expert, float *out);
/* Compute an expert's activations between gate/up and down: out [n, e->gate.n]. */
int expert_rows_inner(const struct model_config *c, const struct weights_expert *e, struct runner *r,
		      const float *rows, int n, float *out, struct why *why);

#endif
