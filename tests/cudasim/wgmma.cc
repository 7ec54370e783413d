/* wgmma.cc - the warpgroup's matrix product; kernels/cuda/wgmma.cuh has the contract.
 *
 * The product is computed when it is issued, from the registers and shared memory of that time.  The emulator
 * keeps the result; until the wait, the registers hold poison.  At the wait they must still be poison, and
 * the operands in shared memory must be unchanged: otherwise the kernel wrote data that were in use.
 *
 *     lane     held: registers that products in flight use, with their true values
 *              known: registers that were given back, with their values at the last wait or wgmma_fence():
 *              a change since then was not fenced
 *     warp     products that it has not waited for, by group
 *     product  operands in shared memory as issued, kept until all four warps have waited */
#include "kernels/cuda/wgmma.cuh"

#include <memory>
#include <vector>

#include "tests/cudasim/mem.h"
#include "tests/cudasim/race.h"
#include "tests/cudasim/tensor.h"

enum { LANES = 32, WARPS = 4, GROUP = WARPS * LANES, GROUPS_MAX = 1024 / GROUP, WINDOW = 1024, K = 16 };

/* A signalling NaN, which arithmetic never returns. */
static const uint32_t poison = 0xffbfffffu;

struct registers {
	uint32_t *p;
	std::vector<uint32_t> value;
	uint64_t last; /* held: group of the last product that uses them */
};

struct product {
	uint64_t desc[2]; /* 0: not in shared memory */
	bool trans[2];
	int rows[2];
	std::vector<uint16_t> operand[2]; /* [row][k] */
};

struct in_flight {
	std::shared_ptr<product> what;
	uint64_t group;
};

struct warpgroup {
	std::vector<registers> held[GROUP], known[GROUP];
	std::vector<in_flight> products[WARPS];
	uint64_t committed[WARPS];
	bool fenced[WARPS];
};

static warpgroup all[CUDASIM_RESIDENT_MAX][GROUPS_MAX];

static warpgroup &mine(void)
{
	return all[cudasim_slot()][cudasim_thread() / GROUP];
}

static int warp_of(void)
{
	return cudasim_thread() % GROUP / LANES;
}

void cudasim_wgmma_begin(int slot)
{
	for (warpgroup &g : all[slot])
		if (g.fenced[0] || g.fenced[1] || g.fenced[2] || g.fenced[3])
			g = warpgroup{};
}

void cudasim_wgmma_end(void)
{
	for (const warpgroup &g : all[cudasim_slot()])
		for (const auto &p : g.products)
			if (!p.empty())
				cudasim_fail("the block ends before a wgmma is waited for");
}

/* ---- descriptors ---- */

uint64_t cudasim_wgmma_desc(const void *smem, int leading, int stride, int swizzle, int base_offset)
{
	cudasim_check_smem(smem, 16, 1, "a wgmma descriptor");
	const uint64_t at = WINDOW + (uint64_t)((const unsigned char *)smem - cudasim_smem());
	if (at % 16 || leading % 16 || stride % 16)
		cudasim_fail("a wgmma descriptor of address %d, offsets %d and %d: not multiples of 16",
			     (int)at, leading, stride);
	if (leading < 0 || leading >> 18 || stride < 0 || stride >> 18)
		cudasim_fail("a wgmma descriptor with offsets %d and %d", leading, stride);
	if (swizzle < 0 || swizzle > 3 || base_offset < 0 || base_offset > 7)
		cudasim_fail("a wgmma descriptor with swizzle %d, base offset %d", swizzle, base_offset);
	return at >> 4 | (uint64_t)leading >> 4 << 16 | (uint64_t)stride >> 4 << 32 |
	       (uint64_t)base_offset << 49 | (uint64_t)swizzle << 62;
}

/* Return the address of 8 adjacent values of an operand: k to k + 7 of a row, or rows r to r + 7 of a k. */
static const unsigned char *piece(uint64_t desc, bool trans, int r, int k)
{
	static const int widths[] = {16, 128, 64, 32};
	const int width = widths[desc >> 62], base = (int)(desc >> 49 & 7);
	const uint32_t leading = (uint32_t)(desc >> 16 & 0x3fff) << 4,
		       stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
	uint32_t at = (uint32_t)(desc & 0x3fff) << 4;
	if (width == 16)
		at += (uint32_t)(r / 8) * stride + (uint32_t)(k / 8) * leading +
		      (uint32_t)(trans ? k % 8 : r % 8) * 16;
	else if (trans)
		at += (uint32_t)(r / (width / 2)) * leading + (uint32_t)(k / 8) * stride +
		      (uint32_t)(k % 8 * width + r % (width / 2) * 2);
	else
		at += (uint32_t)(r / 8) * stride + (uint32_t)(r % 8 * width + k * 2);
	/* xor bits 4.. with the line's place in its pattern */
	at ^= (((at >> 7) - (uint32_t)base) & (uint32_t)(width / 16 - 1)) << 4;
	const unsigned char *p = cudasim_smem() + at - WINDOW;
	cudasim_check_smem(p, 16, 1, "wgmma");
	return p;
}

