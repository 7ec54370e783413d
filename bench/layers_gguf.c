/* Linear layers with random blocks of GGUF types. */
#include "bench/layers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "formats/gguf.h"

/* at: offsets of a block's F16 scales; -1: none. */
static const struct {
	const char *name;
	enum gguf_type type;
	int values, bytes, at[2];
} blocks[] = {
#define ROW(number, NAME, name, values, bytes, bits, group, zero, d, table, at_d, at_dmin, ...)              \
	{#name, GGUF_TYPE_##NAME, values, bytes, {at_d, at_dmin}},
#define WRITTEN(...) ROW(__VA_ARGS__)
	BLOCK_TYPES(ROW, WRITTEN)};
enum { N_BLOCKS = sizeof blocks / sizeof *blocks };

int layers_gguf_find(const char *name)
{
	for (int i = 0; i < N_BLOCKS; i++)
		if (strcmp(name, blocks[i].name) == 0)
			return (int)blocks[i].type;
	return -1;
}

int layers_load_gguf(struct layer_copies *l, const struct kern_ops *ops, struct kern_dev *dev,
		     const struct layer_shape *z, int type, size_t cold_bytes)
{
	size_t i = 0;
	while ((int)blocks[i].type != type)
		i++;
	const size_t n = (size_t)z->k / (size_t)blocks[i].values * (size_t)z->n,
		     bytes = n * (size_t)blocks[i].bytes;
	unsigned char *w = xmalloc(bytes);
	struct codes codes;
	struct kern_linear_src src = {.name = z->name, .k = z->k, .head = z->head, .n_parts = z->parts};
	layers_fill(w, bytes);
	for (size_t b = 0; b < n; b++) {
		for (int j = 0; j < 2 && blocks[i].at[j] >= 0; j++)
			layers_fill_floats(w + b * (size_t)blocks[i].bytes + blocks[i].at[j], KERN_F16, 1);
		if (type == GGUF_TYPE_MXFP4) /* the scale, a power of two */
			w[b * (size_t)blocks[i].bytes] = 120;
		if (type == GGUF_TYPE_IQ1_M) /* the highest nibble of the scale, which must be finite */
			w[b * (size_t)blocks[i].bytes + 55] &= 0x2f;
	}
	bool known = gguf_codes((enum gguf_type)type, z->n / z->parts, z->k, w, &codes);
	assert(known);
	for (int j = 0; j < z->parts; j++)
		src.parts[j] =
			(struct kern_linear_part){.dtype = KERN_CODES, .n = z->n / z->parts, .w = &codes};
	const int e = layers_copy(l, ops, dev, &src, bytes, cold_bytes);
	free(w);
	return e;
}
