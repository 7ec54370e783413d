/* blas.cuh - cuBLAS, for --fast alone.
 *
 * Opened by name when a device is opened for it, so that neither the build nor a machine that serves in
 * the default mode needs it.  One handle per device, with a workspace of ours: nothing is
 * allocated after cuda_blas_open(), and a call can be captured in a graph.
 *
 * blas.cu is built where cuBLAS's header is, blas_none.cu where it is not. */
#ifndef QUERN_KERNELS_CUDA_BLAS_CUH
#define QUERN_KERNELS_CUDA_BLAS_CUH

#include "kernels/cuda/cuda.cuh"

/* out [m][ldo] = x [m][ldx] w^T, or += where `add` says so; all row-major, in device memory.  w [n][ldw]
 * and x have k columns of the device's operand type, out has n of it, or of F32.  Sums are F32. */
struct blas_gemm {
	const void *w, *x;
	void *out;
	int m, n, k;
	int ldw, ldx, ldo;
	bool out_f32, add;
};

/* Makes d->blas.  -ENOTSUP (no cuBLAS here: why says what to install), -ENOMEM, -EIO. */
int cuda_blas_open(struct kern_dev *d, char *why, size_t why_n);
void cuda_blas_close(struct kern_dev *d); /* NULL d->blas is fine */
/* Queued on s.  0, -EIO after a line in the log. */
int cuda_blas_gemm(struct kern_stream *s, const struct blas_gemm *g);

#endif
