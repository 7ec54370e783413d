/* sample_draw.cuh - one block draws a token from a row's logits: from all tokens, or from the candidates that
 * top-k, top-p and min-p keep. */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_DRAW_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_DRAW_CUH

#include "kernels/cuda/sample_row.cuh"

enum {
	FETCH = 4, /* candidates that a thread loads at once */
};

/* Source of the draw: a row's logits, bounded like the CPU's. */
struct source {
	const float *x;
	const uint32_t *mask;     /* or NULL */
	const struct part *parts; /* NULL: the logits are adjusted, hence already bounded */
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

/* Return the sum of all tokens' weights. */
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

/* Lower bounds of a candidate's logit and p.  Top-k and top-p keep few tokens.  With them, only tokens within
 * 12 T (temperature) of the largest logit are tried first, then all tokens (wide). */
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

/* Set s->lo[b] to the number of candidates before part b0 + b, for at most BINS parts, of which `parts`
 * exist.  Returns the candidates of all of them.  All loads are issued at once. */
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

/* Return the part of candidate k: the last part with at most k candidates before it. */
KERN_DEV int part_of(const struct shared *s, int parts, int k)
{
	int at = 0;
	for (int by = BINS / 2; by; by /= 2)
		if (at + by < parts && s->lo[at + by] <= (uint32_t)k)
			at += by;
	return at;
}

/* Compact the candidates that the parts found.  No candidate moves to a higher place, so that unread ids are
 * not overwritten: FETCH x THREADS are read, then written. */
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
				if (k0 + j * THREADS + tid() < n) /* this place has been read already */
					f.ids[kept + k0 + j * THREADS + tid()] = id[j];
		}
		kept += n;
	}
	block_sync();
	return kept;
}

