/* race.cc - see race.h. */
#include "tests/cudasim/race.h"

#ifdef CUDASIM_RACE

#include <algorithm>
#include <string.h>

#include "tests/cudasim/dependent.h"
#include "tests/cudasim/race_impl.h"

enum { PAGE = 4096 };

static resident slots[CUDASIM_RESIDENT_MAX];
struct resident *race_resident = slots;
struct race_device race_device;
static auto *&r = race_resident;
static auto &g = race_device;

/* ---- order ---- */

static bool is_acquired(const touch &a)
{
	auto it = r->acquired.find(a.block);
	return it != r->acquired.end() &&
	       (a.epoch < it->second.vc[a.agent / RACE_LANES] || a.own < it->second.own[a.agent]);
}

void race_report(const char *what, const void *p, const touch &a)
{
	const unsigned char *q = (const unsigned char *)p;
	char by[32] = "a bulk copy";
	if (a.agent < RACE_THREADS)
		snprintf(by, sizeof by, "thread %d", a.agent);
	if (race_is_shared(p))
		cudasim_fail("race at %td in shared memory: %s %s", q - r->smem, what, by);
	cudasim_fail("race at device address %p: %s %s of block %u", p, what, by, a.block);
}

/* ---- shared memory ---- */

/* Return whether an access belongs to an earlier block and so does not count. */
static inline bool is_old(const touch &a)
{
	return a.when != r->serial;
}

static inline void shared_access(shared_cell &c, const void *p, int t, bool writes, bool atomic)
{
	if (!is_old(c.write)) {
		if (c.write.pending)
			race_report("the copy there is not waited for, begun by", p, c.write);
		if (!(atomic && c.write.atomic) && !race_is_before(c.write, t))
			race_report(writes ? "written, and before by" : "read, written by", p, c.write);
	}
	if (writes) {
		for (int i = 0; i < 2; i++)
			if (!is_old(c.reads[i]) && !race_is_before(c.reads[i], t))
				race_report("written, read by", p, c.reads[i]);
		if (c.when == r->serial && c.async_reads)
			race_report("written, and still read by the async proxy for", p, c.reads[0]);
		c.write = race_now(t, r->serial);
		c.write.atomic = atomic;
		return;
	}
	if (!is_old(c.reads[0]) && c.reads[0].agent / RACE_LANES != t / RACE_LANES)
		c.reads[1] = c.reads[0];
	c.reads[0] = race_now(t, r->serial);
}

void race_shared_access(shared_cell &c, const void *p, int t, bool writes, bool atomic)
{
	shared_access(c, p, t, writes, atomic);
}

shared_cell *race_cell(const void *p)
{
	return &r->shared[(size_t)((const unsigned char *)p - r->smem)];
}

void race_copy_begin(const void *dst, size_t n)
{
	for (shared_cell *c = race_cell(dst), *end = c + n; c < end; c++) {
		shared_access(*c, dst, cudasim_thread(), true, false);
		c->write.pending = true;
	}
}

void race_copy_done(const void *dst, size_t n)
{
	for (shared_cell *c = race_cell(dst), *end = c + n; c < end; c++)
		c->write = race_now(cudasim_thread(), r->serial);
}

/* ---- device memory ---- */

touch *race_device_cell(uintptr_t p, bool make)
{
	const uintptr_t page = p / PAGE;
	if (page != g.page || !g.cells) {
		auto &found = g.pages[page];
		if (!found && make)
			found.reset(new touch[PAGE]);
		g.page = page;
		g.cells = found.get();
	}
	return g.cells ? g.cells + p % PAGE : nullptr;
}

void race_device_access(const void *p, size_t n, int t, bool writes, bool atomic)
{
	const uintptr_t end = (uintptr_t)p + n;
	const bool early = race_is_early();
	for (uintptr_t q = (uintptr_t)p; q < end; q++) {
		touch *c = race_device_cell(q, writes);
		if (!c) {
			q |= PAGE - 1;
			continue;
		}
		if (early)
			race_check_early(p, c->when, t, writes);
		const bool old = c->when != g.launch, mine = c->block == r->block;
		if (!old && c->pending)
			race_report("the bulk store there is not waited for, begun by", p, *c);
		if (!old && !(atomic && c->atomic) && !(mine ? race_is_before(*c, t) : is_acquired(*c)))
			race_report(writes ? "written, and before by" : "read, written by", p, *c);
		if (!writes)
			continue;
		*c = race_now(t, g.launch);
		c->atomic = atomic;
	}
}

