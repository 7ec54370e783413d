/* race_impl.h - what the detector remembers: of race.cc and race_async.cc. */
#ifndef QUERN_TESTS_CUDASIM_RACE_IMPL_H
#define QUERN_TESTS_CUDASIM_RACE_IMPL_H

#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/cudasim/mem.h"
#include "tests/cudasim/race.h"
#include "tests/cudasim/sim.h"

enum {
	RACE_THREADS = 1024,
	RACE_LANES = 32,
	RACE_WARPS = RACE_THREADS / RACE_LANES,
	RACE_MBARS = 128,
	/* What makes accesses: threads, and for each mbarrier the bulk copies that complete on it. */
	RACE_AGENTS = RACE_THREADS + RACE_MBARS,
	RACE_FENCES = 8, /* proxy fences remembered of a thread: one that fits suffices */
};

/* An access to a byte. */
struct touch {
	uint32_t when = 0; /* the launch, of device memory, or the block, of shared memory; 0: never */
	uint32_t block = 0;
	uint32_t epoch = 0, own = 0; /* of its warp and of its agent */
	uint16_t agent = 0;
	bool atomic = false;
	bool pending = false; /* a copy that is under way */
	bool async = false;   /* by the async proxy */
};

struct shared_cell {
	touch write, reads[2];    /* the reads are of two warps, the last in front */
	uint32_t when = 0;        /* the block that the rest is of */
	uint16_t async_reads = 0; /* under way */
	bool mbar = false;        /* of a valid mbarrier */
};

/* Accesses that are ordered before: of a warp before an epoch, of an agent before its own. */
struct knowledge {
	uint32_t vc[RACE_WARPS];
	uint32_t own[RACE_AGENTS];
};

/* What a block's atomic made known to those that come to the same address later. */
struct release {
	uint32_t vc[RACE_WARPS];
	std::vector<uint32_t> own;
};

typedef std::unordered_map<uint32_t, release> releases; /* by block */

struct proxy_fence {
	touch at;
	unsigned spaces;
	uint32_t acquired; /* n_acquired of that time */
};

struct mbar_order {
	int slot;
	touch init;
	knowledge arrived, done; /* what arrivals released; and by the last completed phase */
};

/* A block that is resident. */
struct resident {
	int slot;
	uint32_t serial; /* differs from that of all other blocks */
	uint32_t block;
	int n;
	unsigned char *smem;
	size_t smem_bytes;
	uint32_t vc[RACE_WARPS][RACE_WARPS];
	uint32_t own[RACE_AGENTS];
	/* Of each thread: fences so far, and what it knew at the last one. */
	touch fence[RACE_THREADS];
	uint32_t fence_vc[RACE_THREADS][RACE_WARPS];
	std::unique_ptr<knowledge> fence_known[RACE_THREADS]; /* the same, by mbarriers */
	bool fenced;
	releases acquired;
	uint32_t n_acquired;
	std::vector<shared_cell> shared;
	/* Of blocks that use mbarriers: what is known beyond vc. */
	bool by_mbar;
	uint32_t warp_own[RACE_WARPS][RACE_AGENTS];
	std::unique_ptr<knowledge> lane[RACE_THREADS]; /* since its warp last met */
	bool lane_has[RACE_THREADS];
	std::unordered_map<const void *, mbar_order> mbars;
	int n_slots;
	proxy_fence proxy[RACE_THREADS][RACE_FENCES];
	uint32_t n_proxy[RACE_THREADS];
};
extern struct resident *race_resident; /* of the thread that runs */

struct race_device {
	uint32_t launch, blocks;                       /* count up */
	std::unordered_map<const void *, releases> at; /* by address, of this launch */
	std::unordered_map<uintptr_t, std::unique_ptr<touch[]>> pages;
	uintptr_t page;
	touch *cells; /* of `page` */
};
extern struct race_device race_device;

/* What thread t does now, in a launch or a block. */
static inline touch race_now(int t, uint32_t when)
{
	touch a;
	a.when = when;
	a.block = race_resident->block;
	a.epoch = race_resident->vc[t / RACE_LANES][t / RACE_LANES];
	a.own = race_resident->own[t];
	a.agent = (uint16_t)t;
	return a;
}

bool race_known_by_mbar(const touch &a, int t);
/* What thread t knows, into k. */
void race_known(int t, knowledge *k);

/* Of the same block: did it happen before what thread t does now? */
static inline bool race_is_before(const touch &a, int t)
{
	if (a.agent == t)
		return true;
	if (a.agent < RACE_THREADS && a.epoch < race_resident->vc[t / RACE_LANES][a.agent / RACE_LANES])
		return true;
	return race_resident->by_mbar && race_known_by_mbar(a, t);
}

static inline bool race_is_shared(const void *p)
{
	return (const unsigned char *)p >= race_resident->smem &&
	       (const unsigned char *)p < race_resident->smem + race_resident->smem_bytes;
}

shared_cell *race_cell(const void *p); /* of shared memory */
/* What the lanes of a warp know becomes their warp's; what warps know becomes that of all that came. */
void race_meet(int warp);
void race_share(const bool *came);
void race_async_block(void); /* a block begins */

void race_shared_access(shared_cell &c, const void *p, int t, bool writes, bool atomic);
void race_device_access(const void *p, size_t n, int t, bool writes, bool atomic);
touch *race_device_cell(uintptr_t p, bool make); /* NULL: nothing was written there */

[[noreturn]] void race_report(const char *what, const void *p, const touch &a);

#endif
