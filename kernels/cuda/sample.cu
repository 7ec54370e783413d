/* sample.cu - from logits to a token, as kernels/cpu/sample.c does it and with the same choices.
 *
 * First every 4,096 logits of a row by a block of their own: the largest, then the sums of p and the
 * candidates.  Then one block per row, which has little left to read, but where the logits are
 * adjusted before the draw.
 *
 * Everything that decides is exact (comparisons, counts, sums of integers) or done in the CPU's
 * order: sums of p go by 16 lanes over blocks of 4096, lanes folded in halves, blocks added in double;
 * the draw's running sums ascend by id in double.  What top-p compares is a sum of p in units of
 * 2^-44, which does not depend on any order.
 *
 * The cuts are found by their last token in the order (larger logit first, then lower id): four
 * passes over the candidates, each narrowing the logit by 8 bits through a histogram. */
#include "kernels/cuda/sample_block.cuh"
#include "kernels/cuda/table.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	SLOTS_MAX = 32,      /* rows at work at a time: each needs scratch of three vocabularies */
	MARK_SEEN = 1 << 29, /* in the history; the bits below count the output */
	MARK_ALLOWED = 1 << 30,
	ROWS_BYTES = 2 << 20, /* of rows with all their lists, in one launch: one with the longest of all fits */
	FETCH = 4,            /* candidates of a thread that are under way at once */
	TOPS = 128,           /* likeliest tokens of a row that there is room for from the start */
};

static const float greedy_below = 1e-5f;

/* A row as the kernel sees it: lists stand in the same buffer, at word offsets. */
struct row {
	int32_t row, hist0, n_prompt, n_hist, forced, top_k;
	float temperature, top_p, min_p, presence, frequency, repetition;
	uint32_t seed_lo, seed_hi, index, position;
	int32_t n_bias, bias_ids, bias; /* count, offsets */
	int32_t n_allowed, allowed, n_banned, banned, n_bad, bad, bad_at, n_logprobs;
	int32_t pad;
};

/* Of 4,096 logits of a row as the model gave them. */
struct part {
	float max;   /* the largest, NaN passed over, */
	int32_t id;  /* and the first that has it */
	float sum;   /* of p */
	float sum_t; /* of p at the row's temperature */
	int32_t kept; /* candidates, at the part's own place in ids */
};

struct sample_args {
	const float *logits;
	int n_vocab, n_rows, top_stride;
	int32_t *tokens;
	const int32_t *buf; /* rows first */
	float *w;           /* [slots][vocab] logits after adjustment */
	int32_t *ids;       /* [slots][vocab] candidates, ascending */
	uint32_t *mark;     /* [slots][vocab] zero between uses */
	float *sums;        /* [slots][blocks] of adjusted logits */
	struct part *parts; /* [slots][blocks] */
	size_t vocab_stride, sums_stride;
	int32_t *token, *rank, *top_id;
	float *logprob, *top_logprob;
};

struct cuda_sampler {
	struct cuda_ring ring;
	int slots, vocab;
	struct cuda_buf scratch;
	/* results of as many rows as there are logits */
	struct cuda_buf result;
	struct cuda_buf top;
};

/* ---- adjustments, in their order ---- */

KERN_DEV bool penalizes(const struct row &r)
{
	return r.repetition != 1 || r.presence != 0 || r.frequency != 0;
}

KERN_DEV bool adjusts(const struct row &r)
{
	return penalizes(r) || r.n_bias || r.n_allowed || r.n_banned || r.n_bad;
}

KERN_DEV void penalize(const struct row &r, const int32_t *hist, int n, float *w, uint32_t *mark)
{
	for (int i = tid(); i < r.n_hist; i += THREADS)
		if (hist[i] >= 0 && hist[i] < n) {
			if (i >= r.n_prompt)
				atomic_add(&mark[hist[i]], 1u);
			atomic_or(&mark[hist[i]], (uint32_t)MARK_SEEN);
		}
	block_sync();
	for (int i = tid(); i < r.n_hist; i += THREADS) {
		if (hist[i] < 0 || hist[i] >= n)
			continue;
		const uint32_t m = atomic_exch(&mark[hist[i]], 0u); /* the first to come does it */
		if (!m)
			continue;
		const float v = w[hist[i]];
		float x = v > 0 ? f32_div_rn(v, r.repetition) : f32_mul_rn(v, r.repetition);
		const uint32_t times = m & (MARK_SEEN - 1);
		if (times) {
			x = f32_add_rn(x, -f32_mul_rn(r.frequency, (float)times));
			x = f32_add_rn(x, -r.presence);
		}
		w[hist[i]] = clean(x);
	}
	block_sync();
}

