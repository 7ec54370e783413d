/* sample.cu - from logits to a token, with the same choices as kernels/cpu/sample.c.
 *
 * First, blocks summarize 4,096 logits of a row each: the largest, then the sums of p and the candidates.
 * Then one block per row draws.  It has little left to read, unless the logits are adjusted before the draw.
 *
 * Everything that decides a token is exact: comparisons, counts, integer sums (kernels/cpu/draw.h).  The sum
 * of p of a log-probability is added in the CPU's order: 16 lanes over blocks of 4096, lanes folded in
 * halves, blocks added in double.
 *
 * A cut is found by its last token in the order (larger logit first, then lower id).  Four passes over the
 * candidates each narrow the logit by 8 bits, with a histogram. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/sample_adjust.cuh"
#include "kernels/cuda/sample_draw.cuh"
#include "kernels/cuda/sample_mirostat.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	SLOTS_MIN = 32,        /* rows computed at a time on a device of few multiprocessors */
	ADJUSTED_MAX = 32,     /* most of these rows with adjusted logits */
	VOCAB_MAX = 1 << 23,   /* same as DRAW_VOCAB_MAX: sums of weights stay below 2^64 */
	LISTS_BYTES = 4 << 20, /* bytes of the rows' lists in one send; one row's lists always fit */
};

struct cuda_sampler {
	struct cuda_ring ring; /* holds as many rows as there are logits, and their lists */
	/* Rows computed at a time, one per multiprocessor.  Each needs scratch for one vocabulary, and for
	 * two more if its logits may be adjusted. */
	int slots, adjusted;
	int vocab;
	struct cuda_buf scratch;
};

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

/* The k most likely tokens of a row; missing entries have id -1. */
struct tops {
	int k;
	int32_t *id;
	float *logprob;
};

/* Write the largest raw logits that the mask allows, with the lower id first among equals.  ids: scratch. */
KERN_DEV void top_logprobs(struct shared *s, const struct stats &t, const float *x, const uint32_t *mask,
			   int n, int32_t *ids, const struct tops &out)
{
	auto counts = [=](int i) { return is_allowed(mask, i) && x[i] == x[i]; };
	auto key = [=](int i) { return is_allowed(mask, i) ? key_of(x[i]) : 0; }; /* no logit has key 0 */
	auto one = [=](int i) -> uint64_t { return counts(i); };
	const struct cut c = find_cut(s, n, (uint64_t)out.k, key, one);
	const int have = keep(
		s, n, c, [](int i) { return i; }, key, counts, ids);
	for (int i = tid(); i < out.k; i += THREADS) {
		if (i >= have) {
			out.id[i] = -1;
			out.logprob[i] = -INFINITY;
			continue;
		}
		int at = 0; /* rank: the number of larger logits, plus earlier equals, which have lower ids */
		for (int o = 0; o < have; o++)
			at += x[ids[o]] > x[ids[i]] || (x[ids[o]] == x[ids[i]] && o < i);
		out.id[at] = ids[i];
		out.logprob[at] = logprob_of(t, x[ids[i]]);
	}
	block_sync();
}

/* ---- a row in parts ---- */

/* Return the row's largest logit and its first id, computed from the parts. */
KERN_DEV float row_max(struct shared *s, const struct part *parts, int n, int *id)
{
	int b;
	const float max = block_argmax(
		s, blocks_of(n), [=](int k) { return parts[k].max; }, &b);
	*id = parts[b].id;
	return max;
}

/* Grid (b, i): part b of row i. */
static __global__ void __launch_bounds__(THREADS, 1) sample_max_kernel(struct sample_args a)
{
	struct shared *s = (struct shared *)(void *)kern_smem();
	const int b = (int)blockIdx.x, first = b * SUM_BLOCK;
	const struct row r = row_of(a, (int)blockIdx.y);
	const float *x = logits_of(a, r);
	const uint32_t *mask = mask_of(a, r);
	struct part *part = a.parts + blockIdx.y * a.parts_stride + b;
	int at;
	const float max = block_argmax(
		s, min((int)SUM_BLOCK, a.n_vocab - first),
		[=](int k) { return raw_logit(x, mask, first + k); }, &at);
	if (tid() == 0) {
		part->max = max;
		part->id = first + at;
	}
}

struct exp_shared {
	float p[2][SUM_BLOCK]; /* at temperature 1; at the row's temperature */
	struct shared s;
};

