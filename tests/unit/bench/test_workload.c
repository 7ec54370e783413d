/* Arrivals and lengths of a load test's requests. */
#include "bench/workload.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(workload, .timeout = 60);

enum { N = 20000 };

static struct workload of_rate(double rate, double burstiness)
{
	return (struct workload){.n = N,
				 .rate = rate,
				 .burstiness = burstiness,
				 .trace_speed = 1,
				 .n_prompt = 100,
				 .n_output = 10,
				 .seed = 7};
}

static struct load_request *make(const struct workload *w, size_t n_wanted)
{
	struct load_request *v;
	struct why why;
	size_t n;
	cr_assert_eq(workload_make(w, &v, &n, &why), 0, "%s", why.text);
	cr_assert_eq(n, n_wanted);
	return v;
}

/* Compute the mean (in seconds) and the coefficient of variation of the gaps. */
static void gaps(const struct load_request *v, double *mean, double *cv)
{
	double sum = 0, squares = 0;
	for (size_t i = 1; i < N; i++) {
		double gap = (double)(v[i].at_us - v[i - 1].at_us) / 1e6;
		cr_assert_geq(gap, 0);
		sum += gap;
		squares += gap * gap;
	}
	*mean = sum / (N - 1);
	*cv = sqrt(squares / (N - 1) - *mean * *mean) / *mean;
}

/* A gamma distribution of shape b has the coefficient of variation 1/sqrt(b). The bounds are five standard
 * errors of N draws; the seed is fixed. */
Test(workload, arrivals_have_the_rate_and_the_burstiness)
{
	static const double shapes[] = {0.5, 1, 4};
	for (size_t i = 0; i < 3; i++) {
		struct workload w = of_rate(50, shapes[i]);
		struct load_request *v = make(&w, N);
		double mean, cv;
		gaps(v, &mean, &cv);
		cr_expect_float_eq(mean, 0.02, 0.02 * 5 / sqrt(N * shapes[i]), "shape %g: %g", shapes[i],
				   mean);
		cr_expect_float_eq(cv, 1 / sqrt(shapes[i]), 0.1, "shape %g: %g", shapes[i], cv);
		free(v);
	}
}

Test(workload, without_a_rate_all_arrive_at_once)
{
	struct workload w = of_rate(INFINITY, 1);
	struct load_request *v = make(&w, N);
	cr_expect_eq(v[0].at_us, 0);
	cr_expect_eq(v[N - 1].at_us, 0);
	free(v);
}

Test(workload, lengths_lie_in_their_range_and_reach_its_ends)
{
	struct workload w = of_rate(INFINITY, 1);
	uint32_t lo = UINT32_MAX, hi = 0;
	w.range_ratio = 0.25;
	struct load_request *v = make(&w, N);
	for (size_t i = 0; i < N; i++) {
		lo = v[i].n_prompt < lo ? v[i].n_prompt : lo;
		hi = v[i].n_prompt > hi ? v[i].n_prompt : hi;
		cr_assert(v[i].n_output >= 7 && v[i].n_output <= 13);
	}
	cr_expect_eq(lo, 75);
	cr_expect_eq(hi, 125);
	free(v);
}

Test(workload, sharegpt_lengths_have_its_means)
{
	struct workload w = of_rate(INFINITY, 1);
	struct why why;
	double in = 0, out = 0;
	w.by_lengths = true;
	cr_assert_eq(lengths_parse("sharegpt", &w.lengths, &why), 0);
	struct load_request *v = make(&w, N);
	for (size_t i = 0; i < N; i++) {
		in += v[i].n_prompt;
		out += v[i].n_output;
	}
	cr_expect_float_eq(in / N, 161, 25);
	cr_expect_float_eq(out / N, 338, 25);
	free(v);
}

