/* The sampler: each parameter alone, the order of the parameters, the random draw, log-probabilities. For
 * random parameters, every way must choose the same tokens as plain C, bit for bit. */
#include "tests/kernels/sample_test.h"

#include "kernels/cpu/philox.h"

static float *ramp(int n) /* Logits that all differ, with the largest in the middle. */
{
	float *x = xmalloc((size_t)n * sizeof *x);
	for (int i = 0; i < n; i++)
		x[i] = -0.01f * (float)abs(i - n / 2) - (i > n / 2 ? 0.005f : 0);
	return x;
}

/* Count how often each of n tokens is drawn at `tries` positions, in the fastest available way. */
static void tally(const float *logits, int n, struct kern_sample_row r, int tries, int *count)
{
	enum { AT_ONCE = 250 };
	struct kt t;
	struct kern_sample_row rows[AT_ONCE];
	int32_t token[AT_ONCE], rank[AT_ONCE];
	float logprob[AT_ONCE];
	const struct kern_sample_out out = {.token = token, .rank = rank, .logprob = logprob};
	kt_open_any(&t, 0, (struct kt_size){.logits = AT_ONCE});
	void *dev_logits = kt_put(&t, logits, (size_t)n * sizeof *logits);
	void *tokens = kt_new(&t, AT_ONCE * sizeof(int32_t));
	memset(count, 0, (size_t)n * sizeof *count);
	const int at_once = tries < AT_ONCE ? tries : (int)AT_ONCE;
	cr_assert(tries % at_once == 0);
	for (int i = 0; i < tries; i += at_once) {
		for (int k = 0; k < at_once; k++) {
			rows[k] = r;
			rows[k].hist0 = k;
			rows[k].position = (uint32_t)(i + k);
		}
		kt_sample(&t, dev_logits, n, tokens, rows, at_once, &out);
		for (int k = 0; k < at_once; k++)
			count[token[k]]++;
	}
	kt_close(&t);
}

/* Return n draws, or 100 on the emulated device, where each choice is compared with plain C as well. */
static int tries_of(int n)
{
	return kt_brief() ? 100 : n;
}

/* Check that chi-square per degree of freedom is near 1. It exceeds 2 with 7 or more degrees in one of a
 * hundred cases; the seed is fixed. */
static void check_frequencies(const int *count, const double *p, int n, int tries)
{
	double chi = 0;
	int degrees = -1;
	for (int i = 0; i < n; i++) {
		double want = p[i] * tries;
		if (want < 5) {
			cr_assert(p[i] > 0 || count[i] == 0, "token %d drawn %d times, never expected", i,
				  count[i]);
			continue;
		}
		chi += (count[i] - want) * (count[i] - want) / want;
		degrees++;
	}
	cr_assert(chi < 2.2 * degrees + 3, "chi square %g with %d degrees of freedom", chi, degrees);
}

static void softmax(const float *x, int n, double t, double *p)
{
	double max = -INFINITY, sum = 0;
	for (int i = 0; i < n; i++)
		max = x[i] > max ? (double)x[i] : max;
	for (int i = 0; i < n; i++)
		sum += p[i] = exp(((double)x[i] - max) / t);
	for (int i = 0; i < n; i++)
		p[i] /= sum;
}

/* ---- Philox ---- */

