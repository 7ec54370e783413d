/* async.h - host implementation of kernels/cuda/ptx_async.cuh, with the same names and meaning.
 *
 * The bytes of a copy land in pieces, each at a time that the seed picks between issue and completion.  Until
 * then the destination is poison.  Use that the PTX ISA leaves undefined ends the process. */
#ifndef QUERN_TESTS_CUDASIM_ASYNC_H
#define QUERN_TESTS_CUDASIM_ASYNC_H

#include "tests/cudasim/dependent.h"
#include "tests/cudasim/ptx_sim.h"

/* ---- mbarriers ---- */

void cudasim_mbar_init(uint64_t *bar, uint32_t count);
void cudasim_mbar_inval(uint64_t *bar);
uint64_t cudasim_mbar_arrive(uint64_t *bar, uint32_t count, uint32_t tx);
void cudasim_mbar_expect(uint64_t *bar, uint32_t bytes);
void cudasim_mbar_complete(uint64_t *bar, uint32_t bytes);
bool cudasim_mbar_wait(uint64_t *bar, uint64_t state);
bool cudasim_mbar_wait_parity(uint64_t *bar, uint32_t parity);

KERN_DEV void mbar_init(uint64_t *bar, uint32_t count)
{
	cudasim_mbar_init(bar, count);
}

KERN_DEV void mbar_inval(uint64_t *bar)
{
	cudasim_mbar_inval(bar);
}

KERN_DEV uint64_t mbar_arrive(uint64_t *bar)
{
	return cudasim_mbar_arrive(bar, 1, 0);
}

KERN_DEV uint64_t mbar_arrive(uint64_t *bar, uint32_t count)
{
	return cudasim_mbar_arrive(bar, count, 0);
}

KERN_DEV uint64_t mbar_arrive_expect_tx(uint64_t *bar, uint32_t bytes)
{
	return cudasim_mbar_arrive(bar, 1, bytes);
}

KERN_DEV void mbar_expect_tx(uint64_t *bar, uint32_t bytes)
{
	cudasim_mbar_expect(bar, bytes);
}

KERN_DEV void mbar_complete_tx(uint64_t *bar, uint32_t bytes)
{
	cudasim_mbar_complete(bar, bytes);
}

KERN_DEV bool mbar_test_wait(uint64_t *bar, uint64_t state)
{
	return cudasim_mbar_wait(bar, state);
}

KERN_DEV bool mbar_try_wait(uint64_t *bar, uint64_t state)
{
	return cudasim_mbar_wait(bar, state);
}

KERN_DEV bool mbar_test_wait_parity(uint64_t *bar, uint32_t parity)
{
	return cudasim_mbar_wait_parity(bar, parity);
}

KERN_DEV bool mbar_try_wait_parity(uint64_t *bar, uint32_t parity)
{
	return cudasim_mbar_wait_parity(bar, parity);
}

/* ---- bulk copies ---- */

void cudasim_bulk_load(void *smem, const void *global, uint32_t bytes, uint64_t *bar);
void cudasim_bulk_store(void *global, const void *smem, uint32_t bytes);
void cudasim_bulk_commit(void);
void cudasim_bulk_wait(int n, bool read);
void cudasim_bulk_prefetch(const void *global, uint32_t bytes);
void cudasim_policy(uint64_t policy);

KERN_DEV void bulk_load(void *smem, const void *global, uint32_t bytes, uint64_t *bar)
{
	cudasim_bulk_load(smem, global, bytes, bar);
}

KERN_DEV void bulk_load_hint(void *smem, const void *global, uint32_t bytes, uint64_t *bar, uint64_t policy)
{
	cudasim_policy(policy);
	cudasim_bulk_load(smem, global, bytes, bar);
}

KERN_DEV void bulk_store(void *global, const void *smem, uint32_t bytes)
{
	cudasim_bulk_store(global, smem, bytes);
}

KERN_DEV void bulk_store_hint(void *global, const void *smem, uint32_t bytes, uint64_t policy)
{
	cudasim_policy(policy);
	cudasim_bulk_store(global, smem, bytes);
}

KERN_DEV void bulk_commit(void)
{
	cudasim_bulk_commit();
}

template <int N> KERN_DEV void bulk_wait(void)
{
	cudasim_bulk_wait(N, false);
}

template <int N> KERN_DEV void bulk_wait_read(void)
{
	cudasim_bulk_wait(N, true);
}

KERN_DEV void bulk_prefetch_l2(const void *global, uint32_t bytes)
{
	cudasim_bulk_prefetch(global, bytes);
}

/* ---- proxy fences ---- */

KERN_DEV void fence_proxy_async_shared(void)
{
	race_fence_proxy(RACE_SHARED);
}

KERN_DEV void fence_proxy_async_global(void)
{
	race_fence_proxy(RACE_GLOBAL);
}

KERN_DEV void fence_proxy_async(void)
{
	race_fence_proxy(RACE_SHARED | RACE_GLOBAL);
}

/* ---- dependent launches ---- */

KERN_DEV void grid_launch_dependents(void)
{
}

KERN_DEV void grid_dependency_wait(void)
{
	race_grid_wait();
}

/* ---- for sim.cc ---- */

void cudasim_async_block(int slot); /* a block begins in this slot */
void cudasim_async_enter(int slot); /* a thread of this slot's block continues */
void cudasim_async_block_end(void); /* all threads of the block have left */
void cudasim_async_launch_end(void);
extern int cudasim_async_open; /* pieces in flight */
void cudasim_async_step(void); /* lets some of the block's pieces land */

#endif
