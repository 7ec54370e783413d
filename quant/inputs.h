/* inputs.h - what calibration keeps of the rows that a linear layer reads: the mean absolute value of each
 * input, the Gram matrix of all rows, and a sample of them.  Each row is seen once.
 *
 *     G = X^T X / T    the error of outputs for weights that are off by D:  sum |D x|^2 / T = tr(D G D^T) */
#ifndef QUERN_QUANT_INPUTS_H
#define QUERN_QUANT_INPUTS_H

#include "quant/runner.h"

#include <stddef.h>

enum { INPUTS_SAMPLE = 512 }; /* rows kept as they are, at most */

struct inputs {
	int k;         /* values of a row */
	int n;         /* rows seen */
	int step;      /* of them each step-th is in the sample */
	double *sums;  /* [k] of absolute values */
	float *gram;   /* [k, k]: X^T X until inputs_end(), then divided by n */
	float *sample; /* [n_sample, k] */
	int n_sample;
};

/* n_rows: how many will be seen, or more.  -ENOMEM. */
int inputs_init(struct inputs *s, int k, int n_rows, char *why, size_t why_n);
void inputs_fini(struct inputs *s); /* fine where all is zero */
int inputs_add(struct inputs *s, struct runner *r, const float *rows, int n, char *why, size_t why_n);
void inputs_end(struct inputs *s);
size_t inputs_bytes(int k); /* of memory, of one with k inputs */

#endif
