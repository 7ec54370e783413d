/* runtime.cc - the emulated device's memory, streams and events. */
#include "tests/cudasim/sim.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "tests/cudasim/capture.h"
#include "tests/cudasim/dependent.h"
#include "tests/cudasim/mem.h"

static const size_t arena_bytes = (size_t)1 << 40, page = 4096, huge_page = 2 << 20;
static size_t device_total, device_others;
/* Larger allocations are filled only at both ends: unused pools would take real memory. */
static const size_t fill_whole = (size_t)64 << 20, fill_end = (size_t)1 << 20;
static const unsigned char canary = 0xA5;

struct piece {
	size_t bytes;
	unsigned char *base; /* start of its pages */
	size_t pages;        /* bytes of the pages, without the guard */
	bool used;           /* something may have written into it */
	bool mapped;         /* host memory (pinned.cc) */
};

static unsigned char *arena, *arena_end, *arena_next;
/* These are never destroyed: the thread of host functions may outlive main(). */
static auto &pieces = *new std::map<unsigned char *, piece>(); /* by address */
static auto &smem_allowed = *new std::map<const void *, int>();
static auto &carveouts = *new std::map<const void *, int>();
static auto &streams = *new std::map<cudaStream_t, int>();
static auto &launched = *new std::map<const void *, int>(); /* kernels */
static cudaError_t sticky;
static void (*on_launch)(const struct cudasim_launched *l);
bool cudasim_is_idle;

struct work {
	enum { DO, RECORD, WAIT, TELL, STUCK } kind; /* TELL: a host function */
	std::function<void()> body;
	cudaEvent_t event;
	uint64_t turn;
	const void *group = nullptr; /* STUCK: later work is not done while this group exists */
};

struct cudasim_stream {
	std::deque<work> queue;
	bool draining;
	uint64_t pushed;               /* number of operations */
	std::deque<uint64_t> of_group; /* collectives not yet found done */
	const void *group;             /* group of the last collective; asker: the thread that queued it */
	std::thread::id asker;
};

struct cudasim_event {
	cudaStream_t stream;
	uint64_t recorded, reached;
	uint64_t pushed;                          /* operations of its stream at the last record */
	std::chrono::steady_clock::time_point at; /* when it was last reached */
};

/* One thread at a time uses this state: the host's, or the thread of host functions. */
std::recursive_mutex &cudasim_lock(void)
{
	static std::recursive_mutex &lock = *new std::recursive_mutex();
	return lock;
}

using hold = std::lock_guard<std::recursive_mutex>;

/* ---- memory ---- */

static size_t mib_of(const char *name, size_t otherwise)
{
	const char *v = getenv(name);
	return v && *v ? (size_t)strtoull(v, nullptr, 10) << 20 : otherwise;
}

static void size_device(void)
{
	if (device_total)
		return;
	device_total = mib_of("QUERN_CUDASIM_MIB", (size_t)4 << 30);
	device_others = mib_of("QUERN_CUDASIM_OTHERS_MIB", 0);
}

void cudasim_memory(uint64_t total, uint64_t others)
{
	device_total = total;
	device_others = others;
}

static size_t device_free(void)
{
	size_device();
	const size_t taken =
		device_others + cudasim_counts.live_bytes + launched.size() * CUDASIM_KERNEL_BYTES;
	return taken < device_total ? device_total - taken : 0;
}

void cudasim_idle(bool is)
{
	cudasim_is_idle = is;
}

void cudasim_watch_launches(void (*fn)(const struct cudasim_launched *l))
{
	on_launch = fn;
}

void cudasim_fill(unsigned char *p, size_t n, int v)
{
	if (cudasim_is_idle)
		return;
	if (n <= fill_whole) {
		memset(p, v, n);
		return;
	}
	memset(p, v, fill_end);
	memset(p + n - fill_end, v, fill_end);
}

static bool in_arena(const void *p)
{
	return arena && p >= arena && p < arena_end;
}

bool cudasim_is_device(const void *p)
{
	return in_arena(p);
}

/* Return the address of the allocation that holds p, or NULL. */
static unsigned char *piece_of(const void *p)
{
	auto it = pieces.upper_bound((unsigned char *)p);
	if (it == pieces.begin())
		return nullptr;
	--it;
	return (unsigned char *)p <= it->first + it->second.bytes + 64 ? it->first : nullptr;
}

