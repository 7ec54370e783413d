#include "tests/gpu/blas.h"

#include "base/alloc.h"
#include "base/err.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The interfaces of the driver and cuBLAS as in their manuals; handles are pointers. */
enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, GEMM_DEFAULT = -1 };
enum { CAPTURE_THREAD = 1, STREAM_NON_BLOCKING = 1 };
enum { CLOCK_RATE = 13, SM_COUNT = 16, MEMORY_CLOCK = 36, BUS_WIDTH = 37, L2_SIZE = 38 };

struct driver {
	void *lib;
	int (*init)(unsigned);
	int (*version)(int *);
	int (*attribute)(int *, int, int);
	int (*stream_new)(void **, unsigned);
	int (*stream_free)(void *);
	int (*stream_sync)(void *);
	int (*begin)(void *, int);
	int (*end)(void *, void **);
	int (*instantiate)(void **, void *, unsigned long long);
	int (*launch)(void *, void *);
	int (*exec_free)(void *);
	int (*graph_free)(void *);
};

struct blas {
	struct driver cu;
	void *lib, *handle, *stream, *graph, *exec;
	int (*destroy)(void *);
	int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int,
		    int, const void *, void *, int, int, int, int);
};

/* Set f to a function of the library; returns whether it exists. */
static bool find(void *lib, const char *name, void *f)
{
	void *found = dlsym(lib, name);
	memcpy(f, &found, sizeof found);
	return found != NULL;
}

static bool driver_open(struct driver *d)
{
	*d = (struct driver){.lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
	return d->lib && find(d->lib, "cuInit", &d->init) &&
	       find(d->lib, "cuDriverGetVersion", &d->version) &&
	       find(d->lib, "cuDeviceGetAttribute", &d->attribute) &&
	       find(d->lib, "cuStreamCreate", &d->stream_new) &&
	       find(d->lib, "cuStreamDestroy_v2", &d->stream_free) &&
	       find(d->lib, "cuStreamSynchronize", &d->stream_sync) &&
	       find(d->lib, "cuStreamBeginCapture_v2", &d->begin) &&
	       find(d->lib, "cuStreamEndCapture", &d->end) &&
	       find(d->lib, "cuGraphInstantiateWithFlags", &d->instantiate) &&
	       find(d->lib, "cuGraphLaunch", &d->launch) &&
	       find(d->lib, "cuGraphExecDestroy", &d->exec_free) &&
	       find(d->lib, "cuGraphDestroy", &d->graph_free);
}

int driver_facts(struct driver_facts *out)
{
	struct driver d;
	*out = (struct driver_facts){0};
	if (!driver_open(&d) || d.init(0))
		return -ENODEV;
	d.version(&out->version);
	d.attribute(&out->sms, SM_COUNT, 0);
	d.attribute(&out->sm_mhz, CLOCK_RATE, 0);
	d.attribute(&out->memory_mhz, MEMORY_CLOCK, 0);
	d.attribute(&out->bus_bits, BUS_WIDTH, 0);
	d.attribute(&out->l2_bytes, L2_SIZE, 0);
	out->sm_mhz /= 1000;
	out->memory_mhz /= 1000;
	return 0;
}

/* ---- cuBLAS ---- */

int blas_open(struct blas **out, void *ws, size_t bytes, struct why *why)
{
	int (*create)(void **) = NULL, (*set_stream)(void *, void *) = NULL,
			   (*set_workspace)(void *, void *, size_t) = NULL;
	struct blas *b = xcalloc(1, sizeof *b);
	*out = NULL;
	b->lib = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
	if (!b->lib)
		b->lib = dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL);
	if (!b->lib || !driver_open(&b->cu)) {
		const char *missing = b->lib ? "libcuda.so.1 is not here"
					     : "neither libcublas.so.13 nor libcublas.so.12 is here";
		free(b);
		return err_why(why, -ENOTSUP, "%s", missing);
	}
	if (!find(b->lib, "cublasCreate_v2", &create) || !find(b->lib, "cublasDestroy_v2", &b->destroy) ||
	    !find(b->lib, "cublasSetStream_v2", &set_stream) ||
	    !find(b->lib, "cublasSetWorkspace_v2", &set_workspace) ||
	    !find(b->lib, "cublasGemmEx", &b->gemm) || create(&b->handle) ||
	    b->cu.stream_new(&b->stream, STREAM_NON_BLOCKING) || set_stream(b->handle, b->stream) ||
	    set_workspace(b->handle, ws, bytes)) {
		free(b);
		return err_why(why, -EIO, "cuBLAS is here but cannot be set up");
	}
	*out = b;
	return 0;
}

void blas_close(struct blas *b)
{
	if (!b)
		return;
	b->destroy(b->handle);
	b->cu.stream_free(b->stream);
	free(b);
}

/* cuBLAS is column-major: out^T [n][m] = w in^T. */
int blas_linear(struct blas *b, void *out, const void *in, const void *w, int m, int n, int k, bool bf16)
{
	const float one = 1, zero = 0;
	const int t = bf16 ? R_16BF : R_16F;
	return b->gemm(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w, t, k, in, t, k, &zero, out, t,
		       n, COMPUTE_32F, GEMM_DEFAULT)
		       ? -EIO
		       : 0;
}

static int begin(void *at)
{
	struct blas *b = at;
	return b->cu.begin(b->stream, CAPTURE_THREAD) ? -EIO : 0;
}

static int end(void *at)
{
	struct blas *b = at;
	return b->cu.end(b->stream, &b->graph) || b->cu.instantiate(&b->exec, b->graph, 0) ? -EIO : 0;
}

static int launch(void *at)
{
	struct blas *b = at;
	return b->cu.launch(b->exec, b->stream) ? -EIO : 0;
}

static int sync(void *at)
{
	struct blas *b = at;
	return b->cu.stream_sync(b->stream) ? -EIO : 0;
}

static void forget(void *at)
{
	struct blas *b = at;
	b->cu.exec_free(b->exec);
	b->cu.graph_free(b->graph);
}

struct queue blas_queue(struct blas *b)
{
	return (struct queue){
		.at = b, .begin = begin, .end = end, .launch = launch, .sync = sync, .forget = forget};
}
