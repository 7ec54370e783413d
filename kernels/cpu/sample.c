/* sample.c - chooses a token from logits.
 * All arithmetic that decides is exact, a sum of integers (draw.h), or this folder's own exp, so that a row
 * gives the same token on every instruction set and in every batch.  Changing it makes a seed give other
 * tokens, so it needs another version in the numerics class (DRAW in base/numerics.c). */
#include "kernels/cpu/sample_impl.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/draw.h"
#include "kernels/cpu/philox.h"
#include "kernels/mirostat.h"

static const float greedy_below = 1e-5f; /* lower temperatures count as 0, as in vLLM */

enum {
	BUCKETS = 1024,    /* buckets of logits, by their distance from the largest */
	SIGMA_LANES = 256, /* partial sums of a deviation, which are folded in halves */
};

/* ---- scratch ---- */

static int n_sum_blocks(int n)
{
	return (n + SUM_BLOCK - 1) / SUM_BLOCK;
}

int cpu_sample_reserve(struct kern_dev *d, int n_vocab)
{
	if (n_vocab <= d->vocab)
		return 0;
	const size_t row = (((size_t)n_vocab + 15) & ~(size_t)15) * 4;
	const size_t sums = (((size_t)n_sum_blocks(n_vocab) + 15) & ~(size_t)15) * sizeof(uint64_t);
	assert(n_vocab <= DRAW_VOCAB_MAX);
	const size_t bytes = (6 * row + sums) * (size_t)d->n_threads;
	unsigned char *p = alloc_big(bytes);
	if (!p)
		return -ENOMEM;
	alloc_big_free(d->sample_arena, d->sample_bytes);
	d->sample_arena = p;
	d->sample_bytes = bytes;
	d->vocab = n_vocab;
	for (int t = 0; t < d->n_threads; t++, p += 6 * row + sums)
		d->sample[t] = (struct cpu_sample_scratch){
			.x = (float *)(void *)p,
			.w = (float *)(void *)(p + row),
			.p = (float *)(void *)(p + 2 * row),
			.mark = (uint32_t *)(void *)(p + 3 * row),
			.ids = (int32_t *)(void *)(p + 4 * row),
			.heap = (int32_t *)(void *)(p + 5 * row),
			.sums = (uint64_t *)(void *)(p + 6 * row),
		};
	return 0;
}

/* ---- sums and maxima ---- */

/* log(x) for normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log(1 + f) by a polynomial
 * fitted to a relative error of 1e-9. */
static float log_pos(float x)
{
	static const float c[9] = {0.3333331346511841f,  -0.25000008940696716f, 0.2000211924314499f,
				   -0.1666799634695053f, 0.14219552278518677f,  -0.1240558847784996f,
				   0.11888165026903152f, -0.11675656586885452f, 0.06746640056371689f};
	uint32_t u;
	float m;
	memcpy(&u, &x, 4);
	int32_t e = (int32_t)(u - 0x3f3504f3) >> 23;
	u -= (uint32_t)e << 23;
	memcpy(&m, &u, 4);
	float f = m - 1, q = c[8], n = (float)e;
	for (int i = 7; i >= 0; i--)
		q = fmaf(q, f, c[i]);
	float r = fmaf(f * f * f, q, f * f * -0.5f);
	r = fmaf(n, 0x1.7f7d1cp-20f, r); /* ln 2 in two parts, the first with 14 bits */
	return fmaf(n, 0x1.62e4p-1f, r + f);
}

/* Return the largest value; id: the first id that has it.  NaN counts as -inf; id is 0 if there is no other
 * value. */
static float row_max(const struct cpu_isa *isa, const float *x, int n, int *id)
{
	float best = -INFINITY;
	int at = -1;
	for (int i = 0; i < n; i += SUM_BLOCK) {
		float m = isa->max_block(x + i, n - i < SUM_BLOCK ? n - i : SUM_BLOCK);
		if (m > best) {
			best = m;
			at = i;
		}
	}
	*id = 0;
	if (at >= 0) {
		while (x[at] != best)
			at++;
		*id = at;
	}
	return best;
}

