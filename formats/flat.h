/* flat.h - weight files with a header of sizes and then the tensors in a fixed order (llama2.c and its
 * descendants).
 *
 *     | header | norms of all layers | wq of layer 0, 1, .. | wk .. | ..
 *
 * A reader takes the tensors in the file's order.  The header's sizes are not trusted: flat_finish() refuses
 * a file with more or fewer bytes than they need, and names the tensor in which the file ends. */
#ifndef QUERN_FORMATS_FLAT_H
#define QUERN_FORMATS_FLAT_H

#include "base/err.h"
#include "formats/weights.h"

#include <stddef.h>
#include <stdint.h>

struct flat;

/* Take the next tensor: [rows, cols], or [cols] if rows is 0; `item` is the size of an element in bytes.
 * Return its address, or NULL if the file ends first.  type: a static string. */
const void *flat_take(struct flat *f, const char *type, size_t item, int64_t rows, int64_t cols,
		      const char *name, ...) __attribute__((format(printf, 6, 7)));
/* Skip a tensor that no decoder needs. */
void flat_skip(struct flat *f, const char *type, size_t item, int64_t rows, int64_t cols, const char *name);

/* Open a file as new weights, which own it, with n_layers layers allocated.  at: the size of the header. */
int flat_weights(const char *path, size_t at, int n_layers, struct weights **out, struct flat **f,
		 struct why *why);
/* Finish: check the file's length and count the tensors of w.  On an error w is closed. */
int flat_finish(struct weights *w, struct weights **out, struct why *why);

/* Read the first n bytes of a file as little-endian int32.  False: the file is shorter or missing. */
bool flat_header(const char *path, void *out, size_t n);

/* Sizes in the headers of these formats. */
struct flat_sizes {
	int32_t dim, hidden, layers, heads, kv_heads, vocab, context;
};
/* Return whether a model can have these sizes: positive, bounded, and the heads divide evenly. */
bool flat_sizes_valid(const struct flat_sizes *s);
/* Fill in a Llama configuration with these sizes; the reader then changes what differs. */
void flat_config(const struct flat_sizes *s, struct model_config *c);

/* Check that the file still has the sizes from which c was read; a reader of weights reads the header
 * again. */
int flat_check(const char *path, const struct flat_sizes *s, int head_dim, bool tied,
	       const struct model_config *c, struct why *why);

/* 8-bit symmetric codes: int8 [n, k], then an F32 scale per `group` values of the flattened matrix. */
struct flat_q8 {
	const void *q, *scale;
};
int flat_take_q8(struct flat *f, int n, int k, int group, struct flat_q8 *out, const char *name);
/* Fill in a linear layer: codes that are read in place, or F32 that w owns if a group crosses rows. */
void flat_linear_q8(struct weights *w, struct weights_linear *l, const struct flat_q8 *q, int n, int k,
		    int group, const char *name);
/* Return the whole matrix as F32, owned by w. */
float *flat_floats_q8(struct weights *w, const struct flat_q8 *q, int n, int k, int group);

#endif
