/* awq.h - AWQ's search (Lin et al., "AWQ: Activation-aware Weight Quantization", arXiv:2306.00978) for linear
 * layers with the same input: scales of the inputs, folded into the operation before, then clipping.
 *
 *     y = W x = (W diag(s)) (diag(1/s) x)      W diag(s) is rounded, diag(1/s) goes into the norm before
 *
 * Candidate scales: s = m^a and s = m^a / u^(1 - a), a = 0, 1/20 .. 19/20, divided by sqrt(max s * min s).  m
 * is the mean absolute input, u the mean of |w| / max of its group.  The loss of a candidate is the sum over
 * the layers of tr(D G D^T), relative to that of rounding to nearest.  D is the error of the weights, G the
 * Gram matrix of the inputs, so the tokens are not needed again.  The loss is computed on a sample of output
 * rows.
 * Clipping: per output and group, the range is multiplied by the ratio of 1, 0.95 .. 0.5 with the least d G'
 * d^T; G' is the group's block of G.
 * By the Gram matrix, no layer is worse than with rounding to nearest: if scales would make a layer worse,
 * all scales are 1. */
#ifndef QUERN_QUANT_AWQ_H
#define QUERN_QUANT_AWQ_H

#include "base/err.h"
#include "quant/inputs.h"
#include "quant/runner.h"

#include <stdbool.h>

enum { AWQ_PARTS = 3 };

struct awq_error {
	double noise, signal; /* tr(D G D^T), tr(W G W^T): per token, summed over outputs */
	double cross;         /* tr(W G D^T) */
};

struct awq_part {
	const float *w; /* [n, k] */
	int n;
	float *ratios;          /* out [n, groups] */
	double nearest;         /* out: noise of rounding to nearest */
	struct awq_error error; /* out */
};

struct awq_block {
	int k, group, n_parts;
	struct awq_part parts[AWQ_PARTS];
	const struct inputs *in;
	/* Inputs with the same tie[k] (0 .. n_ties - 1) share a scale; NULL: each has its own. */
	const int *tie;
	int n_ties;
	/* Change scales [k] to values that the operation before can fold in exactly; NULL: it can fold in
	 * none. */
	void (*fit)(void *arg, float *scales);
	void *fit_arg;
	float *scales; /* out [k]; all 1 if the search finds none */
};

/* Search scales and clipping.  -ENOMEM, ... with the reason. */
int awq_search(struct awq_block *b, struct runner *r, struct why *why);

/* Compute the effective weights of a part after rounding, with the scales divided out: out [n, k]. */
void awq_effective(const struct awq_block *b, const struct awq_part *p, float *out);
/* Compute the weights of a part times its scales, the input of int4_pack(): out [n, k]. */
void awq_scaled(const struct awq_block *b, const struct awq_part *p, float *out);

#endif
