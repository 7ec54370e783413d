/* sample_draw.cuh - the draw of one token from a row's logits, by one block: from all tokens, or from
 * the candidates that top-k, top-p and min-p keep. */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_DRAW_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_DRAW_CUH

#include "kernels/cuda/sample_row.cuh"

enum {
	FETCH = 4, /* candidates of a thread that are loaded at once */
};

/* Adds p of items from..to-1 to sum, one after another in double, until it passes target.
 * Returns the item that did it, or -1; *last: the last item with p > 0.  One warp calls. */
template <typename P> KERN_DEV int run_until(double *sum, double target, int from, int to, P p, int *last)
{
	for (int i0 = from; i0 < to; i0 += WARP) {
		const float mine = i0 + lane_id() < to ? p(i0 + lane_id()) : 0.0f;
		for (int k = 0; k < WARP; k++) {
			const float v = shfl(mine, k);
			if (!(v > 0))
				continue;
			*last = i0 + k;
			*sum = f64_add_rn(*sum, (double)v);
			if (*sum > target)
				return i0 + k;
		}
	}
	return -1;
}

/* What is drawn from: the logits of a row, bounded like the CPU's. */
struct source {
	const float *x;
	const struct part *parts; /* NULL: the logits are adjusted, and bounded by that */
	float *sums;
	int32_t *ids;
	int n;
	float max, inv_t;
};

KERN_DEV float logit(const struct source &f, int i)
{
	return f.parts ? clean(f.x[i]) : f.x[i];
}

KERN_DEV float p_at(const struct source &f, int i)
{
	return p_of(logit(f, i), f.max, f.inv_t);
}

KERN_DEV float sum_at(const struct source &f, int b)
{
	return f.parts ? f.parts[b].sum_t : f.sums[b];
}

/* Of p over all; sum_at() is good after it. */
KERN_DEV double sum_all(struct shared *s, const struct source &f)
{
	if (f.parts)
		return add_blocks(s, blocks_of(f.n), [=](int b) { return sum_at(f, b); });
	return block_exp(
		s, f.sums, f.n, [=](int i) { return f.x[i]; }, f.max, f.inv_t);
}

KERN_DEV int draw_from_all(struct shared *s, const struct source &f, double all, double u)
{
	if (warp_id() == 0) {
		double sum = 0;
		const double target = f64_mul_rn(u, all);
		int b = 0, id = -1, found = -1;
		const int last = blocks_of(f.n) - 1;
		while (b < last && f64_add_rn(sum, (double)sum_at(f, b)) <= target)
			sum = f64_add_rn(sum, (double)sum_at(f, b++));
		for (; id < 0 && b >= 0; b--) /* back only where rounding left the target beyond the end */
			found = run_until(
				&sum, target, b * SUM_BLOCK, min(f.n, (b + 1) * SUM_BLOCK),
				[=](int i) { return p_at(f, i); }, &id);
		if (lane_id() == 0)
			s->token = found >= 0 ? found : id;
	}
	block_sync();
	return s->token;
}

KERN_DEV int draw_from_kept(struct shared *s, const struct source &f, int kept, double u)
{
	auto p = [=](int i) { return p_at(f, f.ids[i]); };
	if (warp_id() == 0) {
		double all = 0, sum = 0;
		int last = kept - 1;
		run_until(&all, INFINITY, 0, kept, p, &last);
		last = kept - 1;
		const int found = run_until(&sum, f64_mul_rn(u, all), 0, kept, p, &last);
		if (lane_id() == 0)
			s->token = f.ids[found >= 0 ? found : kept - 1];
	}
	block_sync();
	return s->token;
}

KERN_DEV uint64_t fixed(float p)
{
	return (uint64_t)((double)p * 0x1p44);
}

/* ---- candidates ---- */

/* What a logit and its p must come to.  Most tokens are hopeless: where top-k or top-p cut, those
 * within 12 T of the largest are tried first, wide: then all. */
struct bounds {
	float logit, p;
};

KERN_DEV struct bounds bounds_of(const struct row &r, int n, float max, bool wide)
{
	const float least = r.min_p < 1 ? r.min_p : 1.0f;
	if (!top_k_of(r, n) && !(r.top_p < 1))
		return {-INFINITY, least > flt_min ? least : flt_min};
	return {wide ? -INFINITY : f32_add_rn(max, -f32_mul_rn(12.0f, r.temperature)), flt_min};
}

KERN_DEV int candidates(struct shared *s, const struct source &f, struct bounds least)
{
	const struct cut everything = {true, 0, 0};
	return keep(
		s, f.n, everything, [](int i) { return i; }, [](int) { return 0u; },
		[=](int i) { return logit(f, i) >= least.logit && p_at(f, i) >= least.p; }, f.ids);
}

/* s->lo[b]: how many candidates stand before part b0 + b, for BINS parts at most, of which `parts` are there;
 * returns how many they have.  All loads are issued at once. */