/* Known answers published with Random123. */
Test(sample, philox_gives_the_published_words)
{
	static const uint32_t in[3][6] = {
		{0, 0, 0, 0, 0, 0},
		{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
		{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0},
	};
	static const uint32_t want[3][4] = {
		{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
		{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
	};
	for (int i = 0; i < 3; i++) {
		uint32_t got[4];
		philox4x32(in[i], in[i] + 4, got);
		for (int w = 0; w < 4; w++)
			cr_assert_eq(got[w], want[i][w], "vector %d word %d: %08x", i, w, got[w]);
	}
}

/* ---- greedy ---- */

Test(sample, greedy_takes_the_largest_and_ties_go_to_the_lower_id)
{
	static const int sizes[] = {1, 5, 16, 17, 4096, 4097, 9000};
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		float *x = ramp(sizes[s]);
		cr_assert_eq(sample_one(x, sizes[s], NULL, row_default()).token, sizes[s] / 2);
		x[sizes[s] - 1] = x[sizes[s] / 2];
		cr_assert_eq(sample_one(x, sizes[s], NULL, row_default()).token, sizes[s] / 2);
		x[0] = x[sizes[s] / 2];
		cr_assert_eq(sample_one(x, sizes[s], NULL, row_default()).token, 0);
		free(x);
	}
}

Test(sample, nan_and_infinite_logits_neither_crash_nor_win)
{
	float x[40];
	struct kern_sample_row r = row_default();
	for (int temperature = 0; temperature < 2; temperature++) {
		r.temperature = (float)temperature;
		r.top_k = temperature ? 3 : 0;
		for (int i = 0; i < 40; i++)
			x[i] = NAN;
		cr_assert_eq(sample_one(x, 40, NULL, r).token, 0);
		x[7] = -1000;
		cr_assert_eq(sample_one(x, 40, NULL, r).token, 7);
		for (int i = 0; i < 40; i++)
			x[i] = -INFINITY;
		cr_assert_eq(sample_one(x, 40, NULL, r).token, 0);
		x[9] = INFINITY;
		struct draw d = sample_one(x, 40, NULL, r);
		cr_assert(d.token == 9 && d.logprob == 0);
	}
}

/* Lists as long as proto/params.h allows in a request. */
Test(sample, the_longest_lists_are_taken)
{
	enum { N = 1000, ALLOWED = 200000, BIAS = 1024, BANNED = 2048, WORDS = 64, BAD = 65536 };
	float x[N];
	int32_t *allowed = xcalloc(ALLOWED, 4), *ids = xcalloc(BIAS, 4), *banned = xcalloc(BANNED, 4),
		*bad = xcalloc(BAD, 4);
	int32_t len[WORDS];
	float *bias = xcalloc(BIAS, 4);
	struct kern_sample_row r = row_default();
	for (int i = 0; i < N; i++)
		x[i] = (float)i / N;
	for (int i = 0; i < ALLOWED; i++)
		allowed[i] = i % 900;
	for (int i = 0; i < BIAS; i++)
		ids[i] = i % N;
	for (int i = 0; i < BANNED; i++)
		banned[i] = 890 + i % 10;
	for (int i = 0; i < WORDS; i++)
		len[i] = BAD / WORDS;
	r.n_allowed = ALLOWED;
	r.allowed = allowed;
	r.n_bias = BIAS;
	r.bias_ids = ids;
	r.bias = bias;
	r.n_banned = BANNED;
	r.banned = banned;
	r.n_bad = WORDS;
	r.bad = bad;
	r.bad_len = len;
	cr_assert_eq(sample_one(x, N, NULL, r).token, 889);
	free(allowed);
	free(ids);
	free(banned);
	free(bad);
	free(bias);
}

/* On a GPU the lists need more bytes than one transfer holds, and more transfers than there are buffers. */
Test(sample, rows_with_long_lists_each_have_their_own)
{
	enum { N = 100, ALLOWED = 200000, ROWS = 30 };
	float x[N], logprob[ROWS];
	int32_t token[ROWS], rank[ROWS], *allowed = xcalloc(ALLOWED, 4), banned[ROWS];
	struct kern_sample_row rows[ROWS];
	const struct kern_sample_out out = {.token = token, .rank = rank, .logprob = logprob};
	for (int i = 0; i < N; i++)
		x[i] = (float)i / N;
	for (int i = 0; i < ALLOWED; i++)
		allowed[i] = i % 2 ? 50 : 60;
	for (int i = 0; i < ROWS; i++) {
		banned[i] = i % 3 ? 60 : 50;
		rows[i] = row_default();
		rows[i].hist0 = i;
		rows[i].n_allowed = ALLOWED;
		rows[i].allowed = allowed;
		rows[i].n_banned = 1;
		rows[i].banned = &banned[i];
	}
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.logits = ROWS}))
			continue;
		kt_sample(&t, kt_put(&t, x, sizeof x), N, kt_new(&t, sizeof token), rows, ROWS, &out);
		for (int i = 0; i < ROWS; i++)
			cr_expect_eq(token[i], i % 3 ? 50 : 60, "%s: row %d has token %d", t.isa, i,
				     token[i]);
		kt_close(&t);
	}
	free(allowed);
}

/* ---- penalties, bias, bans ---- */

Test(sample, repetition_penalty_weakens_prompt_and_output_tokens)
{
	const int32_t hist[] = {2, 3};
	float x[] = {1.0f, -1.0f, 1.5f, -0.5f, -9, -9, -9, -9};
	struct kern_sample_row r = row_default();
	r.n_hist = 2;
	r.n_prompt = 1;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 2);
	r.repetition = 2; /* 1.5 / 2 < 1 */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 0);
	x[0] = x[2] = -9; /* -0.5 * 2 = -1 ties with token 1, which has the lower id */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 1);
}

