/* sample_adjust.cuh - changes of a row's logits before the draw, in the order of kern.h: penalties, DRY,
 * bias, mask, allowed tokens, bans, bad words.  One block adjusts one row. */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_ADJUST_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_ADJUST_CUH

#include "kernels/cuda/sample_row.cuh"

enum {
	MARK_SEEN = 1 << 29, /* in the history; the bits below count it in the output */
	MARK_ALLOWED = 1 << 30,
};

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
		const uint32_t m = atomic_exch(&mark[hist[i]], 0u); /* the first thread applies the penalty */
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

KERN_DEV bool is_breaker(const struct row &r, const int32_t *ids, int32_t id)
{
	int at = 0;
	for (int n = r.n_breakers; n > 0;) {
		const int half = n / 2;
		if (ids[at + half] < id) {
			at += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return at < r.n_breakers && ids[at] == id;
}

/* Return how many tokens DRY compares, of the n tokens before `end`.  Every warp computes it for itself. */
KERN_DEV int dry_reach(const struct row &r, const int32_t *breakers, const int32_t *end, int n)
{
	const int most = min(n, r.dry_allowed + (int)KERN_DRY_BEYOND);
	for (int i0 = 0; i0 < most; i0 += WARP) {
		const int i = i0 + lane_id();
		const uint32_t stops = warp_ballot(i < most && is_breaker(r, breakers, end[-1 - i]));
		if (stops)
			return i0 + __popc((stops & (0u - stops)) - 1u);
	}
	return most;
}

KERN_DEV float dry_penalty(const struct row &r, int beyond)
{
	double p = (double)r.dry_multiplier;
	for (int i = 0; i < beyond; i++)
		p = f64_mul_rn(p, (double)r.dry_base);
	return p < (double)flt_max ? (float)p : flt_max;
}

/* mark: 1 + the longest repetition that the token would continue. */
KERN_DEV void penalize_repeats(const struct row &r, const int32_t *buf, const int32_t *hist, int n_vocab,
			       float *w, uint32_t *mark)
{
	const int n = r.dry_last_n >= 0 && r.dry_last_n < r.n_hist ? r.dry_last_n : r.n_hist;
	const int32_t *end = hist + r.n_hist;
	const int reach = dry_reach(r, buf + r.breakers, end, n);
	if (reach < r.dry_allowed || n <= r.dry_allowed)
		return;
	for (int k = 1 + tid(); k < n;
	     k += THREADS) { /* the repetition ended k tokens ago; end[-k] followed it */
		int len = 0;
		while (len < reach && len + k < n && end[-1 - len] == end[-1 - len - k])
			len++;
		if (len >= r.dry_allowed && end[-k] >= 0 && end[-k] < n_vocab)
			atomic_max((int *)(void *)&mark[end[-k]], len + 1);
	}
	block_sync();
	for (int k = 1 + tid(); k < n; k += THREADS) {
		const int id = end[-k];
		const uint32_t m =
			/* the first thread applies it */
			id >= 0 && id < n_vocab ? atomic_exch(&mark[id], 0u) : 0;
		if (m)
			w[id] = clean(f32_add_rn(w[id], -dry_penalty(r, (int)m - 1 - r.dry_allowed)));
	}
	block_sync();
}

/* Set a logit to -infinity.  The store is atomic: ids may repeat, so several threads may write one logit. */
KERN_DEV void forbid(float *w, int id)
{
	atomic_exch((uint32_t *)(void *)&w[id], (uint32_t)f32_bits(-INFINITY));
}

KERN_DEV void keep_allowed(const struct row &r, const int32_t *ids, int n, float *w, uint32_t *mark)
{
	for (int i = tid(); i < r.n_allowed; i += THREADS)
		if (ids[i] >= 0 && ids[i] < n)
			atomic_exch(&mark[ids[i]], (uint32_t)MARK_ALLOWED);
	block_sync();
	for (int i = tid(); i < n; i += THREADS)
		if (!mark[i])
			w[i] = -INFINITY;
	block_sync();
	for (int i = tid(); i < r.n_allowed; i += THREADS)
		if (ids[i] >= 0 && ids[i] < n)
			atomic_exch(&mark[ids[i]], 0u);
	block_sync();
}

/* Ban the last token of a bad word if the word's other tokens end the history.  Thread i takes word i, which
 * bad_at[i] and bad_at[i + 1] delimit. */
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
			forbid(w, word[prefix]);
	}
	block_sync();
}

/* Adjust a row's logits from x to w.  bans: also apply allowed, banned and bad words. */
KERN_DEV void adjust(const struct sample_args &a, const struct row &r, const float *x, float *w,
		     uint32_t *mark, bool bans)
{
	const int n = a.n_vocab;
	const uint32_t *mask = mask_of(a, r);
	const int32_t *hist = a.tokens + r.hist0;
	for (int i = tid(); i < n; i += THREADS)
		w[i] = clean(x[i]);
	block_sync();
	if (penalizes(r))
		penalize(r, hist, n, w, mark);
	if (r.dry_multiplier != 0)
		penalize_repeats(r, a.buf, hist, n, w, mark);
	if (tid() == 0) /* one thread, in order, because ids may repeat */
		for (int i = 0; i < r.n_bias; i++) {
			const int id = a.buf[r.bias_ids + i];
			if (id >= 0 && id < n)
				w[id] = clean(f32_add_rn(w[id], f32_from_bits(a.buf[r.bias + i])));
		}
	block_sync();
	if (mask) {
		for (int i = tid(); i < n; i += THREADS)
			if (!is_allowed(mask, i))
				w[i] = -INFINITY;
		block_sync();
	}
	if (!bans)
		return;
	if (r.n_allowed)
		keep_allowed(r, a.buf + r.allowed, n, w, mark);
	for (int i = tid(); i < r.n_banned; i += THREADS) {
		const int id = a.buf[r.banned + i];
		if (id >= 0 && id < n)
			forbid(w, id);
	}
	block_sync();
	if (r.n_bad)
		ban_bad_words(r, a.buf, hist, n, w);
}

#endif
