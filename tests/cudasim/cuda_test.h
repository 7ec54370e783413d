/* cuda_test.h - tests of the CUDA table itself, which is linked into the program: the emulated one,
 * or the real one.  What every table must do is tested in tests/kernels. */
#ifndef QUERN_TESTS_CUDASIM_CUDA_TEST_H
#define QUERN_TESTS_CUDASIM_CUDA_TEST_H

#include "tests/kernels/kern_test.h"

#ifdef QUERN_CUDASIM
#include "tests/cudasim/cudasim.h"
#else
static inline void cudasim_seed(uint64_t seed) /* a real device has its own order */
{
	(void)seed;
}
#endif

extern const struct kern_ops kern_cuda_ops;

static inline void ct_open(struct kt *t, bool bf16, struct kt_size z)
{
	char why[256] = "";
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
	*t = (struct kt){.ops = &kern_cuda_ops, .op = bf16 ? KERN_BF16 : KERN_F16, .isa = bf16 ? "bf16" : "f16"};
	cr_assert_eq(t->ops->open(&t->dev, &a, why, sizeof why), 0, "%s", why);
	t->s = t->ops->stream_new(t->dev);
	cr_assert(t->s != NULL);
}

#endif
