/* ak48_tensors.h - write Qwen3 in AWQ INT4 as an ak48 file (formats/ak48.h), and map the tensors of such a
 * file to names in Hugging Face layout.  Both have the same bytes, except that the file stores floats as
 * F16. */
#ifndef QUERN_QUANT_CONVERT_AK48_TENSORS_H
#define QUERN_QUANT_CONVERT_AK48_TENSORS_H

#include "base/err.h"
#include "formats/weights.h"
#include "quant/convert/tensor_plan.h"

#include <jansson.h>

/* Plan the tensors of an ak48 file.  They borrow from w. */
void ak48_tensors_plan(struct tensor_plan *p, const struct weights *w, const struct model_config *c);
/* Return the quantization_config of these tensors for config.json; the caller's. */
json_t *ak48_tensors_quantization(const struct weights *w);

/* Convert.  src: a directory in Hugging Face layout.  dst: a directory with model.ak48 and the tokenizer's
 * files.  -ENOTSUP names the feature that the file cannot hold. */
int to_ak48(const char *src, const char *dst, struct why *why);

#endif