template <typename F> static void each_piece(const product &x, int which, F f)
{
	const bool trans = x.trans[which];
	for (int r = 0; r < x.rows[which]; r += trans ? 8 : 1)
		for (int k = 0; k < K; k += trans ? 1 : 8)
			f(piece(x.desc[which], trans, r, k), r, k);
}

static std::vector<uint16_t> gather(const product &x, int which)
{
	std::vector<uint16_t> out((size_t)x.rows[which] * K);
	const bool trans = x.trans[which];
	each_piece(x, which, [&](const unsigned char *p, int r, int k) {
		for (int i = 0; i < 8; i++)
			memcpy(&out[(size_t)((trans ? r + i : r) * K + (trans ? k : k + i))], p + 2 * i, 2);
	});
	return out;
}

/* ---- registers ---- */

static registers *find(std::vector<registers> &in, const uint32_t *p)
{
	for (registers &r : in)
		if (r.p == p)
			return &r;
	return nullptr;
}

/* Read by hand, without the sanitizer: the variable may no longer exist. */
__attribute__((no_sanitize("address"))) static void look(registers &r)
{
	for (size_t i = 0; i < r.value.size(); i++)
		r.value[i] = ((volatile uint32_t *)r.p)[i];
}

/* Mark registers as used by a product of this group; returns their values. */
static std::vector<uint32_t> &hold(warpgroup &g, int lane, void *p, int n, uint64_t group, const char *what)
{
	registers *h = find(g.held[lane], (uint32_t *)p);
	if (!h) {
		registers now{(uint32_t *)p, std::vector<uint32_t>((size_t)n), group};
		const registers *was = find(g.known[lane], now.p);
		look(now);
		if (was && was->value.size() == (size_t)n && was->value != now.value)
			cudasim_fail("wgmma: %s of thread %d were written with no wgmma_fence() behind it",
				     what, lane);
		g.held[lane].push_back(now);
		h = &g.held[lane].back();
		for (int i = 0; i < n; i++)
			now.p[i] = poison;
	}
	if (h->value.size() != (size_t)n)
		cudasim_fail("wgmma: %s are in use with another size", what);
	h->last = group;
	return h->value;
}

static void give_back(warpgroup &g, int lane, uint64_t done)
{
	auto &held = g.held[lane];
	for (size_t i = 0; i < held.size();) {
		registers h = held[i];
		if (h.last >= done) {
			i++;
			continue;
		}
		for (size_t e = 0; e < h.value.size(); e++) {
			if (h.p[e] != poison)
				cudasim_fail(
					"registers of thread %d were written before the wgmma was waited for",
					lane);
			h.p[e] = h.value[e];
		}
		held.erase(held.begin() + (long)i);
		if (registers *was = find(g.known[lane], h.p))
			*was = h;
		else
			g.known[lane].push_back(h);
	}
}

/* ---- the product ---- */

static float value_of(uint16_t v, bool bf16)
{
	return bf16 ? f32_of_bf16(v) : f32_of_f16(v);
}

static void check_alike(void **args)
{
	const cudasim_product *w = (const cudasim_product *)args[0];
	for (int i = 1; i < GROUP; i++) {
		const cudasim_product *v = (const cudasim_product *)args[i];
		if (v->desc_a != w->desc_a || v->desc_b != w->desc_b || v->n != w->n || v->bf16 != w->bf16 ||
		    v->a_trans != w->a_trans || v->b_trans != w->b_trans || v->add != w->add ||
		    v->a_sign != w->a_sign || v->b_sign != w->b_sign || !v->a != !w->a)
			cudasim_fail("wgmma: thread %d of the warpgroup has other operands than the first",
				     i);
	}
}

