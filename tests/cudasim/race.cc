/* race.cc - see race.h. */
#include "tests/cudasim/race.h"

#ifdef CUDASIM_RACE

#include <algorithm>
#include <memory>
#include <string.h>
#include <unordered_map>
#include <vector>

#include "tests/cudasim/mem.h"
#include "tests/cudasim/sim.h"

enum { THREADS_MAX = 1024, LANES = 32, WARPS_MAX = THREADS_MAX / LANES, PAGE = 4096, GRAIN = 2 };

/* An access to GRAIN bytes. */
struct touch {
	uint32_t when = 0; /* the launch, of device memory, or the block, of shared memory; 0: never */
	uint32_t block = 0;
	uint32_t warp_epoch = 0, lane_epoch = 0, own = 0;
	uint16_t thread = 0;
	bool atomic = false;
	bool pending = false; /* a copy that is under way */
};

struct shared_cell {
	touch write, reads[2]; /* the reads are of two warps, the last in front */
};

/* What a block's atomic made known to those that come to the same address later. */
struct release {
	uint32_t vc[WARPS_MAX];    /* accesses of a warp before this epoch */
	std::vector<uint32_t> own; /* accesses of a thread before its fence */
};

typedef std::unordered_map<uint32_t, release> releases; /* by block */

/* A block that is resident. */
struct resident {
	uint32_t serial; /* differs from that of all other blocks */
	uint32_t block;
	int n;
	unsigned char *smem;
	size_t smem_bytes;
	uint32_t vc[WARPS_MAX][WARPS_MAX];
	uint32_t lane_epoch[WARPS_MAX];
	/* Of each thread: fences so far, and what it knew at the last one. */
	uint32_t own[THREADS_MAX];
	touch fence[THREADS_MAX];
	uint32_t fence_vc[THREADS_MAX][WARPS_MAX];
	bool fenced;
	releases acquired;
	std::vector<shared_cell> shared;
};

static resident slots[CUDASIM_RESIDENT_MAX];
static resident *r = slots; /* of the thread that runs */

static struct {
	uint32_t launch, blocks;                       /* count up */
	std::unordered_map<const void *, releases> at; /* by address, of this launch */
	std::unordered_map<uintptr_t, std::unique_ptr<touch[]>> pages;
	uintptr_t page;
	touch *cells; /* of `page` */
} g;

/* ---- order ---- */

static inline touch now(int t, uint32_t when)
{
	touch a;
	a.when = when;
	a.block = r->block;
	a.warp_epoch = r->vc[t / LANES][t / LANES];
	a.lane_epoch = r->lane_epoch[t / LANES];
	a.own = r->own[t];
	a.thread = (uint16_t)t;
	return a;
}

/* Of the same block: did it happen before what thread t does now? */
static inline bool is_before(const touch &a, int t)
{
	const int w = t / LANES, v = a.thread / LANES;
	if (a.thread == t)
		return true;
	if (v == w)
		return a.lane_epoch != r->lane_epoch[w] || a.warp_epoch < r->vc[w][w];
	return a.warp_epoch < r->vc[w][v];
}

static bool is_acquired(const touch &a)
{
	auto it = r->acquired.find(a.block);
	return it != r->acquired.end() &&
	       (a.warp_epoch < it->second.vc[a.thread / LANES] || a.own < it->second.own[a.thread]);
}

[[noreturn]] static void report(const char *what, const void *p, const touch &a)
{
	const unsigned char *q = (const unsigned char *)p;
	if (q >= r->smem && q < r->smem + r->smem_bytes)
		cudasim_fail("race at %td in shared memory: %s thread %d", q - r->smem, what, a.thread);
	cudasim_fail("race at device address %p: %s thread %d of block %u", p, what, a.thread, a.block);
}

/* ---- shared memory ---- */

/* Whether an access of an earlier block lies there: it counts as none. */
static inline bool is_old(const touch &a)
{
	return a.when != r->serial;
}

