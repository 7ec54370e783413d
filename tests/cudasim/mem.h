/* mem.h - functions that the emulator's files share. */
#ifndef QUERN_TESTS_CUDASIM_MEM_H
#define QUERN_TESTS_CUDASIM_MEM_H

#include <functional>
#include <mutex>

#include "tests/cudasim/cuda_runtime.h"
#include "tests/cudasim/cudasim.h"

extern struct cudasim_counters cudasim_counts;
extern bool cudasim_is_idle; /* nothing is computed or copied */

std::recursive_mutex &cudasim_lock(void); /* guards all state of the emulator */
uint32_t cudasim_random(void);            /* drawn from the seed, not for kernels; needs the lock */
int cudasim_sms_now(void);

/* State of the device (error.cc); needs the lock.  A lost device does nothing and every query returns its
 * error.  A hung device gives no sign at all. */
bool cudasim_lost(void);
bool cudasim_hung(void);

/* Describe the surroundings of a bad address on stderr. */
void cudasim_mem_explain(const void *p);
void cudasim_run(const char *name, dim3 grid, dim3 block, size_t smem, const std::function<void()> &body);
bool cudasim_is_device(const void *p); /* p is in the device's address range, allocated or not */
/* Fill new memory with poison or zeros; of a large allocation only the ends. */
void cudasim_fill(unsigned char *p, size_t bytes, int v);
void cudasim_drain(void); /* does all queued work */

/* pinned.cc: return whether p is pinned host memory; whether p is the host address of mapped memory. */
bool cudasim_is_pinned(const void *p);
bool cudasim_is_view(const void *p);
/* Map the pages of fd at device addresses, so that the last bytes end at a guard page. */
void *cudasim_piece_map(int fd, size_t bytes);
void cudasim_piece_unmap(void *p);
/* Open the page of mapped memory that holds p until the running kernel has ended; false: p is in none. */
bool cudasim_touch(const void *p);
void cudasim_touched_close(void);
/* End the process unless the bytes are within one allocation of device memory. */
void cudasim_check_range(const void *p, size_t bytes, const char *what);

/* For NCCL's stand-in: note on the stream an operation that other ranks must join.  From now on, a call that
 * makes the host wait for this operation ends the process, because nothing would then check whether the ranks
 * still arrive.  This ends when an event after the operation was queried and found done, or when the group
 * has ended. */
void cudasim_group_op(const void *group, cudaStream_t s);
void cudasim_group_over(const void *group);
/* Block work that is queued on the stream from now on until the group has ended. */
void cudasim_group_stuck(const void *group, cudaStream_t s);
/* If the stream is captured, keep body and return true.  Every launch of the graph calls body, in the
 * launching thread, without the lock. */
bool cudasim_group_capture(cudaStream_t s, std::function<void()> body);
/* End the process if this thread captures a stream, which `what` does not allow. */
void cudasim_group_outside(const char *what);
/* Do all queued work, then the stand-in's own copy. */
void cudasim_group_copy(cudaStream_t s, void *dst, const void *src, size_t n, cudaMemcpyKind kind);
cudaError_t cudasim_launch_check(dim3 grid, dim3 block, size_t smem, size_t allowed);

#endif
