/* quantize.h - `quern quantize`: a model with quantized weights from one in floats. */
#ifndef QUERN_QUANT_QUANTIZE_H
#define QUERN_QUANT_QUANTIZE_H

#include <stddef.h>

struct opts;

/* A type that --type names. */
struct quantize_type {
	const char *name;
	/* Writes the model src as dst, with the command's options.  -errno with the reason. */
	int (*run)(const char *src, const char *dst, const struct opts *o, char *why, size_t why_n);
};

int cmd_quantize(int argc, char **argv);

#endif
