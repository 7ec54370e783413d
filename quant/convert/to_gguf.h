/* to_gguf.h - write a model in Hugging Face layout as a GGUF file. */
#ifndef QUERN_QUANT_CONVERT_TO_GGUF_H
#define QUERN_QUANT_CONVERT_TO_GGUF_H

#include "base/err.h"
#include "quant/convert/tensor_plan.h"

#include <stddef.h>

/* Callback that chooses the new type and the encoder of a matrix with rows of `columns` values; *type NULL:
 * the type stays. */
struct gguf_choice {
	void (*type)(void *ctx, const struct model_config *c, const struct name *n, int64_t columns,
		     const char **type, tensor_plan_encode *encode);
	void *ctx;
	int file_type; /* general.file_type */
};

/* Convert.  choice NULL: every matrix keeps its type.  Vectors become F32, which holds their values. */
int to_gguf(const char *src, const char *dst, const struct gguf_choice *choice, struct why *why);

#endif
