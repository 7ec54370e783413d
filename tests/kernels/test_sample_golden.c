/* Compare draws with an independent implementation in exact fractions (tests/golden/make_sample_golden.py):
 * the same tokens, at frequencies that match the exact probabilities. Also compare with the probabilities
 * that llama.cpp's samplers leave (make_sample_llama_golden.py). */
#include "tests/kernels/kern_test.h"
#include "tests/testdata.h"

#include "base/json.h"
#include "kernels/cpu/draw.h"
#include "kernels/cpu/philox.h"
#include "kernels/mirostat.h"

enum { DRAWS = 250, TRIES = 20000, HISTORY_MOST = 100 };

struct golden {
	const char *name;
	int n, n_tokens;
	float *x;
	double *p;
	struct kern_sample_row row;
	int32_t history[HISTORY_MOST]; /* row.n_hist tokens */
	double mu;                     /* before the draw, in bits */
	const json_t *tokens;
};

static json_t *read_golden(const char *path)
{
	json_t *all = NULL;
	struct why why;
	cr_assert_eq(json_read(repofile(path), 4 << 20, &all, &why), 0, "%s", why.text);
	return all;
}

static float number(const json_t *o, const char *key)
{
	return (float)json_number_value(json_object_get(o, key));
}

static int32_t integer(const json_t *o, const char *key)
{
	return (int32_t)json_integer_value(json_object_get(o, key));
}

/* Set llama.cpp's additional parameters. A parameter that is not named is off. */
static void set_llama(struct golden *g, const json_t *o)
{
	const json_t *history = json_object_get(o, "history");
	g->row.n_hist = (int32_t)json_array_size(history);
	cr_assert(g->row.n_hist <= HISTORY_MOST);
	for (int i = 0; i < g->row.n_hist; i++)
		g->history[i] = (int32_t)json_integer_value(json_array_get(history, (size_t)i));
	g->row.typical_p = number(o, "typical_p");
	g->row.top_n_sigma = number(o, "top_n_sigma");
	g->row.xtc_probability = number(o, "xtc_probability");
	g->row.xtc_threshold = number(o, "xtc_threshold");
	g->row.dry_multiplier = number(o, "dry_multiplier");
	g->row.dry_base = number(o, "dry_base");
	g->row.dry_allowed = integer(o, "dry_allowed");
	g->row.dry_last_n = integer(o, "dry_last_n");
	g->row.mirostat = integer(o, "mirostat");
	g->row.mirostat_tau =
		(int32_t)lrint(json_number_value(json_object_get(o, "mirostat_tau")) * MIROSTAT_ONE);
	g->row.mirostat_eta =
		(int32_t)lrint(json_number_value(json_object_get(o, "mirostat_eta")) * MIROSTAT_ONE);
	g->mu = json_number_value(json_object_get(o, "mu"));
}

static struct golden golden_of(const json_t *o)
{
	const json_t *x = json_object_get(o, "logits"), *p = json_object_get(o, "p");
	struct golden g = {.name = json_string_value(json_object_get(o, "name")),
			   .n = (int)json_array_size(x),
			   .tokens = json_object_get(o, "tokens")};
	g.n_tokens = (int)json_array_size(g.tokens);
	g.x = xcalloc((size_t)g.n, sizeof *g.x);
	g.p = xcalloc((size_t)g.n, sizeof *g.p);
	for (int i = 0; i < g.n; i++) {
		g.x[i] = (float)json_number_value(json_array_get(x, (size_t)i));
		g.p[i] = json_number_value(json_array_get(p, (size_t)i));
	}
	g.row = (struct kern_sample_row){
		.forced = -1,
		.repetition = 1,
		.n_logprobs = -1,
		.temperature = number(o, "temperature"),
		.top_k = (int32_t)json_integer_value(json_object_get(o, "top_k")),
		.top_p = number(o, "top_p"),
		.min_p = number(o, "min_p"),
		.seed = (uint64_t)strtoull(json_string_value(json_object_get(o, "seed")), NULL, 10),
		.index = (uint32_t)json_integer_value(json_object_get(o, "index")),
	};
	set_llama(&g, o);
	return g;
}

static void golden_fini(struct golden *g)
{
	free(g->x);
	free(g->p);
}

/* A row of logits on the device, and what is drawn from it. */
struct row {
	const void *logits;
	int n_vocab;
	struct kern_sample_row r;
	const int32_t *history; /* [r.n_hist] */
	double mu;              /* Mirostat's, in bits */
};

