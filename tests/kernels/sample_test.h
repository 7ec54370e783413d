/* sample_test.h - helpers for sampler tests: sample one row in every way, and compare any rows with plain
 * C. */
#ifndef QUERN_TESTS_KERNELS_SAMPLE_TEST_H
#define QUERN_TESTS_KERNELS_SAMPLE_TEST_H

#include "base/err.h"
#include "tests/kernels/kern_test.h"

#include "kernels/cpu/cpu.h"
#include "kernels/mirostat.h"

enum { TOPS = 64 };

/* Result of sampling one row of logits. */
struct draw {
	int32_t token, rank, mu, top_id[TOPS];
	float logprob, top_logprob[TOPS];
};

static inline struct kern_sample_row row_default(void)
{
	return (struct kern_sample_row){.forced = -1, .top_p = 1, .repetition = 1, .n_logprobs = -1};
}

/* Sample one row from logits and tokens on the device. */
static inline struct draw draw_on(struct kt *t, const void *logits, int n, void *tokens,
				  struct kern_sample_row r)
{
	struct draw d;
	struct kern_sample_out out = {&d.token, &d.logprob, &d.rank, d.top_id, d.top_logprob, TOPS, &d.mu};
	kt_sample(t, logits, n, tokens, &r, 1, &out);
	return d;
}

/* Sample one row. tokens: [hist0 + n_hist + 1], updated with the sampled token. */
static inline struct draw sample_on(struct kt *t, const float *logits, int n, int32_t *tokens,
				    struct kern_sample_row r)
{
	const size_t bytes = (size_t)(r.hist0 + r.n_hist + 1) * sizeof *tokens;
	void *dev_logits = kt_put(t, logits, (size_t)n * sizeof *logits);
	void *dev_tokens = kt_put(t, tokens, bytes);
	struct draw d = draw_on(t, dev_logits, n, dev_tokens, r);
	kt_get(t, tokens, dev_tokens, bytes);
	kt_del(t, dev_logits);
	kt_del(t, dev_tokens);
	if (r.forced < 0)
		cr_assert_eq(tokens[r.hist0 + r.n_hist], d.token);
	return d;
}

/* Sample one row in every way, and check that all ways choose the same token. */
static inline struct draw sample_one(const float *logits, int n, const int32_t *history,
				     struct kern_sample_row r)
{
	struct draw first = {.token = -1};
	int32_t *tokens = xcalloc((size_t)(r.hist0 + r.n_hist + 1), sizeof *tokens);
	if (history)
		memcpy(tokens, history, (size_t)(r.hist0 + r.n_hist) * sizeof *tokens);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){0}))
			continue;
		struct draw d = sample_on(&t, logits, n, tokens, r);
		if (first.token < 0)
			first = d;
		cr_assert(d.token == first.token && d.rank == first.rank, "%s: %d, expected %d", t.isa,
			  d.token, first.token);
		kt_same(&d.logprob, &first.logprob, 1, t.isa);
		kt_close(&t);
	}
	free(tokens);
	return first;
}

/* ---- any rows against plain C ---- */

enum { HISTORY = 24, LISTS = 6, MOST = 8, VOCAB_MOST = 50257 };

struct lists {
	int32_t bias_ids[LISTS], allowed[64], banned[LISTS], bad[8], bad_len[3];
	float bias[LISTS];
	uint32_t mask[(VOCAB_MOST + 31) / 32];
	int32_t breakers[3];
};

static inline void allow(uint32_t *mask, int id)
{
	mask[id / 32] |= 1u << (id % 32);
}

struct result {
	int32_t *token, *rank, *top_id, *mu;
	float *logprob, *top_logprob;
};

static inline struct result result_new(int n)
{
	const size_t k = (size_t)n;
	return (struct result){xcalloc(k, 4), xcalloc(k, 4), xcalloc(k * MOST, 4),
			       xcalloc(k, 4), xcalloc(k, 4), xcalloc(k * MOST, 4)};
}

static inline void result_free(struct result *r)
{
	free(r->token);
	free(r->rank);
	free(r->top_id);
	free(r->mu);
	free(r->logprob);
	free(r->top_logprob);
}

static inline struct kern_sample_out out_of(struct result *r)
{
	return (struct kern_sample_out){r->token,       r->logprob, r->rank, r->top_id,
					r->top_logprob, MOST,       r->mu};
}