Test(sample, frequency_and_presence_penalties_see_the_output_only)
{
	const int32_t hist[] = {0, 0, 0, 1, 1, 2};
	float x[] = {5, 4, 3.5f, 1, 0, 0, 0, 0};
	struct kern_sample_row r = row_default();
	r.n_hist = 6;
	r.n_prompt = 3;
	r.frequency = 1; /* 5, 4-2, 3.5-1 */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 0);
	x[0] = 0;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 2);
	r.frequency = 0;
	r.presence = 1; /* 4-1, 3.5-1 */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 1);
	r.presence = 3.1f;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 3);
}

Test(sample, ids_outside_the_vocabulary_are_passed_over)
{
	const int32_t hist[] = {-1, 1000000, 1}, ids[] = {-5, 99, 2};
	const float bias[] = {50, 50, 50};
	float x[] = {5, 4, 3, 1};
	struct kern_sample_row r = row_default();
	r.n_hist = 3;
	r.frequency = 1;
	r.n_bias = 3;
	r.bias_ids = ids;
	r.bias = bias;
	r.n_banned = 2;
	r.banned = ids;
	cr_assert_eq(sample_one(x, 4, hist, r).token, 2);
}

Test(sample, bias_bans_and_allowed_tokens)
{
	float x[] = {5, 4, 3, 2, 1, 0, -1, -2};
	const int32_t three[] = {3}, zero_one[] = {0, 1}, some[] = {6, 4, 4, 7}, both[] = {4, 0};
	const float bias[] = {2.5f, 2.5f};
	struct kern_sample_row r = row_default();
	r.n_bias = 1;
	r.bias_ids = three;
	r.bias = bias;
	cr_assert_eq(sample_one(x, 8, NULL, r).token, 0);
	r.n_bias = 0;
	r.n_banned = 2;
	r.banned = zero_one;
	cr_assert_eq(sample_one(x, 8, NULL, r).token, 2);
	r.n_allowed = 4;
	r.allowed = some;
	cr_assert_eq(sample_one(x, 8, NULL, r).token, 4);
	r.n_banned = 2;
	r.banned = both;
	cr_assert_eq(sample_one(x, 8, NULL, r).token, 6);
	r.temperature = 100; /* no other token, however flat the distribution */
	for (uint32_t i = 0; i < 20; i++) {
		r.position = i;
		int id = sample_one(x, 8, NULL, r).token;
		cr_assert(id == 6 || id == 7);
	}
	for (int i = 0; i < 8; i++)
		x[i] = -INFINITY;
	r.temperature = 0; /* an allowed token, even if the model excludes all tokens */
	cr_assert_eq(sample_one(x, 8, NULL, r).token, 6);
}

Test(sample, a_smaller_vocabulary_after_a_larger_one_finds_nothing_of_it)
{
	enum { LARGE = 1000 };
	const int32_t five[] = {5};
	float *x = ramp(LARGE);
	struct kern_sample_row wide = row_default(), narrow = row_default();
	wide.temperature = 1; /* draws from a list of all tokens */
	wide.min_p = 1e-30f;
	narrow.n_allowed = 1;
	narrow.allowed = five;
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){0}))
			continue;
		for (int n = 64; n < LARGE; n += 62) {
			int32_t token = 0;
			sample_on(&t, x, LARGE, &token, wide);
			cr_assert_eq(sample_on(&t, x, n, &token, narrow).token, 5, "%s: %d tokens", t.isa, n);
		}
		kt_close(&t);
	}
	free(x);
}

Test(sample, bad_words_are_banned_where_they_would_be_completed)
{
	const int32_t hist[] = {7, 1, 2}, bad[] = {5, 1, 2, 0, 2, 2, 1, 7, 7, 7, 7, 3, 7, 1, 2, 4},
		      len[] = {1, 3, 3, 5, 4};
	float x[] = {9, 8, 7, 6, 11, 10, 0, 0};
	struct kern_sample_row r = row_default();
	r.n_hist = 3;
	r.n_bad = 5;
	r.bad = bad;
	r.bad_len = len;
	/* 5 is always banned, 0 after 1 2, and 4 after the whole history. 1 is banned only after 2 2. */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 1);
}

/* ---- temperature, top-k, top-p, min-p ---- */

Test(sample, draws_follow_the_distribution)
{
	enum { N = 12 };
	const int tries = tries_of(20000);
	float x[N];
	double p[N];
	int count[N];
	struct kern_sample_row r = row_default();
	for (int i = 0; i < N; i++)
		x[i] = 3 * kt_float();
	static const float temperatures[] = {0.5f, 1, 3};
	for (int t = 0; t < 3; t++) {
		r.temperature = temperatures[t];
		r.seed = 1234 + (uint64_t)t;
		softmax(x, N, (double)r.temperature, p);
		tally(x, N, r, tries, count);
		check_frequencies(count, p, N, tries);
	}
}

