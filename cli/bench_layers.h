/* bench_layers.h - linear layers of made-up weights, in the shapes of models: for bench kernels. */
#ifndef QUERN_CLI_BENCH_LAYERS_H
#define QUERN_CLI_BENCH_LAYERS_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>

struct bench_shape {
	const char *name;
	int k, n;
	int parts; /* 2: gate and up, with SwiGLU */
	bool head; /* F16 in every AWQ model; its outputs are F32 */
};

enum { BENCH_SHAPES = 5 };

struct bench_model {
	const char *name;
	int layers, heads, kv_heads, dim;
	struct bench_shape shapes[BENCH_SHAPES];
};
extern const struct bench_model bench_models[];
extern const int bench_n_models;

/* Weights are read from so many bytes in turn, so that no cache holds them. */
enum { BENCH_COLD_BYTES = 256 << 20 };

struct bench_layer {
	struct kern_linear **copies;
	int n_copies;
	double bytes; /* of one */
};

/* As many copies as BENCH_COLD_BYTES take, or fit; group: of AWQ.  -ENOMEM and the like, after a line on
 * stderr, where there is no room for one. */
int bench_layer_load(struct bench_layer *l, const struct kern_ops *ops, struct kern_dev *dev,
		     const struct bench_shape *z, enum kern_dtype dtype, int group);
void bench_layer_free(struct bench_layer *l, const struct kern_ops *ops);
/* Queues the layer's operation. */
int bench_layer_call(const struct kern_ops *ops, struct kern_stream *s, const struct bench_shape *z,
		     const struct kern_linear *w, void *out, const void *in, int rows);

/* n values of F16, BF16 or F32 whose exponents are small: no infinities, no denormals. */
void bench_fill_floats(void *p, enum kern_dtype t, size_t n);

#endif
