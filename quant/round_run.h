/* round_run.h - `quern quantize` with a type that is rounded to nearest, and what that cost.
 *
 *     DST.trial is written, both models are run on the text     with keep_worst: the worst are chosen
 *     DST is written                                             whole or not there
 *     both models are run on the text                            perplexity, KL, errors by layer
 *     the reports
 *
 * Without a text the model is written only. */
#ifndef QUERN_QUANT_ROUND_RUN_H
#define QUERN_QUANT_ROUND_RUN_H

#include <stddef.h>

struct round_options {
	const char *source, *dst, *type; /* type: as gguf_quantize() or hf_quantize() have it */
	const char *text;                /* NULL: nothing is measured, and there are no reports */
	int n_eval;                      /* tokens of it, at most */
	int n_threads;                   /* 0: one per core */
	char *const *keep;               /* patterns */
	size_t n_keep;
	int keep_worst;
	char *const *reports; /* paths */
	size_t n_reports;
};

/* Prints a summary to stdout if there is a text.  -errno with the reason. */
int round_run(const struct round_options *o, char *why, size_t why_n);

#endif