void cudasim_mem_explain(const void *p)
{
	if (!in_arena(p)) {
		fprintf(stderr, "cudasim: bad access to host address %p\n", p);
		return;
	}
	auto it = pieces.upper_bound((unsigned char *)p);
	if (it == pieces.begin()) {
		fprintf(stderr, "cudasim: bad access to device address %p, in no piece\n", p);
		return;
	}
	--it;
	fprintf(stderr, "cudasim: bad access to device address %p: %td bytes into a piece of %zu\n", p,
		(const unsigned char *)p - it->first, it->second.bytes);
}

void cudasim_check_device(const void *p, size_t bytes, size_t align, const char *what)
{
	if (!in_arena(p))
		cudasim_fail("%s: %p is not device memory", what, p);
	if ((uintptr_t)p % align)
		cudasim_fail("%s: device address %p is not aligned to %zu", what, p, align);
	(void)bytes; /* guard pages check the rest */
}

static void check_piece(const void *p, size_t bytes, const char *what)
{
	unsigned char *at = in_arena(p) ? piece_of(p) : nullptr;
	if (!at)
		cudasim_fail("%s: %p is not device memory", what, p);
	if ((unsigned char *)p + bytes > at + pieces[at].bytes)
		cudasim_fail("%s: %zu bytes at %td of a device piece of %zu", what, bytes,
			     (unsigned char *)p - at, pieces[at].bytes);
}

static void check_host(const void *p, const char *what)
{
	if (in_arena(p))
		cudasim_fail("%s: %p is device memory, host memory was expected", what, p);
}

/* Open or close an allocation.  Allocations are open only to kernels and copies; mapped memory is opened page
 * by page as kernels access it. */
static void piece_open(const piece &x, bool open)
{
	if (mprotect(x.base, x.pages, open ? PROT_READ | PROT_WRITE : PROT_NONE))
		cudasim_fail("mprotect failed");
}

static void pieces_open(bool open)
{
	for (auto &it : pieces)
		if (!it.second.mapped)
			piece_open(it.second, open);
}

/* Open or close the allocation that holds p; host memory needs nothing. */
static void piece_open_at(const void *p, bool open)
{
	if (in_arena(p))
		piece_open(pieces[piece_of(p)], open);
}

static void check_canary(unsigned char *p, const piece &x)
{
	for (unsigned char *q = p + x.bytes; q < x.base + x.pages; q++)
		if (*q != canary)
			cudasim_fail("something wrote %td bytes beyond a device piece of %zu",
				     q - p - (long)x.bytes, x.bytes);
}

static void drain_all(void);

