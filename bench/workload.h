/* workload.h - the requests of a load test: arrival times, lengths, prompts.
 * They depend only on the options and the seed. */
#ifndef QUERN_BENCH_WORKLOAD_H
#define QUERN_BENCH_WORKLOAD_H

#include "base/buf.h"
#include "base/err.h"
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
	WORKLOAD_ID_RANGE, /* token ids from id_lo to id_hi */
};

struct workload {
	size_t n;           /* requests; with a trace, an upper limit (0: the whole trace) */
	double rate;        /* per second; INFINITY: all at once */
	double burstiness;  /* shape of the gamma distribution of gaps; 1: Poisson */
	const char *trace;  /* a file (traces.h), or NULL; with a trace, rate and lengths are ignored */
	double trace_speed; /* the trace's times are divided by it */
	bool by_lengths;    /* use `lengths` instead of n_prompt, n_output and range_ratio */
	struct lengths lengths;
	uint32_t n_prompt, n_output;
	double range_ratio;              /* lengths uniform in [n (1 - r), n (1 + r)] */
	uint32_t max_prompt, max_output; /* longer lengths are cut to it; 0: no limit */
	uint32_t n_prefix;               /* tokens of a prefix that all prompts share, in addition to
					  * n_prompt */
	enum workload_prompts prompts;
	uint32_t *ids; /* [n_ids] borrowed */
	size_t n_ids;
	uint32_t id_lo, id_hi;
	uint64_t seed;
};

/* Make arrival times and lengths.  The caller owns *v (load_request_fini() each, then free). */
int workload_make(const struct workload *w, struct load_request **v, size_t *n, struct why *why);

/* Append the prompt of request nth, with n_prompt tokens, as JSON: a string of words, or an array of ids. */
void workload_prompt(const struct workload *w, size_t nth, uint32_t n_prompt, struct buf *out);

#endif
