/* ptx_async.cuh - Hopper's asynchronous instructions (sm_90): mbarriers, bulk copies, proxy fences, launches
 * that begin early.
 *
 * As in ptx.cuh: real PTX for nvcc, the emulator's functions (tests/cudasim/async.h) for the host.  All
 * mbarriers are the block's own: 8 bytes of shared memory, aligned to 8, touched by nothing else.
 *
 * A load of a stage, and its use:
 *
 *     thread 0: mbar_init(full, 1); fence_proxy_async_shared();      all: block_sync();
 *     thread 0: mbar_arrive_expect_tx(full, bytes); bulk_load(stage, src, bytes, full);
 *     all:      mbar_wait_parity(full, round & 1); ... = stage[...];
 *
 * Kernels that call these are compiled for 9.0 and later; what is not called is not compiled. */
#ifndef QUERN_KERNELS_CUDA_PTX_ASYNC_CUH
#define QUERN_KERNELS_CUDA_PTX_ASYNC_CUH

#include "kernels/cuda/ptx.cuh"

#ifdef QUERN_CUDASIM

#include "tests/cudasim/async.h"

#else

/* ---- mbarriers ---- */

/* Phases of count arrivals (1 to 2^20 - 1) each.  A phase is complete when all have arrived and as many
 * bytes have landed as were expected; the next one begins at once.  Threads other than the one that
 * initializes use it behind a barrier, bulk copies behind a proxy fence. */
KERN_DEV void mbar_init(uint64_t *bar, uint32_t count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(smem_u32(bar)), "r"(count) : "memory");
}

/* The 8 bytes are plain memory again.  Nothing is under way to it, and no thread waits. */
KERN_DEV void mbar_inval(uint64_t *bar)
{
	asm volatile("mbarrier.inval.shared::cta.b64 [%0];\n" ::"r"(smem_u32(bar)) : "memory");
}

/* What this thread did before is done for threads that find the phase complete.  Returns the phase, for
 * mbar_test_wait(). */
KERN_DEV uint64_t mbar_arrive(uint64_t *bar)
{
	uint64_t state;
	asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];\n"
		     : "=l"(state)
		     : "r"(smem_u32(bar))
		     : "memory");
	return state;
}

KERN_DEV uint64_t mbar_arrive(uint64_t *bar, uint32_t count)
{
	uint64_t state;
	asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;\n"
		     : "=l"(state)
		     : "r"(smem_u32(bar)), "r"(count)
		     : "memory");
	return state;
}

/* The phase waits for this many more bytes; then one arrival. */
KERN_DEV uint64_t mbar_arrive_expect_tx(uint64_t *bar, uint32_t bytes)
{
	uint64_t state;
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;\n"
		     : "=l"(state)
		     : "r"(smem_u32(bar)), "r"(bytes)
		     : "memory");
	return state;
}

KERN_DEV void mbar_expect_tx(uint64_t *bar, uint32_t bytes)
{
	asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(smem_u32(bar)),
		     "r"(bytes)
		     : "memory");
}

/* As if so many bytes had landed. */
KERN_DEV void mbar_complete_tx(uint64_t *bar, uint32_t bytes)
{
	asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(smem_u32(bar)),
		     "r"(bytes)
		     : "memory");
}

/* Whether the phase of the state, this one or the last, is complete. */
KERN_DEV bool mbar_test_wait(uint64_t *bar, uint64_t state)
{
	uint32_t done;
	asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.shared::cta.b64 p, [%1], %2;\n"
		     "selp.u32 %0, 1, 0, p;\n}\n"
		     : "=r"(done)
		     : "r"(smem_u32(bar)), "l"(state)
		     : "memory");
	return done;
}

/* The same, and the machine may let the thread sleep for a while. */
KERN_DEV bool mbar_try_wait(uint64_t *bar, uint64_t state)
{
	uint32_t done;
	asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.shared::cta.b64 p, [%1], %2;\n"
		     "selp.u32 %0, 1, 0, p;\n}\n"
		     : "=r"(done)
		     : "r"(smem_u32(bar)), "l"(state)
		     : "memory");
	return done;
}

/* Whether the last phase of this parity (the first has 0) is complete; 1 before the first is. */
KERN_DEV bool mbar_test_wait_parity(uint64_t *bar, uint32_t parity)
{
	uint32_t done;
	asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
		     "selp.u32 %0, 1, 0, p;\n}\n"
		     : "=r"(done)
		     : "r"(smem_u32(bar)), "r"(parity)
		     : "memory");
	return done;
}

