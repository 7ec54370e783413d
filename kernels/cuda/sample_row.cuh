/* sample_row.cuh - data of a sampler launch: rows of parameters, their parts, scratch.
 *
 *     buf      [row 0] ... [row n-1] | lists of row 0 | lists of row 1 | ...      words of 32 bits
 *              all rows of one send; a launch works on some of them, from `rows` on
 *     parts    [slot][block of 4,096 logits]: summaries of the model's logits
 *     ids      [slot][vocabulary]: candidates
 *     w, mark  [adjusted][vocabulary]: adjusted logits, marks of the adjustments
 *
 * Row i of a launch has slot i.  The host counts the rows that may have adjusted logits. */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_ROW_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_ROW_CUH

#include "kernels/cuda/sample_block.cuh"

static const float greedy_below = 1e-5f;

/* A row as the kernel sees it.  Its lists are in the same buffer, at word offsets. */
struct row {
	int32_t row, hist0, n_prompt, n_hist, shift, forced, top_k;
	float temperature, top_p, min_p, presence, frequency, repetition;
	uint32_t seed_lo, seed_hi, index, position;
	int32_t n_bias, bias_ids, bias; /* count, then offsets */
	int32_t n_allowed, allowed, n_banned, banned, n_bad, bad, bad_at, n_logprobs;
	int32_t mask; /* offset; 0: none, because rows come first in the buffer */
	float typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base;
	int32_t dry_allowed, dry_last_n, n_breakers, breakers;
	int32_t mirostat, mirostat_tau, mirostat_eta, mu_at;
	int32_t adjusted; /* the row's index in w and mark, if needed */
};

/* Summary of 4,096 of a row's logits, as the model gave them. */
struct part {
	float max;       /* the largest; NaN is ignored */
	int32_t id;      /* first id with the largest logit */
	float sum;       /* sum of p */
	int32_t kept;    /* number of candidates, stored in the part's range of ids */
	uint64_t weight; /* sum of weights at the row's temperature */
};

struct sample_args {
	const float *logits;
	int n_vocab, top_stride;
	int32_t *tokens;
	const struct row *rows; /* the launch's rows */
	const int32_t *buf;     /* rows, then lists */
	float *w;               /* [adjusted][vocab] logits after adjustment */
	int32_t *ids;           /* [slots][vocab] candidates, ascending */
	uint32_t *mark;         /* [adjusted][vocab]; zero between uses */
	struct part *parts;     /* [slots][blocks] */
	size_t vocab_stride, parts_stride;
	/* results of the launch's rows, in mapped host memory */
	int32_t *token, *rank, *top_id, *mu;
	float *logprob, *top_logprob;
};

/* ---- operations that a row needs ---- */

KERN_DEV bool penalizes(const struct row &r)
{
	return r.repetition != 1 || r.presence != 0 || r.frequency != 0;
}

KERN_DEV bool adjusts(const struct row &r)
{
	return penalizes(r) || r.dry_multiplier != 0 || r.n_bias || r.n_allowed || r.n_banned || r.n_bad;
}

KERN_DEV bool draws(const struct row &r)
{
	return r.forced < 0 && r.temperature >= greedy_below;
}

/* Return whether the row draws from all tokens, without a cut. */
KERN_DEV bool draws_from_all(const struct row &r)
{
	return r.top_k <= 0 && !(r.top_p < 1) && !(r.min_p > 0);
}

/* Return whether sample_mirostat_kernel() draws the row. */
KERN_DEV bool draws_mirostat(const struct row &r)
{
	return r.mirostat && draws(r);
}

/* Return whether the row draws from a list, by cuts that do not keep a prefix of one order. */
KERN_DEV bool cuts_lists(const struct row &r)
{
	return r.mirostat || (r.typical_p > 0 && r.typical_p < 1) || r.top_n_sigma > 0 ||
	       r.xtc_probability > 0;
}

KERN_DEV int top_k_of(const struct row &r, int n)
{
	return r.top_k > 0 && r.top_k < n ? r.top_k : 0;
}

/* ---- addresses of a row's data ---- */

KERN_DEV int blocks_of(int n)
{
	return (n + SUM_BLOCK - 1) / SUM_BLOCK;
}

KERN_DEV struct row row_of(const struct sample_args &a, int i)
{
	return a.rows[i];
}

/* Return the place of the token that row i draws.  It is read where it is used, since sample_kernel() has no
 * registers to keep it in. */
KERN_DEV int32_t *place_of(const struct sample_args &a, int i)
{
	const volatile struct row *r = &a.rows[i];
	return a.tokens + r->hist0 + r->n_hist + r->shift;
}

KERN_DEV const float *logits_of(const struct sample_args &a, const struct row &r)
{
	return a.logits + (size_t)r.row * (size_t)a.n_vocab;
}

/* ---- a row's logits ---- */

/* Return the row's mask, or NULL. */
KERN_DEV const uint32_t *mask_of(const struct sample_args &a, const struct row &r)
{
	return r.mask ? (const uint32_t *)(const void *)(a.buf + r.mask) : NULL;
}

KERN_DEV bool is_allowed(const uint32_t *mask, int i)
{
	return !mask || (mask[i / 32] >> (i & 31) & 1);
}

/* Return logit i as the model gave it, NaN if the mask excludes it. */
KERN_DEV float raw_logit(const float *x, const uint32_t *mask, int i)
{
	return is_allowed(mask, i) ? x[i] : NAN;
}

/* Return logit i bounded, -inf if the mask excludes it. */
KERN_DEV float bounded_logit(const float *x, const uint32_t *mask, int i)
{
	return is_allowed(mask, i) ? clean(x[i]) : -INFINITY;
}

#endif