/* Grid (b, i): part b of row i, after sample_max_kernel(). */
static __global__ void __launch_bounds__(THREADS, 1) sample_exp_kernel(struct sample_args a)
{
	struct exp_shared *e = (struct exp_shared *)(void *)kern_smem();
	const struct row r = row_of(a, (int)blockIdx.y);
	const int b = (int)blockIdx.x, first = b * SUM_BLOCK, n = min((int)SUM_BLOCK, a.n_vocab - first);
	const float *x = logits_of(a, r);
	const uint32_t *mask = mask_of(a, r);
	struct part *parts = a.parts + blockIdx.y * a.parts_stride;
	const bool tempered = draws(r) && !adjusts(r);
	int best;
	const float max = row_max(&e->s, parts, a.n_vocab, &best), bounded = clean(max);
	const float inv_t = tempered ? f32_div_rn(1.0f, r.temperature) : 1.0f;
	unsigned long long weight = 0;
	for (int k = tid(); k < n; k += THREADS) {
		e->p[0][k] = p_of(raw_logit(x, mask, first + k), max, 1.0f);
		if (tempered) {
			e->p[1][k] = p_of(bounded_logit(x, mask, first + k), bounded, inv_t);
			weight += weight_of(e->p[1][k]);
		}
	}
	weight = block_add_wide(&e->s, weight);
	if (tid() == 0)
		parts[b].weight = weight;
	if (warp_id() == 0) {
		float sum = 0;
		for (int k = lane_id(); k < (lane_id() < SUM_LANES ? n : 0); k += SUM_LANES)
			sum = f32_add_rn(sum, e->p[0][k]);
		sum = fold_lanes(sum);
		if (lane_id() == 0)
			parts[b].sum = sum;
	}
	if (!tempered || draws_from_all(r) || cuts_lists(r))
		return;
	const struct bounds least = bounds_of(r, a.n_vocab, bounded, false);
	const struct cut everything = {true, 0, 0};
	const int kept = keep(
		&e->s, n, everything, [=](int k) { return first + k; }, [](int) { return 0u; },
		[=](int id) {
			return bounded_logit(x, mask, id) >= least.logit && e->p[1][id - first] >= least.p;
		},
		a.ids + blockIdx.y * a.vocab_stride + first);
	if (tid() == 0)
		parts[b].kept = kept;
}

/* ---- a row as a whole ---- */

/* Draw a token from the row's logits, adjusted if needed, by draw_from(source, best). */
template <typename D>
KERN_DEV int choose(const struct sample_args &a, struct shared *s, const struct row &r, int i, float max,
		    int best, D draw_from)
{
	const float *x = logits_of(a, r);
	struct source f = {x,
			   mask_of(a, r),
			   a.parts + (size_t)i * a.parts_stride,
			   a.ids + (size_t)i * a.vocab_stride,
			   a.n_vocab,
			   clean(max),
			   draws(r) ? f32_div_rn(1.0f, r.temperature) : 1.0f};
	/* If a masked row has no finite logit, `best` may be a token that the mask excludes. */
	if (!adjusts(r) && (!f.mask || max > -flt_max))
		return draw_from(f, best);
	/* The offset fits 32 bits: at most ADJUSTED_MAX * VOCAB_MAX values.  sample_kernel() has no register
	 * left for a wider offset. */
	const uint32_t at = (uint32_t)(a.rows[i].adjusted * (int)a.vocab_stride);
	float *w = a.w + at;
	f.x = w;
	f.parts = NULL;
	for (int bans = 1; bans >= 0; bans--) {
		adjust(a, r, x, w, a.mark + at, bans);
		f.max = block_argmax(
			s, a.n_vocab, [=](int k) { return w[k]; }, &best);
		if (!f.mask || f.max > -INFINITY)
			break;
	}
	return draw_from(f, best);
}

/* Block i: row i, if it has mirostat.  A separate kernel before sample_kernel(): few rows have mirostat, and
 * sample_kernel() has no registers to spare. */
