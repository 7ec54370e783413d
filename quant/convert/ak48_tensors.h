/* ak48_tensors.h - Qwen3 in AWQ INT4 as an ak48 file (formats/ak48.h), and the tensors of one by the names of
 * Hugging Face's layout.  Both have the same bytes but for floats, which are F16 in the file. */
#ifndef QUERN_QUANT_CONVERT_AK48_TENSORS_H
#define QUERN_QUANT_CONVERT_AK48_TENSORS_H

#include "formats/weights.h"
#include "quant/convert/tensor_plan.h"

#include <jansson.h>

/* The tensors of such a file.  They borrow from w. */
void ak48_tensors_plan(struct tensor_plan *p, const struct weights *w, const struct model_config *c);
/* config.json's quantization_config of them; the caller's. */
json_t *ak48_tensors_quantization(const struct weights *w);

/* src: a directory in Hugging Face's layout.  dst: a directory with model.ak48 and the tokenizer's files.
 * -ENOTSUP: what the file cannot hold, named. */
int to_ak48(const char *src, const char *dst, char *why, size_t why_n);

#endif
