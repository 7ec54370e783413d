/* quantize.h - `quern quantize`: write a model with quantized weights from a float model. */
#ifndef QUERN_QUANT_QUANTIZE_H
#define QUERN_QUANT_QUANTIZE_H

#include "base/err.h"

#include <stddef.h>

struct opts;

/* Options that every type has. */
struct quantize_options {
	const char *source, *dst, *type;
	const char *eval;  /* text on which both models are compared; NULL: none */
	int n_eval;        /* most tokens of eval */
	int n_threads;     /* 0: one per core */
	char *const *keep; /* patterns */
	size_t n_keep;
	int keep_worst;
	char *const *reports; /* paths */
	size_t n_reports;
};

/* A type that --type names. */
struct quantize_type {
	const char *name;
	/* Writes the model; o has the options of this type alone.  -errno with the reason. */
	int (*run)(const struct quantize_options *q, const struct opts *o, struct why *why);
};

int cmd_quantize(int argc, char **argv);

#endif