Test(sample, draws_over_many_blocks_follow_the_distribution)
{
	enum { N = 20000, PARTS = 20 };
	const int tries = tries_of(3000);
	float *x = xmalloc(N * sizeof *x);
	double *p = xmalloc(N * sizeof *p), part_p[PARTS] = {0};
	int *count = xmalloc(N * sizeof *count), part[PARTS] = {0};
	struct kern_sample_row r = row_default();
	r.temperature = 1;
	for (int i = 0; i < N; i++)
		x[i] = 2 * kt_float() + (float)(i / 1000) * 0.1f;
	softmax(x, N, 1, p);
	tally(x, N, r, tries, count);
	for (int i = 0; i < N; i++) {
		part_p[i * PARTS / N] += p[i];
		part[i * PARTS / N] += count[i];
	}
	check_frequencies(part, part_p, PARTS, tries);
	free(x);
	free(p);
	free(count);
}

/* Compute p after truncation: sort in descending order and apply the rules literally. */
static void keep_reference(const float *x, int n, const struct kern_sample_row *r, double *p)
{
	int *order = xmalloc((size_t)n * sizeof *order), kept = n;
	softmax(x, n, (double)r->temperature, p);
	for (int i = 0; i < n; i++) {
		int at = i;
		for (; at > 0 && x[i] > x[order[at - 1]]; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	if (r->top_k > 0 && r->top_k < n)
		kept = r->top_k;
	double all = 0, sum = 0;
	for (int i = 0; i < kept; i++)
		all += p[order[i]];
	if (r->top_p < 1) {
		int k = 0;
		while (k < kept && (k == 0 || sum < (double)r->top_p * all))
			sum += p[order[k++]];
		kept = k;
	}
	double top = p[order[0]], left = 0;
	for (int i = 0; i < n; i++) {
		if (i >= kept || p[order[i]] < (double)r->min_p * top)
			p[order[i]] = 0;
		left += p[order[i]];
	}
	for (int i = 0; i < n; i++)
		p[i] /= left;
	free(order);
}

Test(sample, top_k_top_p_and_min_p_cut_and_keep_the_proportions)
{
	enum { N = 30 };
	const int tries = tries_of(3000);
	static const struct {
		int top_k;
		float top_p, min_p, temperature;
	} cases[] = {
		{5, 1, 0, 1},       {1, 1, 0, 1},        {29, 1, 0, 2},   {0, 0.5f, 0, 1},
		{0, 0.9f, 0, 0.7f}, {0, 0.01f, 0, 1},    {0, 0, 0, 1},    {0, 0.999f, 0, 1},
		{0, 1, 0.2f, 1},    {0, 1, 1, 1},        {8, 0.8f, 0, 1}, {8, 0.8f, 0.3f, 1.5f},
		{100, 0.3f, 0, 5},  {4, 0.99f, 0.5f, 1}, {3, 1, 0, 1000},
	};
	float x[N];
	double p[N];
	int count[N];
	for (int i = 0; i < N; i++)
		x[i] = 3 * kt_float();
	x[11] = x[3]; /* a tie */
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct kern_sample_row r = row_default();
		r.top_k = cases[c].top_k;
		r.top_p = cases[c].top_p;
		r.min_p = cases[c].min_p;
		r.temperature = cases[c].temperature;
		r.seed = 99 + c;
		keep_reference(x, N, &r, p);
		tally(x, N, r, tries, count);
		check_frequencies(count, p, N, tries);
	}
}

Test(sample, top_k_keeps_the_lower_ids_of_a_tie)
{
	enum { N = 5000 };
	float *x = xcalloc(N, sizeof *x);
	int *count = xmalloc(N * sizeof *count);
	struct kern_sample_row r = row_default();
	x[4000] = 1;
	r.temperature = 50;
	r.top_k = 3;
	const int tries = tries_of(500);
	tally(x, N, r, tries, count);
	cr_assert(count[0] && count[1] && count[4000] && count[0] + count[1] + count[4000] == tries);
	free(x);
	free(count);
}

Test(sample, logits_far_apart_and_all_alike_are_drawn_from)
{
	enum { N = 3000 };
	float *x = xcalloc(N, sizeof *x);
	struct kern_sample_row r = row_default();
	r.temperature = 1;
	r.top_p = 0.5f;
	int id = sample_one(x, N, NULL, r).token;
	cr_assert(id >= 0 && id < N / 2);
	x[17] = 3e38f;
	cr_assert_eq(sample_one(x, N, NULL, r).token, 17);
	x[18] = -3e38f;
	r.top_k = 2;
	cr_assert_eq(sample_one(x, N, NULL, r).token, 17);
	r.temperature = 1e-30f;
	cr_assert_eq(sample_one(x, N, NULL, r).token, 17);
	r.temperature = 1e30f;
	id = sample_one(x, N, NULL, r).token;
	cr_assert(id == 17 || id == 0);
	free(x);
}

/* ---- masks ---- */

/* Logits of N tokens, and the tokens that the mask allows as a separate vocabulary. */
enum { MASK_N = 5000 };

struct masked {
	float x[MASK_N], few[MASK_N];
	int32_t id[MASK_N]; /* token id of each entry of few */
	int n;
	uint32_t mask[(MASK_N + 31) / 32];
};

static struct masked *masked_new(int one_of)
{
	struct masked *m = xcalloc(1, sizeof *m);
	for (int i = 0; i < MASK_N; i++) {
		m->x[i] = roundf(24 * kt_float()) / 8; /* some logits are equal */
		if (i % one_of && i != MASK_N - 1)
			continue;
		allow(m->mask, i);
		m->id[m->n] = i;
		m->few[m->n++] = m->x[i];
	}
	return m;
}

static void check_masked(const struct masked *m, struct kern_sample_row r)
{
	r.n_logprobs = 5;
	const struct draw want = sample_one(m->few, m->n, NULL, r);
	r.mask = m->mask;
	const struct draw got = sample_one(m->x, MASK_N, NULL, r);
	cr_assert_eq(got.token, m->id[want.token]);
	cr_assert_eq(got.rank, want.rank);
	cr_assert(fabsf(got.logprob - want.logprob) < 1e-5f, "%g, expected %g", (double)got.logprob,
		  (double)want.logprob);
	for (int k = 0; k < 5; k++) {
		cr_assert_eq(got.top_id[k], want.top_id[k] < 0 ? -1 : m->id[want.top_id[k]]);
		cr_assert(want.top_id[k] < 0 || fabsf(got.top_logprob[k] - want.top_logprob[k]) < 1e-5f);
	}
}

Test(sample, a_masked_row_is_one_of_the_allowed_tokens_alone)
{
	static const int one_of[] = {1, 2, 33, 2000, 5000};
	static const struct {
		int top_k;
		float top_p, min_p, temperature;
	} cases[] = {{0, 1, 0, 0},    {0, 1, 0, 1},       {7, 1, 0, 1.5f},
		     {0, 0.9f, 0, 1}, {0, 1, 0.1f, 0.7f}, {20, 0.8f, 0.05f, 5e37f}};
	for (size_t o = 0; o < sizeof one_of / sizeof *one_of; o++) {
		struct masked *m = masked_new(one_of[o]);
		for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
			struct kern_sample_row r = row_default();
			r.top_k = cases[c].top_k;
			r.top_p = cases[c].top_p;
			r.min_p = cases[c].min_p;
			r.temperature = cases[c].temperature;
			r.seed = 5 + c;
			check_masked(m, r);
		}
		free(m);
	}
}

