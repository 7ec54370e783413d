/* round_run.h - `quern quantize` with a type that is rounded to nearest, and what that cost.
 *
 *     DST.trial/model is written, both models are run on the text   with keep_worst: the worst are chosen
 *     DST is written                                                 whole or not there
 *     both models are run on the text                                perplexity, KL, errors by layer
 *     the reports
 *
 * Without a text to compare them on the model is written only.  A signal ends the run where it is: DST.trial
 * is removed, and DST stays if it is written.  DST.trial of a run that was killed is the next run's. */
#ifndef QUERN_QUANT_ROUND_RUN_H
#define QUERN_QUANT_ROUND_RUN_H

#include "quant/quantize.h"

#include <stddef.h>

/* Prints a summary to stdout if there is a text.  -errno with the reason. */
int round_run(const struct quantize_options *o, char *why, size_t why_n);

#endif