/* Return the sum of exp(x - max); the blocks' sums are added in double. */
static double row_exp(const struct cpu_isa *isa, const float *x, int n, float max)
{
	double all = 0;
	for (int i = 0; i < n; i += SUM_BLOCK)
		all += isa->exp_block(NULL, x + i, n - i < SUM_BLOCK ? n - i : SUM_BLOCK, max, 1);
	return all;
}

/* Fill s->p from s->w, and s->sums with the sums of weights by blocks.  Returns the sum of all weights. */
static uint64_t row_weigh(const struct cpu_isa *isa, struct cpu_sample_scratch *s, int n, float max,
			  float inv_t)
{
	uint64_t all = 0;
	for (int i = 0, b = 0; i < n; i += SUM_BLOCK, b++) {
		const int len = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
		isa->exp_block(s->p + i, s->w + i, len, max, inv_t);
		s->sums[b] = isa->weigh_block(s->p + i, len);
		all += s->sums[b];
	}
	return all;
}

/* ---- the most likely tokens ---- */

/* true if a ranks before b: more likely, or as likely with the lower id */
static bool before(const float *w, int32_t a, int32_t b)
{
	return w[a] > w[b] || (w[a] == w[b] && a < b);
}

static void sift(const float *w, int32_t *heap, int n, int i)
{
	for (int c; (c = 2 * i + 1) < n; i = c) {
		if (c + 1 < n && before(w, heap[c + 1], heap[c]))
			c++;
		if (before(w, heap[i], heap[c]))
			return;
		int32_t t = heap[i];
		heap[i] = heap[c];
		heap[c] = t;
	}
}

/* Remove the first token in order from a heap of *n. */
static int32_t pop(const float *w, int32_t *heap, int *n)
{
	int32_t top = heap[0];
	heap[0] = heap[--*n];
	sift(w, heap, *n, 0);
	return top;
}

/* Candidates by bucket of (max - w): all tokens of a bucket rank before those of a later bucket. */
struct ranking {
	const float *w, *p;
	const int32_t *ids; /* candidates, ascending */
	int n;
	int32_t *heap; /* room for n ids */
	float max, scale;
	int count[BUCKETS];
	uint64_t sum[BUCKETS]; /* weight of each bucket */
};

/* Return the smallest logit with p not 0.  Sixteen lanes let the compiler vectorize the loop. */
static float lowest(const struct cpu_sample_scratch *s, int n, float max)
{
	float low[16], all = max;
	int i = 0;
	for (int l = 0; l < 16; l++)
		low[l] = max;
	for (; i + 16 <= n; i += 16)
		for (int l = 0; l < 16; l++) {
			float w = s->p[i + l] > 0 ? s->w[i + l] : max;
			low[l] = w < low[l] ? w : low[l];
		}
	for (; i < n; i++)
		all = s->p[i] > 0 && s->w[i] < all ? s->w[i] : all;
	for (int l = 0; l < 16; l++)
		all = low[l] < all ? low[l] : all;
	return all;
}

static int bucket_of(const struct ranking *k, int id)
{
	float d = (k->max - k->w[id]) * k->scale;
	return d < BUCKETS - 1 ? (int)d : BUCKETS - 1;
}

/* Write the ids with w >= least and p >= least_p to s->ids, ascending; return their number. */
static int candidates(struct cpu_sample_scratch *s, int n, float least, float least_p)
{
	const float *w = s->w, *p = s->p;
	int32_t *ids = s->ids;
	int found = 0;
	for (int i = 0; i < n; i++) { /* without a branch, which would be unpredictable */
		ids[found] = i;
		found += (w[i] >= least) & (p[i] >= least_p);
	}
	return found;
}

/* Rank the tokens at most `reach` below the largest.  Returns false if needed tokens may be missing: there
 * are fewer than top_k, and their weight is below target. */
static bool rank_down_to(struct ranking *k, struct cpu_sample_scratch *s, int n, float reach, int top_k,
			 uint64_t target)
{
	const float least = k->max - reach;
	uint64_t sum = 0;
	k->n = candidates(s, n, least, DRAW_P_MIN);
	memset(k->count, 0, sizeof k->count);
	memset(k->sum, 0, sizeof k->sum);
	for (int i = 0; i < k->n; i++) {
		int id = s->ids[i], b = bucket_of(k, id);
		k->count[b]++;
		k->sum[b] += draw_weight(s->p[id]);
		sum += draw_weight(s->p[id]);
	}
	return k->n >= top_k || sum >= target;
}

