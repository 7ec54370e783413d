/* awq_run.h - `quern quantize --type awq4`: from a model in floats, in Hugging Face layout, to AWQ.
 *
 *     layer 0 .. n - 1:  calibrate -> DST.state      goes on here after an interruption
 *     the worst are chosen, DST is written            whole or not there
 *     both models are run on the text                 perplexity, KL, errors through the network
 *     the reports                                     then DST.state is removed */
#ifndef QUERN_QUANT_AWQ_RUN_H
#define QUERN_QUANT_AWQ_RUN_H

#include <stddef.h>

enum { AWQ_TOKENS = 32768, AWQ_EVAL_TOKENS = 8192 };

struct awq_options {
	const char *source, *dst;
	const char *text;      /* of the calibration */
	const char *eval_text; /* NULL: that of the calibration */
	int n_tokens;          /* of the calibration: so many, or -EINVAL */
	int n_eval;            /* at most; 0: the result is not measured */
	int group;             /* 32, 64, 128 */
	int n_threads;         /* 0: one per core */
	char *const *keep;     /* patterns */
	size_t n_keep;
	int keep_worst;
	char *const *reports; /* paths */
	size_t n_reports;
};

/* Prints a summary to stdout.  -errno with the reason. */
int awq_run(const struct awq_options *o, char *why, size_t why_n);

#endif
