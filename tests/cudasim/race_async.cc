/* race_async.cc - mbarriers and the async proxy: see race.h. */
#include "tests/cudasim/race.h"

#ifdef CUDASIM_RACE

#include <algorithm>
#include <string.h>

#include "tests/cudasim/dependent.h"
#include "tests/cudasim/race_impl.h"

static auto *&r = race_resident;
static auto &g = race_device;

/* ---- knowledge by mbarriers ---- */

static void raise(uint32_t *to, const uint32_t *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = std::max(to[i], from[i]);
}

/* Raise the clocks of all agents in use. */
static void raise_own(uint32_t *to, const uint32_t *from)
{
	raise(to, from, r->n);
	raise(to + RACE_THREADS, from + RACE_THREADS, r->n_slots);
}

bool race_known_by_mbar(const touch &a, int t)
{
	if (a.own < r->warp_own[t / RACE_LANES][a.agent])
		return true;
	if (!r->lane_has[t])
		return false;
	const knowledge &k = *r->lane[t];
	return a.own < k.own[a.agent] || (a.agent < RACE_THREADS && a.epoch < k.vc[a.agent / RACE_LANES]);
}

void race_known(int t, knowledge *k)
{
	memcpy(k->vc, r->vc[t / RACE_LANES], sizeof k->vc);
	memcpy(k->own, r->warp_own[t / RACE_LANES], sizeof k->own);
	if (r->lane_has[t]) {
		raise(k->vc, r->lane[t]->vc, RACE_WARPS);
		raise_own(k->own, r->lane[t]->own);
	}
}

static void learn(int t, const knowledge &k)
{
	if (!r->lane[t])
		r->lane[t].reset(new knowledge());
	if (!r->lane_has[t])
		memset(r->lane[t].get(), 0, sizeof(knowledge));
	r->lane_has[t] = true;
	raise(r->lane[t]->vc, k.vc, RACE_WARPS);
	raise_own(r->lane[t]->own, k.own);
}

void race_meet(int warp)
{
	for (int t = warp * RACE_LANES; t < (warp + 1) * RACE_LANES && t < r->n; t++)
		if (r->lane_has[t]) {
			raise(r->vc[warp], r->lane[t]->vc, RACE_WARPS);
			raise_own(r->warp_own[warp], r->lane[t]->own);
			r->lane_has[t] = false;
		}
}

void race_share(const bool *came)
{
	static uint32_t joined[RACE_AGENTS];
	memset(joined, 0, sizeof joined);
	for (int w = 0; w < RACE_WARPS; w++)
		if (came[w])
			raise_own(joined, r->warp_own[w]);
	for (int w = 0; w < RACE_WARPS; w++)
		if (came[w])
			raise_own(r->warp_own[w], joined);
}

/* ---- mbarriers ---- */

static void renew(shared_cell &c)
{
	if (c.when == r->serial)
		return;
	c.when = r->serial;
	c.async_reads = 0;
	c.mbar = false;
}

static void mark(const void *bar, bool is)
{
	for (shared_cell *c = race_cell(bar), *end = c + 8; c < end; c++) {
		renew(*c);
		c->mbar = is;
	}
}

static mbar_order &order_of(const void *bar)
{
	return r->mbars.find(bar)->second;
}

static void access_mbar(const void *bar, bool atomic)
{
	for (shared_cell *c = race_cell(bar), *end = c + 8; c < end; c++)
		race_shared_access(*c, bar, cudasim_thread(), true, atomic);
}

void race_mbar_init(const void *bar)
{
	if (!r->by_mbar) {
		r->by_mbar = true;
		memset(r->warp_own, 0, sizeof r->warp_own);
		memset(r->lane_has, 0, sizeof r->lane_has);
	}
	access_mbar(bar, false);
	if (r->n_slots == RACE_MBARS)
		cudasim_fail("more than %d initializations of mbarriers in a block", RACE_MBARS);
	mbar_order &m = r->mbars[bar];
	memset((void *)&m.arrived, 0, sizeof m.arrived);
	memset((void *)&m.done, 0, sizeof m.done);
	m.slot = r->n_slots++;
	m.init = race_now(cudasim_thread(), r->serial);
	r->own[RACE_THREADS + m.slot] = 0;
	mark(bar, true);
}

