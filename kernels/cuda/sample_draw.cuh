/* sample_draw.cuh - the draw of one token from a row's logits, by one block: from all tokens, or from
 * the candidates that top-k, top-p and min-p keep. */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_DRAW_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_DRAW_CUH

#include "kernels/cuda/sample_row.cuh"

enum {
	FETCH = 4, /* candidates of a thread that are loaded at once */
};

/* What is drawn from: the logits of a row, bounded like the CPU's. */
struct source {
	const float *x;
	const uint32_t *mask;     /* or NULL */
	const struct part *parts; /* NULL: the logits are adjusted, and bounded by that */
	int32_t *ids;
	int n;
	float max, inv_t;
};

KERN_DEV float logit(const struct source &f, int i)
{
	return f.parts ? bounded_logit(f.x, f.mask, i) : f.x[i];
}

KERN_DEV float p_at(const struct source &f, int i)
{
	return p_of(logit(f, i), f.max, f.inv_t);
}

KERN_DEV uint64_t weight_at(const struct source &f, int i)
{
	return weight_of(p_at(f, i));
}

/* Of all. */
KERN_DEV uint64_t weight_of_all(struct shared *s, const struct source &f)
{
	if (f.parts)
		return add_weights(s, blocks_of(f.n), [=](int b) { return f.parts[b].weight; });
	return add_weights(s, f.n, [=](int i) { return weight_at(f, i); });
}

KERN_DEV int draw_from_all(struct shared *s, const struct source &f, uint64_t bits)
{
	uint64_t target = target_of(bits, weight_of_all(s, f));
	int from = 0, to = f.n;
	if (f.parts) {
		from = find_weight(s, 0, blocks_of(f.n), &target, [=](int b) { return f.parts[b].weight; }) *
		       SUM_BLOCK;
		to = min(f.n, from + SUM_BLOCK);
	}
	return find_weight(s, from, to, &target, [=](int i) { return weight_at(f, i); });
}

KERN_DEV int draw_from_kept(struct shared *s, const struct source &f, int kept, uint64_t bits)
{
	auto weight = [=](int i) { return weight_at(f, f.ids[i]); };
	uint64_t target = target_of(bits, add_weights(s, kept, weight));
	return f.ids[find_weight(s, 0, kept, &target, weight)];
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
		return {-INFINITY, least > p_min ? least : p_min};
	return {wide ? -INFINITY : f32_add_rn(max, -f32_mul_rn(12.0f, r.temperature)), p_min};
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
KERN_DEV int draw_cut(struct shared *s, const struct row &r, const struct source &f, uint64_t bits)
{
	const int top_k = top_k_of(r, f.n);
	auto id = [=](int i) { return f.ids[i]; };
	auto key = [=](int i) { return key_of(logit(f, f.ids[i])); };
	auto one = [](int) -> uint64_t { return 1; };
	auto p = [=](int i) { return weight_at(f, f.ids[i]); };
	int kept = f.parts ? candidates_of_parts(s, f) : candidates(s, f, bounds_of(r, f.n, f.max, false));
	if (!top_k && !(r.top_p < 1))
		return draw_from_kept(s, f, kept, bits);
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
	const uint64_t all = top_k ? 0 : weight_of_all(s, f);
	struct cut c = {true, 0, 0};
	for (int tries = 0; tries < 2; tries++) {
		if (tries)
			kept = candidates(s, f, bounds_of(r, f.n, f.max, true));
		if (top_k)
			c = find_cut(s, kept, (uint64_t)top_k, key, one);
		if (r.top_p < 1 && !(c.all && top_k && !tries)) {
			/* of what top-k left, or of everything */
			const uint64_t of = top_k ? sum_of(c) : all;
			const struct cut by_p = find_cut(
				s, kept, (uint64_t)ceil(f64_mul_rn((double)r.top_p, (double)of)), key, p);
			if (narrower(by_p, c))
				c = by_p;
		}
		if (!c.all)
			break;
	}
	const float least = r.min_p < 1 ? r.min_p : 1.0f;
	kept = keep(
		s, kept, c, id, key, [=](int i) { return p_at(f, i) >= least; }, f.ids);
	return draw_from_kept(s, f, kept, bits);
}

/* best: the first of the largest. */
KERN_DEV int draw(struct shared *s, const struct row &r, const struct source &f, int best)
{
	if (!draws(r))
		return best;
	if (!(f.max > -flt_max))
		return f.parts ? 0 : best; /* bounded, all are alike; a masked row without more is adjusted */
	const uint64_t bits = sample_bits((uint64_t)r.seed_hi << 32 | r.seed_lo, r.index, r.position);
	return draws_from_all(r) ? draw_from_all(s, f, bits) : draw_cut(s, r, f, bits);
}

#endif
