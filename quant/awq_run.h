/* awq_run.h - `quern quantize --type awq4`: from a model in floats, in Hugging Face layout, to AWQ.
 *
 *     layer 0 .. n - 1:  calibrate -> DST.state      goes on here after an interruption
 *     the worst are chosen, DST is written            whole or not there
 *     both models are run on the text                 perplexity, KL, errors through the network
 *     the reports                                     then DST.state is removed */
#ifndef QUERN_QUANT_AWQ_RUN_H
#define QUERN_QUANT_AWQ_RUN_H

#include "quant/quantize.h"

#include <stddef.h>

enum { AWQ_TOKENS = 32768 };

struct awq_options {
	const struct quantize_options *all; /* eval NULL: the text of the calibration; n_eval 0: the result is
					       not measured */
	const char *text;                   /* of the calibration */
	int n_tokens;                       /* of it: so many, or -EINVAL */
	int group;                          /* 32, 64, 128 */
};

/* Prints a summary to stdout.  -errno with the reason. */
int awq_run(const struct awq_options *o, char *why, size_t why_n);

#endif