/* Most tokens have almost no weight: try those within 12 T of the largest first, then all with a weight.
 * top_k 0: off. */
static void rank_init(struct ranking *k, struct cpu_sample_scratch *s, int n, float max, float temperature,
		      int top_k, uint64_t target)
{
	float reach = max - lowest(s, n, max);
	*k = (struct ranking){.w = s->w, .p = s->p, .ids = s->ids, .heap = s->heap, .max = max};
	k->scale = reach > FLT_MIN * BUCKETS ? (float)BUCKETS / reach : 0;
	if (!rank_down_to(k, s, n, 12 * temperature, top_k > 0 ? top_k : INT_MAX,
			  top_k > 0 ? UINT64_MAX : target))
		rank_down_to(k, s, n, INFINITY, 0, 0);
}

/* Make a heap of bucket b's tokens; return its size. */
static int bucket_heap(const struct ranking *k, int b)
{
	int n = 0;
	for (int i = 0; i < k->n; i++)
		if (bucket_of(k, k->ids[i]) == b)
			k->heap[n++] = k->ids[i];
	for (int i = n / 2 - 1; i >= 0; i--)
		sift(k->w, k->heap, n, i);
	return n;
}

/* Return the last of the top_k tokens in rank order; -1: all are kept.  sum: weight of the kept tokens. */
static int cut_top_k(const struct ranking *k, int top_k, uint64_t *sum)
{
	int seen = 0, b = 0;
	*sum = 0;
	while (b < BUCKETS && seen + k->count[b] < top_k) {
		seen += k->count[b];
		*sum += k->sum[b++];
	}
	if (b == BUCKETS)
		return -1;
	int32_t last = -1;
	for (int n = bucket_heap(k, b); seen < top_k; seen++) {
		last = pop(k->w, k->heap, &n);
		*sum += draw_weight(k->p[last]);
	}
	return last;
}

/* Like cut_top_k(), for the fewest tokens with a weight of target or more. */
static int cut_top_p(const struct ranking *k, uint64_t target)
{
	uint64_t sum = 0;
	int b = 0;
	while (b < BUCKETS && (!k->count[b] || sum + k->sum[b] < target))
		sum += k->sum[b++];
	if (b == BUCKETS)
		return -1;
	int32_t last = -1;
	int n = bucket_heap(k, b);
	do {
		last = pop(k->w, k->heap, &n);
		sum += draw_weight(k->p[last]);
	} while (n && sum < target);
	return last;
}

/* ---- the draw ---- */

/* Return the first id at which the running sum of weights passes the target, which is below the total. */
static int draw_from_all(const struct cpu_sample_scratch *s, uint64_t target)
{
	int b = 0, id;
	while (s->sums[b] <= target)
		target -= s->sums[b++];
	for (id = b * SUM_BLOCK; draw_weight(s->p[id]) <= target; id++)
		target -= draw_weight(s->p[id]);
	return id;
}

/* Like draw_from_all(), among the n candidates that rank no later than last (-1: all) and have p >= least. */
static int draw_from_kept(struct cpu_sample_scratch *s, int n, int last, float least, uint64_t bits)
{
	uint64_t all = 0;
	int kept = 0;
	for (int i = 0; i < n; i++) {
		int32_t id = s->ids[i];
		if (s->p[id] < least || (last >= 0 && before(s->w, last, id)))
			continue;
		s->ids[kept++] = id;
		all += draw_weight(s->p[id]);
	}
	uint64_t target = draw_target(bits, all);
	for (int i = 0; i < kept; i++) {
		const uint64_t weight = draw_weight(s->p[s->ids[i]]);
		if (target < weight)
			return s->ids[i];
		target -= weight;
	}
	assert(!"the target is below the sum");
	return -1;
}

