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
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/sample_adjust.cuh"
#include "kernels/cuda/sample_draw.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	SLOTS_MAX = 32, /* rows at work at a time: each needs scratch of three vocabularies */
	ROWS_BYTES =
		2 << 20, /* of rows with all their lists, in one launch: one with the longest of all fits */
	TOPS = 128,      /* likeliest tokens of a row that there is room for from the start */
};

struct cuda_sampler {
	struct cuda_ring ring;
	int slots, vocab;
	struct cuda_buf scratch;
	/* results of as many rows as there are logits */
	struct cuda_buf result;
	struct cuda_buf top;
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

int cuda_sampler_init(struct kern_dev *d)
{
	struct cuda_sampler *p = d->sampler = (struct cuda_sampler *)xcalloc(1, sizeof *p);
	p->slots = d->args.max_logits < SLOTS_MAX ? d->args.max_logits : (int)SLOTS_MAX;
	const size_t n = (size_t)d->args.max_logits;
	if (cuda_buf_reserve(d, &p->result, 3 * n * 4) || cuda_buf_reserve(d, &p->top, 2 * n * TOPS * 4))
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
	int e = cuda_buf_reserve(d, &p->scratch, (size_t)p->slots * words * 4);
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
	if (e || (e = cuda_buf_reserve(d, &p->result, 3 * (size_t)n * 4)) ||
	    (e = cuda_buf_reserve(d, &p->top, 2 * top_words * 4)))
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
		for (k = 0; k < p->slots && at + k < n &&
			    (words + (more = words_of(&rows[at + k]))) * 4 <= ROWS_BYTES;
		     k++)
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
