/* race.h - detector of unordered accesses: the emulator's calls to race.cc.
 *
 * A kernel compiled with -fsanitize=thread calls a function at every access; race.cc defines it instead of
 * the sanitizer's library.  Two accesses to the same bytes, one of which writes, must be ordered by a means
 * of the CUDA memory model:
 *
 *   lanes of a warp      __syncwarp() or a barrier; a shuffle, ldmatrix or mma orders nothing
 *   warps of a block     a barrier that both reach; an mbarrier: one thread arrives, another waits and finds
 *                        the phase complete
 *   blocks of a launch   a fence after the write, then an atomic; the other block reads and writes the
 *                        atomic's address
 *
 * Bulk copies and wgmma's operands in shared memory use the async proxy.  A thread's ordinary writes reach
 * them only after that thread's fence.proxy.async, followed by one of the orders above.  This holds for a
 * newly initialized mbarrier too.  Data that a bulk copy loads is visible to threads that waited for the
 * mbarrier's phase; until then nothing else may touch it.  The source of a bulk store or wgmma may be written
 * again after the wait of the thread that issued it.  A thread that only read before a bulk copy overwrites
 * needs no proxy fence.
 *
 * Each warp has a vector clock (Lamport 1978, Mattern 1989) that barriers join.  Each thread counts its own
 * releases, since an mbarrier orders threads, not warps.  Writes are remembered for the launch.  Reads of
 * shared memory are remembered, two per byte.  Reads of device memory are not: blocks run in any order, so a
 * write after a read is a read after a write for another seed.  A race ends the process like any other fault
 * that the emulator finds, naming the kernel, block and threads.
 *
 * Without CUDASIM_RACE all these functions are empty. */
#ifndef QUERN_TESTS_CUDASIM_RACE_H
#define QUERN_TESTS_CUDASIM_RACE_H

#include <stddef.h>
#include <stdint.h>

enum { RACE_SHARED = 1, RACE_GLOBAL = 2 }; /* spaces of a proxy fence */

#ifdef CUDASIM_RACE

void race_launch(void);
/* A new block occupies a slot; there is a slot for each resident block. */
void race_block(int slot, uint64_t block, int n_threads, unsigned char *smem, size_t bytes);
void race_enter(int slot); /* a thread of the slot's block runs from here on */
/* All of these threads reached a barrier. */
void race_barrier(const int *threads, int n);
void race_warp_sync(int warp);

/* Accesses by the running thread. */
void race_read(const void *p, size_t n);
void race_write(const void *p, size_t n);
void race_atomic(const void *p, size_t n);
void race_fence(void);
/* An asynchronous copy into shared memory began; the thread that began it has waited for it. */
void race_copy_begin(const void *dst, size_t n);
void race_copy_done(const void *dst, size_t n);

/* Events of an mbarrier: initialized, invalidated, used, arrived at, phase complete, found complete by a
 * wait, used by a bulk copy. */
void race_mbar_init(const void *bar);
void race_mbar_inval(const void *bar);
void race_mbar_op(const void *bar);
void race_mbar_arrive(const void *bar);
void race_mbar_phase(const void *bar);
void race_mbar_acquire(const void *bar);
void race_mbar_bulk(const void *bar);

void race_fence_proxy(unsigned spaces);
/* Accesses by the async proxy.  Reads (source of a bulk store, operand of wgmma) last from issue by thread t
 * until its wait.  Writes last until they landed for an mbarrier's phase (shared memory), or until the wait
 * of t (device memory). */
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
