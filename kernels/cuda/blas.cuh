/* blas.cuh - cuBLAS, for --fast only.
 *
 * The library is opened by name when a device is opened with --fast, so that neither the build nor a machine
 * in the default mode needs it.  Each device has one handle, with a workspace that quern allocates: nothing
 * is allocated after cuda_blas_open(), and a call can be captured in a graph.
 *
 * blas.cu is built if cuBLAS's header is installed, blas_none.cu otherwise. */
#ifndef QUERN_KERNELS_CUDA_BLAS_CUH
#define QUERN_KERNELS_CUDA_BLAS_CUH

#include "kernels/cuda/cuda.cuh"

/* out [m][ldo] = x [m][ldx] w^T, or += if `add` is set; all row-major, in device memory.  w [n][ldw] and x
 * have k columns of the device's operand type; out has n columns of operand type or F32.  Sums are F32. */
struct blas_gemm {
	const void *w, *x;
	void *out;
	int m, n, k;
	int ldw, ldx, ldo;
	bool out_f32, add;
};

/* Open cuBLAS and set d->blas.  -ENOTSUP (no cuBLAS: why says what to install), -ENOMEM, -EIO. */
int cuda_blas_open(struct kern_dev *d, struct why *why);
void cuda_blas_close(struct kern_dev *d); /* d->blas may be NULL */
/* Queue the product on s.  0, or log and return -EIO. */
int cuda_blas_gemm(struct kern_stream *s, const struct blas_gemm *g);

#endif
