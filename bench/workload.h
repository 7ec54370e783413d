/* workload.h - the requests of a load test: arrival times, lengths, prompts.
 * They depend on the options and the seed only. */
#ifndef QUERN_BENCH_WORKLOAD_H
#define QUERN_BENCH_WORKLOAD_H

#include "base/buf.h"
#include "bench/loadgen.h"
#include "bench/sim/traces.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORKLOAD_REQUESTS_MAX = 10000000 };

enum workload_prompts {
	WORKLOAD_WORDS,    /* English words, about a token each */
	WORKLOAD_IDS,      /* token ids drawn from a list */
	WORKLOAD_ID_RANGE, /* ... from id_lo to id_hi */
};

struct workload {
	size_t n;           /* requests; with a trace: at most (0: all of it) */
	double rate;        /* per second; INFINITY: all at once */
	double burstiness;  /* shape of the gaps' gamma distribution; 1: Poisson */
	const char *trace;  /* a file (traces.h), or NULL; then rate and lengths do not count */
	double trace_speed; /* its times are divided by it */
	bool by_lengths;    /* lengths counts, else the next four */
	struct lengths lengths;
	uint32_t n_prompt, n_output;
	double range_ratio;              /* lengths uniform in [n (1 - r), n (1 + r)] */
	uint32_t max_prompt, max_output; /* longer ones are cut to it; 0: none */
	uint32_t n_prefix;               /* the first tokens of all prompts are the same; beyond n_prompt */
	enum workload_prompts prompts;
	uint32_t *ids; /* [n_ids] borrowed */
	size_t n_ids;
	uint32_t id_lo, id_hi;
	uint64_t seed;
};

/* Arrival times and lengths.  *v is owned by the caller (load_request_fini() each, then free). */
int workload_make(const struct workload *w, struct load_request **v, size_t *n, char *why, size_t why_n);

/* The prompt of request nth, with n_prompt tokens, as JSON: a string of words, or an array of ids. */
void workload_prompt(const struct workload *w, size_t nth, uint32_t n_prompt, struct buf *out);

#endif