/* Return the least weight that top-p keeps, of a sum. */
static uint64_t share(float top_p, uint64_t sum)
{
	return (uint64_t)ceil((double)top_p * (double)sum);
}

/* Top-k, top-p and min-p each keep the beginning of the same order, so together they keep what the narrowest
 * keeps.  Top-p's share is of what top-k left. */
static int draw_cut(const struct kern_sample_row *r, struct cpu_sample_scratch *s, int n, float max,
		    uint64_t all, uint64_t bits)
{
	const int top_k = r->top_k > 0 && r->top_k < n ? r->top_k : 0;
	const float least = r->min_p < 1 ? r->min_p : 1;
	int last = -1;
	if (!top_k && !(r->top_p < 1))
		return draw_from_kept(s, candidates(s, n, -INFINITY, least > DRAW_P_MIN ? least : DRAW_P_MIN),
				      -1, 0, bits);
	struct ranking k;
	rank_init(&k, s, n, max, r->temperature, top_k, share(r->top_p, all));
	if (top_k)
		last = cut_top_k(&k, top_k, &all);
	if (r->top_p < 1) {
		int p = cut_top_p(&k, share(r->top_p, all));
		if (p >= 0 && (last < 0 || before(s->w, p, last)))
			last = p;
	}
	return draw_from_kept(s, k.n, last, least, bits);
}

/* ---- the draw from a list: filters that do not keep the beginning of the rank order ---- */

static bool cuts_lists(const struct kern_sample_row *r)
{
	return (r->typical_p > 0 && r->typical_p < 1) || r->top_n_sigma > 0 || r->xtc_probability > 0;
}

/* Return the sum of w - mean, or of its square, over values above the lowest one (-FLT_MAX). */
static double sum_lanes(const float *w, int n, double mean, bool squares, int *count)
{
	double lane[SIGMA_LANES] = {0};
	*count = 0;
	for (int i = 0; i < n; i++) {
		if (!(w[i] > -FLT_MAX))
			continue;
		const double v = (double)w[i] - mean;
		lane[i % SIGMA_LANES] += squares ? v * v : v;
		++*count;
	}
	for (int half = SIGMA_LANES / 2; half; half /= 2)
		for (int l = 0; l < half; l++)
			lane[l] += lane[l + half];
	return lane[0];
}

static float least_by_sigma(const float *w, int n, float max, float by)
{
	int count;
	const double sum = sum_lanes(w, n, 0, false, &count), mean = sum / count;
	const double squares = sum_lanes(w, n, mean, true, &count);
	return (float)((double)max - (double)by * sqrt(squares / count));
}

/* Tokens of a row that filters have left, in s->ids. */
struct left {
	struct cpu_sample_scratch *s;
	int n;
	float max, inv_t; /* the row's largest logit, and 1 / temperature */
};

static uint64_t weight_left(const struct left *l)
{
	uint64_t all = 0;
	for (int i = 0; i < l->n; i++)
		all += draw_weight(l->s->p[l->s->ids[i]]);
	return all;
}

/* Keep the tokens that rank no later than last. */
static void keep_until(struct left *l, int32_t last)
{
	int kept = 0;
	for (int i = 0; i < l->n; i++)
		if (last < 0 || !before(l->s->w, last, l->s->ids[i]))
			l->s->ids[kept++] = l->s->ids[i];
	l->n = kept;
}

/* Keep logits up to most, and p from least_p on. */
static void keep_between(struct left *l, float most, float least_p)
{
	int kept = 0;
	for (int i = 0; i < l->n; i++)
		if (l->s->w[l->s->ids[i]] <= most && l->s->p[l->s->ids[i]] >= least_p)
			l->s->ids[kept++] = l->s->ids[i];
	l->n = kept;
}

static void rank_left(struct ranking *k, const struct left *l)
{
	const struct cpu_sample_scratch *s = l->s;
	float low = l->max;
	for (int i = 0; i < l->n; i++)
		low = s->w[s->ids[i]] < low ? s->w[s->ids[i]] : low;
	const float reach = l->max - low;
	*k = (struct ranking){.w = s->w, .p = s->p, .ids = s->ids, .n = l->n, .heap = s->heap, .max = l->max};
	k->scale = reach > FLT_MIN * BUCKETS ? (float)BUCKETS / reach : 0;
	for (int i = 0; i < l->n; i++) {
		const int b = bucket_of(k, s->ids[i]);
		k->count[b]++;
		k->sum[b] += draw_weight(s->p[s->ids[i]]);
	}
}