Test(sample, what_a_mask_allows_is_chosen_however_bad_its_logits)
{
	enum { N = 4200, ONE = 4161, OTHER = 4170 };
	static const float bad[] = {NAN, -INFINITY, -0x1.fffffep127f};
	float *x = xcalloc(N, sizeof *x);
	uint32_t mask[(N + 31) / 32] = {0};
	allow(mask, ONE);
	allow(mask, OTHER);
	for (size_t b = 0; b < 3; b++)
		for (int hot = 0; hot < 3; hot++) {
			struct kern_sample_row r = row_default();
			r.mask = mask;
			r.temperature = (float)hot;
			r.top_k = hot == 2 ? 50 : 0;
			r.n_logprobs = 4;
			x[ONE] = x[OTHER] = bad[b];
			struct draw d = sample_one(x, N, NULL, r);
			cr_assert_eq(d.token, ONE);
			cr_assert(d.top_id[0] == (b ? ONE : -1) && d.top_id[2] == -1);
			x[OTHER] = -1e30f;
			cr_assert_eq(sample_one(x, N, NULL, r).token, OTHER);
			x[7] = INFINITY; /* not allowed */
			d = sample_one(x, N, NULL, r);
			cr_assert(d.token == OTHER && d.rank == 1 && d.logprob == 0);
			x[7] = 0;
		}
	free(x);
}

