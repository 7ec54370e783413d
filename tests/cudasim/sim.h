/* sim.h - internals of the emulator: blocks, and their threads as fibres.
 *
 * A warp operation or a barrier is a rendezvous: a fibre stops there until all required fibres have arrived.
 * The last one does the work for all and resumes the others in an order that the seed decides.  Between such
 * points a fibre runs without interruption, so a race shows as a result that changes with the seed (or as
 * poison that was read).
 *
 * Blocks begin in any order.  Several may be resident, as many as the multiprocessors hold, each with its own
 * shared memory.  A fibre that stops then yields to a fibre of any resident block, and an atomic or a fence
 * is a stop too.
 *
 *     slot 0   block 7 ........ done, block 2 ........
 *     slot 1   block 0 .............. done, block 5 ..      the seed decides which slot continues */
#ifndef QUERN_TESTS_CUDASIM_SIM_H
#define QUERN_TESTS_CUDASIM_SIM_H

#include <functional>
#include <stdint.h>
#include <tuple>
#include <type_traits>

#include "tests/cudasim/cuda_runtime.h"
#include "tests/cudasim/cudasim.h"

int cuda_launched(const char *kernel); /* defined by the table */

/* Print the fault with its kernel, block and thread, and abort. */
[[noreturn]] void cudasim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Rendezvous of a warp: all 32 lanes call it with the same work and one argument each; the last lane to
 * arrive calls work once. */
void cudasim_warp_op(void (*work)(void **args), void *arg);
/* Rendezvous of the 128 threads of a warpgroup, like cudasim_warp_op(). */
void cudasim_warpgroup_op(void (*work)(void **args), void *arg);
void cudasim_barrier(int id, int n_threads); /* id 0, n 0: all threads of the block */

void cudasim_yield(void); /* another block may continue here */
/* A thread found its condition false: other threads run before it checks again.  If nothing happens
 * meanwhile, many times in a row, the process ends as all threads wait forever. */
void cudasim_poll(const void *mbar);
void cudasim_progress(void);
uint32_t cudasim_chance(void); /* random number of this launch */
int cudasim_slot(void);        /* slot of the running block */
int cudasim_thread(void);      /* the running thread's index in its block; -1: none */

unsigned char *cudasim_smem(void);
void cudasim_check_smem(const void *p, size_t bytes, size_t align, const char *what);
void cudasim_check_device(const void *p, size_t bytes, size_t align, const char *what);

/* wgmma.cc: a block begins in a slot; the running block ends. */
void cudasim_wgmma_begin(int slot);
void cudasim_wgmma_end(void);

void cudasim_cp_async(void *dst, const void *src, bool pred);
void cudasim_cp_commit(void);
void cudasim_cp_wait(int n);

void cudasim_enqueue(cudaStream_t s, const char *name, const void *kernel, dim3 grid, dim3 block, size_t smem,
		     std::function<void()> body);

template <typename... P, typename... A>
static inline int cudasim_launch(void (*kernel)(P...), const char *name, dim3 grid, dim3 block, size_t smem,
				 cudaStream_t s, A... args)
{
	std::tuple<std::decay_t<P>...> kept(static_cast<P>(args)...);
	cudasim_enqueue(s, name, (const void *)kernel, grid, block, smem,
			[kernel, kept] { std::apply(kernel, kept); });
	return cuda_launched(name);
}

#endif