/* Reserve addresses for an allocation that ends at a guard page; they are closed and have no memory yet. */
static unsigned char *piece_place(piece *x)
{
	if (!arena) {
		arena = (unsigned char *)mmap(nullptr, arena_bytes, PROT_NONE,
					      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (arena == MAP_FAILED)
			cudasim_fail("no address space for device memory");
		arena_next = arena + page;
		arena_end = arena + arena_bytes;
	}
	if (x->pages + huge_page > (size_t)(arena_end - arena_next))
		cudasim_fail("the emulator's address space is used up");
	if (x->pages >= 2 * huge_page)
		arena_next = (unsigned char *)(((uintptr_t)arena_next + huge_page - 1) & ~(huge_page - 1));
	x->base = arena_next;
	arena_next += x->pages + page;
	return x->base + ((x->pages - x->bytes) & ~(size_t)63);
}

void *cudasim_piece_map(int fd, size_t bytes)
{
	piece x = {bytes, nullptr, (bytes + 63 + page) / page * page, true, true};
	unsigned char *p = piece_place(&x);
	if (mmap(x.base, x.pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		cudasim_fail("memory of the host cannot be mapped");
	memset(p + bytes, canary, (size_t)(x.base + x.pages - p) - bytes);
	mprotect(x.base, x.pages, PROT_NONE);
	pieces[p] = x;
	return p;
}

void cudasim_piece_unmap(void *p)
{
	const piece x = pieces.at((unsigned char *)p);
	mprotect(x.base, x.pages, PROT_READ);
	check_canary((unsigned char *)p, x);
	pieces.erase((unsigned char *)p);
	mmap(x.base, x.pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaMalloc");
	if (e != cudaSuccess)
		return e;
	drain_all();
	piece x = {bytes, nullptr, (bytes + 63 + page) / page * page, false, false};
	if (!bytes || x.pages > device_free())
		return bytes ? cudaErrorMemoryAllocation : cudaErrorInvalidValue;
	unsigned char *p = piece_place(&x);
	if (mprotect(x.base, x.pages, PROT_READ | PROT_WRITE))
		return cudaErrorMemoryAllocation;
	if (x.pages >= 2 * huge_page) /* mprotect() works page by page, so huge pages make it faster */
		madvise(x.base, x.pages / huge_page * huge_page, MADV_HUGEPAGE);
	cudasim_fill(x.base, (size_t)(p - x.base) + bytes, 0xff);
	memset(p + bytes, canary, (size_t)(x.base + x.pages - p) - bytes);
	mprotect(x.base, x.pages, PROT_NONE);
	pieces[p] = x;
	cudasim_counts.live_bytes += x.pages;
	cudasim_counts.live_pieces++;
	cudasim_counts.allocs++;
	*out = p;
	return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaFree");
	if (!p || e != cudaSuccess)
		return e;
	drain_all();
	auto it = pieces.find((unsigned char *)p);
	if (it == pieces.end() || it->second.mapped)
		cudasim_fail("cudaFree of %p, which is not a piece", p);
	piece x = it->second;
	mprotect(x.base, x.pages, PROT_READ);
	check_canary((unsigned char *)p, x);
	madvise(x.base, x.pages, MADV_DONTNEED);
	mprotect(x.base, x.pages, PROT_NONE);
	pieces.erase(it);
	cudasim_counts.live_bytes -= x.pages;
	cudasim_counts.live_pieces--;
	return cudaSuccess;
}

/* ---- streams ---- */

static void drain_to(cudaStream_t s, size_t leave);

/* Return whether the stream's next operation waits for another rank. */
static bool is_stuck(cudaStream_t s)
{
	if (s->queue.empty())
		return false;
	const work &w = s->queue.front();
	return (w.kind == work::STUCK && w.group) ||
	       (w.kind == work::WAIT && w.event->reached < w.turn && is_stuck(w.event->stream));
}

static void wait_for(cudaEvent_t e, uint64_t turn)
{
	while (e->reached < turn && !cudasim_hung() && !is_stuck(e->stream))
		drain_to(e->stream, e->stream->queue.size() - 1);
}

/* A wait for a hanging device never ends; a query returns. */
static bool only_asking;

static void hang_if_hung(void)
{
	while (cudasim_hung() && !only_asking)
		pause();
}

static cudaError_t state(void)
{
	return cudasim_lost() ? cudaErrorIllegalAddress : sticky;
}

/* Do queued work until at most `leave` entries are left. */
static void drain_to(cudaStream_t s, size_t leave)
{
	static int depth;
	if (s->draining)
		cudasim_fail("streams wait for each other in a circle");
	if (s->queue.size() <= leave)
		return;
	if (!depth++)
		pieces_open(true);
	s->draining = true;
	while (s->queue.size() > leave && !cudasim_hung() && !is_stuck(s)) {
		work w = std::move(s->queue.front());
		s->queue.pop_front();
		if (w.kind == work::RECORD) {
			w.event->reached = w.turn;
			w.event->at = std::chrono::steady_clock::now();
		} else if (w.kind == work::WAIT) {
			wait_for(w.event, w.turn);
			if (w.event->reached < w.turn && !cudasim_hung())
				s->queue.push_front(std::move(w));
		} else if (w.kind != work::STUCK && (w.kind == work::TELL || !cudasim_lost()))
			w.body();
	}
	hang_if_hung();
	s->draining = false;
	if (!--depth)
		pieces_open(false);
}

static void drain_all(void)
{
	for (auto &s : streams)
		drain_to(s.first, 0);
}

void cudasim_drain(void)
{
	drain_all();
}

/* ---- operations that wait for other ranks ---- */

enum { LAUNCHES = 1000 }; /* launches that a driver queues before it makes the host wait */

void cudasim_group_op(const void *group, cudaStream_t s)
{
	hold held(cudasim_lock());
	s->of_group.push_back(++s->pushed);
	s->group = group;
	s->asker = std::this_thread::get_id();
}

void cudasim_group_stuck(const void *group, cudaStream_t s)
{
	hold held(cudasim_lock());
	s->queue.push_back({work::STUCK, nullptr, nullptr, 0, group});
}

void cudasim_group_over(const void *group)
{
	hold held(cudasim_lock());
	for (auto &s : streams) {
		if (s.first->group == group)
			s.first->of_group.clear();
		for (work &w : s.first->queue)
			if (w.group == group)
				w.group = nullptr;
	}
}

static void check_wait(cudaStream_t s, const char *what)
{
	if (!s->of_group.empty())
		cudasim_fail("%s waits for an operation of other ranks, and does not check whether they come",
			     what);
}

/* Check streams of the whole device.  In some tests several ranks share the device, each with a thread. */
static void check_wait_all(const char *what)
{
	for (auto &s : streams)
		if (s.first->asker == std::this_thread::get_id())
			check_wait(s.first, what);
}

/* Record that the event was found done, and with it all earlier collectives of its stream. */
static void seen(cudaEvent_t e)
{
	if (!streams.count(e->stream))
		return;
	auto &of = e->stream->of_group;
	while (!of.empty() && of.front() <= e->pushed)
		of.pop_front();
}

void cudasim_push(cudaStream_t s, std::function<void()> to_do)
{
	std::function<void()> body = [s, to_do = std::move(to_do)] {
		race_stream_op(s);
		to_do();
	};
	if (!s)
		cudasim_fail("work on the default stream: it is not emulated");
	if (cudasim_captured(s)) {
		cudasim_capture_work(s, std::move(body));
		return;
	}
	s->queue.push_back({work::DO, std::move(body), nullptr, 0});
	if (++s->pushed > LAUNCHES && !s->of_group.empty() && s->pushed - s->of_group.front() > LAUNCHES)
		check_wait(s, "a launch, with so many before it,");
}

void cudasim_push_of_graph(cudaStream_t s, std::function<void()> body)
{
	s->queue.push_back({work::DO, std::move(body), nullptr, 0});
}

void cudasim_check_range(const void *p, size_t bytes, const char *what)
{
	hold held(cudasim_lock());
	check_piece(p, bytes, what);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	hold held(cudasim_lock());
	(void)flags;
	*s = new cudasim_stream();
	streams[*s] = 1;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	hold held(cudasim_lock());
	if (cudasim_captured(s))
		cudasim_fail("the end of a stream that is captured");
	drain_to(s, 0);
	streams.erase(s);
	delete s;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids_on(s, "cudaStreamSynchronize");
	if (e != cudaSuccess)
		return e;
	cudasim_counts.syncs++;
	check_wait(s, "cudaStreamSynchronize");
	drain_to(s, 0);
	return state();
}

cudaError_t cudaDeviceSynchronize(void)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaDeviceSynchronize");
	if (e != cudaSuccess)
		return e;
	cudasim_counts.syncs++;
	check_wait_all("cudaDeviceSynchronize");
	drain_all();
	return state();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
	(void)flags;
	*e = new cudasim_event();
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	hold held(cudasim_lock());
	if (!from->recorded || !to->recorded)
		return cudaErrorInvalidValue;
	if (from->reached < from->recorded || to->reached < to->recorded)
		return cudaErrorNotReady;
	*ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	hold held(cudasim_lock());
	drain_all();
	cudasim_capture_forget(e);
	delete e;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	hold held(cudasim_lock());
	if (cudasim_capture_record(e, s))
		return cudaSuccess;
	e->stream = s;
	e->pushed = s->pushed;
	s->queue.push_back({work::RECORD, nullptr, e, ++e->recorded});
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	hold held(cudasim_lock());
	cudaError_t captured;
	(void)flags;
	if (cudasim_capture_wait(s, e, &captured))
		return captured;
	if (e->reached < e->recorded)
		s->queue.push_back({work::WAIT, nullptr, e, e->recorded});
	return cudaSuccess;
}

/* Each query lets the stream do a little work, so that an event is done after enough queries. */
cudaError_t cudaEventQuery(cudaEvent_t e)
{
	hold held(cudasim_lock());
	cudaError_t captured = cudasim_capture_forbids_event(e, "cudaEventQuery");
	if (captured != cudaSuccess)
		return captured;
	if (e->reached < e->recorded) {
		only_asking = true;
		drain_to(e->stream, e->stream->queue.size() - 1);
		only_asking = false;
	}
	if (e->reached >= e->recorded)
		seen(e);
	else
		cudasim_counts.not_ready++;
	return e->reached >= e->recorded || cudasim_lost() ? state() : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	hold held(cudasim_lock());
	cudaError_t captured = cudasim_capture_forbids_event(e, "cudaEventSynchronize");
	if (captured != cudaSuccess)
		return captured;
	cudasim_counts.syncs++;
	if (streams.count(e->stream) && !e->stream->of_group.empty() &&
	    e->stream->of_group.front() <= e->pushed)
		check_wait(e->stream, "cudaEventSynchronize");
	wait_for(e, e->recorded);
	if (e->reached < e->recorded)
		hang_if_hung();
	return state();
}

/* ---- host functions ---- */

/* A thread does the work before a host function a little later: before any wait, or only after a query. */
enum { LATE_US = 1500 };

struct promise {
	cudaStream_t stream;
	bool kept;
};

static auto &promised = *new std::condition_variable_any();
static auto &promises = *new std::deque<promise *>();

static void keep_promises(void)
{
	uint32_t late = 2463534242u;
	std::unique_lock<std::recursive_mutex> held(cudasim_lock());
	for (;;) {
		promised.wait(held, [] { return !promises.empty(); });
		promise *x = promises.front();
		late = late * 1664525u + 1013904223u + cudasim_random();
		held.unlock();
		usleep((late >> 8) % LATE_US);
		held.lock();
		only_asking = true;
		while (!x->kept && !cudasim_hung()) {
			drain_to(x->stream, x->stream->queue.size() - 1);
			if (is_stuck(x->stream)) {
				held.unlock();
				usleep(LATE_US);
				held.lock();
			}
		}
		only_asking = false;
		if (cudasim_hung())
			return;
		promises.pop_front();
		delete x;
	}
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
	hold held(cudasim_lock());
	static bool started;
	if (cudasim_captured(s))
		cudasim_fail("a host function in a captured stream: it is not emulated");
	promise *x = new promise{s, false};
	cudasim_push(s, [fn, arg, x] {
		if (!cudasim_lost()) { /* a lost GPU calls none either */
			fn(arg);
			cudasim_counts.host_calls++;
		}
		x->kept = true;
	});
	s->queue.back().kind = work::TELL;
	promises.push_back(x);
	promised.notify_one();
	if (!started)
		std::thread(keep_promises).detach();
	started = true;
	return cudaSuccess;
}

/* ---- copies ---- */

static void check_copy(void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
	if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
		check_piece(dst, n, "the destination of a copy");
	else
		check_host(dst, "the destination of a copy");
	if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)
		check_piece(src, n, "the source of a copy");
	else
		check_host(src, "the source of a copy");
	if (kind == cudaMemcpyDefault)
		cudasim_fail("copies name their direction");
}

static void count_copy(cudaStream_t s, size_t n)
{
	if (s && cudasim_captured(s))
		return;
	cudasim_counts.copies++;
	cudasim_counts.copy_bytes += n;
	if (n > cudasim_counts.copy_bytes_most)
		cudasim_counts.copy_bytes_most = n;
}

/* Memory that is not pinned has been read, or has arrived, when the call returns, as on a GPU. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
	hold held(cudasim_lock());
	if (!n)
		return cudaSuccess;
	check_copy(dst, src, n, kind);
	count_copy(s, n);
	if ((kind == cudaMemcpyHostToDevice && !cudasim_is_pinned(src)) ||
	    (kind == cudaMemcpyDeviceToHost && !cudasim_is_pinned(dst))) {
		cudasim_counts.syncs++;
		cudaError_t e = cudasim_capture_forbids_on(s, "a copy of memory that is not pinned");
		if (e != cudaSuccess)
			return e;
		check_wait(s, "a copy of memory that is not pinned");
	}
	if (cudasim_is_idle)
		return cudaSuccess;
	if (kind == cudaMemcpyHostToDevice && !cudasim_is_pinned(src)) {
		std::string kept((const char *)src, n);
		cudasim_push(s, [dst, kept] { memcpy(dst, kept.data(), kept.size()); });
		return cudaSuccess;
	}
	cudasim_push(s, [dst, src, n] { memcpy(dst, src, n); });
	if (kind == cudaMemcpyDeviceToHost && !cudasim_is_pinned(dst))
		drain_to(s, 0);
	return cudaSuccess;
}

static void copy_now(void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
	check_copy(dst, src, n, kind);
	if (cudasim_is_idle)
		return;
	piece_open_at(dst, true);
	piece_open_at(src, true);
	memcpy(dst, src, n);
	piece_open_at(dst, false);
	piece_open_at(src, false);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaMemcpy");
	if (!n || e != cudaSuccess)
		return e;
	cudasim_counts.syncs++;
	count_copy(nullptr, n);
	check_wait_all("cudaMemcpy");
	drain_all();
	copy_now(dst, src, n, kind);
	return cudaSuccess;
}

void cudasim_group_copy(cudaStream_t s, void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
	hold held(cudasim_lock());
	drain_to(s, 0);
	copy_now(dst, src, n, kind);
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
	hold held(cudasim_lock());
	if (!n)
		return cudaSuccess;
	check_piece(p, n, "memset");
	count_copy(s, n);
	if (cudasim_is_idle)
		return cudaSuccess;
	cudasim_push(s, [p, v, n] { memset(p, v, n); });
	return cudaSuccess;
}

/* Return whether this is the first memset of a whole allocation, as cuda_mem_new() makes it. */
static bool is_fresh(void *p, size_t n)
{
	auto it = pieces.find((unsigned char *)p);
	if (it == pieces.end() || it->second.bytes != n || it->second.used)
		return false;
	return it->second.used = true;
}

cudaError_t cudaMemset(void *p, int v, size_t n)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaMemset");
	if (!n || e != cudaSuccess)
		return e;
	drain_all();
	check_piece(p, n, "memset");
	if (cudasim_is_idle)
		return cudaSuccess;
	piece_open_at(p, true);
	/* A fresh allocation is zero except for the ends that were filled. */
	if (v || !is_fresh(p, n))
		memset(p, v, n);
	else
		cudasim_fill((unsigned char *)p, n, 0);
	piece_open_at(p, false);
	return cudaSuccess;
}

/* ---- launches ---- */

static bool next_is_early;

void cudasim_enqueue_early(bool early, cudaStream_t s, const void *kernel, dim3 grid, dim3 block, size_t smem,
			   std::function<void()> body)
{
	hold held(cudasim_lock());
	next_is_early = early;
	cudasim_enqueue(s, "an early launch", kernel, grid, block, smem, std::move(body));
	next_is_early = false;
}

void cudasim_enqueue(cudaStream_t s, const char *name, const void *kernel, dim3 grid, dim3 block, size_t smem,
		     std::function<void()> body)
{
	hold held(cudasim_lock());
	auto it = smem_allowed.find(kernel);
	cudaError_t e =
		cudasim_launch_check(grid, block, smem, it == smem_allowed.end() ? 0 : (size_t)it->second);
	if (e != cudaSuccess) {
		sticky = e;
		return;
	}
	if (on_launch) {
		auto carveout = carveouts.find(kernel);
		const struct cudasim_launched l = {
			kernel,
			name,
			{grid.x, grid.y, grid.z},
			block.x,
			smem,
			carveout == carveouts.end() ? (int)cudaSharedmemCarveoutDefault : carveout->second};
		on_launch(&l);
	}
	launched[kernel] = 1;
	cudasim_counts.launched += !cudasim_captured(s);
	cudasim_counts.kernels = launched.size();
	if (!cudasim_is_idle)
		cudasim_push(s, [=, early = next_is_early] {
			race_depends(s, early);
			cudasim_run(name, grid, block, smem, body);
		});
}

cudaError_t cudasim_func_set(const void *kernel, cudaFuncAttribute what, int value)
{
	hold held(cudasim_lock());
	if (what == cudaFuncAttributePreferredSharedMemoryCarveout) {
		if (value < cudaSharedmemCarveoutDefault || value > cudaSharedmemCarveoutMaxShared)
			return sticky = cudaErrorInvalidValue;
		carveouts[kernel] = value;
		return cudaSuccess;
	}
	if (value < 0 || value > 227 << 10)
		return sticky = cudaErrorInvalidValue;
	smem_allowed[kernel] = value;
	return cudaSuccess;
}

/* ---- the device ---- */

cudaError_t cudaMemGetInfo(size_t *free_now, size_t *total)
{
	hold held(cudasim_lock());
	*free_now = device_free();
	*total = device_total;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	hold held(cudasim_lock());
	cudaError_t e = state();
	sticky = cudaSuccess;
	return e;
}

cudaError_t cudaPeekAtLastError(void)
{
	hold held(cudasim_lock());
	return state();
}

struct cudasim_counters cudasim_stats(void)
{
	hold held(cudasim_lock());
	return cudasim_counts;
}

void cudasim_count_again(void)
{
	hold held(cudasim_lock());
	auto &c = cudasim_counts;
	c.launched = c.graph_nodes = c.copies = c.copy_bytes = c.copy_bytes_most = c.syncs = c.mapped_bytes =
		0;
}