/* Return ln p of the row's likeliest token minus ln p of token id; the normalization of p cancels out. */
static float below_max(const struct left *l, int32_t id)
{
	return fabsf((l->s->w[id] - l->max) * l->inv_t);
}

/* Return |-ln p - entropy| as its bits, which have the same order. */
static uint32_t atypical(const struct left *l, int32_t id, float mean)
{
	const float by = fabsf(below_max(l, id) - mean);
	uint32_t u;
	memcpy(&u, &by, sizeof u);
	return u;
}

/* Return the least score such that tokens up to it, equals included, have a weight of target.  A radix
 * search, 8 bits at a time. */
static uint32_t typical_cut(const struct left *l, float mean, uint64_t target)
{
	uint32_t cut = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		uint64_t sum[256] = {0};
		for (int i = 0; i < l->n; i++) {
			const uint32_t u = atypical(l, l->s->ids[i], mean);
			if (shift == 24 || u >> (shift + 8) == cut >> (shift + 8))
				sum[u >> shift & 255] += draw_weight(l->s->p[l->s->ids[i]]);
		}
		uint32_t b = 0;
		while (b < 255 && sum[b] < target)
			target -= sum[b++];
		cut |= b << shift;
	}
	return cut;
}

static void keep_typical(struct left *l, float typical_p)
{
	const uint64_t all = weight_left(l);
	uint64_t sum = 0; /* sum of p * below_max(); each term is at most 1/e */
	for (int i = 0; i < l->n; i++)
		sum += draw_weight(l->s->p[l->s->ids[i]] * below_max(l, l->s->ids[i]));
	const float mean = (float)((double)sum / (double)all);
	const uint32_t cut = typical_cut(l, mean, share(typical_p, all));
	int kept = 0;
	for (int i = 0; i < l->n; i++)
		if (atypical(l, l->s->ids[i], mean) <= cut)
			l->s->ids[kept++] = l->s->ids[i];
	l->n = kept;
}

static void drop_top_choices(struct left *l, float threshold)
{
	const uint64_t least = share(threshold, weight_left(l));
	float low = INFINITY;
	for (int i = 0; i < l->n; i++) {
		const int32_t id = l->s->ids[i];
		if (draw_weight(l->s->p[id]) >= least && l->s->w[id] < low)
			low = l->s->w[id];
	}
	keep_between(l, low, 0);
}

static bool by_chance(uint64_t bits, float probability)
{
	return (double)(bits >> 11) * 0x1p-53 < (double)probability;
}

static int draw_list(const struct kern_sample_row *r, struct cpu_sample_scratch *s, int n, float max,
		     uint64_t bits)
{
	struct left l = {.s = s, .max = max, .inv_t = 1 / r->temperature};
	struct ranking k;
	l.n = candidates(s, n, r->top_n_sigma > 0 ? least_by_sigma(s->w, n, max, r->top_n_sigma) : -INFINITY,
			 DRAW_P_MIN);
	if (r->top_k > 0 && r->top_k < l.n) {
		uint64_t sum;
		rank_left(&k, &l);
		keep_until(&l, cut_top_k(&k, r->top_k, &sum));
	}
	if (r->typical_p > 0 && r->typical_p < 1)
		keep_typical(&l, r->typical_p);
	if (r->top_p < 1) {
		rank_left(&k, &l);
		keep_until(&l, cut_top_p(&k, share(r->top_p, weight_left(&l))));
	}
	if (r->min_p > 0) {
		float top = 0;
		for (int i = 0; i < l.n; i++)
			top = s->p[s->ids[i]] > top ? s->p[s->ids[i]] : top;
		keep_between(&l, INFINITY, (r->min_p < 1 ? r->min_p : 1) * top);
	}
	if (r->xtc_probability > 0 &&
	    by_chance(philox_more(r->seed, r->index, r->position), r->xtc_probability))
		drop_top_choices(&l, r->xtc_threshold);
	return draw_from_kept(s, l.n, -1, 0, bits);
}