/* Draw the tokens of n positions from `first` on.  mu: [n], updated. */
static void draw_mu(struct kt *t, const struct row *from, uint32_t first, int n, int32_t *token, int32_t *mu)
{
	struct kern_sample_row rows[DRAWS];
	int32_t rank[DRAWS];
	float logprob[DRAWS];
	const struct kern_sample_out out = {.token = token, .logprob = logprob, .rank = rank, .mu = mu};
	const int32_t each = from->r.n_hist + 2;
	int32_t *before = xcalloc((size_t)(DRAWS * each), sizeof *before);
	cr_assert(n <= DRAWS);
	for (int i = 0; i < n; i++) {
		rows[i] = from->r;
		rows[i].hist0 = i * each;
		rows[i].position = first + (uint32_t)i;
		rows[i].mu_at = (i + 1) * each - 1;
		before[rows[i].mu_at] = (int32_t)lrint(from->mu * MIROSTAT_ONE);
		if (from->r.n_hist)
			memcpy(before + i * each, from->history, (size_t)from->r.n_hist * sizeof *before);
	}
	void *tokens = kt_put(t, before, (size_t)(DRAWS * each) * sizeof *before);
	free(before);
	kt_sample(t, from->logits, from->n_vocab, tokens, rows, n, &out);
	kt_del(t, tokens);
}

static void draw(struct kt *t, const struct row *from, uint32_t first, int n, int32_t *token)
{
	int32_t mu[DRAWS];
	draw_mu(t, from, first, n, token, mu);
}

static void check_tokens(const struct golden *g, int way)
{
	struct kt t;
	int32_t got[DRAWS];
	if (!kt_open(&t, 0, way, (struct kt_size){.logits = DRAWS}))
		return;
	const struct row from = {kt_put(&t, g->x, (size_t)g->n * 4), g->n, g->row, g->history, 0};
	draw(&t, &from, 0, g->n_tokens, got);
	for (int i = 0; i < g->n_tokens; i++) {
		const int want = (int)json_integer_value(json_array_get(g->tokens, (size_t)i));
		cr_expect(got[i] == want, "%s, %s, position %d: token %d, expected %d", g->name, t.isa, i,
			  got[i], want);
	}
	kt_close(&t);
}

Test(sample_golden, the_reference_draws_the_same_tokens)
{
	json_t *all = read_golden("tests/golden/sample.json");
	size_t i;
	json_t *o;
	cr_assert_gt(json_array_size(all), 10);
	json_array_foreach(all, i, o)
	{
		struct golden g = golden_of(o);
		for (int way = 0; way < KT_WAYS; way++)
			check_tokens(&g, way);
		golden_fini(&g);
	}
	json_decref(all);
}

/* Count tokens with few expected draws together. The seeds are fixed, so the result is not random. */
static void check_frequencies(const struct golden *g, const int *count, int tries)
{
	double chi = 0, few = 0;
	int degrees = -1, n_few = 0;
	for (int i = 0; i < g->n; i++) {
		const double want = g->p[i] * tries;
		cr_expect(g->p[i] > 0 || !count[i], "%s: token %d is drawn, but never expected", g->name, i);
		if (want < 8) {
			few += want;
			n_few += count[i];
			continue;
		}
		chi += (count[i] - want) * (count[i] - want) / want;
		degrees++;
	}
	if (few >= 8) {
		chi += (n_few - few) * (n_few - few) / few;
		degrees++;
	}
	cr_expect(chi <= degrees + 3 * sqrt(2.0 * degrees) + 4 && (few >= 8 || n_few <= 8 + 4 * few),
		  "%s: chi square %g of %d degrees, %d of %g rare ones", g->name, chi, degrees, n_few, few);
}

/* Compare mu after each of n tokens with the formula in floating point. */
static void check_mu(const struct golden *g, const int32_t *token, const int32_t *mu, int n)
{
	const double one = MIROSTAT_ONE, tau = g->row.mirostat_tau / one, eta = g->row.mirostat_eta / one;
	for (int i = 0; g->row.mirostat && i < n; i++) {
		const double want = g->mu - eta * (-log2(g->p[token[i]]) - tau);
		cr_expect(fabs(mu[i] / one - want) < 2e-5, "%s: mu %.7f behind token %d, expected %.7f",
			  g->name, mu[i] / one, token[i], want);
	}
}

