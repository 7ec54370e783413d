/* awq_write.h - a model with the results of all layers, as a directory in Hugging Face layout: AWQ "gemm" for
 * what is quantized, what scales were given to (norms, biases, rows that stay floats) changed, the rest as it
 * is. */
#ifndef QUERN_QUANT_AWQ_WRITE_H
#define QUERN_QUANT_AWQ_WRITE_H

#include "quant/layer.h"

#include <stdbool.h>
#include <stddef.h>

struct awq_write_args {
	const char *source, *dst;
	const struct model_config *config;
	const struct weights *weights; /* of a directory in Hugging Face layout */
	int group;
	/* The plan of a layer, with its results or without: of layers in any order, more than once. */
	int (*plan)(void *arg, int layer, bool results, struct layer_plan *out, char *why, size_t why_n);
	void *arg;
	void (*progress)(void *arg, double done); /* of 0 to 1; or NULL */
};

/* -EEXIST, -ENOSPC, ...; dst is whole or not there. */
int awq_write(const struct awq_write_args *a, char *why, size_t why_n);

#endif