static __global__ void __launch_bounds__(THREADS, 1) sample_mirostat_kernel(struct sample_args a)
{
	struct shared *s = (struct shared *)(void *)kern_smem();
	const int i = (int)blockIdx.x;
	const struct row r = row_of(a, i);
	if (!r.mirostat || r.forced >= 0)
		return;
	int32_t mu = a.tokens[r.mu_at];
	if (draws(r)) {
		int best;
		const float max = row_max(s, a.parts + (size_t)i * a.parts_stride, a.n_vocab, &best);
		const int token = choose(a, s, r, i, max, best, [&](const struct source &f, int likeliest) {
			return draw_mirostat(s, r, f, likeliest, &mu);
		});
		if (tid() == 0) {
			*place_of(a, i) = token;
			a.tokens[r.mu_at] = mu; /* all threads have read it: choose() has barriers */
		}
	}
	if (tid() == 0)
		a.mu[i] = mu;
}

/* Block i: row i. */
static __global__ void __launch_bounds__(THREADS, 1) sample_kernel(struct sample_args a)
{
	struct shared *s = (struct shared *)(void *)kern_smem();
	const int i = (int)blockIdx.x, n = a.n_vocab;
	const struct row r = row_of(a, i);
	const float *x = logits_of(a, r);
	const uint32_t *mask = mask_of(a, r);
	const struct part *parts = a.parts + (size_t)i * a.parts_stride;
	int best, token = r.forced;
	struct stats t;
	t.max = row_max(s, parts, n, &best);
	const double sum = add_blocks(s, blocks_of(n), [=](int b) { return parts[b].sum; });
	t.log_sum = sum > 0 ? sample_log((float)sum) : 0.0f;
	if (draws_mirostat(r)) {
		token = *place_of(a, i);
	} else if (token < 0) {
		token = choose(a, s, r, i, t.max, best, [&](const struct source &f, int likeliest) {
			return draw(s, r, f, likeliest);
		});
		if (tid() == 0)
			*place_of(a, i) = token;
	}
	const float v = token < n ? raw_logit(x, mask, token) : -INFINITY;
	int rank = 0;
	if (r.n_logprobs >= 0) {
		for (int k = tid(); k < n; k += THREADS)
			rank += raw_logit(x, mask, k) > v;
		rank = block_add(s, rank) + 1;
	}
	if (tid() == 0) {
		a.token[i] = token;
		a.logprob[i] = logprob_of(t, v);
		a.rank[i] = rank;
	}
	if (r.n_logprobs > 0)
		top_logprobs(s, t, x, mask, n, a.ids + (size_t)i * a.vocab_stride,
			     {r.n_logprobs, a.top_id + (size_t)i * (size_t)a.top_stride,
			      a.top_logprob + (size_t)i * (size_t)a.top_stride});
}

/* ---- host ---- */

static size_t stride_of(int n_vocab)
{
	return ((size_t)n_vocab + 63) & ~(size_t)63;
}

static size_t parts_of(int n_vocab)
{
	return ((size_t)(n_vocab + SUM_BLOCK - 1) / SUM_BLOCK + 15) & ~(size_t)15;
}

int cuda_sampler_init(struct kern_dev *d)
{
	struct cuda_sampler *p = d->sampler = (struct cuda_sampler *)xcalloc(1, sizeof *p);
	p->slots = min(d->args.max_logits, max(d->sms, (int)SLOTS_MIN));
	p->adjusted = min(p->slots, (int)ADJUSTED_MAX);
	return cuda_ring_init(d, &p->ring, (size_t)d->args.max_logits * sizeof(struct row) + LISTS_BYTES,
			      true);
}

void cuda_sampler_fini(struct kern_dev *d)
{
	struct cuda_sampler *p = d->sampler;
	if (!p)
		return;
	cuda_mem_free(d, p->scratch.p, p->scratch.bytes);
	cuda_ring_fini(d, &p->ring);
	free(p);
}

int cuda_sample_reserve(struct kern_dev *d, int n_vocab)
{
	struct cuda_sampler *p = d->sampler;
	if (n_vocab <= p->vocab)
		return 0;
	assert(n_vocab <= VOCAB_MAX);
	const size_t slots = (size_t)p->slots, vocabs = slots + 2 * (size_t)p->adjusted;
	int e = cuda_buf_reserve(d, &p->scratch,
				 vocabs * stride_of(n_vocab) * 4 +
					 slots * parts_of(n_vocab) * sizeof(struct part));
	if (!e)
		p->vocab = n_vocab;
	return e;
}

static int mask_words(int n_vocab)
{
	return (n_vocab + 31) / 32;
}