Test(workload, long_prompts_and_outputs_are_cut)
{
	struct workload w = of_rate(INFINITY, 1);
	w.max_prompt = 40;
	w.max_output = 3;
	w.n_prefix = 5;
	struct load_request *v = make(&w, N);
	cr_expect_eq(v[9].n_prompt, 40);
	cr_expect_eq(v[9].n_output, 3);
	free(v);
}

static void write_trace(char *path)
{
	int fd = mkstemp(path);
	FILE *f = fdopen(fd, "w");
	fputs("TIMESTAMP,ContextTokens,GeneratedTokens\n10,5,6\n11.5,7,8\n14,9,0\n", f);
	fclose(f);
}

Test(workload, a_trace_gives_times_and_lengths)
{
	char path[] = "/tmp/quern-trace-XXXXXX";
	write_trace(path);
	struct workload w = of_rate(INFINITY, 1);
	w.trace = path;
	w.trace_speed = 2;
	w.n = 0;
	struct load_request *v = make(&w, 3);
	cr_expect_eq(v[0].at_us, 0);
	cr_expect_eq(v[1].at_us, 750000);
	cr_expect_eq(v[2].at_us, 2000000);
	cr_expect_eq(v[1].n_prompt, 7);
	cr_expect_eq(v[1].n_output, 8);
	cr_expect_eq(v[2].n_output, 1, "a request of no output is none that can be sent");
	free(v);
	w.n = 2;
	free(make(&w, 2));
	remove(path);
}

static size_t count(const char *s, char c)
{
	size_t n = 0;
	for (; *s; s++)
		n += *s == c;
	return n;
}

Test(workload, prompts_are_valid_json_with_the_requested_tokens)
{
	struct workload w = of_rate(INFINITY, 1);
	struct buf a = {0}, b = {0};
	uint32_t ids[] = {3, 99};
	workload_prompt(&w, 5, 12, &a);
	json_t *text = json_loads(a.p, JSON_DECODE_ANY, NULL);
	cr_assert(json_is_string(text));
	cr_expect_eq(count(json_string_value(text), ' '), 11);
	w.prompts = WORKLOAD_IDS;
	w.ids = ids;
	w.n_ids = 2;
	workload_prompt(&w, 5, 12, &b);
	json_t *list = json_loads(b.p, 0, NULL);
	cr_assert_eq(json_array_size(list), 12);
	for (size_t i = 0; i < 12; i++) {
		json_int_t id = json_integer_value(json_array_get(list, i));
		cr_expect(id == 3 || id == 99);
	}
	buf_clear(&b);
	w.prompts = WORKLOAD_ID_RANGE;
	w.id_lo = 10;
	w.id_hi = 12;
	workload_prompt(&w, 5, 200, &b);
	json_decref(list);
	list = json_loads(b.p, 0, NULL);
	cr_assert_eq(json_array_size(list), 200);
	bool seen[3] = {0};
	for (size_t i = 0; i < 200; i++) {
		json_int_t id = json_integer_value(json_array_get(list, i));
		cr_assert(id >= 10 && id <= 12);
		seen[id - 10] = true;
	}
	cr_expect(seen[0] && seen[1] && seen[2]);
	json_decref(list);
	json_decref(text);
	buf_fini(&a);
	buf_fini(&b);
}

Test(workload, prompts_differ_beyond_their_prefix_and_are_reproducible)
{
	struct workload w = of_rate(INFINITY, 1);
	struct buf a = {0}, b = {0}, again = {0};
	w.n_prefix = 8;
	workload_prompt(&w, 0, 40, &a);
	workload_prompt(&w, 1, 40, &b);
	workload_prompt(&w, 0, 40, &again);
	cr_expect_str_eq(a.p, again.p);
	cr_expect_str_neq(a.p, b.p);
	size_t same = 0, spaces = 0;
	while (a.p[same] == b.p[same])
		spaces += a.p[same++] == ' ';
	cr_expect(spaces >= 8 && spaces < 12, "%zu", spaces);
	buf_fini(&a);
	buf_fini(&b);
	buf_fini(&again);
}
