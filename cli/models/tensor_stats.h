/* tensor_stats.h - simple statistics over a tensor's values, as the decoder reads them. */
#ifndef QUERN_CLI_MODELS_TENSOR_STATS_H
#define QUERN_CLI_MODELS_TENSOR_STATS_H

#include "formats/weights.h"

#include <stdbool.h>
#include <stdint.h>

struct tensor_stats {
	double min, max, mean; /* of the finite values */
	int64_t n, n_zero, n_infinite;
};

/* Compute the statistics of an F32, F16 or BF16 tensor, or of a linear layer's codes, dequantized.  Returns
 * false if the tensor has no values of its own (scales, indices), or none at all. */
bool tensor_stats_read(const struct weights *w, const struct weights_tensor *t, struct tensor_stats *out);

#endif
