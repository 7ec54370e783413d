/* The CUDA sampler makes the CPU's choices: the same logits, the same rows, the same tokens,
 * ranks and log-probabilities, whatever is asked for. */
#include "tests/cudasim/cuda_test.h"

enum { HISTORY = 24, LISTS = 6, TOPS = 8 };

struct lists {
	int32_t bias_ids[LISTS], allowed[64], banned[LISTS], bad[8], bad_len[3];
	float bias[LISTS];
};

struct result {
	int32_t *token, *rank, *top_id;
	float *logprob, *top_logprob;
};

static struct kern_sample_row row_default(void)
{
	return (struct kern_sample_row){.forced = -1, .top_p = 1, .repetition = 1, .n_logprobs = -1};
}

static struct result result_new(int n)
{
	const size_t k = (size_t)n;
	return (struct result){xcalloc(k, 4), xcalloc(k, 4), xcalloc(k * TOPS, 4), xcalloc(k, 4),
			       xcalloc(k * TOPS, 4)};
}

static void result_free(struct result *r)
{
	free(r->token);
	free(r->rank);
	free(r->top_id);
	free(r->logprob);
	free(r->top_logprob);
}

static struct kern_sample_out out_of(struct result *r)
{
	return (struct kern_sample_out){r->token, r->logprob, r->rank, r->top_id, r->top_logprob, TOPS};
}

/* Both tables on the same rows; history holds what each row's hist0 and n_hist name. */
static void check_rows(struct ct *t, const float *logits, int n_vocab, int n_logits,
		       const struct kern_sample_row *rows, int n, const int32_t *history, int n_history,
		       const char *what)
{
	struct kt cpu;
	struct result want = result_new(n), got = result_new(n);
	int32_t *tokens = xmemdup(history, (size_t)n_history * 4), *after = xcalloc((size_t)n_history, 4);
	cr_assert(kt_open(&cpu, "plain", (struct kt_size){.threads = 1, .rows = 1}));
	struct kern_sample_out out = out_of(&want);
	cr_assert_eq(cpu.ops->sample(cpu.s, logits, n_vocab, tokens, rows, n, &out), 0);
	kt_close(&cpu);
	void *dev_logits = ct_put(t, logits, (size_t)n_logits * (size_t)n_vocab * 4);
	void *dev_tokens = ct_put(t, history, (size_t)n_history * 4);
	out = out_of(&got);
	cr_assert_eq(t->ops->sample(t->s, dev_logits, n_vocab, dev_tokens, rows, n, &out), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
	ct_get(t, after, dev_tokens, (size_t)n_history * 4);
	for (int i = 0; i < n; i++) {
		cr_assert(got.token[i] == want.token[i] && got.rank[i] == want.rank[i],
			  "%s row %d: token %d rank %d, expected %d rank %d", what, i, got.token[i],
			  got.rank[i], want.token[i], want.rank[i]);
		kt_same(&got.logprob[i], &want.logprob[i], 1, what);
		for (int k = 0; k < rows[i].n_logprobs; k++) {
			cr_assert_eq(got.top_id[i * TOPS + k], want.top_id[i * TOPS + k], "%s row %d top %d",
				     what, i, k);
			kt_same(&got.top_logprob[i * TOPS + k], &want.top_logprob[i * TOPS + k], 1, what);
		}
	}
	cr_assert(!memcmp(after, tokens, (size_t)n_history * 4), "%s: the token buffer", what);
	ct_del(t, dev_logits, 0);
	ct_del(t, dev_tokens, 0);
	free(tokens);
	free(after);
	result_free(&want);
	result_free(&got);
}

static void check_one(const float *logits, int n_vocab, struct kern_sample_row r, const char *what)
{
	struct ct t;
	const int32_t history[1] = {0};
	ct_open(&t, false, (struct kt_size){.logits = 1});
	check_rows(&t, logits, n_vocab, 1, &r, 1, history, 1, what);
	ct_close(&t);
}

Test(sample, greedy_takes_the_largest_and_ties_go_to_the_lower_id)
{
	static const int sizes[] = {1, 5, 31, 4096, 4097, 9000};
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		float *x = kt_floats((size_t)sizes[s]);
		check_one(x, sizes[s], row_default(), "greedy");
		x[sizes[s] - 1] = x[sizes[s] / 2] = 2;
		check_one(x, sizes[s], row_default(), "a tie");
		free(x);
	}
}

Test(sample, nan_and_infinite_logits_neither_crash_nor_win)
{
	float x[40];
	struct kern_sample_row r = row_default();
	r.n_logprobs = 5;
	for (int temperature = 0; temperature < 2; temperature++) {
		r.temperature = (float)temperature;
		r.top_k = temperature ? 3 : 0;
		for (int i = 0; i < 40; i++)
			x[i] = NAN;
		check_one(x, 40, r, "nan");
		x[7] = -1000;
		check_one(x, 40, r, "one finite");
		for (int i = 0; i < 40; i++)
			x[i] = -INFINITY;
		check_one(x, 40, r, "-inf");
		x[9] = INFINITY;
		check_one(x, 40, r, "inf");
	}
}

static int some(int n)
{
	return (int)(kt_rand() % (uint32_t)n);
}

/* Any of the parameters, by chance; ids sometimes outside of the vocabulary. */
static struct kern_sample_row random_row(struct lists *l, int i, int n_vocab)
{
	static const float temperatures[] = {0, 0.3f, 0.7f, 1, 1.5f, 50};
	static const float shares[] = {0, 0.05f, 0.5f, 0.9f, 0.999f};
	struct kern_sample_row r = row_default();
	r.row = i % 3;
	r.hist0 = i * HISTORY;
	r.n_hist = some(HISTORY - 1);
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
	r.n_logprobs *= r.n_logprobs > 0 ? 1 + some(TOPS) : 1;
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
	return r;
}

static void check_random(int n_vocab, int n, int kind)
{
	struct ct t;
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
	snprintf(what, sizeof what, "vocabulary %d kind %d", n_vocab, kind);
	ct_open(&t, false, (struct kt_size){.logits = 7});
	check_rows(&t, x, n_vocab, 3, rows, n, history, n * HISTORY, what);
	ct_close(&t);
	free(lists);
	free(rows);
	free(history);
	free(x);
}

Test(sample, whatever_is_asked_for_the_choices_are_the_cpus)
{
	static const int sizes[] = {8, 100, 1664, 5000};
	for (int seed = 0; seed < 2; seed++)
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
			for (int kind = 0; kind < 4; kind++) { /* peaked, ties, flat, all alike */
				cudasim_seed((uint64_t)seed);
				check_random(sizes[s], 40, kind);
			}
}

Test(sample, a_large_vocabulary)
{
	cudasim_seed(3);
	check_random(50257, 6, 0);
	check_random(50257, 4, 2);
}

Test(sample, logits_far_apart_and_all_alike_are_drawn_from)
{
	enum { N = 3000 };
	float *x = xcalloc(N, sizeof *x);
	struct kern_sample_row r = row_default();
	r.temperature = 1;
	r.top_p = 0.5f;
	check_one(x, N, r, "all alike");
	x[17] = 3e38f;
	x[18] = -3e38f;
	check_one(x, N, r, "far apart");
	r.top_k = 2;
	check_one(x, N, r, "top-k of two");
	r.temperature = 1e-30f;
	check_one(x, N, r, "cold");
	r.temperature = 1e30f;
	check_one(x, N, r, "hot");
	free(x);
}
