/* pinned.cc - host memory that copies and kernels may use.
 *
 * Mapped memory has two addresses, as CUDA has it: the host's, and the device's, which is a piece of
 * device memory to everything here.  Both show the same pages, each before a guard page:
 *
 *     host      | views ...  [   bytes]guard ...      open always
 *     device    | arena ...  [   bytes]guard ...      open to kernels only
 *
 * On a GPU with unified addressing the two are equal.  Here they differ, so that a kernel that was given
 * the host's address is found by the detector of races, which watches the device's. */
#include "tests/cudasim/sim.h"

#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cudasim/capture.h"
#include "tests/cudasim/mem.h"

static const size_t views_bytes = (size_t)1 << 38, page = 4096;

struct pinned_piece {
	size_t bytes;
	unsigned char *base; /* of a view's pages; NULL: not mapped */
	size_t pages;        /* bytes of them */
	void *dev;
};

static unsigned char *views, *views_next;
static auto &pinned = *new std::map<unsigned char *, pinned_piece>(); /* by host address */

using hold = std::lock_guard<std::recursive_mutex>;

static std::map<unsigned char *, pinned_piece>::iterator find(const void *p)
{
	auto it = pinned.upper_bound((unsigned char *)p);
	if (it == pinned.begin())
		return pinned.end();
	--it;
	return (unsigned char *)p < it->first + it->second.bytes ? it : pinned.end();
}

bool cudasim_is_pinned(const void *p)
{
	return find(p) != pinned.end();
}

bool cudasim_is_view(const void *p)
{
	return views && p >= views && p < views + views_bytes;
}

static bool view_new(unsigned char **host, pinned_piece *x)
{
	if (!views) {
		views = (unsigned char *)mmap(nullptr, views_bytes, PROT_NONE,
					      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (views == MAP_FAILED)
			cudasim_fail("no address space for mapped memory");
		views_next = views;
	}
	x->pages = (x->bytes + 63 + page) / page * page;
	if (x->pages + page > (size_t)(views + views_bytes - views_next))
		cudasim_fail("the emulator's address space for mapped memory is used up");
	const int fd = memfd_create("cudasim", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)x->pages) ||
	    mmap(views_next, x->pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	x->base = views_next;
	views_next += x->pages + page;
	*host = x->base + ((x->pages - x->bytes) & ~(size_t)63);
	x->dev = cudasim_piece_map(fd, x->bytes);
	close(fd);
	return true;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaHostAlloc");
	pinned_piece x = {bytes ? bytes : 1, nullptr, 0, nullptr};
	unsigned char *host = nullptr;
	if (e != cudaSuccess)
		return e;
	if (flags & cudaHostAllocMapped ? !view_new(&host, &x)
					: posix_memalign((void **)(void *)&host, page, x.bytes))
		return cudaErrorMemoryAllocation;
	cudasim_fill(host, bytes, 0xff);
	pinned[host] = x;
	cudasim_counts.allocs++;
	*out = host;
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaFreeHost");
	if (!p || e != cudaSuccess)
		return e;
	cudasim_drain();
	auto it = pinned.find((unsigned char *)p);
	if (it == pinned.end())
		cudasim_fail("cudaFreeHost of %p, which is not pinned memory", p);
	const pinned_piece x = it->second;
	pinned.erase(it);
	if (!x.base) {
		free(p);
		return cudaSuccess;
	}
	cudasim_piece_unmap(x.dev);
	mmap(x.base, x.pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned flags)
{
	hold held(cudasim_lock());
	auto it = find(host);
	if (flags || it == pinned.end() || !it->second.base)
		return cudaErrorInvalidValue;
	*dev = (unsigned char *)it->second.dev + ((unsigned char *)host - it->first);
	return cudaSuccess;
}
