/* error.cc - texts of CUDA's errors, and failures of the whole device. */
#include "tests/cudasim/mem.h"

#include <stdlib.h>
#include <cuda_runtime.h>

const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess:
		return "no error";
	case cudaErrorInvalidValue:
		return "invalid argument";
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorInvalidConfiguration:
		return "invalid configuration argument";
	case cudaErrorInsufficientDriver:
		return "CUDA driver version is insufficient for CUDA runtime version";
	case cudaErrorNoDevice:
		return "no CUDA-capable device is detected";
	case cudaErrorInvalidDevice:
		return "invalid device ordinal";
	case cudaErrorNotReady:
		return "device not ready";
	case cudaErrorIllegalAddress:
		return "an illegal memory access was encountered";
	case cudaErrorIllegalState:
		return "the operation cannot be performed in the present state";
	case cudaErrorStreamCaptureUnsupported:
		return "operation not permitted when stream is capturing";
	case cudaErrorStreamCaptureInvalidated:
		return "operation failed due to a previous error during capture";
	case cudaErrorStreamCaptureMerge:
		return "operation would result in a merge of separate capture sequences";
	case cudaErrorStreamCaptureUnmatched:
		return "capture was not ended in the same stream as it began";
	case cudaErrorStreamCaptureUnjoined:
		return "capturing stream has unjoined work";
	case cudaErrorStreamCaptureIsolation:
		return "dependency created on uncaptured work in another stream";
	case cudaErrorCapturedEvent:
		return "operation not permitted on an event last recorded in a capturing stream";
	}
	return "unknown error";
}

/* ---- failures of the device ---- */

/* Return whether a failure that the environment sets has begun.  After this many calls of host functions, the
 * emulated device is lost (QUERN_CUDASIM_LOST=N), as after a kernel's bad access, or hangs
 * (QUERN_CUDASIM_HUNG=N). */
static bool comes(const char *name, long *at)
{
	if (*at == 0) {
		const char *v = getenv(name);
		*at = v ? atol(v) : -1;
	}
	return *at > 0 && cudasim_counts.host_calls >= (uint64_t)*at;
}

bool cudasim_lost(void)
{
	static long at;
	return comes("QUERN_CUDASIM_LOST", &at);
}

bool cudasim_hung(void)
{
	static long at;
	return comes("QUERN_CUDASIM_HUNG", &at);
}