/* Draw with top-k, top-p and min-p.  Each keeps a prefix of the same order, and the shortest prefix counts.
 * Top-p's share is of the tokens that top-k keeps. */
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
	auto sum_of = [&](struct cut c) { /* weight of the candidates that c keeps */
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
					  /* the weight of any tie, times the number of ties kept */
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
			/* a share of what top-k left, or of everything */
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

/* ---- list draws: cuts that do not keep a prefix of one order ---- */

/* Return a share of a sum, rounded up. */
KERN_DEV uint64_t share_of(float share, uint64_t sum)
{
	return (uint64_t)ceil(f64_mul_rn((double)share, (double)sum));
}

/* Return the sum of (logit - mean), or of its square, in the CPU's order, over the tokens above the lowest
 * value. */
KERN_DEV double sum_lanes(struct shared *s, const struct source &f, double mean, bool squares, int *count)
{
	double sum = 0;
	int have = 0;
	for (int i = tid(); i < (tid() < BINS ? f.n : 0); i += BINS) {
		const float x = logit(f, i);
		if (!(x > -flt_max))
			continue;
		const double v = f64_add_rn((double)x, -mean);
		sum = f64_add_rn(sum, squares ? f64_mul_rn(v, v) : v);
		have++;
	}
	*count = block_add(s, have);
	if (tid() < BINS)
		s->part[tid()] = sum;
	block_sync();
	for (int half = BINS / 2; half; half /= 2) {
		if (tid() < half)
			s->part[tid()] = f64_add_rn(s->part[tid()], s->part[tid() + half]);
		block_sync();
	}
	sum = s->part[0];
	block_sync();
	return sum;
}

KERN_DEV float least_by_sigma(struct shared *s, const struct source &f, float by)
{
	int count;
	const double sum = sum_lanes(s, f, 0, false, &count), mean = f64_div_rn(sum, (double)count);
	const double squares = sum_lanes(s, f, mean, true, &count);
	const double sigma = f64_sqrt_rn(f64_div_rn(squares, (double)count));
	return (float)f64_add_rn((double)f.max, -f64_mul_rn((double)by, sigma));
}

/* Return ln p of the row's likeliest token minus ln p of token id. */
KERN_DEV float below_max(const struct source &f, int id)
{
	return fabsf(f32_mul_rn(f32_add_rn(logit(f, id), -f.max), f.inv_t));
}

/* Keep the typical tokens of the n in f.ids; returns their number. */
KERN_DEV int keep_typical(struct shared *s, const struct source &f, int n, float typical_p)
{
	auto weight = [=](int i) { return weight_at(f, f.ids[i]); };
	const uint64_t all = add_weights(s, n, weight);
	const uint64_t sum = add_weights(s, n, [=](int i) {
		return weight_of(f32_mul_rn(p_at(f, f.ids[i]), below_max(f, f.ids[i])));
	});
	const float mean = (float)f64_div_rn((double)sum, (double)all);
	auto key = [=](int id) { /* larger for a more typical token */
				 return ~(uint32_t)f32_bits(fabsf(f32_add_rn(below_max(f, id), -mean)));
	};
	const struct cut c = find_cut(
		s, n, share_of(typical_p, all), [=](int i) { return key(f.ids[i]); }, weight);
	const struct cut everything = {true, 0, 0};
	return keep(
		s, n, everything, [=](int i) { return f.ids[i]; }, [](int) { return 0u; },
		[=](int id) { return c.all || key(id) >= c.key; }, f.ids); /* keeps ties */
}

KERN_DEV bool by_chance(uint64_t bits, float probability)
{
	return f64_mul_rn((double)(bits >> 11), 0x1p-53) < (double)probability;
}

KERN_DEV int draw_list(struct shared *s, const struct row &r, const struct source &f, uint64_t bits,
		       uint64_t more)
{
	const struct cut everything = {true, 0, 0};
	auto id = [=](int i) { return f.ids[i]; };
	auto key = [=](int i) { return key_of(logit(f, f.ids[i])); };
	auto none = [](int) { return 0u; };
	auto any = [](int) { return true; };
	auto one = [](int) -> uint64_t { return 1; };
	auto weight = [=](int i) { return weight_at(f, f.ids[i]); };
	const float sigma = r.top_n_sigma > 0 ? least_by_sigma(s, f, r.top_n_sigma) : -INFINITY;
	int n = candidates(s, f, {sigma, p_min});
	if (r.top_k > 0 && r.top_k < n)
		n = keep(s, n, find_cut(s, n, (uint64_t)r.top_k, key, one), id, key, any, f.ids);
	if (r.typical_p > 0 && r.typical_p < 1)
		n = keep_typical(s, f, n, r.typical_p);
	if (r.top_p < 1) {
		const uint64_t target = share_of(r.top_p, add_weights(s, n, weight));
		n = keep(s, n, find_cut(s, n, target, key, weight), id, key, any, f.ids);
	}
	if (r.min_p > 0) {
		int at;
		const float top = block_argmax(
			s, n, [=](int i) { return p_at(f, f.ids[i]); }, &at);
		const float least = f32_mul_rn(r.min_p < 1 ? r.min_p : 1.0f, top);
		n = keep(
			s, n, everything, id, none, [=](int i) { return p_at(f, i) >= least; }, f.ids);
	}
	if (r.xtc_probability > 0 && by_chance(more, r.xtc_probability)) {
		int at;
		const uint64_t least = share_of(r.xtc_threshold, add_weights(s, n, weight));
		const float low = -block_argmax(
			s, n, [=](int i) { return weight(i) >= least ? -logit(f, f.ids[i]) : -INFINITY; },
			&at);
		n = keep(
			s, n, everything, id, none, [=](int i) { return logit(f, i) <= low; }, f.ids);
	}
	return draw_from_kept(s, f, n, bits);
}

/* Draw a row's token.  best: the first id with the largest logit. */
KERN_DEV int draw(struct shared *s, const struct row &r, const struct source &f, int best)
{
	if (!draws(r))
		return best;
	if (!(f.max > -flt_max))
		return f.parts ? 0 : best; /* not adjusted, so no mask: all logits are equal */
	uint64_t more;
	const uint64_t bits = sample_bits((uint64_t)r.seed_hi << 32 | r.seed_lo, r.index, r.position, &more);
	if (cuts_lists(r))
		return draw_list(s, r, f, bits, more);
	return draws_from_all(r) ? draw_from_all(s, f, bits) : draw_cut(s, r, f, bits);
}

#endif
