/* to_gguf.h - write a model as a GGUF file: from a directory in Hugging Face layout (to_gguf.c), or from
 * another GGUF file (to_gguf_copy.c), whose keys and other tensors are copied. */
#ifndef QUERN_QUANT_CONVERT_TO_GGUF_H
#define QUERN_QUANT_CONVERT_TO_GGUF_H

#include "base/err.h"
#include "quant/convert/tensor_plan.h"

#include <stdbool.h>

/* Chooses the new type of a matrix.  The item has the source's type, and may get another type, an encoder and
 * an importance.  1: it has a quantized type now; 0: it stays as it is; -errno with the reason. */
struct gguf_choice {
	int (*type)(void *ctx, const struct model_config *c, const struct name *n,
		    struct tensor_plan_item *item);
	/* After all choices: add keys about the quantization, or refuse it.  NULL: none. */
	int (*keys)(void *ctx, struct writer *w);
	void *ctx;
	int file_type; /* general.file_type */
};

/* Convert.  choice NULL: every matrix keeps its type.  Vectors of a directory become F32, which holds their
 * values. */
int to_gguf(const char *src, const char *dst, const struct gguf_choice *choice, struct why *why);
/* Copy a GGUF file, or the shards of one, to one file with these types. */
int to_gguf_copy(const char *src, const char *dst, const struct gguf_choice *choice, struct why *why);

/* For both: check the plan against `quantized`, whether some linear layer is; add the keys of the choice. */
int to_gguf_chosen(struct writer *w, const struct gguf_choice *choice, bool quantized, struct why *why);
/* For both: check before the weights are written that the file's keys give the model's configuration back;
 * this finds whatever GGUF cannot express. */
int to_gguf_check_keys(struct writer *w, const struct model_config *c, struct why *why);

#endif
