/* memory.cu - base of the CUDA table's files: device and host memory, workspaces, the status of CUDA
 * calls. */
#include "kernels/cuda/cuda.cuh"

#include <stdlib.h>

/* ---- errors ---- */

int cuda_launched(const char *kernel)
{
	cudaError_t e = cudaGetLastError();
	if (e == cudaSuccess)
		return 0;
	log_error("cuda", "launch failed kernel=%s reason=\"%s\"", kernel, cudaGetErrorString(e));
	return -EIO;
}

int cuda_check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return 0;
	log_error("cuda", "call failed call=\"%s\" reason=\"%s\"", what, cudaGetErrorString(e));
	cudaGetLastError(); /* the next launch must not report it again */
	return e == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

bool cuda_carve_out(const void *kernel)
{
	return !cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
						cudaSharedmemCarveoutMaxShared),
			   "shared memory of a multiprocessor");
}

int cuda_smem_allow(const void *kernel, int bytes)
{
	return cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
			  "shared memory of a kernel");
}

/* ---- memory ---- */

size_t cuda_mem_taken(size_t bytes)
{
	const size_t unit = bytes < (1 << 20) ? 512 : 2 << 20;
	return (bytes + unit - 1) / unit * unit;
}

void *cuda_mem_new(struct kern_dev *d, size_t bytes)
{
	void *p = NULL;
	bytes = bytes ? bytes : 256;
	if (cudaMalloc(&p, bytes) != cudaSuccess) {
		cudaGetLastError();
		return NULL;
	}
	/* finished before any stream uses the memory */
	if (cuda_check(cudaMemset(p, 0, bytes), "memset") ||
	    cuda_check(cudaDeviceSynchronize(), "synchronize")) {
		cudaFree(p);
		return NULL;
	}
	d->used += cuda_mem_taken(bytes);
	return p;
}

void cuda_mem_free(struct kern_dev *d, void *p, size_t bytes)
{
	if (!p)
		return;
	cuda_check(cudaFree(p), "free");
	d->used -= cuda_mem_taken(bytes ? bytes : 256);
}

/* ---- host memory ---- */

static void *host_alloc(size_t bytes, unsigned flags)
{
	void *p = NULL;
	if (cudaHostAlloc(&p, bytes ? bytes : 64, flags) != cudaSuccess) {
		cudaGetLastError();
		return NULL;
	}
	return p;
}

void *cuda_pinned_new(size_t bytes)
{
	return host_alloc(bytes, cudaHostAllocDefault);
}

void cuda_pinned_free(void *p)
{
	if (p)
		cuda_check(cudaFreeHost(p), "free of host memory");
}

void *cuda_host_new(struct kern_dev *d, size_t bytes)
{
	void *p = host_alloc(bytes, cudaHostAllocMapped), *dev = NULL;
	if (p && cuda_check(cudaHostGetDevicePointer(&dev, p, 0), "host memory for kernels")) {
		cuda_pinned_free(p);
		return NULL;
	}
	if (!p)
		return NULL;
	d->hosts = (struct cuda_host *)xrealloc(d->hosts, (size_t)d->n_hosts + 1, sizeof *d->hosts);
	d->hosts[d->n_hosts++] = {(unsigned char *)p, (unsigned char *)dev, bytes};
	return p;
}

void cuda_host_free(struct kern_dev *d, void *p, size_t bytes)
{
	(void)bytes;
	for (int i = 0; p && i < d->n_hosts; i++)
		if (d->hosts[i].host == p)
			d->hosts[i] = d->hosts[--d->n_hosts];
	cuda_pinned_free(p);
}

void *cuda_mapped(const struct kern_dev *d, const void *p, size_t bytes)
{
	const unsigned char *from = (const unsigned char *)p;
	for (int i = 0; i < d->n_hosts; i++) {
		const struct cuda_host *h = &d->hosts[i];
		if (from >= h->host && bytes <= h->bytes && from <= h->host + (h->bytes - bytes))
			return h->dev + (from - h->host);
	}
	return NULL;
}

/* ---- loading ---- */

int cuda_upload_now(struct kern_dev *d, void *dst_dev, const void *src_host, size_t bytes)
{
	(void)d;
	if (!bytes)
		return 0;
	int e = cuda_check(cudaMemcpy(dst_dev, src_host, bytes, cudaMemcpyHostToDevice), "upload");
	/* from pageable memory the call returns before the last bytes have arrived */
	return e ? e : cuda_check(cudaDeviceSynchronize(), "upload");
}

int cuda_buf_reserve(struct kern_dev *d, struct cuda_buf *b, size_t bytes)
{
	if (bytes <= b->bytes)
		return 0;
	void *p = cuda_mem_new(d, bytes);
	if (!p)
		return -ENOMEM;
	cuda_mem_free(d, b->p, b->bytes);
	b->p = p;
	b->bytes = bytes;
	return 0;
}

int cuda_ws_reserve(struct kern_dev *d, enum cuda_ws which, size_t bytes)
{
	return cuda_buf_reserve(d, &d->ws[which], bytes);
}
