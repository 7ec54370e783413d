/* awq.h - AWQ's search (Lin et al., "AWQ: Activation-aware Weight Quantization", arXiv:2306.00978) for linear
 * layers that read the same rows: scales of their inputs, which whatever comes before takes up, then
 * clipping.
 *
 *     y = W x = (W diag(s)) (diag(1/s) x)      W diag(s) is rounded, diag(1/s) goes into the norm before
 *
 * Scales: s = m^a, and s = m^a / u^(1 - a), a = 0, 1/20 .. 19/20; m the mean absolute input, u the mean of
 * |w| / max of its group; divided by sqrt(max s * min s).  A candidate's loss is the sum over the layers of
 * tr(D G D^T) / the same of rounding to nearest, D what the weights are off by, G the inputs' Gram matrix; so
 * the tokens are not needed again.  It is scored on a sample of output rows.
 * Clipping: per output and group, the ratio of the range in 1, 0.95 .. 0.5 with the least d G' d^T, G' the
 * group's part of G.
 * The result is never worse than rounding to nearest, by the Gram matrix, in any of the layers: where scales
 * would make one worse, there are none. */
#ifndef QUERN_QUANT_AWQ_H
#define QUERN_QUANT_AWQ_H

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
	/* Inputs k with the same tie[k] (0 .. n_ties - 1) have the same scale; NULL: each has its own. */
	const int *tie;
	int n_ties;
	/* Makes scales [k] such that what comes before can take them up exactly; NULL: it can take up none.
	 */
	void (*fit)(void *arg, float *scales);
	void *fit_arg;
	float *scales; /* out [k]; all 1 where there are none */
};

/* -ENOMEM, ... with the reason. */
int awq_search(struct awq_block *b, struct runner *r, char *why, size_t why_n);

/* What the weights of a part become, in the domain of the original: out [n, k]. */
void awq_effective(const struct awq_block *b, const struct awq_part *p, float *out);
/* The part with its scales, as int4_pack() takes it: out [n, k]. */
void awq_scaled(const struct awq_block *b, const struct awq_part *p, float *out);

#endif