KERN_DEV int kept_before(struct shared *s, const struct part *part, int parts)
{
	block_sync();
	for (int b = tid(); b < BINS; b += THREADS)
		s->lo[b] = b < parts ? (uint32_t)part[b].kept : 0;
	block_sync();
	if (warp_id() == 0) {
		uint32_t *mine = s->lo + lane_id() * (BINS / WARP), own = 0, upto;
		for (int j = 0; j < BINS / WARP; j++)
			own += mine[j];
		upto = own;
		for (int by = 1; by < WARP; by *= 2) {
			const uint32_t before = shfl_up(upto, by);
			upto += lane_id() >= by ? before : 0;
		}
		if (lane_id() == WARP - 1)
			s->token = (int)upto;
		upto -= own;
		for (int j = 0; j < BINS / WARP; j++) {
			const uint32_t n = mine[j];
			mine[j] = upto;
			upto += n;
		}
	}
	block_sync();
	return s->token;
}

/* The part that candidate k of them is of: the last one before which no more than k stand. */
KERN_DEV int part_of(const struct shared *s, int parts, int k)
{
	int at = 0;
	for (int by = BINS / 2; by; by /= 2)
		if (at + by < parts && s->lo[at + by] <= (uint32_t)k)
			at += by;
	return at;
}

/* Those that the parts have found, side by side.  No candidate moves beyond where it stood, so that what
 * is read later is not overwritten: FETCH x THREADS are read, then written. */
KERN_DEV int candidates_of_parts(struct shared *s, const struct source &f)
{
	int kept = 0;
	for (int b0 = 0; b0 < blocks_of(f.n); b0 += BINS) {
		const int parts = min((int)BINS, blocks_of(f.n) - b0),
			  n = kept_before(s, f.parts + b0, parts);
		for (int k0 = 0; k0 < n; k0 += FETCH * (int)THREADS) {
			int32_t id[FETCH];
#pragma unroll
			for (int j = 0; j < FETCH; j++) {
				const int k = min(k0 + j * THREADS + tid(), n - 1), b = part_of(s, parts, k);
				id[j] = f.ids[(b0 + b) * SUM_BLOCK + k - (int)s->lo[b]];
			}
			block_sync();
#pragma unroll
			for (int j = 0; j < FETCH; j++)
				if (k0 + j * THREADS + tid() < n) /* where nothing is read any more */
					f.ids[kept + k0 + j * THREADS + tid()] = id[j];
		}
		kept += n;
	}
	block_sync();
	return kept;
}

/* Top-k, top-p and min-p each keep the beginning of one order: the narrowest counts; top-p's
 * share is of what top-k left. */
KERN_DEV int draw_cut(struct shared *s, const struct row &r, const struct source &f, double u)
{
	const int top_k = top_k_of(r, f.n);
	auto id = [=](int i) { return f.ids[i]; };
	auto key = [=](int i) { return key_of(logit(f, f.ids[i])); };
	auto one = [](int) -> uint64_t { return 1; };
	auto p = [=](int i) { return fixed(p_at(f, f.ids[i])); };
	int kept = f.parts ? candidates_of_parts(s, f) : candidates(s, f, bounds_of(r, f.n, f.max, false));
	if (!top_k && !(r.top_p < 1))
		return draw_from_kept(s, f, kept, u);
	auto sum_of = [&](struct cut c) { /* of the candidates that c keeps */
					  unsigned long long sum = 0;
					  uint64_t ties = 0;
					  for (int i = tid(); i < kept; i += THREADS) {
						  const uint32_t k = c.all ? 0 : key(i);
						  if (c.all || k > c.key)
							  sum += p(i);
						  else if (k == c.key)
							  ties = p(i);
					  }
					  sum = block_add_wide(s, sum);
					  if (c.all)
						  return sum;
					  /* any one tie's p, times how many are in */
					  int have = ties ? 1 : 0;
					  have = block_add(s, have);
					  const unsigned long long each =
						  have ? block_add_wide(s, ties) / (unsigned long long)have
						       : 0;
					  return sum + each * c.ties;
	};
	const double all = top_k ? 0 : sum_all(s, f);
	struct cut c = {true, 0, 0};
	for (int tries = 0; tries < 2; tries++) {
		if (tries)
			kept = candidates(s, f, bounds_of(r, f.n, f.max, true));
		if (top_k)
			c = find_cut(s, kept, (uint64_t)top_k, key, one);
		if (r.top_p < 1 && !(c.all && top_k && !tries)) {
			/* of what top-k left, or of everything as the CPU sums it */
			const double of = top_k ? (double)sum_of(c) : 0x1p44 * all;
			const double target = f64_mul_rn((double)r.top_p, of);
			const struct cut by_p =
				find_cut(s, kept, target > 0 ? (uint64_t)ceil(target) : 0, key, p);
			if (narrower(by_p, c))
				c = by_p;
		}
		if (!c.all)
			break;
	}
	const float least = r.min_p < 1 ? r.min_p : 1.0f;
	kept = keep(
		s, kept, c, id, key, [=](int i) { return p_at(f, i) >= least; }, f.ids);
	return draw_from_kept(s, f, kept, u);
}

/* best: the first of the largest. */
KERN_DEV int draw(struct shared *s, const struct row &r, const struct source &f, int best)
{
	if (!draws(r))
		return best;
	if (!(f.max > -flt_max))
		return f.parts ? 0 : best; /* bounded, all are alike */
	const double u = sample_uniform((uint64_t)r.seed_hi << 32 | r.seed_lo, r.index, r.position);
	return draws_from_all(r) ? draw_from_all(s, f, sum_all(s, f), u) : draw_cut(s, r, f, u);
}

#endif
