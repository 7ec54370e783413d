#include "bench/layers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { TINY_BYTES = 1 << 20 };

const struct layers_model layers_models[LAYERS_MODELS] = {
	{"qwen3-0.6b",
	 28,
	 16,
	 8,
	 128,
	 {{"qkv", 1024, 4096, 1, false},
	  {"o", 2048, 1024, 1, false},
	  {"gate+up", 1024, 6144, 2, false},
	  {"down", 3072, 1024, 1, false},
	  {"head", 1024, 151936, 1, true}}},
	{"qwen3-8b",
	 36,
	 32,
	 8,
	 128,
	 {{"qkv", 4096, 6144, 1, false},
	  {"o", 4096, 4096, 1, false},
	  {"gate+up", 4096, 24576, 2, false},
	  {"down", 12288, 4096, 1, false},
	  {"head", 4096, 151936, 1, true}}},
};

void layers_fill(void *p, size_t bytes)
{
	uint64_t s = 88172645463325252u;
	unsigned char *out = p;
	for (size_t i = 0; i < bytes; i += sizeof s) {
		s ^= s << 13, s ^= s >> 7, s ^= s << 17;
		memcpy(out + i, &s, bytes - i < sizeof s ? bytes - i : sizeof s);
	}
}

void layers_fill_floats(void *p, enum kern_dtype t, size_t n)
{
	layers_fill(p, n * (t == KERN_F32 ? 4 : 2));
	for (size_t i = 0; i < n; i++)
		if (t == KERN_F32)
			((uint32_t *)p)[i] = (((uint32_t *)p)[i] & 0x807fffff) | 0x3c000000;
		else
			((uint16_t *)p)[i] = (uint16_t)((((uint16_t *)p)[i] & 0x83ff) | 0x2400);
}

int layers_copy(struct layer_copies *l, const struct kern_ops *ops, struct kern_dev *dev,
		const struct kern_linear_src *src, size_t w_bytes, size_t cold_bytes)
{
	struct why why = {""};
	/* Tiny layers stay in a cache in practice, too. */
	size_t copies = w_bytes < TINY_BYTES ? 1 : cold_bytes / w_bytes + 1;
	*l = (struct layer_copies){.copies = xcalloc(copies, sizeof *l->copies)};
	int e = 0;
	while (!e && l->n_copies < (int)copies) {
		e = ops->linear_load(dev, src, &l->copies[l->n_copies], &why);
		l->n_copies += !e;
	}
	if (e && l->n_copies == 0)
		fprintf(stderr, "quern bench kernels: %s\n", why.text);
	if (l->n_copies)
		l->bytes = (double)ops->linear_bytes(l->copies[0]);
	return l->n_copies ? 0 : e;
}

int layers_load(struct layer_copies *l, const struct kern_ops *ops, struct kern_dev *dev,
		const struct layer_shape *z, enum kern_dtype dtype, int group, size_t cold_bytes)
{
	const size_t k = (size_t)z->k, n = (size_t)z->n, groups = (k + (size_t)group - 1) / (size_t)group;
	const size_t w_bytes = dtype == KERN_AWQ4 ? k * n / 2 : k * n * (dtype == KERN_F32 ? 4 : 2);
	struct kern_linear_src src = {
		.name = z->name, .k = z->k, .group = group, .head = z->head, .n_parts = z->parts};
	void *w = xmalloc(w_bytes), *scales = xmalloc(groups * n * 2), *zeros = xmalloc(groups * n / 2);
	if (dtype == KERN_AWQ4)
		layers_fill(w, w_bytes);
	else
		layers_fill_floats(w, dtype, k * n);
	layers_fill_floats(scales, KERN_F16, groups * n);
	layers_fill(zeros, groups * n / 2);
	for (int i = 0; i < z->parts; i++)
		src.parts[i] = (struct kern_linear_part){
			.dtype = dtype, .n = z->n / z->parts, .w = w, .qzeros = zeros, .scales = scales};
	const int e = layers_copy(l, ops, dev, &src, w_bytes, cold_bytes);
	free(w);
	free(scales);
	free(zeros);
	return e;
}

void layers_free(struct layer_copies *l, const struct kern_ops *ops)
{
	for (int i = 0; i < l->n_copies; i++)
		ops->linear_free(l->copies[i]);
	free(l->copies);
	*l = (struct layer_copies){0};
}

int layers_call(const struct kern_ops *ops, struct kern_stream *s, const struct layer_shape *z,
		const struct kern_linear *w, void *out, const void *in, int rows)
{
	return z->parts == 2 ? ops->gateup_swiglu(s, w, out, in, rows)
			     : ops->linear(s, w, out, in, rows, z->head);
}