/* ---- one access ---- */

static void any_access(const void *p, size_t n, bool writes, bool atomic)
{
	const int t = cudasim_thread();
	if (t < 0)
		return;
	if (!race_is_shared(p)) {
		if (cudasim_is_device(p))
			race_device_access(p, n, t, writes, atomic);
		else if (cudasim_is_view(p))
			cudasim_fail("a kernel %s %p, the host's address of mapped memory",
				     writes ? "writes to" : "reads", p);
		return;
	}
	for (shared_cell *c = race_cell(p), *end = c + n; c < end; c++) {
		if (c->mbar && c->when == r->serial)
			cudasim_fail("%s at %td in shared memory, which is an mbarrier's",
				     writes ? "a store" : "a load", (const unsigned char *)p - r->smem);
		shared_access(*c, p, t, writes, atomic);
	}
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
	r->fence[t] = race_now(t, r->serial);
	r->own[t]++;
	memcpy(r->fence_vc[t], r->vc[t / RACE_LANES], sizeof r->fence_vc[t]);
	if (r->by_mbar) {
		if (!r->fence_known[t])
			r->fence_known[t].reset(new knowledge());
		race_known(t, r->fence_known[t].get());
	}
}

/* Return the accesses that thread t knows to be before a fence: its own, and those of threads whose fence is
 * before t's atomic. */
static release released_by(int t)
{
	release out;
	memset(out.vc, 0, sizeof out.vc);
	out.own.resize(RACE_THREADS);
	for (int o = 0; o < r->n; o++)
		if (!is_old(r->fence[o]) && race_is_before(r->fence[o], t))
			out.own[(size_t)o] = r->fence[o].own + 1;
	if (is_old(r->fence[t]))
		return out;
	memcpy(out.vc, r->fence_vc[t], sizeof out.vc);
	if (!r->by_mbar || !r->fence_known[t])
		return out;
	for (int w = 0; w < RACE_WARPS; w++)
		out.vc[w] = std::max(out.vc[w], r->fence_known[t]->vc[w]);
	for (int o = 0; o < r->n; o++)
		out.own[(size_t)o] = std::max(out.own[(size_t)o], r->fence_known[t]->own[o]);
	return out;
}

void race_atomic(const void *p, size_t n)
{
	const int t = cudasim_thread();
	if (t >= 0 && cudasim_is_device(p)) {
		releases &here = g.at[p];
		r->n_acquired += !here.empty();
		for (auto &it : here)
			r->acquired[it.first] = it.second;
		if (r->fenced)
			here[r->block] = released_by(t);
	}
	any_access(p, n, true, true);
}

/* ---- events from the emulator ---- */

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
	r->slot = slot;
	r->serial = ++g.blocks;
	r->block = (uint32_t)block;
	r->n = n_threads;
	r->smem = smem;
	r->smem_bytes = bytes;
	if (r->shared.size() < bytes)
		r->shared.resize(bytes);
	memset(r->vc, 0, sizeof r->vc);
	memset(r->own, 0, sizeof r->own);
	for (int w = 0; w < RACE_WARPS; w++)
		r->vc[w][w] = 1;
	r->fenced = false;
	r->acquired.clear();
	race_async_block();
}

void race_barrier(const int *threads, int n)
{
	uint32_t joined[RACE_WARPS] = {0};
	bool came[RACE_WARPS] = {false};
	for (int i = 0; i < n; i++)
		came[threads[i] / RACE_LANES] = true;
	for (int w = 0; w < RACE_WARPS; w++)
		if (came[w]) {
			race_warp_sync(w);
			for (int v = 0; v < RACE_WARPS; v++)
				joined[v] = std::max(joined[v], r->vc[w][v]);
		}
	for (int w = 0; w < RACE_WARPS; w++)
		if (came[w])
			memcpy(r->vc[w], joined, sizeof joined);
	if (r->by_mbar)
		race_share(came);
}

void race_warp_sync(int warp)
{
	r->vc[warp][warp]++;
	if (r->by_mbar)
		race_meet(warp);
}

/* ---- functions that the compiler calls ---- */

/* Check an access through a pointer to a type of n bytes: it must be aligned, as on the device. */
static void aligned_access(const void *p, size_t n, bool writes)
{
	if (cudasim_thread() < 0)
		return;
	if ((uintptr_t)p % n && (race_is_shared(p) || cudasim_is_device(p)))
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

/* Atomics of the table's host code. */
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