Test(sample, bans_that_leave_nothing_of_a_mask_do_not_count)
{
	static const int32_t hist[] = {3, 4}, bias_ids[] = {5}, allowed[] = {1, 2}, banned[] = {5, 6},
			     bad[] = {4, 5, 6}, bad_len[] = {2, 1};
	static const float bias[] = {-INFINITY};
	const float x[] = {9, 9, 9, 9, 9, 2, 1, 9};
	const uint32_t mask[] = {1u << 5 | 1u << 6};
	struct kern_sample_row r = row_default();
	r.mask = mask;
	r.n_hist = 2;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 5);
	r.bias_ids = bias_ids;
	r.bias = bias;
	r.n_bias = 1;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 6);
	r.banned = banned;
	r.n_banned = 1; /* token 5, which remains banned whatever the bias */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 6);
	r.n_banned = 2;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 6); /* the bias still counts */
	r.n_bias = 0;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 5);
	r.n_banned = 0;
	r.bad = bad;
	r.bad_len = bad_len;
	r.n_bad = 1; /* 4 5 */
	cr_assert_eq(sample_one(x, 8, hist, r).token, 6);
	r.n_bad = 2;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 5);
	r.n_bad = 0;
	r.allowed = allowed;
	r.n_allowed = 2;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 5);
	r.temperature = 1e-3f;
	cr_assert_eq(sample_one(x, 8, hist, r).token, 5);
}

/* ---- DRY ---- */

