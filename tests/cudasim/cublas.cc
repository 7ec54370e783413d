/* cublas.cc - stand-in for cuBLAS: checks products of emulated device memory and adds them in an order that
 * no kernel of quern uses (four chains, from the last input to the first). */
#include <cublas_v2.h>

#include "kernels/cuda/ptx.cuh"
#include "tests/cudasim/capture.h"
#include "tests/cudasim/mem.h"
#include "tests/cudasim/sim.h"

enum { WS_LEAST = 4 << 20 };

struct cublasContext {
	cudaStream_t s;
	bool has_ws; /* set since the stream was set */
	cublasMath_t mode;
};

/* ---- the handle ---- */

cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
	*h = new cublasContext();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
	delete h;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
	h->s = s;
	h->has_ws = false;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t bytes)
{
	cudasim_check_range(p, bytes, "cuBLAS's workspace");
	if ((uintptr_t)p % 64 || bytes < WS_LEAST)
		return CUBLAS_STATUS_INVALID_VALUE;
	h->has_ws = true;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
	h->mode = mode;
	return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t s)
{
	return s == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
	       : s == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
	       : s == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
						  : "another status";
}

/* ---- products ---- */

/* A product.  Column-major, as in cuBLAS: a [k][m], b [k][n], c [m][n]. */
struct product {
	const uint16_t *a, *b;
	void *c;
	int m, n, k, lda, ldb, ldc;
	float alpha, beta;
	bool bf16, f32;
};

static float op_of(const product &p, uint16_t h)
{
	return p.bf16 ? f32_of_bf16(h) : f32_of_f16(h);
}

static float dot(const product &p, const float *a, const uint16_t *b)
{
	float sum[4] = {0, 0, 0, 0};
	for (int i = p.k; i-- > 0;)
		sum[i & 3] += a[i] * op_of(p, b[i]);
	return (sum[3] + sum[2]) + (sum[1] + sum[0]);
}

static void run(const product &p)
{
	float *a = new float[(size_t)p.k + 1];
	for (int i = 0; i < p.m; i++) {
		for (int l = 0; l < p.k; l++)
			a[l] = op_of(p, p.a[(size_t)i * (size_t)p.lda + (size_t)l]);
		for (int j = 0; j < p.n; j++) {
			const size_t at = (size_t)j * (size_t)p.ldc + (size_t)i;
			float *c32 = (float *)p.c + at;
			uint16_t *c16 = (uint16_t *)p.c + at;
			float v = p.alpha * dot(p, a, p.b + (size_t)j * (size_t)p.ldb);
			if (p.beta != 0) /* otherwise c may hold anything, even NaN */
				v += p.beta * (p.f32 ? *c32 : op_of(p, *c16));
			if (p.f32)
				*c32 = v;
			else
				*c16 = p.bf16 ? bf16_of_f32(v) : f16_of_f32(v);
		}
	}
	delete[] a;
}

/* Check a matrix of columns of `rows` values, ld apart. */
static void check_matrix(const void *p, int rows, int columns, int ld, size_t each, const char *what)
{
	if (ld < rows)
		cudasim_fail("%s: %d values, and the next column %d after the one before", what, rows, ld);
	if ((uintptr_t)p % each)
		cudasim_fail("%s: %p is not aligned to %zu", what, p, each);
	cudasim_check_range(p, ((size_t)(columns - 1) * (size_t)ld + (size_t)rows) * each, what);
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
			    int k, const void *alpha, const void *a, cudaDataType_t type_a, int lda,
			    const void *b, cudaDataType_t type_b, int ldb, const void *beta, void *c,
			    cudaDataType_t type_c, int ldc, cublasComputeType_t compute,
			    cublasGemmAlgo_t algo)
{
	product p = {};
	if (op_a != CUBLAS_OP_T || op_b != CUBLAS_OP_N || type_a != type_b ||
	    (type_a != CUDA_R_16F && type_a != CUDA_R_16BF) || (type_c != CUDA_R_32F && type_c != type_a) ||
	    compute != CUBLAS_COMPUTE_32F || algo != CUBLAS_GEMM_DEFAULT)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (m < 1 || n < 1 || k < 1)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (!h->s || !h->has_ws)
		cudasim_fail(
			"a product on a stream for which cuBLAS has no workspace: it would allocate one");
	if (!(h->mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))
		cudasim_fail("a product with parts that may be added as halves");
	p.bf16 = type_a == CUDA_R_16BF;
	p.f32 = type_c == CUDA_R_32F;
	check_matrix(a, k, m, lda, 2, "A of a product");
	check_matrix(b, k, n, ldb, 2, "B of a product");
	check_matrix(c, m, n, ldc, p.f32 ? 4 : 2, "C of a product");
	p.a = (const uint16_t *)a;
	p.b = (const uint16_t *)b;
	p.c = c;
	p.m = m;
	p.n = n;
	p.k = k;
	p.lda = lda;
	p.ldb = ldb;
	p.ldc = ldc;
	p.alpha = *(const float *)alpha;
	p.beta = *(const float *)beta;
	std::lock_guard<std::recursive_mutex> held(cudasim_lock());
	cudasim_counts.gemms++;
	if (!cudasim_is_idle)
		cudasim_push(h->s, [p] { run(p); });
	return CUBLAS_STATUS_SUCCESS;
}