/* ---- mirostat ---- */

/* Return how far the token is below the row's likeliest, in mirostat's units. */
static uint64_t fall(const struct left *l, int32_t id)
{
	return (uint64_t)(below_max(l, id) * MIROSTAT_PER_NAT);
}

/* Return how many tokens version 1 keeps.  l is cut to its likeliest tokens. */
static int mirostat_top_of(struct left *l, int n_vocab, int32_t mu)
{
	struct ranking k;
	uint64_t sum, tb = 0, tt = 0;
	if (l->n > MIROSTAT_TOP) {
		rank_left(&k, l);
		keep_until(l, cut_top_k(&k, MIROSTAT_TOP, &sum));
	}
	int32_t *ids = l->s->ids;
	for (int i = 1; i < l->n; i++) {
		const int32_t id = ids[i];
		int at = i;
		for (; at && before(l->s->w, id, ids[at - 1]); at--)
			ids[at] = ids[at - 1];
		ids[at] = id;
	}
	for (int i = 0; i + 1 < l->n; i++) {
		const uint64_t step = mirostat_step(i);
		tb += step * (fall(l, ids[i + 1]) - fall(l, ids[i]));
		tt += step * step;
	}
	return mirostat_top(tb, tt, n_vocab, mu);
}

/* Keep tokens of at least this weight. */
static void keep_weights(struct left *l, uint64_t least)
{
	int kept = 0;
	for (int i = 0; i < l->n; i++)
		if (draw_weight(l->s->p[l->s->ids[i]]) >= least)
			l->s->ids[kept++] = l->s->ids[i];
	l->n = kept;
}

/* Draw with mirostat.  all: the weight of the row; best: its likeliest token. */
static int draw_mirostat(const struct kern_sample_row *r, struct cpu_sample_scratch *s, int n, float max,
			 int best, uint64_t all, uint64_t bits, int32_t *mu)
{
	struct left l = {.s = s, .max = max, .inv_t = 1 / r->temperature};
	l.n = candidates(s, n, -INFINITY, DRAW_P_MIN);
	if (r->mirostat == 1) {
		const int k = mirostat_top_of(&l, n, *mu);
		l.n = candidates(s, n, -INFINITY, DRAW_P_MIN);
		if (k < l.n) {
			struct ranking ranking;
			uint64_t sum;
			rank_left(&ranking, &l);
			keep_until(&l, cut_top_k(&ranking, k, &sum));
		}
	} else {
		keep_weights(&l, mirostat_least(all, *mu));
		if (!l.n)
			s->ids[l.n++] = best;
	}
	all = weight_left(&l);
	const int token = draw_from_kept(s, l.n, -1, 0, bits);
	*mu = mirostat_next(*mu, r->mirostat_tau, r->mirostat_eta, draw_weight(s->p[token]), all);
	return token;
}

/* Draw from s->w.  max: the largest of w; best: the first id that has it. */
static int draw(const struct sample_job *j, const struct kern_sample_row *r, struct cpu_sample_scratch *s,
		float max, int best)
{
	const int n = j->n_vocab;
	if (r->temperature < greedy_below || !(max > -FLT_MAX))
		return best;
	const uint64_t all = row_weigh(j->dev->isa, s, n, max, 1 / r->temperature);
	const uint64_t bits = philox_bits(r->seed, r->index, r->position);
	if (r->mirostat)
		return draw_mirostat(r, s, n, max, best, all, bits, j->tokens + r->mu_at);
	if (cuts_lists(r))
		return draw_list(r, s, n, max, bits);
	if (r->top_k <= 0 && !(r->top_p < 1) && !(r->min_p > 0))
		return draw_from_all(s, draw_target(bits, all));
	return draw_cut(r, s, n, max, all, bits);
}