static inline void same_row(const struct result *got, const struct result *want, int i,
			    const struct kern_sample_row *row, const char *what)
{
	cr_assert(got->token[i] == want->token[i] && got->rank[i] == want->rank[i],
		  "%s row %d: token %d rank %d, expected %d rank %d", what, i, got->token[i], got->rank[i],
		  want->token[i], want->rank[i]);
	kt_same(&got->logprob[i], &want->logprob[i], 1, what);
	cr_assert(!row->mirostat || row->forced >= 0 || got->mu[i] == want->mu[i],
		  "%s row %d: mu %d, expected %d", what, i, got->mu[i], want->mu[i]);
	for (int k = 0; k < row->n_logprobs; k++) {
		const int at = i * MOST + k;
		cr_assert_eq(got->top_id[at], want->top_id[at], "%s row %d top %d", what, i, k);
		kt_same(&got->top_logprob[at], &want->top_logprob[at], 1, what);
	}
}

/* Rows that sample from logits [n_logits, n_vocab]. */
struct sampling {
	const float *logits;
	int n_vocab, n_logits;
	const struct kern_sample_row *rows;
	int n;
};

/* Sample the rows into got, and update tokens [n_tokens]. */
static inline void run_rows(struct kt *t, const struct sampling *s, int32_t *tokens, int n_tokens,
			    struct result *got)
{
	const struct kern_sample_out out = out_of(got);
	void *dev_logits = kt_put(t, s->logits, (size_t)s->n_logits * (size_t)s->n_vocab * 4);
	void *dev_tokens = kt_put(t, tokens, (size_t)n_tokens * 4);
	kt_sample(t, dev_logits, s->n_vocab, dev_tokens, s->rows, s->n, &out);
	kt_get(t, tokens, dev_tokens, (size_t)n_tokens * 4);
	kt_del(t, dev_logits);
	kt_del(t, dev_tokens);
}

/* Sample with the CPU's plain C kernels, whatever device is under test. */
static inline void run_plain(const struct sampling *s, int32_t *tokens, int n_tokens, struct result *got)
{
	const struct kern_open_args a = {.index = -1,
					 .isa = "plain",
					 .n_threads = 1,
					 .max_rows = 1,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 1,
					 .max_blocks_per_seq = 1};
	struct kt t = {.ops = &kern_cpu_ops, .op = KERN_F32, .isa = "plain"};
	struct why why;
	cr_assert_eq(t.ops->open(&t.dev, &a, &why), 0, "%s", why.text);
	t.s = t.ops->stream_new(t.dev);
	run_rows(&t, s, tokens, n_tokens, got);
	kt_close(&t);
}

/* Compare every way with plain C. Logits are F32 in every class; `history` covers each row's hist0 and
 * n_hist. */
static inline void check_rows(const float *logits, int n_vocab, int n_logits,
			      const struct kern_sample_row *rows, int n, const int32_t *history,
			      int n_history, const char *what)
{
	const struct sampling s = {logits, n_vocab, n_logits, rows, n};
	struct result want = result_new(n), got = result_new(n);
	int32_t *tokens = xmemdup(history, (size_t)n_history * 4), *after = xmalloc((size_t)n_history * 4);
	run_plain(&s, tokens, n_history, &want);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.logits = n_logits + 4}))
			continue;
		memcpy(after, history, (size_t)n_history * 4);
		run_rows(&t, &s, after, n_history, &got);
		for (int k = 0; k < n; k++)
			same_row(&got, &want, k, &rows[k], what);
		cr_assert(!memcmp(after, tokens, (size_t)n_history * 4), "%s: the token buffer", what);
		kt_close(&t);
	}
	free(tokens);
	free(after);
	result_free(&want);
	result_free(&got);
}

static inline int some(int n)
{
	return (int)(kt_rand() % (uint32_t)n);
}