static void shared_access(shared_cell &c, const void *p, int t, bool writes, bool atomic)
{
	if (!is_old(c.write)) {
		if (c.write.pending)
			report("the copy there is not waited for, begun by", p, c.write);
		if (!(atomic && c.write.atomic) && !is_before(c.write, t))
			report(writes ? "written, and before by" : "read, written by", p, c.write);
	}
	for (int i = 0; writes && i < 2; i++)
		if (!is_old(c.reads[i]) && !is_before(c.reads[i], t))
			report("written, read by", p, c.reads[i]);
	if (writes) {
		c.write = now(t, r->serial);
		c.write.atomic = atomic;
		return;
	}
	if (!is_old(c.reads[0]) && c.reads[0].thread / LANES != t / LANES)
		c.reads[1] = c.reads[0];
	c.reads[0] = now(t, r->serial);
}

/* The cells of n bytes at p. */
static shared_cell *cells_begin(const void *p)
{
	return &r->shared[(size_t)((const unsigned char *)p - r->smem) / GRAIN];
}

static shared_cell *cells_end(const void *p, size_t n)
{
	return cells_begin((const unsigned char *)p + n - 1) + 1;
}

void race_copy_begin(const void *dst, size_t n)
{
	for (shared_cell *c = cells_begin(dst); c < cells_end(dst, n); c++) {
		shared_access(*c, dst, cudasim_thread(), true, false);
		c->write.pending = true;
	}
}

void race_copy_done(const void *dst, size_t n)
{
	for (shared_cell *c = cells_begin(dst); c < cells_end(dst, n); c++)
		c->write = now(cudasim_thread(), r->serial);
}

/* ---- device memory ---- */

/* NULL: nothing was written on its page, and nothing will be. */
static touch *cell_at(uintptr_t p, bool make)
{
	const uintptr_t page = p / PAGE;
	if (page != g.page || !g.cells) {
		auto &found = g.pages[page];
		if (!found && make)
			found.reset(new touch[PAGE / GRAIN]);
		g.page = page;
		g.cells = found.get();
	}
	return g.cells ? g.cells + p % PAGE / GRAIN : nullptr;
}

static void device_access(const void *p, size_t n, int t, bool writes, bool atomic)
{
	const uintptr_t end = (uintptr_t)p + n;
	for (uintptr_t q = (uintptr_t)p & ~(uintptr_t)(GRAIN - 1); q < end; q += GRAIN) {
		touch *c = cell_at(q, writes);
		if (!c)
			continue;
		const bool old = c->when != g.launch, mine = c->block == r->block;
		if (!old && !(atomic && c->atomic) && !(mine ? is_before(*c, t) : is_acquired(*c)))
			report(writes ? "written, and before by" : "read, written by", p, *c);
		if (!writes)
			continue;
		*c = now(t, g.launch);
		c->atomic = atomic;
	}
}

/* ---- one access ---- */

static inline bool is_shared(const void *p)
{
	return (const unsigned char *)p >= r->smem && (const unsigned char *)p < r->smem + r->smem_bytes;
}

static void any_access(const void *p, size_t n, bool writes, bool atomic)
{
	const int t = cudasim_thread();
	if (t < 0)
		return;
	if (!is_shared(p)) {
		if (cudasim_is_device(p))
			device_access(p, n, t, writes, atomic);
		else if (cudasim_is_view(p))
			cudasim_fail("a kernel %s %p, the host's address of mapped memory",
				     writes ? "writes to" : "reads", p);
		return;
	}
	shared_cell *const end = cells_end(p, n);
	for (shared_cell *c = cells_begin(p); c < end; c++)
		shared_access(*c, p, t, writes, atomic);
}

void race_read(const void *p, size_t n)
{
	any_access(p, n, false, false);
}

void race_write(const void *p, size_t n)
{
	any_access(p, n, true, false);
}

/* ---- fences and atomics ---- */

void race_fence(void)
{
	const int t = cudasim_thread();
	if (t < 0)
		return;
	r->fenced = true;
	r->fence[t] = now(t, r->serial);
	r->own[t]++;
	memcpy(r->fence_vc[t], r->vc[t / LANES], sizeof r->fence_vc[t]);
}

