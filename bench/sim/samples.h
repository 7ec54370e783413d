/* samples.h - measured values and their percentiles. */
#ifndef QUERN_BENCH_SIM_SAMPLES_H
#define QUERN_BENCH_SIM_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialised is empty. */
struct samples {
	double *x; /* [n] owned */
	size_t n, cap;
	bool sorted;
};

void samples_add(struct samples *s, double x);
void samples_reserve(struct samples *s, size_t n);
/* Return percentile p, 0..100, interpolated linearly between the nearest ranks; 0 without samples.  Sorts the
 * samples once. */
double samples_percentile(struct samples *s, double p);
double samples_mean(const struct samples *s); /* 0 without samples */
double samples_std(const struct samples *s);  /* standard deviation of the population; 0 without samples */
double samples_max(struct samples *s);
void samples_fini(struct samples *s);

#endif
