/* nccl.h - the part of NCCL that quern uses, between processes of this host (nccl.cc).  It replaces NCCL's
 * own header when the .cu files are compiled for the emulated device.  It checks the order, sizes and streams
 * of quern's calls, and whether a driver call would wait for another rank (cudasim_group_op()).  It shows
 * nothing of NCCL's own behaviour. */
#ifndef QUERN_TESTS_CUDASIM_NCCL_H
#define QUERN_TESTS_CUDASIM_NCCL_H

#include <cuda_runtime.h>
#include <stddef.h>

enum { NCCL_UNIQUE_ID_BYTES = 128 };
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
typedef enum {
	ncclSuccess = 0,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclRemoteError = 6,
	ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclInt8 = 0, ncclFloat32 = 7 } ncclDataType_t;
typedef struct {
	int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                              \
	{                                                                                                    \
		1                                                                                            \
	}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommAbort(ncclComm_t comm);
const char *ncclGetErrorString(ncclResult_t r);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t s);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t s);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t s);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t s);

#endif
