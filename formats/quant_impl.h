/* quant_impl.h - the search for a quantized layer's tensors, which quant_find.c and quant_bnb.c share. */
#ifndef QUERN_FORMATS_QUANT_IMPL_H
#define QUERN_FORMATS_QUANT_IMPL_H

#include "formats/quant.h"
#include "formats/safetensors.h"
#include "formats/weights.h"

#include <stdbool.h>

/* Search for one layer's tensors. */
struct quant_search {
	const struct safetensors *files;
	const struct quant *q;
	struct weights_linear *l;
	struct quant_found *found;
	struct quant_scheme scheme;
	struct quant_stored *s;
	int groups;
	struct why *why;
};

/* Find the tensor "module.part"; NULL: there is none. */
const struct st_tensor *quant_look(const struct safetensors *files, const char *module, const char *part);
/* Return whether a tensor has the shape [rows, cols], or [cols] if rows is 0. */
bool quant_has_shape(const struct st_tensor *t, int64_t rows, int64_t cols);
/* Refuse a tensor that has not the shape want [n_dims]. */
int quant_wrong_shape(const struct quant_search *f, const struct st_tensor *t, const int64_t *want,
		      int n_dims);
/* Note that the layer uses a tensor. */
void quant_use(const struct quant_search *f, const struct st_tensor *t);
/* Find a tensor [rows, cols], or [cols] if rows is 0, and note its use. */
int quant_need(const struct quant_search *f, const char *part, enum st_dtype dtype, int64_t rows,
	       int64_t cols, const unsigned char **out);
/* Check that scales, and zeros in floating point, are finite.  *out: F16 if it represents all of them
 * exactly, whatever the stored type, because every kernel takes F16; else `type`. */
int quant_check_floats(const struct quant_search *f, const struct st_tensor *t, enum quant_scale type,
		       enum codes_float *out);

/* Find the tensors of bitsandbytes (quant_bnb.c). */
int quant_find_bnb4(struct quant_search *f, struct codes *c);
int quant_find_llm_int8(struct quant_search *f, struct codes *c);

#endif
