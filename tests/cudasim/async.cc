/* async.cc - mbarriers and bulk copies of the emulated device: PTX ISA, "Parallel synchronization and
 * communication instructions: mbarrier" and "Data movement: asynchronous copy, bulk". */
#include "kernels/cuda/ptx_async.cuh"

#include <map>
#include <vector>

#include "tests/cudasim/mem.h"

enum {
	COUNT_MAX = (1 << 20) - 1, /* most arrivals; most bytes in flight, in either sign */
	PIECES_MAX = 4,            /* most pieces of a copy, which land at different times */
	UNIT = 16,                 /* bytes: sizes and addresses are multiples */
};

/* An mbarrier:
 *
 *   phase 0                      phase 1
 *   pending: count .. 0          pending: count .. 0
 *   tx: expected - arrived       tx: expected - arrived
 *
 * A phase is complete when nothing is pending and tx is 0; pending is then set to count again.  A wait for
 * parity p finds its phase complete if the current phase has the other parity. */
struct mbar {
	uint32_t count, pending;
	int32_t tx;
	uint32_t phase;
	uint32_t seen;   /* 1 + the last phase that a wait found complete */
	uint32_t landed; /* 1 + the last phase that a bulk copy landed in */
	int copies;      /* pieces of bulk copies to this mbarrier that have not landed */
	int waiting;     /* number of waiting threads */
};

enum state { ISSUED, READ, DONE };

struct bulk {
	bool load;
	unsigned char *dst;
	const unsigned char *src;
	uint32_t bytes;
	uint64_t *bar;
	int thread, group;    /* stores only */
	bool waited, read_ok; /* a wait was made for all of it; for its reads */
	struct piece {
		uint32_t at, n;
		state is;
		std::vector<unsigned char> kept; /* read but not yet written */
	} pieces[PIECES_MAX];
	int n_pieces;
};

/* State of a resident block. */
static struct slot {
	std::map<uint64_t *, mbar> mbars;
	std::vector<bulk> copies; /* in flight, or not waited for */
	int groups[1024];         /* per thread: groups committed */
	int open;                 /* pieces in flight */
} slots[CUDASIM_RESIDENT_MAX], *a = slots;
static std::vector<bulk> leaving; /* stores of blocks that have ended: read, not all written */
int cudasim_async_open;

static ptrdiff_t offset(const void *p)
{
	return (const unsigned char *)p - cudasim_smem();
}

/* ---- mbarriers ---- */

/* Return the contents of the 8 bytes, which show whether a store overwrote them. */
static uint64_t opaque(const mbar &m)
{
	uint64_t h = m.phase;
	for (uint64_t v : {(uint64_t)m.count, (uint64_t)m.pending, (uint64_t)(uint32_t)m.tx})
		h = (h ^ v) * 0x9E3779B97F4A7C15u + 0x5A;
	return h;
}

static mbar &mbar_of(uint64_t *bar, const char *what)
{
	cudasim_check_smem(bar, 8, 8, what);
	auto it = a->mbars.find(bar);
	if (it == a->mbars.end())
		cudasim_fail("%s: the mbarrier at %td was not initialized", what, offset(bar));
	race_mbar_op(bar);
	if (*bar != opaque(it->second))
		cudasim_fail("%s: the mbarrier at %td was overwritten", what, offset(bar));
	return it->second;
}

static void mbar_settle(uint64_t *bar, mbar &m)
{
	if (m.tx > COUNT_MAX || m.tx < -COUNT_MAX)
		cudasim_fail("mbarrier at %td: %d bytes in flight", offset(bar), m.tx);
	if (!m.pending && !m.tx) {
		m.phase++;
		m.pending = m.count;
		race_mbar_phase(bar);
	}
	*bar = opaque(m);
	cudasim_progress();
}

void cudasim_mbar_init(uint64_t *bar, uint32_t count)
{
	cudasim_check_smem(bar, 8, 8, "mbarrier.init");
	if (count < 1 || count > COUNT_MAX)
		cudasim_fail("mbarrier.init with a count of %u", count);
	if (a->mbars.count(bar))
		cudasim_fail("mbarrier.init: the mbarrier at %td is in use", offset(bar));
	race_mbar_init(bar);
	mbar &m = a->mbars[bar] = mbar();
	m.count = m.pending = count;
	*bar = opaque(m);
}

static void check_unused(uint64_t *bar, const mbar &m, const char *what)
{
	if (m.waiting)
		cudasim_fail("%s: %d threads wait for the mbarrier at %td", what, m.waiting, offset(bar));
	if (m.copies || m.tx)
		cudasim_fail("%s: bulk copies to the mbarrier at %td are under way", what, offset(bar));
	if (m.landed > m.seen)
		cudasim_fail("%s: no thread waited for a bulk copy to the mbarrier at %td", what,
			     offset(bar));
}