KERN_DEV bool mbar_try_wait_parity(uint64_t *bar, uint32_t parity)
{
	uint32_t done;
	asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
		     "selp.u32 %0, 1, 0, p;\n}\n"
		     : "=r"(done)
		     : "r"(smem_u32(bar)), "r"(parity)
		     : "memory");
	return done;
}

/* ---- bulk copies: both addresses and the size are multiples of 16; one thread issues them ---- */

/* Global to shared memory; its bytes count towards the present phase of the mbarrier. */
KERN_DEV void bulk_load(void *smem, const void *global, uint32_t bytes, uint64_t *bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
		     "[%3];\n" ::"r"(smem_u32(smem)),
		     "l"(global), "r"(bytes), "r"(smem_u32(bar))
		     : "memory");
}

KERN_DEV void bulk_load_hint(void *smem, const void *global, uint32_t bytes, uint64_t *bar, uint64_t policy)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
		     "[%0], [%1], %2, [%3], %4;\n" ::"r"(smem_u32(smem)),
		     "l"(global), "r"(bytes), "r"(smem_u32(bar)), "l"(policy)
		     : "memory");
}

/* Shared to global memory, in the thread's group that bulk_commit() closes.  Each thread that wrote the
 * source has called fence_proxy_async_shared() before the barrier that leads here. */
KERN_DEV void bulk_store(void *global, const void *smem, uint32_t bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(global),
		     "r"(smem_u32(smem)), "r"(bytes)
		     : "memory");
}

KERN_DEV void bulk_store_hint(void *global, const void *smem, uint32_t bytes, uint64_t policy)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;\n" ::"l"(
			     global),
		     "r"(smem_u32(smem)), "r"(bytes), "l"(policy)
		     : "memory");
}

KERN_DEV void bulk_commit(void)
{
	asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/* All but the last N committed groups of this thread are done. */
template <int N> KERN_DEV void bulk_wait(void)
{
	asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(N) : "memory");
}

/* Their sources have been read: shared memory may be written again, or given back at the block's end. */
template <int N> KERN_DEV void bulk_wait_read(void)
{
	asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(N) : "memory");
}

KERN_DEV void bulk_prefetch_l2(const void *global, uint32_t bytes)
{
	asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(global), "r"(bytes) : "memory");
}

/* ---- proxy fences ---- */

/* What this thread wrote as usual is written for bulk copies and wgmma, too, once a barrier leads there. */
KERN_DEV void fence_proxy_async_shared(void)
{
	asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

KERN_DEV void fence_proxy_async_global(void)
{
	asm volatile("fence.proxy.async.global;\n" ::: "memory");
}

KERN_DEV void fence_proxy_async(void)
{
	asm volatile("fence.proxy.async;\n" ::: "memory");
}

/* ---- dependent launches ---- */

/* Once all blocks have called this or ended, the next launch may begin, if it was launched early. */
KERN_DEV void grid_launch_dependents(void)
{
	asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

/* Comes back when the launch before is done and its writes are seen.  Before it, a kernel that was launched
 * early reads weights only (what no launch since the last that was not early has written), and writes nothing
 * to device memory.  Every such kernel waits, or those behind it would not know that the launches before it
 * are done. */
KERN_DEV void grid_dependency_wait(void)
{
	asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

#endif

/* Launches a kernel that may begin before the launch before it in the stream, or in a stream that is
 * captured, is done (programmatic dependent launch).  As KERN_LAUNCH(). */
template <typename... P, typename... A>
static inline int kern_launch_early(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
				    size_t smem, cudaStream_t s, A... args)
{
	cudaLaunchAttribute early = {};
	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	const cudaLaunchConfig_t c = {grid, block, smem, s, &early, 1};
	(void)cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...); /* its status is the last launch's */
	return cuda_launched(name);
}

#define KERN_LAUNCH_EARLY(kernel, grid, block, smem_bytes, stream, ...)                                      \
	({                                                                                                   \
		static bool carved_out;                                                                      \
		carved_out = carved_out || cuda_carve_out((const void *)kernel);                             \
		kern_launch_early(#kernel, kernel, (grid), (block), (smem_bytes), (stream), __VA_ARGS__);    \
	})

/* Comes back when that phase is complete. */
KERN_DEV void mbar_wait_parity(uint64_t *bar, uint32_t parity)
{
	while (!mbar_try_wait_parity(bar, parity)) {
	}
}

#endif
