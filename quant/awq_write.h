/* awq_write.h - write the quantized model as a directory in Hugging Face layout: AWQ "gemm" for quantized
 * layers; tensors into which scales are folded (norms, biases, float rows) are changed; the rest is
 * copied. */
#ifndef QUERN_QUANT_AWQ_WRITE_H
#define QUERN_QUANT_AWQ_WRITE_H

#include "base/err.h"
#include "quant/layer.h"

#include <stdbool.h>
#include <stddef.h>

struct awq_write_args {
	const char *source, *dst;
	const struct model_config *config;
	const struct weights *weights; /* from a directory in Hugging Face layout */
	int group;
	/* Get the plan of a layer, with or without its results; called for layers in any order and
	 * repeatedly. */
	int (*plan)(void *arg, int layer, bool results, struct layer_plan *out, struct why *why);
	void *arg;
	void (*progress)(void *arg, double done); /* done: from 0 to 1; may be NULL */
};

/* Write dst.  -EEXIST, -ENOSPC, ...; dst is whole or not there. */
int awq_write(const struct awq_write_args *a, struct why *why);

#endif