/* Set llama.cpp's truncation parameters and DRY at random. */
static inline void random_llama(struct kern_sample_row *r, struct lists *l)
{
	static const float typical[] = {0, 0.1f, 0.5f, 0.9f, 0.999f, 1}, sigma[] = {0.01f, 0.5f, 1, 2, 100};
	static const float chance[] = {0.3f, 1}, thresholds[] = {0, 0.01f, 0.1f, 0.3f, 0.5f, 1};
	r->typical_p = some(3) ? 0 : typical[some(6)];
	r->top_n_sigma = some(3) ? 0 : sigma[some(5)];
	r->xtc_probability = some(3) ? 0 : chance[some(2)];
	r->xtc_threshold = thresholds[some(6)];
	r->dry_multiplier = some(3) ? 0 : 0.8f;
	r->dry_base = some(4) ? 1.75f : 1e30f;
	r->dry_allowed = some(4);
	r->dry_last_n = some(2) ? -1 : some(HISTORY);
	for (int k = 0; k < 3; k++)
		l->breakers[k] = k ? l->breakers[k - 1] + 1 + some(6) : some(3);
	r->n_breakers = some(4);
	r->breakers = l->breakers;
}

/* Set Mirostat at random. mu is stored after row i's history: at most HISTORY - 1 tokens, the sampled one
 * included. */
static inline void random_mirostat(struct kern_sample_row *r)
{
	static const float tau[] = {0, 0.5f, 3, 5, 20}, eta[] = {0, 0.1f, 1, 10};
	r->mirostat = some(3);
	r->mirostat_tau = (int32_t)(tau[some(5)] * MIROSTAT_ONE);
	r->mirostat_eta = (int32_t)(eta[some(4)] * MIROSTAT_ONE);
	r->mu_at = r->hist0 + HISTORY - 1;
}

/* Set every parameter at random. Some ids are outside the vocabulary. */
static inline struct kern_sample_row random_row(struct lists *l, int i, int n_vocab)
{
	static const float temperatures[] = {0, 0.3f, 0.7f, 1, 1.5f, 50};
	static const float shares[] = {0, 0.05f, 0.5f, 0.9f, 0.999f};
	struct kern_sample_row r = row_default();
	r.row = i % 3;
	r.hist0 = i * HISTORY;
	r.n_hist = some(HISTORY - 2);
	r.n_prompt = some(r.n_hist + 1);
	r.temperature = temperatures[some(6)];
	r.top_k = some(2) ? 0 : 1 + some(some(2) ? 20 : n_vocab + 5);
	r.top_p = some(2) ? 1 : shares[some(5)];
	r.min_p = some(3) ? 0 : shares[some(5)];
	r.presence = some(4) ? 0 : kt_float();
	r.frequency = some(4) ? 0 : kt_float();
	r.repetition = some(4) ? 1 : 1.3f;
	r.seed = kt_rand() | (uint64_t)kt_rand() << 32;
	r.index = (uint32_t)some(4);
	r.position = (uint32_t)some(1000);
	r.n_logprobs = some(3) - 1;
	r.n_logprobs *= r.n_logprobs > 0 ? 1 + some(MOST) : 1;
	r.forced = some(12) ? -1 : some(n_vocab);
	for (int k = 0; k < LISTS; k++) {
		l->bias_ids[k] = some(n_vocab + 2) - 1;
		l->bias[k] = 4 * kt_float();
		l->banned[k] = some(n_vocab);
	}
	for (int k = 0; k < 64; k++)
		l->allowed[k] = some(n_vocab);
	for (int k = 0; k < 8; k++)
		l->bad[k] = some(4);
	l->bad_len[0] = 1;
	l->bad_len[1] = 2;
	l->bad_len[2] = 3;
	r.n_bias = some(3) ? 0 : LISTS;
	r.bias_ids = l->bias_ids;
	r.bias = l->bias;
	r.n_allowed = some(5) ? 0 : 64;
	r.allowed = l->allowed;
	r.n_banned = some(3) ? 0 : LISTS;
	r.banned = l->banned;
	r.n_bad = some(3) ? 0 : 3;
	r.bad = l->bad;
	r.bad_len = l->bad_len;
	if (some(2))
		random_llama(&r, l);
	if (!some(3))
		random_mirostat(&r);
	cr_assert(n_vocab <= VOCAB_MOST);
	const int one_of = 1 << some(14); /* allow all tokens, half of them, or fewer */
	for (int k = 0; k < n_vocab; k++)
		if (!some(one_of))
			allow(l->mask, k);
	allow(l->mask, some(n_vocab));
	l->mask[(n_vocab - 1) / 32] |= 0xfffffffe << ((n_vocab - 1) % 32); /* set the unused bits */
	r.mask = r.forced >= 0 || some(2) ? NULL : l->mask;
	return r;
}

#endif
