/* race_test.h - a kernel with a fault, and the same kernel without it: FAULT(name, blocks, "expected
 * message"). */
#ifndef QUERN_TESTS_CUDARACE_RACE_TEST_H
#define QUERN_TESTS_CUDARACE_RACE_TEST_H

#include <criterion/criterion.h>

#include "kernels/cuda/ptx_async.cuh"
#include "tests/cudasim/cudasim.h"

enum { FLOATS = 4096, THREADS = 128, BLOCKS = 4, SMEM = 4096, SEEDS = 8 };

/* Run the kernel once per seed.  A fault is found in every order, or in the order of one of these seeds. */
template <typename K> static void race_launch_kernel(K kernel, int blocks, bool mended)
{
	cudaStream_t s;
	void *p;
	cr_assert(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
	cr_assert(cudaMalloc(&p, FLOATS * sizeof(float)) == cudaSuccess);
	cr_assert(cudaMemset(p, 0, FLOATS * sizeof(float)) == cudaSuccess);
	for (int seed = 0; seed < SEEDS; seed++) {
		cudasim_seed((uint64_t)seed);
		cr_assert(KERN_LAUNCH(kernel, blocks, THREADS, SMEM, s, (float *)p, mended) == 0);
		cr_assert(cudaStreamSynchronize(s) == cudaSuccess);
	}
}

/* Define two tests: the kernel with its fault, which ends the process with the message, and without the
 * fault. */
#define FAULT(name, blocks, text)                                                                            \
	Test(race, name, .exit_code = CUDASIM_EXPECTED)                                                      \
	{                                                                                                    \
		cudasim_expect(text);                                                                        \
		race_launch_kernel(name##_kernel, blocks, false);                                            \
	}                                                                                                    \
	Test(race_mended, name)                                                                              \
	{                                                                                                    \
		race_launch_kernel(name##_kernel, blocks, true);                                             \
	}

#endif