KERN_DEV void keep_allowed(const struct row &r, const int32_t *ids, int n, float *w, uint32_t *mark)
{
	for (int i = tid(); i < r.n_allowed; i += THREADS)
		if (ids[i] >= 0 && ids[i] < n)
			mark[ids[i]] = (uint32_t)MARK_ALLOWED;
	block_sync();
	for (int i = tid(); i < n; i += THREADS)
		if (!mark[i])
			w[i] = -INFINITY;
	block_sync();
	for (int i = tid(); i < r.n_allowed; i += THREADS)
		if (ids[i] >= 0 && ids[i] < n)
			mark[ids[i]] = 0;
	block_sync();
}

/* Thread i: word i, of which bad_at tells the begin and, one further, the end. */
KERN_DEV void ban_bad_words(const struct row &r, const int32_t *buf, const int32_t *hist, int n, float *w)
{
	for (int i = tid(); i < r.n_bad; i += THREADS) {
		const int32_t *word = buf + r.bad + buf[r.bad_at + i];
		const int prefix = buf[r.bad_at + i + 1] - buf[r.bad_at + i] - 1;
		if (prefix < 0 || prefix > r.n_hist)
			continue;
		int k = 0;
		while (k < prefix && hist[r.n_hist - prefix + k] == word[k])
			k++;
		if (k == prefix && word[prefix] >= 0 && word[prefix] < n)
			w[word[prefix]] = -INFINITY;
	}
	block_sync();
}

KERN_DEV void adjust(const struct sample_args &a, const struct row &r, const float *x, float *w,
		     uint32_t *mark)
{
	const int n = a.n_vocab;
	const int32_t *hist = a.tokens + r.hist0;
	for (int i = tid(); i < n; i += THREADS)
		w[i] = clean(x[i]);
	block_sync();
	if (penalizes(r))
		penalize(r, hist, n, w, mark);
	if (tid() == 0) /* ids may repeat, so in order */
		for (int i = 0; i < r.n_bias; i++) {
			const int id = a.buf[r.bias_ids + i];
			if (id >= 0 && id < n)
				w[id] = clean(f32_add_rn(w[id], f32_from_bits(a.buf[r.bias + i])));
		}
	block_sync();
	if (r.n_allowed)
		keep_allowed(r, a.buf + r.allowed, n, w, mark);
	for (int i = tid(); i < r.n_banned; i += THREADS) {
		const int id = a.buf[r.banned + i];
		if (id >= 0 && id < n)
			w[id] = -INFINITY;
	}
	block_sync();
	if (r.n_bad)
		ban_bad_words(r, a.buf, hist, n, w);
}

/* ---- the draw ---- */

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

