#include "bench/load_figures.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const load_metric_names[LOAD_METRICS] = {"ttft", "tpot", "itl", "e2el"};

int load_slo_parse(const char *text, struct load_slo *out, struct why *why)
{
	*out = (struct load_slo){0};
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, ":, ");
		int metric = 0;
		char *end = NULL;
		while (metric < LOAD_METRICS &&
		       (metric == LOAD_ITL || strlen(load_metric_names[metric]) != n ||
			strncmp(p, load_metric_names[metric], n) != 0))
			metric++;
		double ms = p[n] == ':' ? strtod(p + n + 1, &end) : NAN;
		if (metric == LOAD_METRICS || !end || end == p + n + 1 || !isfinite(ms) || ms <= 0)
			return err_why(why, -EINVAL,
				       "\"%.40s\": must be like ttft:200,tpot:50,e2el:3000 (ms)", p);
		out->max_ms[metric] = ms;
		out->any = true;
		p = end + strspn(end, ", ");
		if (p == end && *p)
			return err_why(why, -EINVAL, "\"%.40s\": a comma is missing", end);
	}
	return out->any ? 0 : err_why(why, -EINVAL, "it is empty");
}

static void note_failure(struct load_figures *f, const char *error)
{
	size_t i = 0;
	while (i < f->n_failures && strcmp(f->failures[i].error, error) != 0)
		i++;
	if (i == f->n_failures) {
		f->failures = xrealloc(f->failures, f->n_failures + 1, sizeof *f->failures);
		f->failures[f->n_failures++] = (struct load_failure){.error = error};
	}
	f->failures[i].n++;
}

static int most_first(const void *a, const void *b)
{
	const struct load_failure *x = a, *y = b;
	return (x->n < y->n) - (x->n > y->n);
}

/* Without usage, a chunk counts as a token. */
static uint32_t output_tokens(const struct load_request *r)
{
	return r->got_output ? r->got_output : r->n_chunks;
}

static bool is_good(const struct load_slo *slo, const double *ms)
{
	for (int m = 0; m < LOAD_METRICS; m++)
		if (slo->max_ms[m] > 0 && ms[m] > slo->max_ms[m])
			return false;
	return true;
}

static void add_request(struct load_figures *f, const struct load_request *r, const struct load_slo *slo)
{
	double ms[LOAD_METRICS] = {0};
	uint32_t n = output_tokens(r);
	if (!r->n_chunks)
		return; /* load_run() has set an error */
	f->completed++;
	f->total_input += r->got_prompt ? r->got_prompt : r->n_prompt;
	f->total_output += n;
	ms[LOAD_TTFT] = (double)r->chunk_us[0] / 1e3;
	ms[LOAD_E2EL] = (double)r->last_us / 1e3;
	samples_add(&f->ms[LOAD_TTFT], ms[LOAD_TTFT]);
	samples_add(&f->ms[LOAD_E2EL], ms[LOAD_E2EL]);
	if (n > 1) {
		ms[LOAD_TPOT] = (ms[LOAD_E2EL] - ms[LOAD_TTFT]) / (n - 1);
		samples_add(&f->ms[LOAD_TPOT], ms[LOAD_TPOT]);
	}
	for (uint32_t i = 1; i < r->n_chunks; i++)
		samples_add(&f->ms[LOAD_ITL], (double)(r->chunk_us[i] - r->chunk_us[i - 1]) / 1e3);
	f->good += slo && is_good(slo, ms);
}

/* Return the most tokens in one second of the run.  A request's tokens are spread evenly over its chunks. */
static double best_second(const struct load_request *v, size_t n, int64_t duration_us)
{
	size_t n_seconds = (size_t)(duration_us / 1000000) + 1;
	double *tokens = xcalloc(n_seconds, sizeof *tokens), best = 0;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; !v[i].error && v[i].sent_us >= 0 && k < v[i].n_chunks; k++) {
			size_t s = (size_t)((v[i].sent_us + v[i].chunk_us[k]) / 1000000);
			if (s < n_seconds)
				tokens[s] += (double)output_tokens(&v[i]) / v[i].n_chunks;
		}
	for (size_t s = 0; s < n_seconds; s++)
		best = tokens[s] > best ? tokens[s] : best;
	free(tokens);
	return best;
}

void load_figures_make(struct load_figures *f, const struct load_request *v, size_t n, int64_t duration_us,
		       const struct load_slo *slo)
{
	*f = (struct load_figures){.duration_s = (double)duration_us / 1e6};
	for (size_t i = 0; i < n; i++) {
		if (v[i].sent_us < 0 && !v[i].error)
			continue;
		if (v[i].error) {
			f->failed++;
			note_failure(f, v[i].error);
		} else {
			add_request(f, &v[i], slo && slo->any ? slo : NULL);
		}
	}
	if (f->n_failures)
		qsort(f->failures, f->n_failures, sizeof *f->failures, most_first);
	f->max_output_tokens_per_s = best_second(v, n, duration_us);
}

