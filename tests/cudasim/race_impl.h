/* race_impl.h - state of the race detector, shared by race.cc and race_async.cc. */
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
	/* Agents make accesses: threads, and for each mbarrier the bulk copies that complete on it. */
	RACE_AGENTS = RACE_THREADS + RACE_MBARS,
	RACE_FENCES = 8, /* latest proxy fences kept per thread; one that applies is enough */
};

/* An access to a byte. */
struct touch {
	uint32_t when = 0; /* launch (device) or block (shared memory); 0: none */
	uint32_t block = 0;
	uint32_t epoch = 0, own = 0; /* clocks of the agent's warp and of the agent itself */
	uint16_t agent = 0;
	bool atomic = false;
	bool pending = false; /* a copy in flight */
	bool async = false;   /* by the async proxy */
};

struct shared_cell {
	touch write, reads[2];    /* the reads are by two warps, the latest first */
	uint32_t when = 0;        /* block that the other fields belong to */
	uint16_t async_reads = 0; /* async reads in flight */
	bool mbar = false;        /* part of a valid mbarrier */
};

/* Accesses known to have happened before: per warp those before an epoch, per agent those before its own
 * clock. */
struct knowledge {
	uint32_t vc[RACE_WARPS];
	uint32_t own[RACE_AGENTS];
};

/* Knowledge that a block's atomic passes to later users of the same address. */
struct release {
	uint32_t vc[RACE_WARPS];
	std::vector<uint32_t> own;
};

typedef std::unordered_map<uint32_t, release> releases; /* by block */

struct proxy_fence {
	touch at;
	unsigned spaces;
	uint32_t acquired; /* value of n_acquired at the fence */
};

struct mbar_order {
	int slot;
	touch init;
	knowledge arrived, done; /* knowledge released by arrivals, and by the last completed phase */
};

/* A resident block. */
struct resident {
	int slot;
	uint32_t serial; /* unique over all blocks */
	uint32_t block;
	int n;
	unsigned char *smem;
	size_t smem_bytes;
	uint32_t vc[RACE_WARPS][RACE_WARPS];
	uint32_t own[RACE_AGENTS];
	/* Per thread: fences so far, and its knowledge at the last one. */
	touch fence[RACE_THREADS];
	uint32_t fence_vc[RACE_THREADS][RACE_WARPS];
	std::unique_ptr<knowledge> fence_known[RACE_THREADS]; /* knowledge by mbarriers at the last fence */
	bool fenced;
	releases acquired;
	uint32_t n_acquired;
	std::vector<shared_cell> shared;
	/* For blocks that use mbarriers: knowledge beyond vc. */
	bool by_mbar;
	uint32_t warp_own[RACE_WARPS][RACE_AGENTS];
	std::unique_ptr<knowledge> lane[RACE_THREADS]; /* gained since its warp last synchronized */
	bool lane_has[RACE_THREADS];
	std::unordered_map<const void *, mbar_order> mbars;
	int n_slots;
	proxy_fence proxy[RACE_THREADS][RACE_FENCES];
	uint32_t n_proxy[RACE_THREADS];
};
extern struct resident *race_resident; /* the running thread's */

struct race_device {
	uint32_t launch, blocks;                       /* counters */
	std::unordered_map<const void *, releases> at; /* by address, for this launch */
	std::unordered_map<uintptr_t, std::unique_ptr<touch[]>> pages;
	uintptr_t page;
	touch *cells; /* cells of `page` */
};
extern struct race_device race_device;

/* Return thread t's current time, as an access within launch or block `when`. */
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
/* Set k to thread t's knowledge. */
void race_known(int t, knowledge *k);

/* Return whether access a of the same block happened before thread t's current time. */
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

shared_cell *race_cell(const void *p); /* cell of a byte of shared memory */
/* race_meet: merge the lanes' knowledge into their warp's.  race_share: merge the knowledge of the warps that
 * reached a barrier into each of them. */
void race_meet(int warp);
void race_share(const bool *came);
void race_async_block(void); /* a block begins */

void race_shared_access(shared_cell &c, const void *p, int t, bool writes, bool atomic);
void race_device_access(const void *p, size_t n, int t, bool writes, bool atomic);
touch *race_device_cell(uintptr_t p, bool make); /* NULL: no write there was recorded */

[[noreturn]] void race_report(const char *what, const void *p, const touch &a);

#endif
