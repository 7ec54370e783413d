/* flat.h - files of weights without a directory: a header of sizes, then tensors one behind the other in a
 * fixed order (llama2.c, and those that followed it).
 *
 *     | header | norms of all layers | wq of layer 0, 1, .. | wk .. | ..
 *
 * A reader takes the tensors in the file's order.  The sizes come from the header, which is not trusted:
 * flat_finish() refuses a file that is not exactly as long as they need, and names the tensor in which it
 * ends. */
#ifndef QUERN_FORMATS_FLAT_H
#define QUERN_FORMATS_FLAT_H

#include "formats/weights.h"

#include <stddef.h>
#include <stdint.h>

struct flat;

/* The next tensor, [rows, cols], or [cols] if rows is 0, of items of so many bytes: where it is, or NULL if
 * the file ends before its end.  type: a static string. */
const void *flat_take(struct flat *f, const char *type, size_t item, int64_t rows, int64_t cols,
		      const char *name, ...) __attribute__((format(printf, 6, 7)));
/* The same of a tensor that no decoder needs. */
void flat_skip(struct flat *f, const char *type, size_t item, int64_t rows, int64_t cols, const char *name);

/* New weights of a file, which own it, with room for the layers; at: the size of the header. */
int flat_weights(const char *path, size_t at, int n_layers, struct weights **out, struct flat **f, char *why,
		 size_t why_n);
/* The last step: flat_end(), and the counts of w; on an error w is closed. */
int flat_finish(struct weights *w, struct weights **out, char *why, size_t why_n);

/* The first n bytes of a file, as little-endian int32.  false: it is shorter, or none. */
bool flat_header(const char *path, void *out, size_t n);

/* The sizes that the headers of these formats have. */
struct flat_sizes {
	int32_t dim, hidden, layers, heads, kv_heads, vocab, context;
};
/* Whether they can be those of a model: positive, bounded, and heads fit. */
bool flat_sizes_valid(const struct flat_sizes *s);
/* A configuration with them: Llama's, but for what the reader changes. */
void flat_config(const struct flat_sizes *s, struct model_config *c);

/* Whether a file still has the sizes that its configuration was read from: a reader of weights reads the
 * header again. */
int flat_check(const char *path, const struct flat_sizes *s, int head_dim, bool tied,
	       const struct model_config *c, char *why, size_t why_n);

/* 8-bit symmetric codes: int8 [n, k], then a F32 scale for each `group` values of the flattened matrix. */
struct flat_q8 {
	const void *q, *scale;
};
int flat_take_q8(struct flat *f, int n, int k, int group, struct flat_q8 *out, const char *name);
/* As a linear layer: codes that are read where they lie, or, where a group crosses rows, F32 that w owns. */
void flat_linear_q8(struct weights *w, struct weights_linear *l, const struct flat_q8 *q, int n, int k,
		    int group, const char *name);
/* All of it as F32, owned by w. */
float *flat_floats_q8(struct weights *w, const struct flat_q8 *q, int n, int k, int group);

#endif
