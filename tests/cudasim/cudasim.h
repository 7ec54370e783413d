/* cudasim.h - controls and counters of the emulator, for tests. */
#ifndef QUERN_TESTS_CUDASIM_CUDASIM_H
#define QUERN_TESTS_CUDASIM_CUDASIM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set the seed of the order of blocks and threads from now on; initially QUERN_CUDASIM_SEED or 0.  A message
 * that ends the process names the seed and the launch. */
void cudasim_seed(uint64_t seed);
/* Set how many blocks may be resident together from now on.  1: blocks run one after another; 0: as many as
 * the multiprocessors hold, at most CUDASIM_RESIDENT_MAX.  Initially QUERN_CUDASIM_RESIDENT, or
 * CUDASIM_RESIDENT. */
void cudasim_resident(int most);
enum {
	CUDASIM_RESIDENT_MAX = 16,
#ifdef CUDASIM_RACE
	CUDASIM_RESIDENT = 0,
#else
	CUDASIM_RESIDENT = 1,
#endif
};
/* Set how tensor cores add from now on (ptx_sim.cc).  Initially QUERN_CUDASIM_TENSOR (rounded, volta, ampere
 * or hopper), or CUDASIM_TENSOR. */
enum {
	CUDASIM_TENSOR_ROUNDED,
	CUDASIM_TENSOR_VOLTA,
	CUDASIM_TENSOR_AMPERE,
	CUDASIM_TENSOR_HOPPER,
	CUDASIM_TENSOR = CUDASIM_TENSOR_HOPPER
};
void cudasim_tensor(int how);
/* Set the multiprocessors of devices that are opened from now on; initially QUERN_CUDASIM_SMS, or 6. */
void cudasim_sms(int n);

/* Make a fault with this text in its message end the process with CUDASIM_EXPECTED instead of SIGABRT, from
 * now on: for tests that expect exactly this fault. */
enum { CUDASIM_EXPECTED = 42 };
void cudasim_expect(const char *text);

/* Totals so far. */
struct cudasim_counters {
	uint64_t launches, blocks, switches, mmas, wgmmas;
	uint64_t interleaved;             /* launches with several blocks resident */
	uint64_t refills;                 /* cp.async to a place the block has copied to before */
	uint64_t graphs;                  /* launches of graphs */
	uint64_t host_calls;              /* host functions called */
	uint64_t live_bytes, live_pieces; /* device memory allocated now */
	uint64_t allocs;                  /* allocations of device or pinned memory */
	uint64_t kernels;                 /* distinct kernels run; the driver takes some memory for each */
	uint64_t cublas_opened, gemms;
	uint64_t not_ready;               /* queries of events that were not done yet */
	uint64_t nccl_opened, nccl_ids;   /* unique ids made */
	uint64_t nccl_ops, nccl_received; /* operations done; bytes received from other ranks */
	/* Since cudasim_count_again(), for a step or any other work: kernels launched one by one, nodes of
	 * launched graphs, calls that copy or clear memory, their bytes and the largest of them, and calls in
	 * which the host may wait for the device. */
	uint64_t launched, graph_nodes, copies, copy_bytes, copy_bytes_most, syncs;
	/* Mapped memory that kernels have read or written, in whole pages, counted anew for each launch:
	 * traffic over PCIe without a copy. */
	uint64_t mapped_bytes;
};
struct cudasim_counters cudasim_stats(void);
void cudasim_count_again(void);

/* Set the CUDA version of the machine's driver (12040: 12.4); 0: no driver.  NVML reports CUDASIM_DRIVER. */
#define CUDASIM_DRIVER "550.54.15"
void cudasim_driver(int cuda);
/* Set which versions of cuBLAS the machine has (initially 12), and which of them fail to make a handle. */
enum { CUDASIM_CUBLAS_12 = 1, CUDASIM_CUBLAS_13 = 2 };
void cudasim_cublas(unsigned there, unsigned broken);
/* Set whether the machine has NCCL (initially it has). */
void cudasim_nccl_there(bool is);
/* From now on, operations of this thread's ranks are queued as on a device but never done, as if a rank did
 * not arrive.  Later work on the stream waits until the communicator is aborted. */
void cudasim_nccl_stuck(bool is);
/* From now on, NCCL calls that were begun are reported as in progress until they were queried this often.  0:
 * done at once; -1: never done, and nothing arrives from other ranks. */
void cudasim_nccl_slow(int asks);

/* Set the device's total memory and the part that other processes hold, from now on.  Initially 4 GiB and
 * none, or QUERN_CUDASIM_MIB and QUERN_CUDASIM_OTHERS_MIB from the environment. */
void cudasim_memory(uint64_t total, uint64_t others);
/* From now on, only check and count work, without computing or copying: for models that are too large to run
 * here. */
void cudasim_idle(bool is);
/* Call fn for every kernel launched from now on; NULL: stop. */
struct cudasim_launched {
	const void *kernel;
	const char *name;
	unsigned grid[3], threads;
	uint64_t smem; /* bytes of dynamic shared memory */
	int carveout;  /* share of L1 as shared memory, in percent; -1: the driver chooses */
};
void cudasim_watch_launches(void (*fn)(const struct cudasim_launched *l));
enum { CUDASIM_KERNEL_BYTES = 64 << 10 }; /* memory that the driver takes at a kernel's first run */

#ifdef __cplusplus
}
#endif

#endif
