/* compare.h - `quern quantize --compare A B TEXT`: two models on the same text. */
#ifndef QUERN_QUANT_COMPARE_H
#define QUERN_QUANT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

struct compare_options {
	const char *a, *b, *text;
	int n_tokens;  /* at most */
	int n_threads; /* 0: one per core */
	bool json;
};

/* Prints perplexities, KL(A || B) and agreement to stdout.  The two must have vocabularies of one size; the
 * text is tokenized as A does it.  -errno with the reason. */
int compare_run(const struct compare_options *o, char *why, size_t why_n);

#endif
