/* layers.h - linear layers with random weights in the shapes of real models, for `quern bench kernels`. */
#ifndef QUERN_BENCH_LAYERS_H
#define QUERN_BENCH_LAYERS_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>

struct layer_shape {
	const char *name;
	int k, n;
	int parts; /* 2: gate and up, with SwiGLU */
	bool head; /* F16 in every AWQ model; its outputs are F32 */
};

enum { LAYERS_SHAPES = 5 };

struct layers_model {
	const char *name;
	int layers, heads, kv_heads, dim;
	struct layer_shape shapes[LAYERS_SHAPES];
};
enum { LAYERS_MODELS = 2 };
extern const struct layers_model layers_models[LAYERS_MODELS];

/* Copies of a layer's weights take this many bytes in total and are read in turn, so that no cache holds
 * them. */
enum { LAYERS_COLD_BYTES = 256 << 20 };

struct layer_copies {
	struct kern_linear **copies;
	int n_copies;
	double bytes; /* bytes of one copy */
};

/* Load copies up to cold_bytes, or as many as fit.  group: AWQ's group size.  If not even one fits, print a
 * line on stderr and return the error (-ENOMEM, ...). */
int layers_load(struct layer_copies *l, const struct kern_ops *ops, struct kern_dev *dev,
		const struct layer_shape *z, enum kern_dtype dtype, int group, size_t cold_bytes);
/* layers_load() with random blocks of a GGUF type.  layers_gguf_find() returns the type for a name ("q4_k"),
 * or -1. */
int layers_load_gguf(struct layer_copies *l, const struct kern_ops *ops, struct kern_dev *dev,
		     const struct layer_shape *z, int type, size_t cold_bytes);
int layers_gguf_find(const char *name);
/* Load copies of src, like the functions above.  w_bytes: bytes of the weights as stored. */
int layers_copy(struct layer_copies *l, const struct kern_ops *ops, struct kern_dev *dev,
		const struct kern_linear_src *src, size_t w_bytes, size_t cold_bytes);
void layers_fill(void *p, size_t bytes); /* fills with random bytes */
void layers_free(struct layer_copies *l, const struct kern_ops *ops);
/* Queue the layer's operation. */
int layers_call(const struct kern_ops *ops, struct kern_stream *s, const struct layer_shape *z,
		const struct kern_linear *w, void *out, const void *in, int rows);

/* Fill p with n random F16, BF16 or F32 values with small exponents: no infinities, no denormals. */
void layers_fill_floats(void *p, enum kern_dtype t, size_t n);

#endif
