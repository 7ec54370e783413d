/* round_run.h - `quern quantize` with a type that is rounded to nearest, and the measured loss.
 *
 *     run the model on the text                            with a text to calibrate on: the importance
 *     write DST.trial/model, run both models on the text   with keep_worst: choose the worst parts
 *     write DST                                            whole or not there
 *     run both models on the text                          perplexity, KL, errors by layer
 *     write the reports
 *
 * Without an evaluation text the model is only written.  A signal ends the run at once: DST.trial is removed,
 * and DST stays if it is written.  The next run takes over the DST.trial of a killed run. */
#ifndef QUERN_QUANT_ROUND_RUN_H
#define QUERN_QUANT_ROUND_RUN_H

#include "base/err.h"
#include "quant/quantize.h"

#include <stddef.h>

/* The importance of inputs (quant/round/imatrix.h): all NULL for none. */
struct round_importance {
	const char *file; /* importance matrix to read */
	const char *text; /* text to compute it on */
	int n_tokens;     /* of the text */
	const char *save; /* with a text: file to write; or NULL */
};

/* Run; print a summary to stdout if there is a text.  -errno with the reason. */
int round_run(const struct quantize_options *o, const struct round_importance *i, struct why *why);

#endif
