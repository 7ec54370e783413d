/* to_gguf.h - a model in Hugging Face's layout as a GGUF file. */
#ifndef QUERN_QUANT_CONVERT_TO_GGUF_H
#define QUERN_QUANT_CONVERT_TO_GGUF_H

#include "quant/convert/tensor_plan.h"

#include <stddef.h>

/* The new type of a matrix of rows of so many values, and its encoder; *type NULL: it stays as it is. */
struct gguf_choice {
	void (*type)(void *ctx, const struct model_config *c, const struct name *n, int64_t columns,
		     const char **type, tensor_plan_encode *encode);
	void *ctx;
	int file_type; /* general.file_type */
};

/* choice NULL: every matrix keeps its type.  Vectors become F32, which holds their values. */
int to_gguf(const char *src, const char *dst, const struct gguf_choice *choice, char *why, size_t why_n);

#endif
