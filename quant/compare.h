/* compare.h - `quern quantize --compare A B TEXT`: compare two models on the same text. */
#ifndef QUERN_QUANT_COMPARE_H
#define QUERN_QUANT_COMPARE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct compare_options {
	const char *a, *b, *text;
	int n_tokens;  /* limit */
	int n_threads; /* 0: one per core */
	bool json;
};

/* Print perplexities, KL(A || B) and agreement to stdout.  Both models need vocabularies of one size; A's
 * tokenizer is used.  -errno with the reason. */
int compare_run(const struct compare_options *o, struct why *why);

#endif
