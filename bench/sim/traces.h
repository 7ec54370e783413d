/* traces.h - arrivals of requests with their lengths: traces from files, and synthetic traces.
 *
 * A file is CSV with a heading that names TIMESTAMP (a date and time, or seconds), ContextTokens (tokens of
 * the prompt) and GeneratedTokens (tokens of the output).  Other columns are ignored. */
#ifndef QUERN_BENCH_SIM_TRACES_H
#define QUERN_BENCH_SIM_TRACES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { TRACE_TOKENS_MAX = 1 << 24, TRACE_USERS_MAX = 100000 };

struct arrival {
	int64_t at_us; /* time since the first arrival */
	uint32_t n_prompt, n_output;
	uint32_t user;
};

/* Zero-initialised is empty. */
struct trace {
	struct arrival *v; /* [n] owned, sorted by time */
	size_t n, cap;
};

/* Parse a trace.  -EINVAL: why names the line. */
int trace_parse(const char *text, size_t n, struct trace *out, struct why *why);
int trace_read(const char *path, struct trace *out, struct why *why);
void trace_fini(struct trace *t);

/* Divides all times by factor. */
void trace_scale(struct trace *t, double factor);
/* Drop arrivals after end_us. */
void trace_cut(struct trace *t, int64_t end_us);

/* Random numbers that depend only on the seed (splitmix64). */
struct rng {
	uint64_t state;
};
uint64_t rng_next(struct rng *r);
double rng_unit(struct rng *r);                /* uniform in (0, 1) */
double rng_exponential(struct rng *r);         /* mean 1 */
double rng_gamma(struct rng *r, double shape); /* mean shape */

/* Distribution of prompt and output lengths, in tokens. */
struct lengths {
	uint32_t fixed_prompt, fixed_output; /* 0: lognormal */
	double prompt_mu, prompt_sigma;      /* mean and standard deviation of the logarithm */
	double output_mu, output_sigma;
	uint32_t prompt_max, output_max;
};
/* Parse "sharegpt" or "fixed:IN,OUT". */
int lengths_parse(const char *text, struct lengths *out, struct why *why);
void lengths_draw(const struct lengths *l, struct rng *r, uint32_t *n_prompt, uint32_t *n_output);

/* Users and their shares: user 0 sends skew times as much as the last user, with a geometric scale
 * between. */
struct users {
	uint32_t n;
	double skew;
};
/* Parse "4" or "2:100". */
int users_parse(const char *text, struct users *out, struct why *why);
void trace_users(struct trace *t, const struct users *u, uint64_t seed);
/* Drop the arrivals of all other users; times do not change. */
void trace_keep_user(struct trace *t, uint32_t user);

/* Parameters of synthetic arrivals.  The gaps follow a gamma distribution of this shape (1: Poisson) with
 * mean 1/rate. */
struct synthetic {
	double shape;
	double rate; /* per second */
	int64_t duration_us;
	struct lengths lengths;
	uint64_t seed;
};
/* Parse "poisson" or "gamma:SHAPE". */
int arrivals_parse(const char *text, double *shape, struct why *why);
void trace_synthetic(const struct synthetic *s, struct trace *out);

#endif