/* What thread t knows to be behind a fence: of its own, and of threads whose fence is before its atomic. */
static release released_by(int t)
{
	release out;
	memset(out.vc, 0, sizeof out.vc);
	out.own.resize(THREADS_MAX);
	for (int o = 0; o < r->n; o++)
		if (!is_old(r->fence[o]) && is_before(r->fence[o], t))
			out.own[(size_t)o] = r->fence[o].own + 1;
	if (!is_old(r->fence[t]))
		memcpy(out.vc, r->fence_vc[t], sizeof out.vc);
	return out;
}

void race_atomic(const void *p, size_t n)
{
	const int t = cudasim_thread();
	if (t >= 0 && cudasim_is_device(p)) {
		releases &here = g.at[p];
		for (auto &it : here)
			r->acquired[it.first] = it.second;
		if (r->fenced)
			here[r->block] = released_by(t);
	}
	any_access(p, n, true, true);
}

/* ---- what the emulator tells ---- */

void race_launch(void)
{
	g.launch++;
	g.at.clear();
}

void race_enter(int slot)
{
	r = &slots[slot];
}

void race_block(int slot, uint64_t block, int n_threads, unsigned char *smem, size_t bytes)
{
	race_enter(slot);
	r->serial = ++g.blocks;
	r->block = (uint32_t)block;
	r->n = n_threads;
	r->smem = smem;
	r->smem_bytes = bytes;
	if (r->shared.size() < bytes / GRAIN + 1)
		r->shared.resize(bytes / GRAIN + 1);
	memset(r->vc, 0, sizeof r->vc);
	memset(r->lane_epoch, 0, sizeof r->lane_epoch);
	memset(r->own, 0, sizeof r->own);
	for (int w = 0; w < WARPS_MAX; w++)
		r->vc[w][w] = 1;
	r->fenced = false;
	r->acquired.clear();
}

void race_barrier(const int *threads, int n)
{
	uint32_t joined[WARPS_MAX] = {0};
	bool came[WARPS_MAX] = {false};
	for (int i = 0; i < n; i++)
		came[threads[i] / LANES] = true;
	for (int w = 0; w < WARPS_MAX; w++)
		if (came[w]) {
			r->vc[w][w]++;
			for (int v = 0; v < WARPS_MAX; v++)
				joined[v] = std::max(joined[v], r->vc[w][v]);
		}
	for (int w = 0; w < WARPS_MAX; w++)
		if (came[w])
			memcpy(r->vc[w], joined, sizeof joined);
}

void race_warp_sync(int warp)
{
	r->lane_epoch[warp]++;
}

/* ---- what the compiler calls ---- */

/* A pointer to a type of n bytes that is not aligned to it is an error on the device. */
static void aligned_access(const void *p, size_t n, bool writes)
{
	if (cudasim_thread() < 0)
		return;
	if ((uintptr_t)p % n && (is_shared(p) || cudasim_is_device(p)))
		cudasim_fail("%s of %zu bytes at %p, which is not aligned", writes ? "a store" : "a load", n,
			     p);
	any_access(p, n, writes, false);
}

#define HOOKS(n)                                                                                             \
	void __tsan_read##n(void *p)                                                                         \
	{                                                                                                    \
		aligned_access(p, n, false);                                                                 \
	}                                                                                                    \
	void __tsan_write##n(void *p)                                                                        \
	{                                                                                                    \
		aligned_access(p, n, true);                                                                  \
	}                                                                                                    \
	void __tsan_unaligned_read##n(void *p)                                                               \
	{                                                                                                    \
		race_read(p, n);                                                                             \
	}                                                                                                    \
	void __tsan_unaligned_write##n(void *p)                                                              \
	{                                                                                                    \
		race_write(p, n);                                                                            \
	}

extern "C" {
void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_read1(void *p);
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *p, size_t n)
{
	race_read(p, n);
}

void __tsan_write_range(void *p, size_t n)
{
	race_write(p, n);
}

void __tsan_vptr_update(void **, void *)
{
}

void __tsan_vptr_read(void **)
{
}

/* Host code of the table. */
int __tsan_atomic32_load(const volatile int *p, int)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

void __tsan_atomic32_store(volatile int *p, int v, int)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

char __tsan_atomic8_load(const volatile char *p, int)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
}

#endif
