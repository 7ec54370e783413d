/* sample_adjust.c - changes the logits of a row by its parameters, before a draw. */
#include "kernels/cpu/sample_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
	MARK_ALLOWED = 1 << 30,
	MARK_SEEN = 1 << 29, /* in the history; the bits below count occurrences in the output */
};

void cpu_sample_mask(const struct cpu_isa *isa, float *out, const float *x, const uint32_t *mask, int n,
		     float other)
{
	for (int i = 0; i < n; i += SUM_BLOCK)
		isa->mask_block(out + i, x + i, mask + i / 32, n - i < SUM_BLOCK ? n - i : SUM_BLOCK, other);
}

/* NaN and -inf from the model become the lowest finite value, so that -inf means banned. */
static float clean(float x)
{
	x = x > -FLT_MAX ? x : -FLT_MAX;
	return x < FLT_MAX ? x : FLT_MAX;
}

static bool in_vocab(const struct sample_job *j, int32_t id)
{
	return id >= 0 && id < j->n_vocab;
}

static void penalize(const struct sample_job *j, const struct kern_sample_row *r,
		     struct cpu_sample_scratch *s)
{
	const int32_t *hist = j->tokens + r->hist0;
	for (int i = 0; i < r->n_hist; i++)
		if (in_vocab(j, hist[i]))
			s->mark[hist[i]] = (s->mark[hist[i]] + (i >= r->n_prompt)) | MARK_SEEN;
	for (int i = 0; i < r->n_hist; i++) {
		if (!in_vocab(j, hist[i]) || !s->mark[hist[i]])
			continue;
		float *w = &s->w[hist[i]];
		uint32_t times = s->mark[hist[i]] & (MARK_SEEN - 1);
		s->mark[hist[i]] = 0;
		float x = *w > 0 ? *w / r->repetition : *w * r->repetition;
		if (times) {
			x -= r->frequency * (float)times;
			x -= r->presence;
		}
		*w = clean(x);
	}
}

static bool is_breaker(const struct kern_sample_row *r, int32_t id)
{
	int at = 0;
	for (int n = r->n_breakers; n > 0;) {
		const int half = n / 2;
		if (r->breakers[at + half] < id) {
			at += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return at < r->n_breakers && r->breakers[at] == id;
}

/* Return how far DRY compares, of n tokens that end before `end`; below dry_allowed: nothing is penalized. */
static int dry_reach(const struct kern_sample_row *r, const int32_t *end, int n)
{
	const int most = r->dry_allowed + KERN_DRY_BEYOND;
	int i = 0;
	while (i < n && i < most && !is_breaker(r, end[-1 - i]))
		i++;
	return i;
}

static float dry_penalty(const struct kern_sample_row *r, int beyond)
{
	double p = (double)r->dry_multiplier;
	for (int i = 0; i < beyond; i++)
		p *= (double)r->dry_base;
	return p < (double)FLT_MAX ? (float)p : FLT_MAX;
}

/* Apply DRY.  mark holds 1 + the longest repetition that the token would continue. */
static void penalize_repeats(const struct sample_job *j, const struct kern_sample_row *r,
			     struct cpu_sample_scratch *s)
{
	const int n = r->dry_last_n >= 0 && r->dry_last_n < r->n_hist ? r->dry_last_n : r->n_hist;
	const int32_t *end = j->tokens + r->hist0 + r->n_hist;
	const int reach = dry_reach(r, end, n);
	if (reach < r->dry_allowed || n <= r->dry_allowed)
		return;
	for (int k = 1; k < n; k++) { /* the repetition ended k tokens ago, and end[-k] followed it */
		int len = 0;
		while (len < reach && len + k < n && end[-1 - len] == end[-1 - len - k])
			len++;
		if (len >= r->dry_allowed && in_vocab(j, end[-k]) && s->mark[end[-k]] < (uint32_t)len + 1)
			s->mark[end[-k]] = (uint32_t)len + 1;
	}
	for (int k = 1; k < n; k++) {
		if (!in_vocab(j, end[-k]) || !s->mark[end[-k]])
			continue;
		float *w = &s->w[end[-k]];
		*w = clean(*w - dry_penalty(r, (int)s->mark[end[-k]] - 1 - r->dry_allowed));
		s->mark[end[-k]] = 0;
	}
}

static void keep_allowed(const struct sample_job *j, const struct kern_sample_row *r,
			 struct cpu_sample_scratch *s)
{
	for (int i = 0; i < r->n_allowed; i++)
		if (in_vocab(j, r->allowed[i]))
			s->mark[r->allowed[i]] = MARK_ALLOWED;
	for (int i = 0; i < j->n_vocab; i++)
		if (!s->mark[i])
			s->w[i] = -INFINITY;
	for (int i = 0; i < r->n_allowed; i++)
		if (in_vocab(j, r->allowed[i]))
			s->mark[r->allowed[i]] = 0;
}

static void ban_bad_words(const struct sample_job *j, const struct kern_sample_row *r,
			  struct cpu_sample_scratch *s)
{
	const int32_t *hist = j->tokens + r->hist0, *word = r->bad;
	for (int i = 0; i < r->n_bad; word += r->bad_len[i], i++) {
		int prefix = r->bad_len[i] - 1;
		if (prefix < 0 || prefix > r->n_hist)
			continue;
		if (prefix && memcmp(hist + r->n_hist - prefix, word, (size_t)prefix * sizeof *word))
			continue;
		if (in_vocab(j, word[prefix]))
			s->w[word[prefix]] = -INFINITY;
	}
}

static bool penalizes(const struct kern_sample_row *r)
{
	return r->repetition != 1 || r->presence != 0 || r->frequency != 0;
}

bool cpu_sample_adjusts(const struct kern_sample_row *r)
{
	return penalizes(r) || r->dry_multiplier != 0 || r->n_bias || r->n_allowed || r->n_banned || r->n_bad;
}

void cpu_sample_adjust(const struct sample_job *j, const struct kern_sample_row *r, const float *x,
		       struct cpu_sample_scratch *s, bool bans)
{
	for (int i = 0; i < j->n_vocab; i++)
		s->w[i] = clean(x[i]);
	if (penalizes(r))
		penalize(j, r, s);
	if (r->dry_multiplier != 0)
		penalize_repeats(j, r, s);
	for (int i = 0; i < r->n_bias; i++)
		if (in_vocab(j, r->bias_ids[i]))
			s->w[r->bias_ids[i]] = clean(s->w[r->bias_ids[i]] + r->bias[i]);
	if (r->mask)
		cpu_sample_mask(j->dev->isa, s->w, s->w, r->mask, j->n_vocab, -INFINITY);
	if (!bans)
		return;
	if (r->n_allowed)
		keep_allowed(j, r, s);
	for (int i = 0; i < r->n_banned; i++)
		if (in_vocab(j, r->banned[i]))
			s->w[r->banned[i]] = -INFINITY;
	if (r->n_bad)
		ban_bad_words(j, r, s);
}