KERN_DEV int blocks_of(int n)
{
	return (n + SUM_BLOCK - 1) / SUM_BLOCK;
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

KERN_DEV bool draws(const struct row &r)
{
	return r.forced < 0 && r.temperature >= greedy_below;
}

/* From all tokens: nothing cuts. */
KERN_DEV bool draws_from_all(const struct row &r)
{
	return r.top_k <= 0 && !(r.top_p < 1) && !(r.min_p > 0);
}

KERN_DEV int top_k_of(const struct row &r, int n)
{
	return r.top_k > 0 && r.top_k < n ? r.top_k : 0;
}

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
 * returns how many they have.  All are asked for at once. */
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
		const int parts = min((int)BINS, blocks_of(f.n) - b0), n = kept_before(s, f.parts + b0, parts);
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

/* ---- log-probabilities ---- */

struct stats {
	float max, log_sum;
};

KERN_DEV float logprob_of(const struct stats &t, float x)
{
	if (!(x > -INFINITY))
		return -INFINITY;
	if (t.max == INFINITY)
		return x == INFINITY ? 0.0f : -INFINITY;
	return f32_add_rn(f32_add_rn(x, -t.max), -t.log_sum);
}

/* The k largest of the raw logits, the lower id first among equals; what is missing has id -1. */
KERN_DEV void top_logprobs(struct shared *s, const struct stats &t, const float *x, int n, int k,
			   int32_t *ids, int32_t *top_id, float *top_logprob)
{
	auto key = [=](int i) { return key_of(x[i]); };
	auto one = [=](int i) -> uint64_t { return x[i] == x[i]; };
	const struct cut c = find_cut(s, n, (uint64_t)k, key, one);
	const int have = keep(
		s, n, c, [](int i) { return i; }, key, [=](int i) { return x[i] == x[i]; }, ids);
	for (int i = tid(); i < k; i += THREADS) {
		if (i >= have) {
			top_id[i] = -1;
			top_logprob[i] = -INFINITY;
			continue;
		}
		int at = 0; /* how many stand before it; ids ascend, so equals before it are lower */
		for (int o = 0; o < have; o++)
			at += x[ids[o]] > x[ids[i]] || (x[ids[o]] == x[ids[i]] && o < i);
		top_id[at] = ids[i];
		top_logprob[at] = logprob_of(t, x[ids[i]]);
	}
	block_sync();
}

/* ---- a row in parts ---- */

KERN_DEV struct row row_of(const struct sample_args &a, int i)
{
	return ((const struct row *)(const void *)a.buf)[i];
}

KERN_DEV const float *logits_of(const struct sample_args &a, const struct row &r)
{
	return a.logits + (size_t)r.row * (size_t)a.n_vocab;
}

/* The largest of the row and the first id that has it, from its parts. */
KERN_DEV float row_max(struct shared *s, const struct part *parts, int n, int *id)
{
	int b;
	const float max = block_argmax(
		s, blocks_of(n), [=](int k) { return parts[k].max; }, &b);
	*id = parts[b].id;
	return max;
}

/* Block (b, i): part b of row i. */
static __global__ void __launch_bounds__(THREADS, 1) sample_max_kernel(struct sample_args a)
{
	struct shared *s = (struct shared *)(void *)kern_smem();
	const int b = (int)blockIdx.x, first = b * SUM_BLOCK;
	const float *x = logits_of(a, row_of(a, (int)blockIdx.y)) + first;
	struct part *part = a.parts + blockIdx.y * a.sums_stride + b;
	int at;
	const float max = block_argmax(
		s, min((int)SUM_BLOCK, a.n_vocab - first), [=](int k) { return x[k]; }, &at);
	if (tid() == 0) {
		part->max = max;
		part->id = first + at;
	}
}

struct exp_shared {
	float p[2][SUM_BLOCK]; /* of the logits as they are; at the row's temperature */
	struct shared s;
};

/* Block (b, i), once the row's largest is known. */
static __global__ void __launch_bounds__(THREADS, 1) sample_exp_kernel(struct sample_args a)
{
	struct exp_shared *e = (struct exp_shared *)(void *)kern_smem();
	const struct row r = row_of(a, (int)blockIdx.y);
	const int b = (int)blockIdx.x, first = b * SUM_BLOCK, n = min((int)SUM_BLOCK, a.n_vocab - first);
	const float *x = logits_of(a, r) + first;
	struct part *parts = a.parts + blockIdx.y * a.sums_stride;
	const bool tempered = draws(r) && !adjusts(r);
	int best;
	const float max = row_max(&e->s, parts, a.n_vocab, &best), bounded = clean(max);
	const float inv_t = tempered ? f32_div_rn(1.0f, r.temperature) : 1.0f;
	for (int k = tid(); k < n; k += THREADS) {
		e->p[0][k] = p_of(x[k], max, 1.0f);
		if (tempered)
			e->p[1][k] = p_of(clean(x[k]), bounded, inv_t);
	}
	block_sync();
	if (warp_id() == 0) { /* half a warp for each sum */
		const bool second = lane_id() >= SUM_LANES;
		float sum = 0;
		for (int k = lane_id() % SUM_LANES; k < (second && !tempered ? 0 : n); k += SUM_LANES)
			sum = f32_add_rn(sum, e->p[second][k]);
		sum = fold_lanes(sum);
		if (lane_id() == 0)
			parts[b].sum = sum;
		if (lane_id() == SUM_LANES)
			parts[b].sum_t = sum;
	}
	if (!tempered || draws_from_all(r))
		return;
	const struct bounds least = bounds_of(r, a.n_vocab, bounded, false);
	const struct cut everything = {true, 0, 0};
	const int kept = keep(
		&e->s, n, everything, [=](int k) { return first + k; }, [](int) { return 0u; },
		[=](int id) { return clean(x[id - first]) >= least.logit && e->p[1][id - first] >= least.p; },
		a.ids + blockIdx.y * a.vocab_stride + first);
	if (tid() == 0)
		parts[b].kept = kept;
}

/* ---- a row as a whole ---- */

KERN_DEV int choose(const struct sample_args &a, struct shared *s, const struct row &r, int i, float max,
		    int best)
{
	const float *x = logits_of(a, r);
	struct source f = {x,
			   a.parts + (size_t)i * a.sums_stride,
			   a.sums + (size_t)i * a.sums_stride,
			   a.ids + (size_t)i * a.vocab_stride,
			   a.n_vocab,
			   clean(max),
			   draws(r) ? f32_div_rn(1.0f, r.temperature) : 1.0f};
	if (!adjusts(r))
		return draw(s, r, f, best);
	float *w = a.w + (size_t)i * a.vocab_stride;
	adjust(a, r, x, w, a.mark + (size_t)i * a.vocab_stride);
	f.x = w;
	f.parts = NULL;
	f.max = block_argmax(
		s, a.n_vocab, [=](int k) { return w[k]; }, &best);
	return draw(s, r, f, best);
}

/* Block i: row i. */
static __global__ void __launch_bounds__(THREADS, 1) sample_kernel(struct sample_args a)
{
	struct shared *s = (struct shared *)(void *)kern_smem();
	const int i = (int)blockIdx.x, n = a.n_vocab;
	const struct row r = row_of(a, i);
	const float *x = logits_of(a, r);
	const struct part *parts = a.parts + (size_t)i * a.sums_stride;
	int best, token = r.forced;
	struct stats t;
	t.max = row_max(s, parts, n, &best);
	const double sum = add_blocks(s, blocks_of(n), [=](int b) { return parts[b].sum; });
	t.log_sum = sum > 0 ? sample_log((float)sum) : 0.0f;
	if (token < 0) {
		token = choose(a, s, r, i, t.max, best);
		if (tid() == 0)
			a.tokens[r.hist0 + r.n_hist] = token;
	}
	const float v = token < n ? x[token] : -INFINITY;
	int rank = 0;
	if (r.n_logprobs >= 0) {
		for (int k = tid(); k < n; k += THREADS)
			rank += x[k] > v;
		rank = block_add(s, rank) + 1;
	}
	if (tid() == 0) {
		a.token[i] = token;
		a.logprob[i] = logprob_of(t, v);
		a.rank[i] = rank;
	}
	if (r.n_logprobs > 0)
		top_logprobs(s, t, x, n, r.n_logprobs, a.ids + (size_t)i * a.vocab_stride,
			     a.top_id + (size_t)i * (size_t)a.top_stride,
			     a.top_logprob + (size_t)i * (size_t)a.top_stride);
}

/* ---- host ---- */

static size_t stride_of(int n_vocab)
{
	return ((size_t)n_vocab + 63) & ~(size_t)63;
}

static size_t sums_of(int n_vocab)
{
	return ((size_t)(n_vocab + SUM_BLOCK - 1) / SUM_BLOCK + 15) & ~(size_t)15;
}

static int grow(struct kern_dev *d, struct cuda_buf *b, size_t bytes)
{
	if (bytes <= b->bytes)
		return 0;
	void *p = cuda_mem_new(d, bytes);
	if (!p)
		return -ENOMEM;
	cuda_mem_free(d, b->p, b->bytes);
	b->p = p;
	b->bytes = bytes;
	return 0;
}

int cuda_sampler_init(struct kern_dev *d)
{
	struct cuda_sampler *p = d->sampler = (struct cuda_sampler *)xcalloc(1, sizeof *p);
	p->slots = d->args.max_logits < SLOTS_MAX ? d->args.max_logits : (int)SLOTS_MAX;
	const size_t n = (size_t)d->args.max_logits;
	if (grow(d, &p->result, 3 * n * 4) || grow(d, &p->top, 2 * n * TOPS * 4))
		return -ENOMEM;
	return cuda_ring_init(d, &p->ring, ROWS_BYTES);
}

void cuda_sampler_fini(struct kern_dev *d)
{
	struct cuda_sampler *p = d->sampler;
	if (!p)
		return;
	cuda_mem_free(d, p->top.p, p->top.bytes);
	cuda_mem_free(d, p->result.p, p->result.bytes);
	cuda_mem_free(d, p->scratch.p, p->scratch.bytes);
	cuda_ring_fini(d, &p->ring);
	free(p);
}

int cuda_sample_reserve(struct kern_dev *d, int n_vocab)
{
	struct cuda_sampler *p = d->sampler;
	if (n_vocab <= p->vocab)
		return 0;
	const size_t words = 3 * stride_of(n_vocab) + sums_of(n_vocab) * (1 + sizeof(struct part) / 4);
	int e = grow(d, &p->scratch, (size_t)p->slots * words * 4);
	if (!e)
		p->vocab = n_vocab;
	return e;
}

/* Words of a row and its lists. */
static size_t words_of(const struct kern_sample_row *r)
{
	size_t n =
		sizeof(struct row) / 4 + 2 * (size_t)r->n_bias + (size_t)r->n_allowed + (size_t)r->n_banned;
	if (r->n_bad) {
		n += (size_t)r->n_bad + 1;
		for (int i = 0; i < r->n_bad; i++)
			n += (size_t)r->bad_len[i];
	}
	return n;
}

static int32_t put(int32_t *buf, int32_t *at, const void *from, int n)
{
	const int32_t begin = *at;
	if (n)
		memcpy(buf + begin, from, (size_t)n * 4);
	*at += n;
	return begin;
}

static void put_row(int32_t *buf, int i, int32_t *at, const struct kern_sample_row *r)
{
	struct row o = {};
	o.row = r->row;
	o.hist0 = r->hist0;
	o.n_prompt = r->n_prompt;
	o.n_hist = r->n_hist;
	o.forced = r->forced;
	o.top_k = r->top_k;
	o.temperature = r->temperature;
	o.top_p = r->top_p;
	o.min_p = r->min_p;
	o.presence = r->presence;
	o.frequency = r->frequency;
	o.repetition = r->repetition;
	o.seed_lo = (uint32_t)r->seed;
	o.seed_hi = (uint32_t)(r->seed >> 32);
	o.index = r->index;
	o.position = r->position;
	o.n_bias = r->n_bias;
	o.bias_ids = put(buf, at, r->bias_ids, r->n_bias);
	o.bias = put(buf, at, r->bias, r->n_bias);
	o.n_allowed = r->n_allowed;
	o.allowed = put(buf, at, r->allowed, r->n_allowed);
	o.n_banned = r->n_banned;
	o.banned = put(buf, at, r->banned, r->n_banned);
	o.n_bad = r->n_bad;
	o.n_logprobs = r->n_logprobs;
	int32_t all = 0;
	o.bad_at = *at;
	for (int k = 0; k < r->n_bad; k++) {
		buf[(*at)++] = all;
		all += r->bad_len[k];
	}
	if (r->n_bad)
		buf[(*at)++] = all;
	o.bad = put(buf, at, r->bad, all);
	memcpy((struct row *)(void *)buf + i, &o, sizeof o);
}

/* n rows, each in a slot of its own. */
static int launch(struct kern_stream *s, struct sample_args a, const struct kern_sample_row *rows, int n)
{
	struct cuda_sampler *p = s->dev->sampler;
	int32_t *buf = (int32_t *)(void *)cuda_ring_take(&p->ring), end = n * (int)(sizeof(struct row) / 4);
	if (!buf)
		return -EIO;
	for (int i = 0; i < n; i++)
		put_row(buf, i, &end, &rows[i]);
	int e = cuda_ring_send(&p->ring, s, (size_t)end * 4);
	if (e)
		return e;
	a.n_rows = n;
	a.buf = (const int32_t *)(const void *)p->ring.dev;
	const dim3 parts((unsigned)((a.n_vocab + SUM_BLOCK - 1) / SUM_BLOCK), (unsigned)n);
	if ((e = KERN_LAUNCH(sample_max_kernel, parts, THREADS, sizeof(struct shared), s->s, a)) ||
	    (e = KERN_LAUNCH(sample_exp_kernel, parts, THREADS, sizeof(struct exp_shared), s->s, a)))
		return e;
	return KERN_LAUNCH(sample_kernel, (unsigned)n, THREADS, sizeof(struct shared), s->s, a);
}

static int fetch(struct kern_stream *s, void *to, const void *from, size_t bytes)
{
	return cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->s),
			  "download of tokens");
}

