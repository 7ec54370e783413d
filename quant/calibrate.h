/* calibrate.h - run one layer over the calibration text and quantize its linear parts by their inputs.
 * Experts are processed one after another, each with the rows that the router sends to it.  An expert with
 * too few rows is rounded to nearest; layer_linear.reason has the reason. */
#ifndef QUERN_QUANT_CALIBRATE_H
#define QUERN_QUANT_CALIBRATE_H

#include "base/err.h"
#include "quant/layer.h"
#include "quant/runner.h"

enum { CALIBRATE_EXPERT_ROWS = 64 }; /* fewest rows of an expert for a search */

/* Calibrate a layer.  in: the residual stream of n_tokens before the layer; out: after the original layer.
 * Fills in the plan's results.  -ENOMEM, ... with the reason. */
int calibrate_layer(struct layer_plan *p, struct runner *r, const float *in, float *out, int n_tokens,
		    struct why *why);

#endif
