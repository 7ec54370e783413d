/* sample_block.cuh - block-wide operations of the sampler: sums in the CPU's order, the largest of many
 * values, and cuts of an order (larger logit first, then lower id). */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_BLOCK_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_BLOCK_CUH

#include "kernels/cuda/sample_math.cuh"

enum {
	THREADS = 512,
	WARPS = THREADS / 32,
	SUM_BLOCK = 4096, /* same as on the CPU */
	SUM_LANES = 16,
	BINS = 256,
};

static const float flt_max = 0x1.fffffep127f;

/* Bound a logit as the CPU does: the result is neither NaN nor infinite. */
KERN_DEV float clean(float x)
{
	x = x > -flt_max ? x : -flt_max;
	return x < flt_max ? x : flt_max;
}

struct shared {
	uint32_t lo[BINS], hi[BINS]; /* halves of 64-bit sums: see bin_add() */
	unsigned long long wide[WARPS];
	int narrow[WARPS];
	float real[WARPS];
	double part[BINS], sum;
	int token;
};

KERN_DEV int tid(void)
{
	return (int)threadIdx.x;
}

/* Return the sum over the block, to every thread; all threads call it. */
KERN_DEV int block_add(struct shared *s, int v)
{
	for (int m = 16; m; m /= 2)
		v += shfl_xor(v, m);
	block_sync();
	if (lane_id() == 0)
		s->narrow[warp_id()] = v;
	block_sync();
	int all = 0;
	for (int w = 0; w < WARPS; w++)
		all += s->narrow[w];
	return all;
}

KERN_DEV unsigned long long block_add_wide(struct shared *s, unsigned long long v)
{
	for (int m = 16; m; m /= 2) {
		const uint32_t lo = shfl_xor((uint32_t)v, m), hi = shfl_xor((uint32_t)(v >> 32), m);
		v += (unsigned long long)hi << 32 | lo;
	}
	block_sync();
	if (lane_id() == 0)
		s->wide[warp_id()] = v;
	block_sync();
	unsigned long long all = 0;
	for (int w = 0; w < WARPS; w++)
		all += s->wide[w];
	return all;
}

/* Return how many of the block's threads before this one have p set; *all gets the number in the block. */
KERN_DEV int block_rank(struct shared *s, bool p, int *all)
{
	const uint32_t votes = warp_ballot(p);
	block_sync();
	if (lane_id() == 0)
		s->narrow[warp_id()] = __popc(votes);
	block_sync();
	int before = __popc(votes & ((1u << lane_id()) - 1u));
	*all = 0;
	for (int w = 0; w < WARPS; w++) {
		before += w < warp_id() ? s->narrow[w] : 0;
		*all += s->narrow[w];
	}
	return before;
}

/* Return the largest value and its first id.  NaN counts as -inf; id 0 if there is no other value. */
template <typename F> KERN_DEV float block_argmax(struct shared *s, int n, F value, int *id)
{
	float best = -INFINITY;
	int at = 0x7fffffff;
	for (int i = tid(); i < n; i += THREADS) {
		const float v = value(i);
		if (v > best) {
			best = v;
			at = i;
		}
	}
	for (int m = 16; m; m /= 2) {
		const float v = shfl_xor(best, m);
		const int i = shfl_xor(at, m);
		if (v > best || (v == best && i < at)) {
			best = v;
			at = i;
		}
	}
	block_sync();
	if (lane_id() == 0) {
		s->real[warp_id()] = best;
		s->narrow[warp_id()] = at;
	}
	block_sync();
	best = -INFINITY;
	at = 0x7fffffff;
	for (int w = 0; w < WARPS; w++)
		if (s->real[w] > best || (s->real[w] == best && s->narrow[w] < at)) {
			best = s->real[w];
			at = s->narrow[w];
		}
	*id = best > -INFINITY ? at : 0;
	return best;
}

/* ---- sums of p in the CPU's order ---- */

KERN_DEV float p_of(float x, float max, float inv_t)
{
	return sample_exp(f32_mul_rn(f32_add_rn(x, -max), inv_t));
}

/* Add the blocks' sums one after another in double; every thread gets the result. */
template <typename F> KERN_DEV double add_blocks(struct shared *s, int blocks, F sum)
{
	double all = 0;
	for (int b0 = 0; b0 < blocks; b0 += BINS) {
		block_sync();
		if (tid() < BINS && b0 + tid() < blocks)
			s->part[tid()] = (double)sum(b0 + tid());
		block_sync();
		if (tid() == 0)
			for (int b = 0; b < min((int)BINS, blocks - b0); b++)
				all = f64_add_rn(all, s->part[b]);
	}
	if (tid() == 0)
		s->sum = all;
	block_sync();
	return s->sum;
}

