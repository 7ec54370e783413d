/* weights_impl.h - the search for a decoder's tensors in a directory in Hugging Face layout, which weights.c
 * and weights_experts.c share. */
#ifndef QUERN_FORMATS_WEIGHTS_IMPL_H
#define QUERN_FORMATS_WEIGHTS_IMPL_H

#include "base/err.h"
#include "formats/family.h"
#include "formats/safetensors.h"
#include "formats/weights.h"

#include <stdbool.h>
#include <stddef.h>

/* State of a search for tensors. */
struct finder {
	struct weights *w;
	const struct safetensors *files;
	const struct model_config *c;
	const struct family *family; /* names: c->family, or its family->as */
	const char *prefix;          /* "model." or "" */
	char head[64];               /* "lm_head" */
	struct why *why;
};

/* Write the tensor's shape as "4, 16". */
void finder_shape(const struct st_tensor *t, char *out, size_t n);
void finder_use(const struct finder *f, const struct st_tensor *t);
int finder_dtype(const struct finder *f, const struct st_tensor *t, enum config_dtype *out);
/* Find a tensor as a vector (rows 0) or as a table. */
int finder_vec(const struct finder *f, const char *name, int rows, int cols, struct weights_vec *out);
/* Find a linear layer with n outputs and k inputs.  It is quantized if its tensors are: a module listed in
 * modules_to_not_convert has a plain weight. */
int finder_linear(const struct finder *f, const char *module, int n, int k, bool bias,
		  struct weights_linear *l);
/* Return the names of transformers' own modules if the files of a mixture have stacks by these, and set
 * *stack; NULL: they have the family's names (weights_experts.c). */
const struct family_own *finder_own(const struct finder *f, const char *prefix, struct family_stack *stack);
/* Find the router and the experts of a layer, without the shared expert (weights_experts.c). */
int finder_experts(const struct finder *f, const char *prefix, struct weights_layer *l);

#endif
