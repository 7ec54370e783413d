/* load_figures.h - the results of a run of the load generator, with the definitions and JSON keys of
 * `vllm bench serve`.
 *
 *   TTFT  time from the request to its first token
 *   TPOT  (latency - TTFT) / (output tokens - 1), for requests with at least two output tokens
 *   ITL   every gap between chunks with tokens, pooled over all requests
 *   E2EL  time from the request to its last chunk
 *   goodput  requests that meet every given objective, per second
 *
 * Failed requests count only in `failed`. */
#ifndef QUERN_BENCH_LOAD_FIGURES_H
#define QUERN_BENCH_LOAD_FIGURES_H

#include "base/err.h"
#include "bench/loadgen.h"
#include "bench/sim/samples.h"

#include <jansson.h>
#include <stddef.h>

enum load_metric { LOAD_TTFT, LOAD_TPOT, LOAD_ITL, LOAD_E2EL, LOAD_METRICS };
/* Names of the metrics: "ttft", ... */
extern const char *const load_metric_names[LOAD_METRICS];

/* Objectives in milliseconds; 0: none.  ITL has no objective, as in vLLM. */
struct load_slo {
	double max_ms[LOAD_METRICS];
	bool any;
};
/* Parse "ttft:200,tpot:50", separated by commas or spaces. */
int load_slo_parse(const char *text, struct load_slo *out, struct why *why);

struct load_figures {
	struct samples ms[LOAD_METRICS];
	size_t completed, failed, good;
	uint64_t total_input, total_output; /* tokens, as reported in the server's usage if any */
	double duration_s;
	double max_output_tokens_per_s; /* the best of the whole seconds since the run began */
	struct load_failure {
		const char *error; /* borrowed from a request */
		size_t n;
	} * failures; /* [n_failures] owned, most frequent first */
	size_t n_failures;
};

/* Compute the figures; requests that were never sent are left out.  slo may be NULL. */
void load_figures_make(struct load_figures *f, const struct load_request *v, size_t n, int64_t duration_us,
		       const struct load_slo *slo);
void load_figures_fini(struct load_figures *f);

/* Add vLLM's keys to o; percentiles: for example 99 for "p99_ttft_ms". */
void load_figures_json(struct load_figures *f, bool goodput, const double *percentiles, size_t n_percentiles,
		       json_t *o);
/* Add the lists of `--save-detailed` to o: one entry per request that was sent. */
void load_figures_detail(const struct load_request *v, size_t n, json_t *o);

#endif
