/* awq_run.h - `quern quantize --type awq4`: from a float model in Hugging Face layout to AWQ.
 *
 *     layer 0 .. n - 1:  calibrate -> DST.state      an interrupted run resumes here
 *     choose the worst parts, write DST               whole or not there
 *     run both models on the text                     perplexity, KL, accumulated errors
 *     write the reports                               then remove DST.state */
#ifndef QUERN_QUANT_AWQ_RUN_H
#define QUERN_QUANT_AWQ_RUN_H

#include "base/err.h"
#include "base/options.h"
#include "quant/quantize.h"

#include <stddef.h>

struct awq_options {
	const struct quantize_options *all; /* eval NULL: evaluate on the calibration text; n_eval 0: do not
					     * evaluate */
	const char *text;                   /* calibration text */
	int n_tokens;                       /* tokens of the calibration text; -EINVAL if it has fewer */
	int group;                          /* 32, 64, 128 */
};

/* Run; print a summary to stdout.  -errno with the reason. */
int awq_run(const struct awq_options *o, struct why *why);

/* The same with the command's options: a struct quantize_type.run. */
int awq_command(const struct quantize_options *q, const struct opts *o, struct why *why);

#endif