void race_mbar_inval(const void *bar)
{
	access_mbar(bar, false);
	mark(bar, false);
	r->mbars.erase(bar);
}

void race_mbar_op(const void *bar)
{
	const mbar_order &m = order_of(bar);
	if (!race_is_before(m.init, cudasim_thread()))
		race_report("an mbarrier is used, initialized by", bar, m.init);
	access_mbar(bar, true);
}

void race_mbar_arrive(const void *bar)
{
	const int t = cudasim_thread();
	static knowledge k;
	race_known(t, &k);
	k.own[t] = ++r->own[t]; /* later accesses are not released */
	mbar_order &m = order_of(bar);
	raise(m.arrived.vc, k.vc, RACE_WARPS);
	raise_own(m.arrived.own, k.own);
}

void race_mbar_phase(const void *bar)
{
	mbar_order &m = order_of(bar);
	uint32_t &copies = r->own[RACE_THREADS + m.slot];
	m.arrived.own[RACE_THREADS + m.slot] = ++copies;
	m.done = m.arrived;
}

void race_mbar_acquire(const void *bar)
{
	learn(cudasim_thread(), order_of(bar).done);
}

/* ---- the async proxy ---- */

void race_fence_proxy(unsigned spaces)
{
	const int t = cudasim_thread();
	if (t < 0)
		return;
	r->own[t]++;
	proxy_fence &f = r->proxy[t][r->n_proxy[t]++ % RACE_FENCES];
	f.at = race_now(t, r->serial);
	f.spaces = spaces;
	f.acquired = r->n_acquired;
}

/* Return whether the thread that made access a fenced it before thread t's current access.  (The memory model
 * allows a fence anywhere between the two accesses; NVIDIA documents and ships the writer's fence.) */
static bool is_fenced(const touch &a, int t, unsigned space)
{
	const int n = std::min((int)r->n_proxy[a.agent], (int)RACE_FENCES);
	for (int i = 0; i < n; i++) {
		const proxy_fence &f = r->proxy[a.agent][i];
		if ((f.spaces & space) && f.at.own > a.own && race_is_before(f.at, t))
			return true;
	}
	return false;
}

/* Return whether thread t has fenced since it last acquired data that another block wrote and released. */
static bool is_fenced_here(int t)
{
	const int n = std::min((int)r->n_proxy[t], (int)RACE_FENCES);
	for (int i = 0; i < n; i++)
		if ((r->proxy[t][i].spaces & RACE_GLOBAL) && r->proxy[t][i].acquired == r->n_acquired)
			return true;
	return false;
}

static void check_proxy(const touch &a, const void *p, int t, unsigned space)
{
	const bool here = space == RACE_SHARED || a.block == r->block;
	if (!a.async && !(here ? is_fenced(a, t, space) : is_fenced_here(t)))
		race_report("no proxy fence before the async proxy comes, after a write by", p, a);
}

void race_mbar_bulk(const void *bar)
{
	const mbar_order &m = order_of(bar);
	if (!is_fenced(m.init, cudasim_thread(), RACE_SHARED))
		race_report("no proxy fence before a bulk copy uses the mbarrier initialized by", bar,
			    m.init);
}

void race_async_read(const void *p, size_t n, int t)
{
	if (!race_is_shared(p)) {
		race_device_access(p, n, t, false, false);
		for (uintptr_t q = (uintptr_t)p; q < (uintptr_t)p + n; q++) {
			const touch *c = race_device_cell(q, false);
			if (c && c->when == g.launch)
				check_proxy(*c, p, t, RACE_GLOBAL);
		}
		return;
	}
	for (shared_cell *c = race_cell(p), *end = c + n; c < end; c++) {
		race_shared_access(*c, p, t, false, false);
		if (c->write.when == r->serial)
			check_proxy(c->write, p, t, RACE_SHARED);
		renew(*c);
		c->async_reads++;
	}
}

void race_async_read_done(const void *p, size_t n, int t)
{
	for (shared_cell *c = race_cell(p), *end = c + n; c < end; c++) {
		c->async_reads--;
		race_shared_access(*c, p, t, false, false);
	}
}

