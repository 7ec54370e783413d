/* calibrate.h - one layer is run over the calibration text, and quantized by what its linear parts read.
 * Experts are taken one after another: their rows are those that the router sends them.  An expert that
 * hardly any row reaches is rounded to nearest, and says so (layer_linear.reason). */
#ifndef QUERN_QUANT_CALIBRATE_H
#define QUERN_QUANT_CALIBRATE_H

#include "quant/layer.h"
#include "quant/runner.h"

enum { CALIBRATE_EXPERT_ROWS = 64 }; /* fewer are too few for a search */

/* in: the residual stream of n_tokens as it comes to the layer; out: as the original layer leaves it.  Fills
 * in the plan's results.  -ENOMEM, ... with the reason. */
int calibrate_layer(struct layer_plan *p, struct runner *r, const float *in, float *out, int n_tokens,
		    char *why, size_t why_n);

/* Memory that it takes at most, beside the streams. */
size_t calibrate_bytes(const struct model_config *c, int n_tokens);

#endif