void cudasim_mbar_inval(uint64_t *bar)
{
	check_unused(bar, mbar_of(bar, "mbarrier.inval"), "mbarrier.inval");
	race_mbar_inval(bar);
	a->mbars.erase(bar);
	memset(bar, 0xff, 8);
}

uint64_t cudasim_mbar_arrive(uint64_t *bar, uint32_t count, uint32_t tx)
{
	mbar &m = mbar_of(bar, "mbarrier.arrive");
	if (count < 1 || count > m.pending)
		cudasim_fail("mbarrier.arrive: %u arrivals at the mbarrier at %td, %u of %u are pending",
			     count, offset(bar), m.pending, m.count);
	const uint64_t state = (uint64_t)offset(bar) << 32 | m.phase;
	race_mbar_arrive(bar);
	if (tx > COUNT_MAX)
		cudasim_fail("mbarrier.arrive.expect_tx of %u bytes", tx);
	m.tx += (int32_t)tx;
	m.pending -= count;
	mbar_settle(bar, m);
	return state;
}

void cudasim_mbar_expect(uint64_t *bar, uint32_t bytes)
{
	mbar &m = mbar_of(bar, "mbarrier.expect_tx");
	if (bytes > COUNT_MAX)
		cudasim_fail("mbarrier.expect_tx of %u bytes", bytes);
	m.tx += (int32_t)bytes;
	mbar_settle(bar, m);
}

void cudasim_mbar_complete(uint64_t *bar, uint32_t bytes)
{
	mbar &m = mbar_of(bar, "mbarrier.complete_tx");
	if (bytes > COUNT_MAX)
		cudasim_fail("mbarrier.complete_tx of %u bytes", bytes);
	m.tx -= (int32_t)bytes;
	mbar_settle(bar, m);
}

/* A wait for an incomplete phase lets other threads run, so that it returns later, or all threads wait. */
static bool mbar_wait(uint64_t *bar, mbar &m, bool complete)
{
	if (complete) {
		m.seen = m.phase;
		race_mbar_acquire(bar);
		return true;
	}
	m.waiting++;
	cudasim_poll(bar);
	a->mbars[bar].waiting--;
	return false;
}

bool cudasim_mbar_wait(uint64_t *bar, uint64_t state)
{
	mbar &m = mbar_of(bar, "mbarrier.test_wait");
	const uint32_t phase = (uint32_t)state;
	if (state >> 32 != (uint64_t)offset(bar))
		cudasim_fail("mbarrier.test_wait: the state is not of the mbarrier at %td", offset(bar));
	if (m.phase - phase > 1)
		cudasim_fail("mbarrier.test_wait: the state is of phase %u, now it is phase %u", phase,
			     m.phase);
	return mbar_wait(bar, m, m.phase != phase);
}

bool cudasim_mbar_wait_parity(uint64_t *bar, uint32_t parity)
{
	mbar &m = mbar_of(bar, "mbarrier.test_wait.parity");
	if (parity > 1)
		cudasim_fail("mbarrier.test_wait.parity: a parity of %u", parity);
	return mbar_wait(bar, m, (m.phase & 1) != parity);
}

/* ---- bulk copies ---- */

static void check_bulk(const void *smem, const void *global, uint32_t bytes, const char *what)
{
	if (!bytes || bytes % UNIT || bytes > COUNT_MAX)
		cudasim_fail("%s of %u bytes", what, bytes);
	if (smem)
		cudasim_check_smem(smem, bytes, UNIT, what);
	cudasim_check_device(global, bytes, UNIT, what);
	cudasim_check_range(global, bytes, what);
	for (auto &it : a->mbars)
		if (smem && (const unsigned char *)smem < (const unsigned char *)(it.first + 1) &&
		    (const unsigned char *)it.first < (const unsigned char *)smem + bytes)
			cudasim_fail("%s: the mbarrier at %td is in the way", what, offset(it.first));
}

void cudasim_policy(uint64_t policy)
{
	if (policy != l2_evict_first())
		cudasim_fail("a cache hint that createpolicy did not make");
}

static void advance(bulk &c, bulk::piece &p)
{
	p.is = p.is == ISSUED && !c.load ? READ : DONE;
	if (c.load) {
		memcpy(c.dst + p.at, c.src + p.at, p.n);
		race_async_landed(c.dst + p.at, p.n, c.bar);
		mbar &m = a->mbars.find(c.bar)->second;
		m.landed = m.phase + 1;
		m.copies--;
		m.tx -= (int32_t)p.n;
		mbar_settle(c.bar, m);
	} else if (p.is == READ) {
		p.kept.assign(c.src + p.at, c.src + p.at + p.n);
	} else {
		memcpy(c.dst + p.at, p.kept.data(), p.n);
	}
	a->open -= p.is == DONE;
	cudasim_async_open -= p.is == DONE;
	cudasim_progress();
}