void race_async_write(const void *p, size_t n, int t)
{
	if (!race_is_shared(p)) {
		for (uintptr_t q = (uintptr_t)p; q < (uintptr_t)p + n; q++) {
			touch *c = race_device_cell(q, true);
			if (c->when == g.launch)
				check_proxy(*c, p, t, RACE_GLOBAL);
		}
		race_device_access(p, n, t, true, false);
		for (uintptr_t q = (uintptr_t)p; q < (uintptr_t)p + n; q++) {
			touch *c = race_device_cell(q, true);
			c->pending = c->async = true;
		}
		return;
	}
	for (shared_cell *c = race_cell(p), *end = c + n; c < end; c++) {
		const touch was = c->write;
		race_shared_access(*c, p, t, true, false);
		if (was.when == r->serial)
			check_proxy(was, p, t, RACE_SHARED);
		c->write.pending = c->write.async = true;
	}
}

void race_async_write_done(const void *p, size_t n, int t)
{
	for (uintptr_t q = (uintptr_t)p; q < (uintptr_t)p + n; q++) {
		touch *c = race_device_cell(q, true);
		*c = race_now(t, g.launch);
		c->async = true;
	}
}

void race_async_landed(const void *p, size_t n, const void *bar)
{
	const int agent = RACE_THREADS + order_of(bar).slot;
	for (shared_cell *c = race_cell(p), *end = c + n; c < end; c++) {
		touch a;
		a.when = r->serial;
		a.own = r->own[agent];
		a.agent = (uint16_t)agent;
		a.async = true;
		c->write = a;
	}
}

/* ---- dependent launches ---- */

/* State of a stream. */
struct chain {
	uint64_t ops = 0, at = 0; /* operations so far; operation of the last launch */
	uint32_t launch = 0;
	std::vector<uint32_t> at_start,
		at_wait; /* launches that may still run, before and after its wait; ascending */
	bool early = false, waited = false;
};

static std::unordered_map<const void *, chain> chains;
static chain *chain_now;
/* For resident blocks: the threads that have waited, and when. */
static std::vector<bool> has[CUDASIM_RESIDENT_MAX];
static std::vector<touch> waits[CUDASIM_RESIDENT_MAX];

void race_stream_op(const void *stream)
{
	if (stream)
		chains[stream].ops++;
	else
		for (auto &it : chains)
			it.second.ops += 2;
}

void race_depends(const void *stream, bool early)
{
	chain &c = chains[stream];
	c.early = early && c.launch && c.at + 1 == c.ops;
	if (c.early) {
		if (!c.waited)
			c.at_wait = c.at_start;
		c.at_start.push_back(c.launch);
	} else {
		c.at_start.clear();
		c.at_wait.clear();
	}
	c.waited = false;
	c.at = c.ops;
	c.launch = g.launch + 1;
	chain_now = &c;
}

bool race_is_early(void)
{
	return chain_now && chain_now->early;
}

void race_grid_wait(void)
{
	const int t = cudasim_thread();
	if (t < 0 || !race_is_early())
		return;
	chain_now->waited = true;
	has[r->slot][(size_t)t] = true;
	waits[r->slot].push_back(race_now(t, r->serial));
}

/* Return whether thread t has waited, or comes after a thread that has. */
static bool has_waited(int t)
{
	std::vector<bool> &mine = has[r->slot];
	for (size_t i = 0; !mine[(size_t)t] && i < waits[r->slot].size(); i++)
		mine[(size_t)t] = race_is_before(waits[r->slot][i], t);
	return mine[(size_t)t];
}

void race_check_early(const void *p, uint32_t launch, int t, bool writes)
{
	const bool behind = has_waited(t);
	const std::vector<uint32_t> &open = behind ? chain_now->at_wait : chain_now->at_start;
	if (writes && !behind)
		cudasim_fail("a store to %p before the wait for the launches before this one", p);
	if (launch && std::binary_search(open.begin(), open.end(), launch))
		cudasim_fail("%s of %p, which launch %u wrote, %s", writes ? "a store" : "a load", p, launch,
			     behind ? "and the launch before this one did not wait for it"
				    : "before the wait for it");
}

void race_async_block(void)
{
	if (race_is_early()) {
		has[r->slot].assign(RACE_THREADS, false);
		waits[r->slot].clear();
	}
	r->by_mbar = false;
	r->mbars.clear();
	r->n_slots = 0;
	memset(r->n_proxy, 0, sizeof r->n_proxy);
}

#endif