/* Return the sum of 16 lanes, in the first of them. */
KERN_DEV float fold_lanes(float sum)
{
	for (int half = SUM_LANES / 2; half; half /= 2)
		sum = f32_add_rn(sum, shfl_down(sum, half)); /* correct in the lanes below half */
	return sum;
}

/* ---- sums of weights ---- */

KERN_DEV uint64_t shfl_wide(uint64_t v, int lane)
{
	return (uint64_t)shfl((uint32_t)(v >> 32), lane) << 32 | shfl((uint32_t)v, lane);
}

/* Return the sum over the warp, in every lane. */
KERN_DEV uint64_t warp_add_wide(uint64_t v)
{
	for (int m = WARP / 2; m; m /= 2)
		v += (uint64_t)shfl_xor((uint32_t)(v >> 32), m) << 32 | shfl_xor((uint32_t)v, m);
	return v;
}

/* Return the sum of weight() over the items 0..n-1, in every thread. */
template <typename W> KERN_DEV uint64_t add_weights(struct shared *s, int n, W weight)
{
	unsigned long long sum = 0;
#pragma unroll 4
	for (int i = tid(); i < n; i += THREADS)
		sum += weight(i);
	return block_add_wide(s, sum);
}

/* Return the first of the items from..to-1 at which the running sum of weights exceeds *target, which is
 * below the total; *target becomes what is left of it before that item.  Each warp sums one part; the part
 * that reaches the target is divided again.  150,000 items take four rounds. */
template <typename W> KERN_DEV int find_weight(struct shared *s, int from, int to, uint64_t *target, W weight)
{
	for (bool more = true; more;) {
		const int part = ((to - from + WARPS - 1) / WARPS + WARP - 1) / WARP * WARP;
		const int begin = from + warp_id() * part, end = min(to, begin + part);
		uint64_t sum = 0;
#pragma unroll 4
		for (int i = begin + lane_id(); i < end; i += WARP)
			sum += weight(i);
		sum = warp_add_wide(sum);
		block_sync();
		if (lane_id() == 0)
			s->wide[warp_id()] = sum;
		block_sync();
		int w = 0;
		while (w < WARPS - 1 && s->wide[w] <= *target)
			*target -= s->wide[w++];
		from += w * part;
		to = min(to, from + part);
		more = part > WARP;
	}
	const uint64_t own = from + lane_id() < to ? weight(from + lane_id()) : 0;
	uint64_t upto = own;
	for (int by = 1; by < WARP; by *= 2) {
		const uint64_t lo = shfl_up((uint32_t)upto, by), hi = shfl_up((uint32_t)(upto >> 32), by);
		upto += lane_id() >= by ? hi << 32 | lo : 0;
	}
	const uint32_t passed = warp_ballot(upto > *target);
	const int lane = __popc((passed & (0u - passed)) - 1u);
	*target -= shfl_wide(upto - own, lane);
	return from + lane;
}

/* ---- the order: larger first, then the lower id ---- */

