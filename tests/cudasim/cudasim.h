/* cudasim.h - what a test may ask of the emulator. */
#ifndef QUERN_TESTS_CUDASIM_CUDASIM_H
#define QUERN_TESTS_CUDASIM_CUDASIM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order of blocks and threads from now on. */
void cudasim_seed(uint64_t seed);

/* What was done so far. */
struct cudasim_counters {
	uint64_t launches, blocks, switches, mmas;
	uint64_t graphs; /* launched */
	uint64_t live_bytes, live_pieces; /* of device memory */
	uint64_t allocs;                  /* of device and pinned memory */
	uint64_t cublas_opened, gemms;
};
struct cudasim_counters cudasim_stats(void);

/* Whether the machine has cuBLAS (it has). */
void cudasim_cublas_there(bool is);

#ifdef __cplusplus
}
#endif

#endif
