/* library.cc - the emulated machine's libraries (cuBLAS: cublas.cc, NCCL: nccl.cc), its driver, and the
 * properties of its device. */
#include <cublas_v2.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cudasim/dlfcn.h"
#include "tests/cudasim/mem.h"
#include "tests/cudasim/sim.h"

struct function {
	const char *name;
	void *fn;
};

struct library {
	const char *name, *prefix; /* prefix: of its functions' names */
	bool there, broken;        /* broken: cuBLAS cannot make a handle */
};

static library libraries[] = {
	{"libcublas.so.12", "cublas", true, false},
	{"libcublas.so.13", "cublas", false, false},
	{"libnccl.so.2", "nccl", true, false},
	{"libnvidia-ml.so.1", "nvml", true, false},
};
enum { CUBLAS_12, CUBLAS_13, NCCL, NVML };

void cudasim_cublas(unsigned there, unsigned broken)
{
	for (unsigned i = CUBLAS_12; i <= CUBLAS_13; i++) {
		libraries[i].there = there >> i & 1;
		libraries[i].broken = broken >> i & 1;
	}
}

void cudasim_nccl_there(bool is)
{
	libraries[NCCL].there = is;
}

/* ---- the driver ---- */

static int driver_cuda = CUDART_VERSION;

void cudasim_driver(int cuda)
{
	driver_cuda = cuda;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = driver_cuda;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
	if (driver_cuda < CUDART_VERSION)
		return cudaErrorInsufficientDriver;
	*n = 1;
	return cudaSuccess;
}

/* ---- the device ---- */

/* Return how many blocks of a kernel fit on a multiprocessor, by shared memory and threads. */
cudaError_t cudasim_func_blocks(int *n, int threads, size_t smem)
{
	const int by_threads = 2048 / threads, by_smem = (int)((228 << 10) / (smem + (1 << 10)));
	*n = by_threads < by_smem ? by_threads : by_smem;
	return cudaSuccess;
}

static int sms;

void cudasim_sms(int n)
{
	sms = n;
}

int cudasim_sms_now(void)
{
	const char *v = sms ? nullptr : getenv("QUERN_CUDASIM_SMS");
	if (!sms)
		sms = v && atoi(v) > 0 ? atoi(v) : 6;
	return sms;
}

cudaError_t cudaSetDevice(int i)
{
	return i ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i)
{
	if (i)
		return cudaErrorInvalidDevice;
	size_t free_now;
	*p = {};
	snprintf(p->name, sizeof p->name, "emulated GPU");
	cudaMemGetInfo(&free_now, &p->totalGlobalMem);
	p->sharedMemPerBlockOptin = 227 << 10;
	p->multiProcessorCount = cudasim_sms_now();
	p->major = 9;
	p->l2CacheSize = 50 << 20;
	return cudaSuccess;
}

/* ---- the functions of the libraries ---- */

static cublasStatus_t no_handle(cublasHandle_t *h)
{
	*h = nullptr;
	return CUBLAS_STATUS_NOT_INITIALIZED;
}

static int nvml_begin_or_end(void)
{
	return 0;
}

static int nvml_driver(char *out, unsigned n)
{
	if (n < sizeof CUDASIM_DRIVER)
		return 7;
	memcpy(out, CUDASIM_DRIVER, sizeof CUDASIM_DRIVER);
	return 0;
}

static const function functions[] = {
	{"nvmlInit_v2", (void *)nvml_begin_or_end},
	{"nvmlShutdown", (void *)nvml_begin_or_end},
	{"nvmlSystemGetDriverVersion", (void *)nvml_driver},
	{"cublasCreate_v2", (void *)cublasCreate_v2},
	{"cublasDestroy_v2", (void *)cublasDestroy_v2},
	{"cublasSetStream_v2", (void *)cublasSetStream_v2},
	{"cublasSetWorkspace_v2", (void *)cublasSetWorkspace_v2},
	{"cublasSetMathMode", (void *)cublasSetMathMode},
	{"cublasGetStatusString", (void *)cublasGetStatusString},
	{"cublasGemmEx", (void *)cublasGemmEx},
	{"ncclGetUniqueId", (void *)ncclGetUniqueId},
	{"ncclCommInitRankConfig", (void *)ncclCommInitRankConfig},
	{"ncclCommGetAsyncError", (void *)ncclCommGetAsyncError},
	{"ncclCommAbort", (void *)ncclCommAbort},
	{"ncclGetErrorString", (void *)ncclGetErrorString},
	{"ncclAllGather", (void *)ncclAllGather},
	{"ncclGroupStart", (void *)ncclGroupStart},
	{"ncclGroupEnd", (void *)ncclGroupEnd},
	{"ncclSend", (void *)ncclSend},
	{"ncclRecv", (void *)ncclRecv},
	{"ncclBroadcast", (void *)ncclBroadcast},
};

void *cudasim_dlopen(const char *name, int mode)
{
	(void)mode;
	for (library &l : libraries)
		if (l.there && !strcmp(l.name, name)) {
			if (&l == &libraries[NCCL])
				cudasim_counts.nccl_opened++;
			else if (&l != &libraries[NVML])
				cudasim_counts.cublas_opened++;
			return &l;
		}
	return nullptr;
}

void *cudasim_dlsym(void *lib, const char *name)
{
	const library *l = (const library *)lib;
	if (strncmp(name, l->prefix, strlen(l->prefix)))
		return nullptr;
	if (l->broken && !strcmp(name, "cublasCreate_v2"))
		return (void *)no_handle;
	for (const function &f : functions)
		if (!strcmp(f.name, name))
			return f.fn;
	return nullptr;
}
