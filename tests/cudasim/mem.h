/* mem.h - between the emulator's files. */
#ifndef QUERN_TESTS_CUDASIM_MEM_H
#define QUERN_TESTS_CUDASIM_MEM_H

#include <functional>
#include <mutex>

#include "tests/cudasim/cuda_runtime.h"
#include "tests/cudasim/cudasim.h"

extern struct cudasim_counters cudasim_counts;
extern bool cudasim_is_idle; /* nothing is computed or copied */

std::recursive_mutex &cudasim_lock(void); /* of all that the emulator remembers */
uint32_t cudasim_random(void);            /* of the seed, not of kernels; with the lock */
int cudasim_sms_now(void);

/* error.cc, with the lock.  A lost device does nothing any more, and every query returns its error; of
 * one that hangs there is no further sign. */
bool cudasim_lost(void);
bool cudasim_hung(void);

/* What lies around a bad address, to stderr. */
void cudasim_mem_explain(const void *p);
void cudasim_run(const char *name, dim3 grid, dim3 block, size_t smem, const std::function<void()> &body);
bool cudasim_is_device(const void *p); /* an address of device memory, given away or not */
/* Poison of new memory, or zeros; of a large piece the ends only. */
void cudasim_fill(unsigned char *p, size_t bytes, int v);
void cudasim_drain(void); /* all that is queued is done */

/* pinned.cc: pinned memory of the host; the host's address of such memory that is mapped. */
bool cudasim_is_pinned(const void *p);
bool cudasim_is_view(const void *p);
/* The device's addresses for the pages of fd, so that the last bytes stand before a guard page. */
void *cudasim_piece_map(int fd, size_t bytes);
void cudasim_piece_unmap(void *p);
/* Ends the process unless the bytes lie in one piece of device memory. */
void cudasim_check_range(const void *p, size_t bytes, const char *what);

/* For NCCL's stand-in.  An operation that other ranks have to come to is on the stream: from now on until
 * an event behind it was asked for and found done, or the group is over, whatever would make the host
 * wait for it ends the process, since nothing would then check whether the ranks still come. */
void cudasim_group_op(const void *group, cudaStream_t s);
void cudasim_group_over(const void *group);
/* True: the stream is captured, and body is kept, to be called by every launch of the graph, by the thread
 * that launches, without the lock. */
bool cudasim_group_capture(cudaStream_t s, std::function<void()> body);
/* Ends the process if this thread captures a stream, which `what` does not allow. */
void cudasim_group_outside(const char *what);
/* What the stand-in does itself: all that is queued, then the copy. */
void cudasim_group_copy(cudaStream_t s, void *dst, const void *src, size_t n, cudaMemcpyKind kind);
cudaError_t cudasim_launch_check(dim3 grid, dim3 block, size_t smem, size_t allowed);

#endif