void load_figures_fini(struct load_figures *f)
{
	for (int m = 0; m < LOAD_METRICS; m++)
		samples_fini(&f->ms[m]);
	free(f->failures);
	f->failures = NULL;
}

static double per_second(const struct load_figures *f, double x)
{
	return f->duration_s > 0 ? x / f->duration_s : 0;
}

static void put_metric(struct samples *s, const char *name, const double *percentiles, size_t n, json_t *o)
{
	char key[64];
	snprintf(key, sizeof key, "mean_%s_ms", name);
	json_object_set_new(o, key, json_real(samples_mean(s)));
	snprintf(key, sizeof key, "median_%s_ms", name);
	json_object_set_new(o, key, json_real(samples_percentile(s, 50)));
	snprintf(key, sizeof key, "std_%s_ms", name);
	json_object_set_new(o, key, json_real(samples_std(s)));
	for (size_t i = 0; i < n; i++) {
		snprintf(key, sizeof key, "p%g_%s_ms", percentiles[i], name);
		json_object_set_new(o, key, json_real(samples_percentile(s, percentiles[i])));
	}
}

void load_figures_json(struct load_figures *f, bool goodput, const double *percentiles, size_t n_percentiles,
		       json_t *o)
{
	json_object_set_new(o, "duration", json_real(f->duration_s));
	json_object_set_new(o, "completed", json_integer((json_int_t)f->completed));
	json_object_set_new(o, "failed", json_integer((json_int_t)f->failed));
	json_object_set_new(o, "total_input_tokens", json_integer((json_int_t)f->total_input));
	json_object_set_new(o, "total_output_tokens", json_integer((json_int_t)f->total_output));
	json_object_set_new(o, "request_throughput", json_real(per_second(f, (double)f->completed)));
	json_object_set_new(o, "request_goodput",
			    goodput ? json_real(per_second(f, (double)f->good)) : json_null());
	json_object_set_new(o, "output_throughput", json_real(per_second(f, (double)f->total_output)));
	json_object_set_new(o, "total_token_throughput",
			    json_real(per_second(f, (double)(f->total_input + f->total_output))));
	json_object_set_new(o, "max_output_tokens_per_s", json_real(f->max_output_tokens_per_s));
	for (int m = 0; m < LOAD_METRICS; m++)
		put_metric(&f->ms[m], load_metric_names[m], percentiles, n_percentiles, o);
	json_t *failures = json_object();
	for (size_t i = 0; i < f->n_failures; i++)
		json_object_set_new(failures, f->failures[i].error,
				    json_integer((json_int_t)f->failures[i].n));
	json_object_set_new(o, "failures", failures);
}

void load_figures_detail(const struct load_request *v, size_t n, json_t *o)
{
	json_t *inputs = json_array(), *outputs = json_array(), *starts = json_array(), *ttfts = json_array(),
	       *itls = json_array(), *texts = json_array(), *errors = json_array();
	for (size_t i = 0; i < n; i++) {
		const struct load_request *r = &v[i];
		if (r->sent_us < 0)
			continue;
		json_t *gaps = json_array();
		for (uint32_t k = 1; k < r->n_chunks; k++)
			json_array_append_new(gaps,
					      json_real((double)(r->chunk_us[k] - r->chunk_us[k - 1]) / 1e6));
		json_t *text = json_string(r->text ? r->text : "");
		json_array_append_new(inputs, json_integer(r->got_prompt ? r->got_prompt : r->n_prompt));
		json_array_append_new(outputs, json_integer(r->error ? 0 : output_tokens(r)));
		json_array_append_new(starts, json_real((double)r->sent_us / 1e6));
		json_array_append_new(ttfts, json_real(r->n_chunks ? (double)r->chunk_us[0] / 1e6 : 0));
		json_array_append_new(itls, gaps);
		json_array_append_new(texts, text ? text : json_string(""));
		json_array_append_new(errors, json_string(r->error ? r->error : ""));
	}
	json_object_set_new(o, "input_lens", inputs);
	json_object_set_new(o, "output_lens", outputs);
	json_object_set_new(o, "start_times", starts);
	json_object_set_new(o, "ttfts", ttfts);
	json_object_set_new(o, "itls", itls);
	json_object_set_new(o, "generated_texts", texts);
	json_object_set_new(o, "errors", errors);
}
