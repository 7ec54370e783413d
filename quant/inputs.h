/* inputs.h - statistics of the input rows of a linear layer for calibration: the mean absolute value of each
 * input, the Gram matrix of all rows, and a sample of them.  Each row is seen once.
 *
 *     G = X^T X / T    error of the outputs for a weight error D:  sum |D x|^2 / T = tr(D G D^T) */
#ifndef QUERN_QUANT_INPUTS_H
#define QUERN_QUANT_INPUTS_H

#include "base/err.h"
#include "quant/runner.h"

#include <stddef.h>

enum { INPUTS_SAMPLE = 512 }; /* most rows in the sample */

struct inputs {
	int k;         /* values of a row */
	int n;         /* rows seen */
	int step;      /* every step-th row is in the sample */
	double *sums;  /* [k] sums of absolute values */
	float *gram;   /* [k, k]: X^T X until inputs_end(), then divided by n */
	float *sample; /* [n_sample, k] */
	int n_sample;
};

/* n_rows: upper limit of the rows that will be seen.  -ENOMEM. */
int inputs_init(struct inputs *s, int k, int n_rows, struct why *why);
void inputs_fini(struct inputs *s); /* a zeroed one is fine */
int inputs_add(struct inputs *s, struct runner *r, const float *rows, int n, struct why *why);
void inputs_end(struct inputs *s);

#endif
