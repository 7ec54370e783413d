/* blas.h - cuBLAS and the driver, opened by name: a machine without them can still run the rest. */
#ifndef QUERN_TESTS_GPU_BLAS_H
#define QUERN_TESTS_GPU_BLAS_H

#include "base/err.h"
#include "tests/gpu/measure.h"

struct blas;

/* Open cuBLAS on the device that the table has opened, with a workspace of `bytes` at ws.  -ENOTSUP, -EIO
 * with the reason. */
int blas_open(struct blas **out, void *ws, size_t bytes, struct why *why);
void blas_close(struct blas *b);
/* Queue out [m][n] = in [m][k] w [n][k]^T, F16 or BF16, summed in F32. */
int blas_linear(struct blas *b, void *out, const void *in, const void *w, int m, int n, int k, bool bf16);
struct queue blas_queue(struct blas *b);

/* The driver's version (13000: CUDA 13.0) and attributes of device 0.  driver_facts(): -ENODEV without a
 * driver. */
struct driver_facts {
	int version, sms, sm_mhz, memory_mhz, bus_bits, l2_bytes;
};
int driver_facts(struct driver_facts *out);

#endif
