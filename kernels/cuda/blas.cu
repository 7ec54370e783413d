/* blas.cu - cuBLAS as a table of function pointers (blas.cuh). */
#include "kernels/cuda/blas.cuh"

#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Workspace sizes that NVIDIA recommends: 32 MiB from Hopper on, 4 MiB before. */
enum { WS_HOPPER = 32 << 20, WS_BEFORE = 4 << 20 };

/* These function types have not changed since cuBLAS 11. */
struct cuda_blas {
	void *lib;
	cublasHandle_t handle;
	cudaStream_t stream; /* the handle's current stream */
	struct cuda_buf ws;
	decltype(&cublasCreate_v2) create;
	decltype(&cublasDestroy_v2) destroy;
	decltype(&cublasSetStream_v2) set_stream;
	decltype(&cublasSetWorkspace_v2) set_workspace;
	decltype(&cublasSetMathMode) set_math_mode;
	/* C++ has an overload of this name */
	cublasStatus_t (*gemm_ex)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
				  const void *, const void *, cudaDataType_t, int, const void *,
				  cudaDataType_t, int, const void *, void *, cudaDataType_t, int,
				  cublasComputeType_t, cublasGemmAlgo_t);
	decltype(&cublasGetStatusString) status_string;
};

static int check(const struct cuda_blas *b, cublasStatus_t s, const char *what)
{
	if (s == CUBLAS_STATUS_SUCCESS)
		return 0;
	log_error("cuda", "cublas failed call=\"%s\" reason=\"%s\"", what, b->status_string(s));
	return s == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO;
}

/* ---- opening ---- */

/* First the version of the toolkit that built these kernels, and its runtime. */
#define NAME(major)   "libcublas.so." DIGITS(major)
#define DIGITS(major) #major
static const char *const names[] = {NAME(CUBLAS_VER_MAJOR), "libcublas.so.13", "libcublas.so.12"};

template <typename F> static bool find(void *lib, const char *name, F *out)
{
	*out = (F)dlsym(lib, name);
	return *out != NULL;
}

static bool find_all(struct cuda_blas *b)
{
	return find(b->lib, "cublasCreate_v2", &b->create) && find(b->lib, "cublasDestroy_v2", &b->destroy) &&
	       find(b->lib, "cublasSetStream_v2", &b->set_stream) &&
	       find(b->lib, "cublasSetWorkspace_v2", &b->set_workspace) &&
	       find(b->lib, "cublasSetMathMode", &b->set_math_mode) &&
	       find(b->lib, "cublasGemmEx", &b->gemm_ex) &&
	       find(b->lib, "cublasGetStatusString", &b->status_string);
}

/* Open the first library that can make a handle.  A library of another toolkit may need a newer driver. */
static int open_handle(struct cuda_blas *b, int id, struct why *why)
{
	int e = err_why(why, -ENOTSUP,
			"--fast needs cuBLAS: neither libcublas.so.13 nor libcublas.so.12 can be opened; "
			"install libcublas of the CUDA toolkit (or name its folder in LD_LIBRARY_PATH), or "
			"serve without --fast");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if ((i && !strcmp(names[i], names[0])) || !(b->lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)))
			continue;
		if (!find_all(b)) {
			e = err_why(why, -ENOTSUP,
				    "--fast needs cuBLAS 12 or 13: %s lacks functions; install another one, "
				    "or serve without --fast",
				    names[i]);
			continue;
		}
		cublasStatus_t s = b->create(&b->handle);
		if (s == CUBLAS_STATUS_SUCCESS)
			return 0;
		b->handle = NULL;
		e = err_why(why, s == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO,
			    "%s cannot be set up on cuda:%d: %s; is the driver new enough?", names[i], id,
			    b->status_string(s));
		log_warn("cuda", "cublas not used library=%s reason=\"%s\"", names[i],
			 why ? why->text : b->status_string(s));
	}
	return e;
}

int cuda_blas_open(struct kern_dev *d, struct why *why)
{
	struct cuda_blas *b = (struct cuda_blas *)xcalloc(1, sizeof *b);
	d->blas = b;
	int e = open_handle(b, d->id, why);
	if (e)
		goto fail;
	b->ws.bytes = d->cc >= 90 ? WS_HOPPER : WS_BEFORE;
	b->ws.p = cuda_mem_new(d, b->ws.bytes);
	if (!b->ws.p) {
		e = err_why(why, -ENOMEM, "no device memory for %zu bytes of cuBLAS's workspace",
			    b->ws.bytes);
		goto fail;
	}
	/* Otherwise, halves are summed as halves if a product is split over blocks. */
	e = check(
		b,
		b->set_math_mode(b->handle, (cublasMath_t)(CUBLAS_DEFAULT_MATH |
							   CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
		"math mode");
	if (!e)
		return 0;
	err_why(why, e, "cuBLAS cannot be set up on cuda:%d", d->id);
fail:
	cuda_blas_close(d);
	return e;
}

void cuda_blas_close(struct kern_dev *d)
{
	struct cuda_blas *b = d->blas;
	if (!b)
		return;
	if (b->handle)
		check(b, b->destroy(b->handle), "destroy");
	cuda_mem_free(d, b->ws.p, b->ws.bytes);
	free(b); /* the library stays loaded until the process ends, like the driver */
	d->blas = NULL;
}

/* ---- products ---- */

/* Set the handle's stream.  This resets the workspace to cuBLAS's own, so set quern's again. */
static int set_stream(struct cuda_blas *b, cudaStream_t s)
{
	if (b->stream == s)
		return 0;
	int e = check(b, b->set_stream(b->handle, s), "stream");
	if (!e)
		e = check(b, b->set_workspace(b->handle, b->ws.p, b->ws.bytes), "workspace");
	b->stream = e ? NULL : s;
	return e;
}

/* cuBLAS is column-major: its C = A^T B is out^T = w x^T here. */
int cuda_blas_gemm(struct kern_stream *s, const struct blas_gemm *g)
{
	struct cuda_blas *b = s->dev->blas;
	const cudaDataType_t type = cuda_is_bf16(s->dev) ? CUDA_R_16BF : CUDA_R_16F;
	const float one = 1, beta = g->add ? 1 : 0;
	int e = set_stream(b, s->s);
	if (e)
		return e;
	return check(b,
		     b->gemm_ex(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, g->n, g->m, g->k, &one, g->w, type,
				g->ldw, g->x, type, g->ldx, &beta, g->out, g->out_f32 ? CUDA_R_32F : type,
				g->ldo, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
		     "product")
		       ? -EIO
		       : 0;
}
