/* cublas_v2.h - the part of cuBLAS that quern uses, on the emulated device (cublas.cc).  It replaces cuBLAS's
 * own header when the .cu files are compiled for the host.  It checks operands, leading dimensions, streams
 * and the workspace of quern's calls.  Of cuBLAS's own behaviour it shows only that sums may be added in
 * another order. */
#ifndef QUERN_TESTS_CUDASIM_CUBLAS_V2_H
#define QUERN_TESTS_CUDASIM_CUBLAS_V2_H

#include <cuda_runtime.h>
#include <stddef.h>

#define CUBLAS_VER_MAJOR 12

typedef struct cublasContext *cublasHandle_t;
typedef enum {
	CUBLAS_STATUS_SUCCESS = 0,
	CUBLAS_STATUS_NOT_INITIALIZED = 1,
	CUBLAS_STATUS_ALLOC_FAILED = 3,
	CUBLAS_STATUS_INVALID_VALUE = 7,
	CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum {
	CUBLAS_DEFAULT_MATH = 0,
	CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
} cublasMath_t;
typedef enum { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;

cublasStatus_t cublasCreate_v2(cublasHandle_t *h);
cublasStatus_t cublasDestroy_v2(cublasHandle_t h);
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode);
const char *cublasGetStatusString(cublasStatus_t s);
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
			    int k, const void *alpha, const void *a, cudaDataType_t type_a, int lda,
			    const void *b, cudaDataType_t type_b, int ldb, const void *beta, void *c,
			    cudaDataType_t type_c, int ldc, cublasComputeType_t compute,
			    cublasGemmAlgo_t algo);

#endif