static void load_operands(void **args, warpgroup &g, product &x)
{
	const cudasim_product *w = (const cudasim_product *)args[0];
	const int first = cudasim_thread() / GROUP * GROUP;
	x.desc[0] = w->a ? 0 : w->desc_a;
	x.desc[1] = w->desc_b;
	x.trans[0] = w->a_trans;
	x.trans[1] = w->b_trans;
	x.rows[0] = 64;
	x.rows[1] = w->n;
	for (int i = 0; i < 2; i++) {
		if (!x.desc[i])
			continue;
		each_piece(x, i, [&](const unsigned char *p, int, int) {
			for (int v = 0; v < WARPS; v++)
				race_async_read(p, 16, first + v * LANES);
		});
		x.operand[i] = gather(x, i);
	}
	if (!w->a)
		return;
	x.operand[0].resize(64 * K);
	for (int i = 0; i < GROUP; i++) {
		const int v = i / LANES, row = v * 16 + i % LANES / 4, k = i % 4 * 2;
		const auto &a = hold(g, i, ((const cudasim_product *)args[i])->a, 4, g.committed[v],
				     "operand registers");
		for (int j = 0; j < 4; j++) /* a0 to a3: first 8 rows further, then 8 k further */
			for (int half = 0; half < 2; half++)
				x.operand[0][(size_t)((row + j % 2 * 8) * K + k + j / 2 * 8 + half)] =
					(uint16_t)(a[(size_t)j] >> 16 * half);
	}
}

static void wgmma_work(void **args)
{
	const cudasim_product *w = (const cudasim_product *)args[0];
	warpgroup &g = mine();
	check_alike(args);
	auto x = std::make_shared<product>();
	for (int v = 0; v < WARPS; v++)
		if (!g.fenced[v])
			cudasim_fail("wgmma: warp %d of the warpgroup has not called wgmma_fence()", v);
	load_operands(args, g, *x);
	std::vector<float> a(64 * K), b((size_t)w->n / 8 * K * 8), d(64 * 8);
	for (int i = 0; i < 64 * K; i++)
		a[(size_t)i] = (float)w->a_sign * value_of(x->operand[0][(size_t)i], w->bf16);
	for (int n = 0; n < w->n; n++)
		for (int k = 0; k < K; k++)
			b[(size_t)((n / 8 * K + k) * 8 + n % 8)] =
				(float)w->b_sign * value_of(x->operand[1][(size_t)(n * K + k)], w->bf16);
	for (int n8 = 0; n8 < w->n / 8; n8++) {
		for (int pass = 0; pass < 2; pass++) { /* first to the matrix, then back */
			for (int i = 0; i < GROUP; i++) {
				auto &held = hold(g, i, ((const cudasim_product *)args[i])->d, w->n / 2,
						  g.committed[i / LANES], "accumulators");
				const int row = i / LANES * 16 + i % LANES / 4;
				for (int j = 0; j < 4; j++) {
					float &at = d[(size_t)((row + j / 2 * 8) * 8 + i % 4 * 2 + j % 2)];
					uint32_t &reg = held[(size_t)(n8 * 4 + j)];
					if (pass)
						reg = (uint32_t)f32_bits(at);
					else
						at = w->add ? f32_from_bits((int)reg) : 0;
				}
			}
			if (!pass)
				cudasim_tensor_tile(d.data(), 8, a.data(), 64, &b[(size_t)n8 * K * 8]);
		}
	}
	for (int v = 0; v < WARPS; v++)
		g.products[v].push_back({x, g.committed[v]});
	cudasim_counts.wgmmas++;
}

void cudasim_wgmma(const struct cudasim_product *w)
{
	cudasim_warpgroup_op(wgmma_work, (void *)w);
}

/* ---- order ---- */

static void fence_work(void **)
{
	warpgroup &g = mine();
	const int v = warp_of();
	g.fenced[v] = true;
	for (int i = v * LANES; i < (v + 1) * LANES; i++)
		for (registers &r : g.known[i])
			look(r);
}

void cudasim_wgmma_fence(void)
{
	cudasim_warp_op(fence_work, nullptr);
}

static void commit_work(void **)
{
	mine().committed[warp_of()]++;
}

void cudasim_wgmma_commit(void)
{
	cudasim_warp_op(commit_work, nullptr);
}

static void wait_work(void **args)
{
	warpgroup &g = mine();
	const int v = warp_of(), n = *(int *)args[0];
	const uint64_t done = g.committed[v] > (uint64_t)n ? g.committed[v] - (uint64_t)n : 0;
	auto &of = g.products[v];
	while (!of.empty() && of.front().group < done) {
		const product &x = *of.front().what;
		for (int i = 0; i < 2; i++) {
			if (!x.desc[i])
				continue;
			if (gather(x, i) != x.operand[i])
				cudasim_fail("operand %c of a wgmma was written before it was waited for",
					     i ? 'B' : 'A');
			each_piece(x, i, [&](const unsigned char *p, int, int) {
				race_async_read_done(p, 16, cudasim_thread());
			});
		}
		of.erase(of.begin());
	}
	for (int i = v * LANES; i < (v + 1) * LANES; i++)
		give_back(g, i, done);
}

void cudasim_wgmma_wait(int n)
{
	cudasim_warp_op(wait_work, &n);
}
