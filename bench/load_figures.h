/* load_figures.h - the figures of a run of the load generator, by the definitions and with the JSON
 * keys of `vllm bench serve`.
 *
 *   TTFT  request to first token
 *   TPOT  (latency - TTFT) / (output tokens - 1), of requests with at least two
 *   ITL   every gap between chunks with tokens, of all requests, pooled
 *   E2EL  request to last chunk
 *   goodput  requests that meet every given objective, per second
 *
 * Failed requests count only in `failed`. */
#ifndef QUERN_BENCH_LOAD_FIGURES_H
#define QUERN_BENCH_LOAD_FIGURES_H

#include "bench/loadgen.h"
#include "bench/sim/samples.h"

#include <jansson.h>
#include <stddef.h>

enum load_metric { LOAD_TTFT, LOAD_TPOT, LOAD_ITL, LOAD_E2EL, LOAD_METRICS };
/* "ttft", ... */
extern const char *const load_metric_names[LOAD_METRICS];

/* In milliseconds; 0: none.  There is none of ITL, as in vLLM. */
struct load_slo {
	double max_ms[LOAD_METRICS];
	bool any;
};
/* "ttft:200,tpot:50" (or with spaces). */
int load_slo_parse(const char *text, struct load_slo *out, char *why, size_t why_n);

struct load_figures {
	struct samples ms[LOAD_METRICS];
	size_t completed, failed, good;
	uint64_t total_input, total_output; /* tokens, by the server's usage if any */
	double duration_s;
	double max_output_tokens_per_s; /* of the whole seconds since the run began, the best */
	struct load_failure {
		const char *error; /* borrowed from a request */
		size_t n;
	} * failures; /* [n_failures] owned, most first */
	size_t n_failures;
};

/* Requests that were never sent are left out.  slo may be NULL. */
void load_figures_make(struct load_figures *f, const struct load_request *v, size_t n, int64_t duration_us,
		       const struct load_slo *slo);
void load_figures_fini(struct load_figures *f);

/* vLLM's keys into o; percentiles: such as 99 for "p99_ttft_ms". */
void load_figures_json(struct load_figures *f, bool goodput, const double *percentiles, size_t n_percentiles,
		       json_t *o);
/* The lists that `--save-detailed` has: one entry per request that was sent. */
void load_figures_detail(const struct load_request *v, size_t n, json_t *o);

#endif
