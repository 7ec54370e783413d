/* report.h - a report on a model's weights: quantization in words, memory by context and batch, and the speed
 * that this machine's memory allows. */
#ifndef QUERN_CLI_MODELS_REPORT_H
#define QUERN_CLI_MODELS_REPORT_H

#include "base/buf.h"
#include "formats/config.h"
#include "formats/weights.h"

#include <jansson.h>
#include <stdint.h>

/* Describe how the linear layers are stored: [{"layers": 28, "bits": 4, "group": 128, "zeros": "stored",
 * "words": "28 ..."}, ...], one entry per storage format. */
json_t *report_storage(const struct weights *w);

/* Return the bytes of weights that a decode step of n sequences reads in a compute mode ("int16"): linear
 * layers and head.  For experts: the expected bytes of those that some row uses, if all are equally
 * likely. */
int64_t report_step_bytes(const struct model_config *c, const struct weights *w, const char *compute, int n);

/* If the embedding and the head share one table: return the bytes of the second copy that a compute mode
 * needs, and why; 0: one copy serves both. */
int64_t report_second_copy(const struct weights *w, const struct model_config *c, const char *compute,
			   const char **why);

/* Return the bytes of K and V of a sequence that decodes at the end of this context. */
int64_t report_sequence_bytes(const struct model_config *c, int context, int64_t kv_token_bytes);
/* Return {"contexts": [..], "batches": [..], "bytes": [[..], ..]}: weights (bytes) plus K and V of `batch`
 * sequences of `context` tokens. */
json_t *report_memory(const struct model_config *c, int64_t weights, int64_t kv_token_bytes);

/* Estimate the model's speed in its default mode from a CPU's description (quern-worker --inspect cpu), or
 * return NULL: {"mode", "compute", "bytes_per_token", "fits_cache", "bandwidth", "tokens_per_second": {"1":
 * .., "8": ..}}, by number of sequences with a context of 1,024 tokens.  The last two are missing if the
 * bandwidth was not measured. */
json_t *report_speed(const struct model_config *c, const struct weights *w, const json_t *cpu,
		     int64_t kv_token_bytes);

void report_print(const json_t *storage, const json_t *memory, const json_t *speed);

#endif