static void forget_done(void)
{
	for (size_t i = 0; i < a->copies.size();) {
		bool done = a->copies[i].load || a->copies[i].waited;
		for (int k = 0; k < a->copies[i].n_pieces; k++)
			done &= a->copies[i].pieces[k].is == DONE;
		if (done)
			a->copies.erase(a->copies.begin() + (long)i);
		else
			i++;
	}
}

static void issue(bulk c)
{
	forget_done();
	memset(c.dst, 0xff, c.bytes);
	const uint32_t units = c.bytes / UNIT;
	uint32_t from = 0;
	for (c.n_pieces = 0; from < units; c.n_pieces++) {
		const uint32_t left = units - from;
		const uint32_t n = c.n_pieces == PIECES_MAX - 1 ? left : 1 + cudasim_chance() % left;
		c.pieces[c.n_pieces] = {from * UNIT, n * UNIT, ISSUED, {}};
		from += n;
	}
	a->open += c.n_pieces;
	cudasim_async_open += c.n_pieces;
	if (c.load)
		a->mbars[c.bar].copies += c.n_pieces;
	a->copies.push_back(c);
	for (int i = 0; i < c.n_pieces; i++)
		if (cudasim_chance() % 4 == 0)
			advance(a->copies.back(), a->copies.back().pieces[i]);
}

void cudasim_bulk_load(void *smem, const void *global, uint32_t bytes, uint64_t *bar)
{
	mbar_of(bar, "cp.async.bulk");
	check_bulk(smem, global, bytes, "cp.async.bulk to shared memory");
	race_mbar_bulk(bar);
	race_async_read(global, bytes, cudasim_thread());
	race_async_write(smem, bytes, cudasim_thread());
	bulk c = {};
	c.load = true;
	c.dst = (unsigned char *)smem;
	c.src = (const unsigned char *)global;
	c.bytes = bytes;
	c.bar = bar;
	issue(c);
}

void cudasim_bulk_store(void *global, const void *smem, uint32_t bytes)
{
	check_bulk(smem, global, bytes, "cp.async.bulk from shared memory");
	race_async_read(smem, bytes, cudasim_thread());
	race_async_write(global, bytes, cudasim_thread());
	bulk c = {};
	c.dst = (unsigned char *)global;
	c.src = (const unsigned char *)smem;
	c.bytes = bytes;
	c.thread = cudasim_thread();
	c.group = a->groups[c.thread];
	issue(c);
}

void cudasim_bulk_commit(void)
{
	a->groups[cudasim_thread()]++;
}

void cudasim_bulk_wait(int n, bool read)
{
	const int t = cudasim_thread();
	for (bulk &c : a->copies) {
		if (c.load || c.waited || c.thread != t || c.group >= a->groups[t] - n)
			continue;
		for (int i = 0; i < c.n_pieces; i++)
			while (c.pieces[i].is < (read ? READ : DONE))
				advance(c, c.pieces[i]);
		if (!c.read_ok)
			race_async_read_done(c.src, c.bytes, t);
		if (!read)
			race_async_write_done(c.dst, c.bytes, t);
		c.read_ok = true;
		c.waited = !read;
	}
}

void cudasim_bulk_prefetch(const void *global, uint32_t bytes)
{
	check_bulk(nullptr, global, bytes, "cp.async.bulk.prefetch");
}

/* ---- time ---- */

void cudasim_async_step(void)
{
	if (!a->open)
		return;
	uint32_t left = cudasim_chance() % (uint32_t)a->open;
	for (bulk &c : a->copies)
		for (int i = 0; i < c.n_pieces; i++)
			if (c.pieces[i].is != DONE && !left--) {
				advance(c, c.pieces[i]);
				return;
			}
}

void cudasim_async_enter(int slot)
{
	a = &slots[slot];
}

void cudasim_async_block(int slot)
{
	cudasim_async_enter(slot);
	a->mbars.clear();
	a->copies.clear();
	memset(a->groups, 0, sizeof a->groups);
}

void cudasim_async_block_end(void)
{
	for (bulk &c : a->copies)
		if (!c.load && !c.read_ok)
			cudasim_fail(
				"the block ended, and no wait was for a bulk store of %u bytes at %td of its "
				"shared memory",
				c.bytes, offset(c.src));
	for (auto &it : a->mbars)
		check_unused(it.first, it.second, "the block ended");
	forget_done();
	for (bulk &c : a->copies)
		leaving.push_back(c);
	cudasim_async_open -= a->open;
	a->open = 0;
	a->copies.clear();
}

/* Finish all stores of the launch, whether blocks waited for them or not. */
void cudasim_async_launch_end(void)
{
	for (bulk &c : leaving)
		for (int i = 0; i < c.n_pieces; i++)
			if (c.pieces[i].is == READ)
				memcpy(c.dst + c.pieces[i].at, c.pieces[i].kept.data(), c.pieces[i].n);
	leaving.clear();
}
