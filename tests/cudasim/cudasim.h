/* cudasim.h - what a test may ask of the emulator. */
#ifndef QUERN_TESTS_CUDASIM_CUDASIM_H
#define QUERN_TESTS_CUDASIM_CUDASIM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order of blocks and threads from now on; at the start, QUERN_CUDASIM_SEED or 0.  What ends the process
 * names the seed and the launch. */
void cudasim_seed(uint64_t seed);
/* How many blocks may be resident together, from now on: 1, one after another; 0, what the multiprocessors
 * hold, at most CUDASIM_RESIDENT_MAX.  At the start QUERN_CUDASIM_RESIDENT, or CUDASIM_RESIDENT. */
void cudasim_resident(int most);
enum {
	CUDASIM_RESIDENT_MAX = 16,
#ifdef CUDASIM_RACE
	CUDASIM_RESIDENT = 0,
#else
	CUDASIM_RESIDENT = 1,
#endif
};
/* How tensor cores add from now on (ptx_sim.cc); at the start QUERN_CUDASIM_TENSOR: rounded, volta, ampere or
 * hopper, or CUDASIM_TENSOR. */
enum {
	CUDASIM_TENSOR_ROUNDED,
	CUDASIM_TENSOR_VOLTA,
	CUDASIM_TENSOR_AMPERE,
	CUDASIM_TENSOR_HOPPER,
	CUDASIM_TENSOR = CUDASIM_TENSOR_HOPPER
};
void cudasim_tensor(int how);
/* Multiprocessors of devices that are opened from now on; at the start QUERN_CUDASIM_SMS, or 6. */
void cudasim_sms(int n);

/* From now on a fault with this text in its message ends the process with this status, not by SIGABRT: for
 * tests that a fault is found, and not another. */
enum { CUDASIM_EXPECTED = 42 };
void cudasim_expect(const char *text);

/* What was done so far. */
struct cudasim_counters {
	uint64_t launches, blocks, switches, mmas, wgmmas;
	uint64_t interleaved;             /* launches with several blocks resident */
	uint64_t refills;                 /* cp.async to where the block has copied before */
	uint64_t graphs;                  /* launched */
	uint64_t host_calls;              /* host functions called */
	uint64_t live_bytes, live_pieces; /* of device memory */
	uint64_t allocs;                  /* calls that made device or pinned memory */
	uint64_t kernels;                 /* that have run: for each the driver takes some memory, too */
	uint64_t cublas_opened, gemms;
	uint64_t nccl_opened, nccl_ids;   /* unique ids made */
	uint64_t copies, copy_bytes_most; /* calls that copy or clear memory; the largest of them */
	uint64_t syncs;                   /* calls in which the host may wait for the device */
};
struct cudasim_counters cudasim_stats(void);
/* Copies, their largest and syncs count from 0 again. */
void cudasim_count_again(void);

/* The machine's driver: the CUDA that it knows (12040: 12.4), 0: there is none.  NVML calls it DRIVER. */
#define CUDASIM_DRIVER "550.54.15"
void cudasim_driver(int cuda);
/* Which cuBLAS the machine has (12, at the start), and of which no handle can be made. */
enum { CUDASIM_CUBLAS_12 = 1, CUDASIM_CUBLAS_13 = 2 };
void cudasim_cublas(unsigned there, unsigned broken);
/* Whether it has NCCL (it has). */
void cudasim_nccl_there(bool is);
/* From now on what is begun with NCCL is under way when it was asked after so often; 0: at once, -1: never,
 * and nothing is heard of other ranks. */
void cudasim_nccl_slow(int asks);

/* What the device has in all, and what other processes hold of it, from now on; at the start 4 GiB and
 * none, or what the environment's QUERN_CUDASIM_MIB and QUERN_CUDASIM_OTHERS_MIB say. */
void cudasim_memory(uint64_t total, uint64_t others);
/* From now on nothing is computed or copied: what is asked for is only checked and counted.  For models
 * that are too large to run here. */
void cudasim_idle(bool is);
/* Calls fn for every kernel that is launched from now on; NULL: no more. */
struct cudasim_launched {
	const void *kernel;
	const char *name;
	unsigned grid[3], threads;
	uint64_t smem; /* dynamic */
	int carveout;  /* of shared memory, in percent; -1: the driver chooses */
};
void cudasim_watch_launches(void (*fn)(const struct cudasim_launched *l));
enum { CUDASIM_KERNEL_BYTES = 64 << 10 }; /* that the driver takes when a kernel first runs */

#ifdef __cplusplus
}
#endif

#endif