int cuda_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		const struct kern_sample_row *rows, int n, const struct kern_sample_out *out)
{
	struct kern_dev *d = s->dev;
	struct cuda_sampler *p = d->sampler;
	bool tops = false;
	if (!n)
		return 0;
	for (int i = 0; i < n; i++) {
		assert(rows[i].n_logprobs <= 0 || rows[i].n_logprobs <= out->top_stride);
		tops |= rows[i].n_logprobs > 0;
	}
	/* There is room since open() and the embedding's load, but for callers that ask for more. */
	const size_t top_words = tops ? (size_t)n * (size_t)out->top_stride : 0;
	int e = cuda_sample_reserve(d, n_vocab);
	if (e || (e = grow(d, &p->result, 3 * (size_t)n * 4)) || (e = grow(d, &p->top, 2 * top_words * 4)))
		return e;
	/* The layout is that of the largest vocabulary so far: marks must be zero where they are looked for,
	 * which no other array's place is. */
	const size_t all = (size_t)p->slots * stride_of(p->vocab);
	struct sample_args a = {};
	a.logits = (const float *)logits;
	a.n_vocab = n_vocab;
	a.top_stride = out->top_stride;
	a.tokens = tokens;
	a.vocab_stride = stride_of(p->vocab);
	a.sums_stride = sums_of(p->vocab);
	a.w = (float *)p->scratch.p;
	a.ids = (int32_t *)p->scratch.p + all;
	a.mark = (uint32_t *)p->scratch.p + 2 * all;
	a.sums = (float *)p->scratch.p + 3 * all;
	a.parts = (struct part *)(void *)(a.sums + (size_t)p->slots * a.sums_stride);
	for (int at = 0, k; at < n; at += k) {
		size_t words = 0, more;
		for (k = 0; k < p->slots && at + k < n && (words + (more = words_of(&rows[at + k]))) * 4 <= ROWS_BYTES; k++)
			words += more;
		if (!k) {
			log_error("cuda", "sample refused=\"lists of more than %d bytes\"", (int)ROWS_BYTES);
			return -EINVAL;
		}
		int32_t *result = (int32_t *)p->result.p, *top = (int32_t *)p->top.p;
		a.token = result + at;
		a.logprob = (float *)(void *)(result + n + at);
		a.rank = result + 2 * n + at;
		a.top_id = tops ? top + (size_t)at * (size_t)out->top_stride : NULL;
		a.top_logprob =
			tops ? (float *)(void *)(top + top_words + (size_t)at * (size_t)out->top_stride)
			     : NULL;
		if ((e = launch(s, a, rows + at, k)))
			return e;
	}
	const size_t one = (size_t)n * 4;
	if ((e = fetch(s, out->token, p->result.p, one)) ||
	    (e = fetch(s, out->logprob, (char *)p->result.p + one, one)) ||
	    (e = fetch(s, out->rank, (char *)p->result.p + 2 * one, one)))
		return e;
	if (tops && ((e = fetch(s, out->top_id, p->top.p, top_words * 4)) ||
		     (e = fetch(s, out->top_logprob, (char *)p->top.p + top_words * 4, top_words * 4))))
		return e;
	return 0;
}