static void check_file(const char *path)
{
	const int tries = kt_brief() ? DRAWS : TRIES;
	json_t *all = read_golden(path), *o;
	size_t i;
	struct kt t;
	cr_assert_gt(json_array_size(all), 10);
	kt_open_any(&t, 0, (struct kt_size){.logits = DRAWS});
	json_array_foreach(all, i, o)
	{
		struct golden g = golden_of(o);
		int32_t got[DRAWS], mu[DRAWS];
		int *count = xcalloc((size_t)g.n, sizeof *count);
		void *logits = kt_put(&t, g.x, (size_t)g.n * 4);
		const struct row from = {logits, g.n, g.row, g.history, g.mu};
		for (int k = 0; k < tries; k += DRAWS) {
			draw_mu(&t, &from, 1000 + (uint32_t)k, DRAWS, got, mu);
			check_mu(&g, got, mu, DRAWS);
			for (int j = 0; j < DRAWS; j++)
				count[got[j]]++;
		}
		check_frequencies(&g, count, tries);
		kt_del(&t, logits);
		free(count);
		golden_fini(&g);
	}
	kt_close(&t);
	json_decref(all);
}

Test(sample_golden, tokens_come_as_often_as_the_probabilities_say)
{
	check_file("tests/golden/sample.json");
}

Test(sample_golden, tokens_come_as_often_as_llama_cpp_would_have_them)
{
	check_file("tests/golden/sample_llama.json");
}

/* The weights of n equal logits sum to n 2^40, up to 2^62. The token is floor(u n) for a uniform u in [0,
 * 1). */
static void check_flat(struct kt *t, const void *logits, int n, struct kern_sample_row r)
{
	enum { FEW = 6 };
	int32_t got[FEW];
	draw(t, &(struct row){.logits = logits, .n_vocab = n, .r = r}, 0, FEW, got);
	for (uint32_t i = 0; i < FEW; i++) {
		const uint32_t ctr[4] = {r.index, i, 0, 0}, key[2] = {(uint32_t)r.seed, 0};
		uint32_t u[4];
		philox4x32(ctr, key, u);
		const int want = (int)((u[0] * (uint64_t)n + (u[1] * (uint64_t)n >> 32)) >> 32);
		cr_expect_eq(got[i], want, "%s: of %d tokens %d, not %d", t->isa, n, got[i], want);
	}
}

Test(sample_golden, the_largest_vocabularies_are_drawn_from_whole)
{
	const int32_t none[] = {-1};
	const float zero[] = {0};
	const int n = kt_brief() ? 1 << 15 : kt_seeder() ? 1 << 17 : 1 << 22;
	float *x = xmalloc((size_t)n * sizeof *x);
	for (int i = 0; i < n; i++)
		x[i] = -3.25f;
	for (int way = 0; way < KT_WAYS; way++) {
		struct kern_sample_row r = {.forced = -1,
					    .top_p = 1,
					    .repetition = 1,
					    .temperature = 1,
					    .seed = 5,
					    .n_logprobs = -1};
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.logits = 8}))
			continue;
		void *logits = kt_put(&t, x, (size_t)n * 4);
		check_flat(&t, logits, n, r);
		r.min_p = 1; /* the list holds all tokens */
		check_flat(&t, logits, n, r);
		r.min_p = 0;
		r.n_bias = 1; /* adjusted logits, which are not divided among blocks */
		r.bias_ids = none;
		r.bias = zero;
		check_flat(&t, logits, n, r);
		kt_close(&t);
	}
	free(x);
}

Test(sample_golden, a_weight_is_p_in_units_rounded_down)
{
	static const float p[] = {0,        0x1p-126f,      0x1p-87f,   0x1p-41f, 0x1.fffffep-41f,
				  0x1p-40f, 0x1.8p-40f,     0x1.fp-38f, 0.1f,     0.3f,
				  0.5f,     0x1.fffffep-1f, 1};
	for (size_t i = 0; i < sizeof p / sizeof *p; i++)
		cr_expect_eq(draw_weight(p[i]), (uint64_t)((double)p[i] * 0x1p40), "%a", (double)p[i]);
	cr_expect_eq(draw_target(UINT64_MAX, (uint64_t)1 << 63), ((uint64_t)1 << 63) - 1);
	cr_expect_eq(draw_target(UINT64_MAX, 1), 0);
	cr_expect_eq(draw_target((uint64_t)1 << 63, 7), 3);
	cr_expect_eq(draw_target(0x123456789ABCDEF0u, 0xFEDCBA9876543210u), 0x121FA00AD77D7422u);
}