/* Return the words that a row's lists take. */
static size_t words_of(const struct kern_sample_row *r, int n_vocab)
{
	size_t n = 2 * (size_t)r->n_bias + (size_t)r->n_allowed + (size_t)r->n_banned + (size_t)r->n_breakers;
	if (r->n_bad) {
		n += (size_t)r->n_bad + 1;
		for (int i = 0; i < r->n_bad; i++)
			n += (size_t)r->bad_len[i];
	}
	if (r->mask)
		n += (size_t)mask_words(n_vocab);
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

/* Store row i and its lists, from word *at on.  adjusted: as in struct row. */
static void put_row(int32_t *buf, int i, int32_t *at, const struct kern_sample_row *r, int n_vocab,
		    int adjusted)
{
	struct row o = {};
	o.row = r->row;
	o.adjusted = adjusted;
	o.hist0 = r->hist0;
	o.n_prompt = r->n_prompt;
	o.n_hist = r->n_hist;
	o.shift = r->shift;
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
	o.typical_p = r->typical_p;
	o.top_n_sigma = r->top_n_sigma;
	o.xtc_probability = r->xtc_probability;
	o.xtc_threshold = r->xtc_threshold;
	o.dry_multiplier = r->dry_multiplier;
	o.dry_base = r->dry_base;
	o.dry_allowed = r->dry_allowed;
	o.dry_last_n = r->dry_last_n;
	o.n_breakers = r->n_breakers;
	o.breakers = put(buf, at, r->breakers, r->n_breakers);
	o.mirostat = r->mirostat;
	o.mirostat_tau = r->mirostat_tau;
	o.mirostat_eta = r->mirostat_eta;
	o.mu_at = r->mu_at;
	int32_t all = 0;
	o.bad_at = *at;
	for (int k = 0; k < r->n_bad; k++) {
		buf[(*at)++] = all;
		all += r->bad_len[k];
	}
	if (r->n_bad)
		buf[(*at)++] = all;
	o.bad = put(buf, at, r->bad, all);
	assert(!r->mask || r->forced < 0);
	if (r->mask)
		o.mask = put(buf, at, r->mask, mask_words(n_vocab));
	memcpy((struct row *)(void *)buf + i, &o, sizeof o);
}

/* Return how many of the n rows one send takes; 0 if the first row's lists do not fit. */
static int rows_of_send(const struct cuda_sampler *p, const struct kern_sample_row *rows, int n, int n_vocab)
{
	const int most = (int)((p->ring.bytes - LISTS_BYTES) / sizeof(struct row));
	size_t words = 0;
	int k = 0;
	while (k < n && k < most && (words += words_of(&rows[k], n_vocab)) * 4 <= LISTS_BYTES)
		k++;
	return k;
}

/* Return whether a row's logits are adjusted before the draw, or may be: with only a mask, they are if the
 * mask leaves no finite logit. */
static bool may_adjust(const struct kern_sample_row *r)
{
	return r->repetition != 1 || r->presence != 0 || r->frequency != 0 || r->dry_multiplier != 0 ||
	       r->n_bias || r->n_allowed || r->n_banned || r->n_bad || r->mask;
}

/* Return how many of the n rows one launch takes. */
static int rows_of_launch(const struct cuda_sampler *p, const struct kern_sample_row *rows, int n)
{
	int k = 0, adjusted = 0;
	while (k < n && k < p->slots && (adjusted += may_adjust(&rows[k])) <= p->adjusted)
		k++;
	return k;
}

/* Send n rows to the ring's device copy. */
static int send(struct kern_stream *s, struct cuda_sampler *p, const struct kern_sample_row *rows, int n,
		int n_vocab)
{
	int32_t *buf = (int32_t *)(void *)cuda_ring_take(&p->ring), end = n * (int)(sizeof(struct row) / 4);
	if (!buf)
		return -EIO;
	for (int at = 0, k; at < n; at += k) {
		k = rows_of_launch(p, rows + at, n - at);
		for (int i = at, adjusted = 0; i < at + k; adjusted += may_adjust(&rows[i++]))
			put_row(buf, i, &end, &rows[i], n_vocab, adjusted);
	}
	assert((size_t)end * 4 <= p->ring.bytes);
	return cuda_ring_send(&p->ring, s, (size_t)end * 4);
}

/* Launch the kernels for n rows, row i in slot i. */
static int launch(struct kern_stream *s, const struct sample_args &a, int n)
{
	const dim3 parts((unsigned)((a.n_vocab + SUM_BLOCK - 1) / SUM_BLOCK), (unsigned)n);
	int e = KERN_LAUNCH(sample_max_kernel, parts, THREADS, sizeof(struct shared), s->s, a);
	if (!e)
		e = KERN_LAUNCH(sample_exp_kernel, parts, THREADS, sizeof(struct exp_shared), s->s, a);
	if (!e && a.mu)
		e = KERN_LAUNCH(sample_mirostat_kernel, (unsigned)n, THREADS, sizeof(struct shared), s->s, a);
	return e ? e : KERN_LAUNCH(sample_kernel, (unsigned)n, THREADS, sizeof(struct shared), s->s, a);
}

/* Return the arguments with the results advanced to row `at` of the call. */
static struct sample_args results_from(struct sample_args a, int at)
{
	const size_t tops = (size_t)at * (size_t)a.top_stride;
	a.token += at;
	a.logprob += at;
	a.rank += at;
	if (a.mu)
		a.mu += at;
	if (a.top_id) {
		a.top_id += tops;
		a.top_logprob += tops;
	}
	return a;
}

/* Return the device address of n results of four bytes, which are in memory of host_new(). */
static void *result_at(const struct kern_dev *d, const void *host, size_t n)
{
	void *p = cuda_mapped(d, host, n * 4);
	assert(p);
	return p;
}

static struct sample_args args_of(struct kern_dev *d, const void *logits, int n_vocab, int32_t *tokens,
				  const struct kern_sample_row *rows, int n,
				  const struct kern_sample_out *out)
{
	struct cuda_sampler *p = d->sampler;
	bool tops = false, mirostat = false;
	for (int i = 0; i < n; i++) {
		assert(rows[i].n_logprobs <= 0 || rows[i].n_logprobs <= out->top_stride);
		tops |= rows[i].n_logprobs > 0;
		mirostat |= rows[i].mirostat != 0;
	}
	/* The layout is that of the largest vocabulary so far: marks must be zero in a launch, so no other
	 * array may ever use their memory. */
	const size_t adjusted = (size_t)p->adjusted * stride_of(p->vocab), k = (size_t)n;
	struct sample_args a = {};
	a.logits = (const float *)logits;
	a.n_vocab = n_vocab;
	a.top_stride = out->top_stride;
	a.tokens = tokens;
	a.vocab_stride = stride_of(p->vocab);
	a.parts_stride = parts_of(p->vocab);
	a.w = (float *)p->scratch.p;
	a.mark = (uint32_t *)p->scratch.p + adjusted;
	a.ids = (int32_t *)p->scratch.p + 2 * adjusted;
	a.parts = (struct part *)(void *)(a.ids + (size_t)p->slots * stride_of(p->vocab));
	a.buf = (const int32_t *)(const void *)p->ring.dev;
	a.token = (int32_t *)result_at(d, out->token, k);
	a.logprob = (float *)result_at(d, out->logprob, k);
	a.rank = (int32_t *)result_at(d, out->rank, k);
	if (mirostat)
		a.mu = (int32_t *)result_at(d, out->mu, k);
	if (tops) {
		a.top_id = (int32_t *)result_at(d, out->top_id, k * (size_t)out->top_stride);
		a.top_logprob = (float *)result_at(d, out->top_logprob, k * (size_t)out->top_stride);
	}
	return a;
}

int cuda_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		const struct kern_sample_row *rows, int n, const struct kern_sample_out *out)
{
	struct kern_dev *d = s->dev;
	struct cuda_sampler *p = d->sampler;
	if (!n)
		return 0;
	/* The embedding's load reserved this, except for callers with a larger vocabulary. */
	int e = cuda_sample_reserve(d, n_vocab);
	if (e)
		return e;
	const struct sample_args all = args_of(d, logits, n_vocab, tokens, rows, n, out);
	for (int at = 0, sent; at < n; at += sent) {
		if (!(sent = rows_of_send(p, rows + at, n - at, n_vocab))) {
			log_error("cuda", "sample refused max_bytes=%d reason=\"the lists take more\"",
				  (int)LISTS_BYTES);
			return -EINVAL;
		}
		if ((e = send(s, p, rows + at, sent, n_vocab)))
			return e;
		for (int i = 0, k; i < sent; i += k) {
			struct sample_args a = results_from(all, at + i);
			a.rows = (const struct row *)(const void *)p->ring.dev + i;
			k = rows_of_launch(p, rows + at + i, sent - i);
			if ((e = launch(s, a, k)))
				return e;
		}
	}
	return 0;
}