/* Map x to an integer that grows with it.  x is not NaN; -0 and 0 get the same key. */
KERN_DEV uint32_t key_of(float x)
{
	const uint32_t u = x == 0 ? 0u : (uint32_t)f32_bits(x);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* A prefix of the order: all items with a larger key than `key`, and the first `ties` ids with an equal key.
 * `all`: every item. */
struct cut {
	bool all;
	uint32_t key;
	uint64_t ties;
};

KERN_DEV bool narrower(const struct cut &a, const struct cut &b)
{
	if (a.all || b.all)
		return !a.all;
	return a.key > b.key || (a.key == b.key && a.ties < b.ties);
}

/* ---- histograms ----
 *
 * A sum of 64 bits is stored in two halves: shared memory adds 32 bits atomically, but 64 bits only in a
 * compare-and-swap loop.  The place of bin b lets a warp read its bins without bank conflicts: lane l of a
 * scan has bins 8 (31 - l) + 7 .. 8 (31 - l), so that the scan descends. */

KERN_DEV int bin_at(int b)
{
	return (b & 7) << 5 | b >> 3;
}

KERN_DEV uint64_t bin_sum(const struct shared *s, int b)
{
	return (uint64_t)s->hi[bin_at(b)] << 32 | s->lo[bin_at(b)];
}

KERN_DEV void bin_add(struct shared *s, int b, uint64_t by)
{
	const uint32_t lo = (uint32_t)by, was = atomic_add(&s->lo[bin_at(b)], lo);
	const uint32_t up = (uint32_t)(by >> 32) + (was + lo < was); /* plus the carry of this addition */
	if (up)
		atomic_add(&s->hi[bin_at(b)], up);
}

/* Add each lane's `by` (below 2^51) to its bin b; 0 adds nothing.  A full warp calls it.  Most candidates
 * share few bins: in two rounds, the lanes with the same bin add up first; the remaining lanes add one by
 * one. */
KERN_DEV void bin_add_warp(struct shared *s, int b, uint64_t by)
{
	const int half = 24; /* bits; 32 lanes' sums of either half fit 32 bits */
	for (int round = 0; round < 2; round++) {
		const uint32_t have = warp_ballot(by != 0);
		if (!have)
			return;
		const int first = __popc((have & (0u - have)) - 1u), bin = shfl(b, first);
		const bool mine = by && b == bin;
		const uint32_t lo = warp_add(mine ? (uint32_t)by & ((1u << half) - 1u) : 0u);
		const uint32_t hi = warp_add(mine ? (uint32_t)(by >> half) : 0u);
		if (lane_id() == first)
			bin_add(s, bin, ((uint64_t)hi << half) + lo);
		by = mine ? 0 : by;
	}
	if (by)
		bin_add(s, b, by);
}

/* Return the bin, scanning from the last bin down, at which the running sum reaches *left (at least 1), or -1
 * if it never does. *left becomes the amount needed from that bin, *in the bin's sum.  Every warp computes it
 * for itself. */
KERN_DEV int bin_reached(const struct shared *s, uint64_t *left, uint64_t *in)
{
	const int top = 8 * (WARP - 1 - lane_id()) + 7;
	uint64_t own = 0, upto;
#pragma unroll
	for (int j = 0; j < 8; j++)
		own += bin_sum(s, top - j);
	upto = own;
#pragma unroll
	for (int by = 1; by < WARP; by *= 2) {
		const uint64_t lo = shfl_up((uint32_t)upto, by), hi = shfl_up((uint32_t)(upto >> 32), by);
		upto += lane_id() >= by ? hi << 32 | lo : 0;
	}
	const uint32_t enough = warp_ballot(upto >= *left);
	if (!enough)
		return -1;
	int b = top;
	uint64_t rest = *left - (upto - own), sum = bin_sum(s, b); /* valid in the lane that reaches *left */
#pragma unroll
	for (int j = 0; j < 7; j++)
		if (rest > sum) {
			rest -= sum;
			sum = bin_sum(s, --b);
		}
	const int lane = __popc((enough & (0u - enough)) - 1u);
	*left = shfl_wide(rest, lane);
	*in = shfl_wide(sum, lane);
	return shfl(b, lane);
}

/* ---- cuts ---- */

/* Return the cut that keeps the fewest of n items whose weights sum to `need`.  key(i), weight(i) (below
 * 2^51); items of weight 0 are no candidates. */
template <typename K, typename W>
KERN_DEV struct cut find_cut(struct shared *s, int n, uint64_t need, K key, W weight)
{
	struct cut c = {false, 0, 0};
	uint64_t left = need ? need : 1, in_last = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		block_sync();
		for (int i = tid(); i < BINS; i += THREADS)
			s->lo[i] = s->hi[i] = 0;
		block_sync();
		for (int i0 = warp_id() * WARP; i0 < n; i0 += THREADS) {
			const int i = i0 + lane_id();
			const uint32_t k = i < n ? key(i) : 0;
			const bool in = i < n && (shift == 24 || k >> (shift + 8) == c.key >> (shift + 8));
			bin_add_warp(s, (int)(k >> shift & (BINS - 1)), in ? weight(i) : 0);
		}
		block_sync();
		const int b = bin_reached(s, &left, &in_last);
		if (b < 0) {
			c.all = true;
			return c;
		}
		c.key |= (uint32_t)b << shift;
	}
	/* the remaining items have the same logit, hence the same weight */
	int count = 0;
	for (int i = tid(); i < n; i += THREADS)
		count += key(i) == c.key && weight(i);
	count = block_add(s, count);
	const uint64_t each = in_last / (uint64_t)count;
	c.ties = (left + each - 1) / each;
	return c;
}

/* Write the ids of the items that both the cut and also() keep to out, and return their number.  Ids ascend
 * with the items; id() may read from out. */
template <typename I, typename K, typename A>
KERN_DEV int keep(struct shared *s, int n, const struct cut &c, I id, K key, A also, int32_t *out)
{
	int kept = 0;
	uint64_t ties = 0;
	for (int i0 = 0; i0 < n; i0 += THREADS) {
		const int i = i0 + tid();
		const int32_t my = i < n ? id(i) : 0;
		const uint32_t k = i < n && !c.all ? key(i) : 0;
		int n_ties = 0, n_kept, before = 0;
		const bool tie = i < n && !c.all && k == c.key;
		if (!c.all)
			before = block_rank(s, tie, &n_ties);
		const bool in = i < n && (c.all || k > c.key || (tie && ties + (uint64_t)before < c.ties)) &&
				also(my);
		ties += (uint64_t)n_ties;
		const int at = block_rank(s, in, &n_kept);
		if (in)
			out[kept + at] = my;
		kept += n_kept;
	}
	block_sync();
	return kept;
}

#endif
