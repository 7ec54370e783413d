/* race.h - accesses that nothing orders: what the emulator tells the detector (race.cc).
 *
 * A kernel compiled with -fsanitize=thread calls a function at every access, which race.cc provides in place
 * of the sanitizer's library.  Two accesses to the same bytes, one of which writes, must be ordered by what
 * the CUDA memory model offers:
 *
 *   lanes of a warp      __syncwarp() or a barrier; a shuffle, ldmatrix or mma orders nothing
 *   warps of a block     a barrier that both come to; an mbarrier: the arrival of one thread, a wait that
 * found its phase complete by another blocks of a launch   a fence after the write, then an atomic; the same
 * atomic's address, read and written by the other block
 *
 * Bulk copies and wgmma's operands in shared memory go by the async proxy.  What a thread wrote as usual is
 * theirs only after that thread's fence.proxy.async, and then one of the orders above; so is an mbarrier that
 * was just initialized.  What a bulk copy brings is there for threads that waited for the mbarrier's phase,
 * and until then nothing else may touch it; what a bulk store or wgmma reads may be written again after the
 * wait of the thread that issued it.  A thread that only read before a bulk copy overwrites needs no proxy
 * fence.
 *
 * Each warp has a vector clock (Lamport 1978, Mattern 1989) that barriers join; each thread counts its own
 * releases, since an mbarrier orders threads, not warps.  What a launch writes is
 * remembered for that launch.  Reads of shared memory are remembered, two per byte; of device memory they
 * are not: blocks run in any order, so a write after a read is a read after a write for another seed.
 * A race ends the process with the kernel, block and threads, as any other fault that the emulator finds.
 *
 * Without CUDASIM_RACE all of this is nothing. */
#ifndef QUERN_TESTS_CUDASIM_RACE_H
#define QUERN_TESTS_CUDASIM_RACE_H

#include <stddef.h>
#include <stdint.h>

enum { RACE_SHARED = 1, RACE_GLOBAL = 2 }; /* spaces of a proxy fence */

#ifdef CUDASIM_RACE

void race_launch(void);
/* A block begins in this slot of those that are resident; one of a slot's threads goes on. */
void race_block(int slot, uint64_t block, int n_threads, unsigned char *smem, size_t bytes);
void race_enter(int slot);
/* All of these threads came to a barrier. */
void race_barrier(const int *threads, int n);
void race_warp_sync(int warp);

/* By the thread that runs now. */
void race_read(const void *p, size_t n);
void race_write(const void *p, size_t n);
void race_atomic(const void *p, size_t n);
void race_fence(void);
/* An asynchronous copy into shared memory: begun; and waited for, by the thread that began it. */
void race_copy_begin(const void *dst, size_t n);
void race_copy_done(const void *dst, size_t n);

/* An mbarrier: used at all; arrived at; its phase complete; found complete by a wait; named by a bulk copy.
 */
void race_mbar_init(const void *bar);
void race_mbar_inval(const void *bar);
void race_mbar_op(const void *bar);
void race_mbar_arrive(const void *bar);
void race_mbar_phase(const void *bar);
void race_mbar_acquire(const void *bar);
void race_mbar_bulk(const void *bar);

void race_fence_proxy(unsigned spaces);
/* The async proxy reads (a bulk store's source, an operand of wgmma), from what thread t issues until it has
 * waited; and writes: shared memory until it landed for an mbarrier's phase, device memory until t has
 * waited. */
void race_async_read(const void *p, size_t n, int t);
void race_async_read_done(const void *p, size_t n, int t);
void race_async_write(const void *p, size_t n, int t);
void race_async_landed(const void *p, size_t n, const void *bar);
void race_async_write_done(const void *p, size_t n, int t);

#else

static inline void race_launch(void)
{
}

static inline void race_block(int, uint64_t, int, unsigned char *, size_t)
{
}

static inline void race_enter(int)
{
}

static inline void race_barrier(const int *, int)
{
}

static inline void race_warp_sync(int)
{
}

static inline void race_read(const void *, size_t)
{
}

static inline void race_write(const void *, size_t)
{
}

static inline void race_atomic(const void *, size_t)
{
}

static inline void race_fence(void)
{
}

static inline void race_copy_begin(const void *, size_t)
{
}

static inline void race_copy_done(const void *, size_t)
{
}

static inline void race_mbar_init(const void *)
{
}

static inline void race_mbar_inval(const void *)
{
}

static inline void race_mbar_op(const void *)
{
}

static inline void race_mbar_arrive(const void *)
{
}

static inline void race_mbar_phase(const void *)
{
}

static inline void race_mbar_acquire(const void *)
{
}

static inline void race_mbar_bulk(const void *)
{
}

static inline void race_fence_proxy(unsigned)
{
}

static inline void race_async_read(const void *, size_t, int)
{
}

static inline void race_async_read_done(const void *, size_t, int)
{
}

static inline void race_async_write(const void *, size_t, int)
{
}

static inline void race_async_landed(const void *, size_t, const void *)
{
}

static inline void race_async_write_done(const void *, size_t, int)
{
}

#endif

#endif
