/* report.h - what a model's weights are and what they will cost: quantization in words, memory by context and
 * batch, the speed that the memory of this machine allows. */
#ifndef QUERN_CLI_MODELS_REPORT_H
#define QUERN_CLI_MODELS_REPORT_H

#include "base/buf.h"
#include "formats/config.h"
#include "formats/weights.h"

#include <jansson.h>
#include <stdint.h>

/* How the linear layers are stored: [{"layers": 28, "bits": 4, "group": 128, "zeros": "stored", "words": "28
 * ..."}, ...], as many entries as there are ways. */
json_t *report_storage(const struct weights *w);

/* Bytes of weights that a decode of n sequences reads in a compute mode ("int16"): linear layers and head. Of
 * experts those that some row has, where each is as likely to be chosen as the others. */
int64_t report_step_bytes(const struct model_config *c, const struct weights *w, const char *compute, int n);

/* Of a model with one table as embedding and head: the bytes of the copy that a compute mode has beside the
 * stored table, and why; 0: one copy serves as both. */
int64_t report_second_copy(const struct weights *w, const struct model_config *c, const char *compute,
			   const char **why);

/* {"contexts": [..], "batches": [..], "bytes": [[..], ..]}: weights (bytes), and K and V of `batch` sequences
 * of `context` tokens. */
json_t *report_memory(const struct model_config *c, int64_t weights, int64_t kv_token_bytes);

/* What a CPU's description (quern-worker --inspect cpu) says for the model in its default mode, or NULL:
 * {"mode", "compute", "bytes_per_token", "fits_cache", "bandwidth", "tokens_per_second": {"1": .., "8": ..}},
 * by sequences of a context of 1,024 tokens; without the last two if the bandwidth was not measured. */
json_t *report_speed(const struct model_config *c, const struct weights *w, const json_t *cpu,
		     int64_t kv_token_bytes);

void report_print(const json_t *storage, const json_t *memory, const json_t *speed);

#endif
