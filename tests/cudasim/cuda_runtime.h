/* cuda_runtime.h - the part of the CUDA runtime that quern uses, without a GPU.
 *
 * It replaces nvcc's header of the same name when the .cu files are compiled for the host with
 * -DQUERN_CUDASIM.  Work is queued per stream and done only when the host waits for it, so that a host that
 * reads or reuses a buffer too early is caught.  The exception is work before a host function: a thread does
 * it a short while later, which the seed decides.  Device memory has an address range of its own.  Each
 * allocation ends at a guard page, and is closed to the host outside of kernels and copies. */
#ifndef QUERN_TESTS_CUDASIM_CUDA_RUNTIME_H
#define QUERN_TESTS_CUDASIM_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct alignas(8) uint2 {
	uint32_t x, y;
};
struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};
struct alignas(8) int2 {
	int x, y;
};
struct alignas(16) int4 {
	int x, y, z, w;
};
struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) float4 {
	float x, y, z, w;
};

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
	return uint2{x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return uint4{x, y, z, w};
}
static inline int2 make_int2(int x, int y)
{
	return int2{x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
	return int4{x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
	return float2{x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
	return float4{x, y, z, w};
}

struct uint3 {
	unsigned x, y, z;
};
struct dim3 {
	unsigned x, y, z;
	dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
	{
	}
};

typedef enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidConfiguration = 9,
	cudaErrorInsufficientDriver = 35,
	cudaErrorNoDevice = 100,
	cudaErrorInvalidDevice = 101,
	cudaErrorIllegalState = 401,
	cudaErrorNotReady = 600,
	cudaErrorIllegalAddress = 700,
	cudaErrorStreamCaptureUnsupported = 900,
	cudaErrorStreamCaptureInvalidated = 901,
	cudaErrorStreamCaptureMerge = 902,
	cudaErrorStreamCaptureUnmatched = 903,
	cudaErrorStreamCaptureUnjoined = 904,
	cudaErrorStreamCaptureIsolation = 905,
	cudaErrorCapturedEvent = 907,
} cudaError_t;

typedef enum {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault,
} cudaMemcpyKind;

typedef enum {
	cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
	cudaFuncAttributePreferredSharedMemoryCarveout = 9,
} cudaFuncAttribute;
enum { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100 };

typedef struct cudasim_stream *cudaStream_t;
typedef struct cudasim_event *cudaEvent_t;
typedef struct cudasim_graph *cudaGraph_t;
typedef struct cudasim_exec *cudaGraphExec_t;

typedef enum {
	cudaStreamCaptureModeGlobal,
	cudaStreamCaptureModeThreadLocal,
	cudaStreamCaptureModeRelaxed,
} cudaStreamCaptureMode;

typedef enum {
	cudaStreamCaptureStatusNone,
	cudaStreamCaptureStatusActive,
	cudaStreamCaptureStatusInvalidated,
} cudaStreamCaptureStatus;

#define CUDART_CB
typedef void (*cudaHostFn_t)(void *arg);

enum {
	cudaStreamNonBlocking = 1,
	cudaEventDefault = 0,
	cudaEventDisableTiming = 2,
	cudaHostAllocDefault = 0,
	cudaHostAllocMapped = 2,
};

struct cudaDeviceProp {
	char name[256];
	size_t totalGlobalMem;
	size_t sharedMemPerBlockOptin;
	int multiProcessorCount;
	int major, minor;
	int l2CacheSize;
};

#define CUDART_VERSION 13000
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int i);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i);
cudaError_t cudaMemGetInfo(size_t *free_now, size_t *total);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudasim_func_set(const void *kernel, cudaFuncAttribute what, int value);
template <typename F> cudaError_t cudaFuncSetAttribute(F kernel, cudaFuncAttribute what, int value)
{
	return cudasim_func_set((const void *)kernel, what, value);
}

cudaError_t cudasim_func_blocks(int *n, int threads, size_t smem);
template <typename F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, F kernel, int threads, size_t smem)
{
	(void)kernel;
	return cudasim_func_blocks(n, threads, smem);
}

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned flags);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemset(void *p, int v, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int v, size_t bytes, cudaStream_t s);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void *all, size_t *n); /* all NULL: sets *n only */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* ---- built-in variables and functions of kernels ---- */

struct cudasim_where {
	uint3 tid, bid;
	dim3 bdim, gdim;
};
extern const struct cudasim_where *cudasim_at; /* the running fibre's */

#define threadIdx (cudasim_at->tid)
#define blockIdx  (cudasim_at->bid)
#define blockDim  (cudasim_at->bdim)
#define gridDim   (cudasim_at->gdim)

static inline float rsqrtf(float x)
{
	return 1.0f / sqrtf(x);
}

/* CUDA has these for all integer and floating types. */
template <typename T> static inline T min(T a, T b)
{
	return a < b ? a : b;
}
template <typename T> static inline T max(T a, T b)
{
	return a > b ? a : b;
}

#endif