/* Choose a token from x.  max: its largest value; best: the first id that has it. */
static int choose(const struct sample_job *j, const struct kern_sample_row *r, const float *x, float max,
		  int best, struct cpu_sample_scratch *s)
{
	/* If no logit is finite, best may be a token that the mask forbids. */
	if (!cpu_sample_adjusts(r) && r->temperature < greedy_below && (!r->mask || max > -FLT_MAX))
		return best;
	cpu_sample_adjust(j, r, x, s, true);
	max = row_max(j->dev->isa, s->w, j->n_vocab, &best);
	if (r->mask && !(max > -INFINITY)) {
		cpu_sample_adjust(j, r, x, s, false);
		max = row_max(j->dev->isa, s->w, j->n_vocab, &best);
	}
	return draw(j, r, s, max, best);
}

/* ---- log-probabilities ---- */

struct stats {
	float max, log_sum;
};

static float logprob_of(const struct stats *t, float x)
{
	if (!(x > -INFINITY))
		return -INFINITY;
	if (t->max == INFINITY)
		return x == INFINITY ? 0 : -INFINITY;
	return x - t->max - t->log_sum;
}

static int rank_of(const float *x, int n, float v)
{
	int above = 0;
	for (int i = 0; i < n; i++)
		above += x[i] > v;
	return above + 1;
}

/* Return the k largest, the lower id first among equals; missing entries (NaN) have id -1. */
static void top_logprobs(const struct stats *t, const float *x, int n, int k, int32_t *id, float *lp)
{
	int have = 0;
	for (int i = 0; i < n && k; i++) {
		if (have == k ? !(x[i] > lp[k - 1]) : x[i] != x[i])
			continue;
		int at = have < k ? have++ : k - 1;
		for (; at > 0 && x[i] > lp[at - 1]; at--) {
			lp[at] = lp[at - 1];
			id[at] = id[at - 1];
		}
		lp[at] = x[i];
		id[at] = i;
	}
	for (int i = 0; i < k; i++) {
		lp[i] = i < have ? logprob_of(t, lp[i]) : -INFINITY;
		id[i] = i < have ? id[i] : -1;
	}
}

static void sample_row(void *arg, int i, int thread)
{
	const struct sample_job *j = arg;
	const struct kern_sample_row *r = &j->rows[i];
	const struct kern_sample_out *out = j->out;
	struct cpu_sample_scratch *s = &j->dev->sample[thread];
	const float *x = j->logits + (size_t)r->row * (size_t)j->n_vocab;
	const int n = j->n_vocab;
	int token = r->forced, best;
	assert(!r->mask || r->forced < 0);
	if (r->mask) {
		cpu_sample_mask(j->dev->isa, s->x, x, r->mask, n, NAN);
		x = s->x;
	}
	struct stats t = {.max = row_max(j->dev->isa, x, n, &best)};
	double sum = row_exp(j->dev->isa, x, n, t.max);
	t.log_sum = sum > 0 ? log_pos((float)sum) : 0;
	if (token < 0) {
		token = choose(j, r, x, t.max, best, s);
		j->tokens[r->hist0 + r->n_hist + r->shift] = token;
		if (r->mirostat)
			out->mu[i] = j->tokens[r->mu_at];
	}
	out->token[i] = token;
	const float v = token < n ? x[token] : -INFINITY;
	out->logprob[i] = logprob_of(&t, v);
	out->rank[i] = r->n_logprobs >= 0 ? rank_of(x, n, v) : 0;
	if (r->n_logprobs > 0) {
		size_t at = (size_t)i * (size_t)out->top_stride;
		assert(r->n_logprobs <= out->top_stride);
		top_logprobs(&t, x, n, r->n_logprobs, out->top_id + at, out->top_logprob + at);
	}
}

int cpu_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
	       const struct kern_sample_row *rows, int n, const struct kern_sample_out *out)
{
	struct sample_job j = {.dev = s->dev,
			       .logits = logits,
			       .n_vocab = n_vocab,
			       .tokens = tokens,
			       .rows = rows,
			       .out = out};
	/* Every loaded layer has reserved for its outputs, so this allocates only for a caller that passes
	 * other logits. */
	if (cpu_sample_reserve(s->dev, n_vocab))
		return -ENOMEM;
	cpu_run(s->dev, n, (int64_t)n * n_vocab, sample_row, &j);
	return 0;
}