Test(sample, dry_repetitions_end_at_breakers_and_at_the_window)
{
	static const int32_t hist[] = {1, 2, 3, 9, 1, 2, 3}, first[] = {0, 1}, last[] = {3, 8},
			     between[] = {2, 4};
	float x[12] = {0};
	struct kern_sample_row r = row_default();
	x[9] = 1; /* followed 1 2 3 */
	x[5] = 0.1f;
	r.n_hist = 7;
	r.n_prompt = 7;
	r.dry_base = 1.75f;
	r.dry_allowed = 2;
	r.dry_last_n = -1;
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
	r.dry_multiplier = 0.8f; /* 1 - 0.8 * 1.75 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 5);
	r.breakers = first;
	r.n_breakers = 2; /* 2 3: 1 - 0.8 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
	r.breakers = between; /* 3 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
	r.breakers = last;
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
	r.dry_multiplier = 2;
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
	r.n_breakers = 0;
	r.dry_last_n = 6; /* 2 3 9 1 2 3 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 5);
	r.dry_last_n = 5; /* 3 9 1 2 3 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
	r.dry_last_n = 0;
	cr_assert_eq(sample_one(x, 12, hist, r).token, 9);
}

/* A repetition may start at the history's first token, but that token is no continuation. Tokens stored
 * before the history are not part of it. */
Test(sample, dry_looks_as_far_as_the_history_s_start)
{
	static const int32_t first[] = {7, 5, 7}, other[] = {1, 2, 3, 9, 1, 2, 3};
	const float x[12] = {0, 0, 0, 0.2f, 0, 1, 0, 0, 0, 1.1f};
	struct kern_sample_row r = row_default();
	r.dry_last_n = -1;
	r.dry_multiplier = 2;
	r.dry_allowed = 1;
	r.n_hist = 3;
	const float y[12] = {0, 0, 0, 0.2f, 0, 1};
	cr_assert_eq(sample_one(y, 12, first, r).token, 3);
	r.hist0 = 1; /* 5 7 */
	r.n_hist = 2;
	r.dry_allowed = 0;
	cr_assert_eq(sample_one(y, 12, first, r).token, 5);
	r.n_hist = 6; /* 2 3, without the 1: 1.1 - 0.05 */
	r.dry_allowed = 2;
	r.dry_multiplier = 0.05f;
	r.dry_base = 4;
	cr_assert_eq(sample_one(x, 12, other, r).token, 9);
}

Test(sample, dry_penalties_are_bounded)
{
	enum { LONG = 200 };
	int32_t hist[LONG];
	float x[12] = {0};
	struct kern_sample_row r = row_default();
	for (int i = 0; i < LONG; i++)
		hist[i] = 7;
	x[7] = 0.5f;
	x[3] = 0.2f;
	r.n_hist = LONG;
	r.dry_last_n = -1;
	r.dry_allowed = 1;
	r.dry_multiplier = 0.1f;
	r.dry_base = 1.01f; /* 0.1 * 1.01 ^ 64 = 0.19 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 7);
	r.dry_base = 1.02f; /* 0.36 */
	cr_assert_eq(sample_one(x, 12, hist, r).token, 3);
	r.dry_base = 1e30f; /* stays finite: the only token of a mask can still be drawn */
	const uint32_t mask[] = {1u << 7};
	r.mask = mask;
	r.temperature = 1;
	cr_assert_eq(sample_one(x, 12, hist, r).token, 7);
}

/* ---- seeds ---- */

enum { SEED_N = 1000, SEED_ROWS = 40 };

/* Draw all rows at once, then one by one. Return the number of rows that differ with another seed. */
static int draw_seeds(struct kt *t, const float *x, const struct kern_sample_row *r, int32_t *got)
{
	int32_t rank[SEED_ROWS], tokens[2 * SEED_ROWS] = {0};
	float logprob[SEED_ROWS];
	struct kern_sample_out out = {.token = got, .logprob = logprob, .rank = rank};
	void *dev_x = kt_put(t, x, (size_t)SEED_N * SEED_ROWS * sizeof *x);
	void *dev_tokens = kt_put(t, tokens, sizeof tokens);
	int different = 0;
	kt_sample(t, dev_x, SEED_N, dev_tokens, r, SEED_ROWS, &out);
	for (int k = 0; k < SEED_ROWS; k++) {
		struct kern_sample_row one = r[k];
		cr_assert_eq(draw_on(t, dev_x, SEED_N, dev_tokens, one).token, got[k]);
		one.seed = 8;
		different += draw_on(t, dev_x, SEED_N, dev_tokens, one).token != got[k];
	}
	return different;
}

Test(sample, a_draw_depends_on_seed_index_and_position_alone)
{
	float *x = kt_floats((size_t)SEED_N * SEED_ROWS);
	struct kern_sample_row r[SEED_ROWS];
	int32_t want[SEED_ROWS], got[SEED_ROWS];
	bool first = true;
	for (int i = 0; i < SEED_ROWS; i++) {
		r[i] = row_default();
		r[i].row = i;
		r[i].hist0 = 2 * i;
		r[i].temperature = 1.5f;
		r[i].top_k = i % 3 ? 0 : 50;
		r[i].seed = 7;
		r[i].position = (uint32_t)i;
	}
	for (int way = 0; way < KT_WAYS; way++)
		for (int threads = 1; threads <= (kt_on_cpu() ? 3 : 1); threads++) {
			struct kt t;
			if (!kt_open(&t, 0, way, (struct kt_size){.threads = threads, .logits = SEED_ROWS}))
				break;
			cr_assert(draw_seeds(&t, x, r, first ? want : got) > SEED_ROWS / 2);
			if (!first)
				cr_assert(!memcmp(got, want, sizeof got), "%s, %d threads", t.isa, threads);
			first = false;
			kt_close(&t);
		}
	free(x);
}

Test(sample, outputs_of_a_job_differ)
{
	enum { N = 100 };
	float x[N] = {0};
	struct kern_sample_row r = row_default();
	int32_t first = -1;
	bool differ = false;
	r.temperature = 1;
	for (uint32_t i = 0; i < 8; i++) {
		r.index = i;
		int32_t id = sample_one(x, N, NULL, r).token;
		differ |= first >= 0 && id != first;
		first = id;
	}
	cr_assert(differ);
}

/* ---- log-probabilities ---- */

Test(sample, logprobs_are_of_the_raw_logits)
{
	enum { N = 5000 };
	float *x = kt_floats(N);
	double *p = xmalloc(N * sizeof *p);
	const int32_t banned[] = {0};
	struct kern_sample_row r = row_default();
	x[0] = 5;
	x[1] = x[4999] = 4;
	softmax(x, N, 1, p);
	r.n_banned = 1;
	r.banned = banned;
	r.n_logprobs = 10;
	struct draw d = sample_one(x, N, NULL, r);
	cr_assert(d.token == 1 && d.rank == 2);
	cr_assert(fabs((double)d.logprob - log(p[1])) < 1e-5);
	cr_assert(d.top_id[0] == 0 && d.top_id[1] == 1 && d.top_id[2] == 4999);
	for (int i = 0; i < 10; i++) {
		cr_assert(i == 0 || d.top_logprob[i] <= d.top_logprob[i - 1]);
		cr_assert(fabs((double)d.top_logprob[i] - log(p[d.top_id[i]])) < 1e-5);
	}
	r.n_logprobs = 0;
	cr_assert_eq(sample_one(x, N, NULL, r).rank, 2);
	r.n_logprobs = -1;
	cr_assert_eq(sample_one(x, N, NULL, r).rank, 0);
	free(x);
	free(p);
}

Test(sample, a_forced_token_is_measured_and_nothing_is_written)
{
	float x[] = {1, 2, 3, 0};
	int32_t tokens[] = {77, 77};
	struct kt t;
	struct kern_sample_row r = row_default();
	r.forced = 1;
	r.n_logprobs = 2;
	kt_open_any(&t, 0, (struct kt_size){0});
	struct draw d = sample_on(&t, x, 4, tokens, r);
	cr_assert(d.token == 1 && d.rank == 2 && tokens[0] == 77 && d.top_id[0] == 2 && d.top_id[1] == 1);
	cr_assert(fabsf(d.logprob - -1.4401897f) < 1e-5f);
	kt_close(&t);
}

Test(sample, more_logprobs_than_tokens_leaves_the_rest_empty)
{
	float x[] = {1, NAN, 3, -INFINITY};
	struct kern_sample_row r = row_default();
	r.n_logprobs = 6;
	struct draw d = sample_one(x, 4, NULL, r);
	cr_assert(d.top_id[0] == 2 && d.top_id[1] == 0 && d.top_id[2] == 3 && d.top_id[3] == -1 &&
		  d.top_id[5] == -1);
	cr_assert(d.top_logprob[2] == -INFINITY);
}

/* ---- everything together ---- */

/* kind: peaked, ties, flat, all equal */
static void check_random(int n_vocab, int n, int kind)
{
	char what[64];
	struct lists *lists = xcalloc((size_t)n, sizeof *lists);
	struct kern_sample_row *rows = xcalloc((size_t)n, sizeof *rows);
	int32_t *history = xcalloc((size_t)(n * HISTORY), sizeof *history);
	float *x = kt_floats((size_t)(3 * n_vocab));
	for (int i = 0; i < 3 * n_vocab; i++)
		x[i] = kind == 0 ? 8 * x[i] : kind == 1 ? roundf(3 * x[i]) : kind == 2 ? 0.1f * x[i] : 0;
	for (int i = 0; i < n * HISTORY; i++)
		history[i] = some(8) ? some(4) : some(n_vocab + 10);
	for (int i = 0; i < n; i++)
		rows[i] = random_row(&lists[i], i, n_vocab);
	for (int i = 0; i < n; i++)
		if (rows[i].mirostat)
			history[rows[i].mu_at] =
				some(8) ? some(16 * MIROSTAT_ONE) : (some(3) - 1) * (70 << 20);
	snprintf(what, sizeof what, "vocabulary %d kind %d", n_vocab, kind);
	check_rows(x, n_vocab, 3, rows, n, history, n * HISTORY, what);
	free(lists);
	free(rows);
	free(history);
	free(x);
}

Test(sample, any_parameters_give_the_choices_of_plain_c)
{
	static const int sizes[] = {8, 100, 1664, 5000};
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (int kind = 0; kind < 4; kind++)
			check_random(sizes[s], kt_brief() ? 16 : 40, kind);
}

Test(sample, a_large_vocabulary)
{
	check_random(50257, 6, 0);
	check_random(50257, 4, 2);
}

Test(sample, odd_logits_give_the_choices_of_plain_c)
{
	enum { N = 3000 };
	static const int32_t none[1];
	float *x = xcalloc(N, sizeof *x);
	struct kern_sample_row r = row_default();
	r.n_logprobs = 5;
	for (int hot = 0; hot < 2; hot++) {
		r.temperature = (float)hot;
		r.top_k = hot ? 3 : 0;
		for (int i = 0; i < N; i++)
			x[i] = NAN;
		check_rows(x, N, 1, &r, 1, none, 1, "nan");
		x[7] = -1000;
		check_rows(x, N, 1, &r, 1, none, 1, "one finite");
		for (int i = 0; i < N; i++)
			x[i] = -INFINITY;
		check_rows(x, N, 1, &r, 1, none, 1, "-inf");
		x[9] = INFINITY;
		check_rows(x, N, 1, &r, 1, none, 1, "inf");
	}
	for (int i = 0; i < N; i++)
		x[i] = i % 2 ? -0x1.fffffep127f : -INFINITY; /* equal once they are clamped */
	check_rows(x, N, 1, &r, 1, none, 1, "the least there is");
	memset(x, 0, N * sizeof *x);
	r.top_k = 0;
	r.top_p = 0.5f;
	static const float temperatures[] = {1, 1e-30f, 1e30f};
	for (int i = 0; i < 3; i++) {
		r.temperature = temperatures[i];
		x[17] = x[18] = 0;
		check_rows(x, N, 1, &r, 1, none, 1, "all alike");
		x[17] = 3e38f;
		x[18] = -3e38f;
		check_rows(x, N, 1, &r, 1, none, 1, "far apart");
	}
	free(x);
}
