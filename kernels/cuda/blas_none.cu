/* blas_none.cu - replaces blas.cu in a build without cuBLAS's header (blas.cuh). */
#include "kernels/cuda/blas.cuh"

int cuda_blas_open(struct kern_dev *d, struct why *why)
{
	(void)d;
	return err_why(why, -ENOTSUP,
		       "--fast needs cuBLAS, and these kernels were built without its header (cublas_v2.h): "
		       "install it "
		       "(libcublas-dev of the CUDA toolkit) and run `make cuda`, or serve without --fast");
}

void cuda_blas_close(struct kern_dev *d)
{
	(void)d;
}

int cuda_blas_gemm(struct kern_stream *s, const struct blas_gemm *g)
{
	(void)s;
	(void)g;
	return -ENOTSUP;
}
