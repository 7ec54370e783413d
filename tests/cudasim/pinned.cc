/* pinned.cc - host memory that copies and kernels may use.
 *
 * As in CUDA, mapped memory has two addresses: the host's, and the device's, which counts as an allocation of
 * device memory.  Both show the same pages, each range ending at a guard page:
 *
 *     host      | views ...  [   bytes]guard ...      always open
 *     device    | arena ...  [   bytes]guard ...      open to kernels only
 *
 * On a GPU with unified addressing the two are equal.  They differ here, so that the race detector, which
 * watches device addresses, finds a kernel that was given the host address. */
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
	unsigned char *base; /* start of a view's pages; NULL: not mapped */
	size_t pages;        /* bytes of the pages */
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

/* ---- pages that kernels access ---- */

enum { TOUCHED_MAX = 4096 };
static unsigned char *touched[TOUCHED_MAX]; /* pages that are open for the running kernel */
static int n_touched;

/* Return whether the page belongs to this mapped memory. */
static bool is_of(const pinned_piece &x, const unsigned char *first)
{
	if (!x.dev)
		return false;
	const unsigned char *base = (unsigned char *)x.dev - ((x.pages - x.bytes) & ~(size_t)63);
	return first >= base && first < base + x.pages;
}

bool cudasim_touch(const void *p)
{
	unsigned char *first = (unsigned char *)((uintptr_t)p & ~(page - 1));
	bool found = false;
	for (auto it = pinned.begin(); it != pinned.end() && !found; ++it)
		found = is_of(it->second, first);
	if (!found)
		return false;
	if (n_touched == TOUCHED_MAX)
		cudasim_touched_close();
	touched[n_touched++] = first;
	cudasim_counts.mapped_bytes += page;
	return !mprotect(first, page, PROT_READ | PROT_WRITE);
}

void cudasim_touched_close(void)
{
	while (n_touched)
		mprotect(touched[--n_touched], page, PROT_NONE);
}
