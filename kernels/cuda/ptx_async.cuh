/* ptx_async.cuh - Hopper's asynchronous instructions (sm_90): mbarriers, bulk copies, proxy fences, dependent
 * launches.
 *
 * As in ptx.cuh, nvcc gets real PTX and the host the emulator's functions (tests/cudasim/async.h).  Every
 * mbarrier belongs to its block: 8 bytes of shared memory, aligned to 8, with no other use.
 *
 * Loading a stage and using it:
 *
 *     thread 0: mbar_init(full, 1); fence_proxy_async_shared();      all: block_sync();
 *     thread 0: mbar_arrive_expect_tx(full, bytes); bulk_load(stage, src, bytes, full);
 *     all:      mbar_wait_parity(full, round & 1); ... = stage[...];
 *
 * Kernels that call these functions are compiled for 9.0 and later; functions that are not called are not
 * compiled. */
#ifndef QUERN_KERNELS_CUDA_PTX_ASYNC_CUH
#define QUERN_KERNELS_CUDA_PTX_ASYNC_CUH

#include "kernels/cuda/ptx.cuh"

#ifdef QUERN_CUDASIM

#include "tests/cudasim/async.h"

#else

/* ---- mbarriers ---- */

/* Initialize an mbarrier with phases of count arrivals (1 to 2^20 - 1) each.  A phase is complete when all
 * have arrived and all expected bytes have landed; the next phase begins at once.  Other threads may use the
 * mbarrier after a barrier, bulk copies after a proxy fence. */
KERN_DEV void mbar_init(uint64_t *bar, uint32_t count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(smem_u32(bar)), "r"(count) : "memory");
}

/* End the mbarrier's life: the 8 bytes are plain memory again.  No copy to it may be in flight and no thread
 * may wait. */
KERN_DEV void mbar_inval(uint64_t *bar)
{
	asm volatile("mbarrier.inval.shared::cta.b64 [%0];\n" ::"r"(smem_u32(bar)) : "memory");
}

/* Arrive.  Threads that find the phase complete see this thread's earlier writes.  Returns the phase, for
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

/* Make the phase expect this many more bytes, then arrive. */
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

/* Count these bytes as landed. */
KERN_DEV void mbar_complete_tx(uint64_t *bar, uint32_t bytes)
{
	asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(smem_u32(bar)),
		     "r"(bytes)
		     : "memory");
}

/* Return whether the phase of the state, the current or the previous one, is complete. */
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

/* mbar_test_wait(), but the machine may let the thread sleep for a while. */
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

/* Return whether the last phase of this parity (the first phase has 0) is complete; true for parity 1 before
 * the first phase is. */
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

/* Copy from global to shared memory; the bytes count towards the mbarrier's current phase. */
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

/* Copy from shared to global memory, in the thread's group that bulk_commit() closes.  Each thread that wrote
 * the source must have called fence_proxy_async_shared() before the preceding barrier. */
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

/* Wait until all but the last N committed groups of this thread are done. */
template <int N> KERN_DEV void bulk_wait(void)
{
	asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(N) : "memory");
}

/* Wait until the sources of those groups have been read: shared memory may be written again, or released at
 * the block's end. */
template <int N> KERN_DEV void bulk_wait_read(void)
{
	asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(N) : "memory");
}

KERN_DEV void bulk_prefetch_l2(const void *global, uint32_t bytes)
{
	asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(global), "r"(bytes) : "memory");
}

/* ---- proxy fences ---- */

/* Make this thread's ordinary writes visible to bulk copies and wgmma that follow the next barrier. */
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

/* Allow the next launch to begin, if it was launched early, once all blocks have called this or ended. */
KERN_DEV void grid_launch_dependents(void)
{
	asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

/* Return when the previous launch is done and its writes are visible.  Before the call, a kernel that was
 * launched early reads only weights (memory that no launch has written since the last launch that was not
 * early) and writes nothing to device memory.  Every such kernel must wait; otherwise later kernels would not
 * know that the launches before it are done. */
KERN_DEV void grid_dependency_wait(void)
{
	asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

#endif

/* Launch a kernel that may begin before the previous launch in the stream, or in a captured stream, is done
 * (programmatic dependent launch).  Returns as KERN_LAUNCH(). */
template <typename... P, typename... A>
static inline int kern_launch_early(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
				    size_t smem, cudaStream_t s, A... args)
{
	cudaLaunchAttribute early = {};
	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	const cudaLaunchConfig_t c = {grid, block, smem, s, &early, 1};
	/* cuda_launched() reports this status */
	(void)cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...);
	return cuda_launched(name);
}

#define KERN_LAUNCH_EARLY(kernel, grid, block, smem_bytes, stream, ...)                                      \
	({                                                                                                   \
		static bool carved_out;                                                                      \
		carved_out = carved_out || cuda_carve_out((const void *)kernel);                             \
		kern_launch_early(#kernel, kernel, (grid), (block), (smem_bytes), (stream), __VA_ARGS__);    \
	})

/* Wait until the phase of this parity is complete. */
KERN_DEV void mbar_wait_parity(uint64_t *bar, uint32_t parity)
{
	while (!mbar_try_wait_parity(bar, parity)) {
	}
}

#endif
