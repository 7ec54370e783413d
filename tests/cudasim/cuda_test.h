/* cuda_test.h - tests of the CUDA table itself, linked into the program: the emulated table or the real one.
 * tests/kernels tests the behaviour common to all tables. */
#ifndef QUERN_TESTS_CUDASIM_CUDA_TEST_H
#define QUERN_TESTS_CUDASIM_CUDA_TEST_H

#include "base/err.h"
#include "tests/kernels/kern_test.h"

#ifdef QUERN_CUDASIM
#include "tests/cudasim/cudasim.h"
#else
static inline void cudasim_seed(uint64_t seed) /* the order on a real device cannot be chosen */
{
	(void)seed;
}
#endif

extern const struct kern_ops kern_cuda_ops;

/* Return whether sweeps should skip some values: on the emulated device, unless QUERN_TEST_LONG is set. */
static inline bool ct_brief(void)
{
#ifdef QUERN_CUDASIM
	return !getenv("QUERN_TEST_LONG");
#else
	return false;
#endif
}

static inline void ct_open(struct kt *t, bool bf16, struct kt_size z)
{
	struct why why = {""};
	const int bs = z.block_size ? z.block_size : 16;
	struct kern_open_args a = {
		.index = -1,
		.compute = bf16 ? KERN_COMPUTE_BF16 : KERN_COMPUTE_F32,
		.max_rows = z.rows ? z.rows : 1,
		.max_seqs = z.seqs ? z.seqs : 1,
		.max_logits = z.logits ? z.logits : 1,
		.max_context = z.context ? z.context : 1,
	};
	a.max_blocks_per_seq = (a.max_context + bs - 1) / bs;
	*t = (struct kt){
		.ops = &kern_cuda_ops, .op = bf16 ? KERN_BF16 : KERN_F16, .isa = bf16 ? "bf16" : "f16"};
	cr_assert_eq(t->ops->open(&t->dev, &a, &why), 0, "%s", why.text);
	t->s = t->ops->stream_new(t->dev);
	cr_assert(t->s != NULL);
}

/* Load a random layer of k inputs and one part of n1 outputs, or two of n1 and n2; AWQ in groups of 32. */
static inline struct kern_linear *ct_layer(struct kt *t, enum kern_dtype type, int k, int n1, int n2)
{
	const int group = type == KERN_AWQ4 ? 32 : 0;
	struct kt_part a = kt_part(type, k, n1, group, false), b = {0};
	if (n2)
		b = kt_part(type, k, n2, group, false);
	struct kern_linear *w = kt_load(t, k, group, (struct kt_part *[]){&a, &b}, n2 ? 2 : 1);
	kt_part_fini(&a);
	kt_part_fini(&b);
	return w;
}

/* Fill rope [context][dim / 2][2] with cos and sin of 0.1 per position. */
static inline void ct_rope(float *rope, int context, int dim)
{
	for (int i = 0; i < context * dim; i += 2) {
		rope[i] = cosf((float)(i / dim) * 0.1f);
		rope[i + 1] = sinf((float)(i / dim) * 0.1f);
	}
}

#endif
