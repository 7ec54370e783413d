/* loghist.h - a logarithmic histogram of latencies: fine enough for percentiles, cheap enough to update for
 * every token.  16 buckets per power of two, so that a quantile is at most 1/32 off.  Lock-free: any thread
 * adds, any thread reads.  The difference of two readings is the histogram of the time between them. */
#ifndef QUERN_CONTROLLER_METRICS_LOGHIST_H
#define QUERN_CONTROLLER_METRICS_LOGHIST_H

#include <stdatomic.h>
#include <stdint.h>

/* The last bucket holds all values of 2^40 us (12 days) and more. */
enum { LOGHIST_BUCKETS = 16 * 38 };

/* Zero-initialised is empty. */
struct loghist {
	atomic_uint_fast64_t n[LOGHIST_BUCKETS];
};

void loghist_add(struct loghist *h, int64_t us);
/* Copy the counts so far. */
void loghist_read(const struct loghist *h, uint64_t out[LOGHIST_BUCKETS]);
/* Return the p-quantile (p in 0..1), in microseconds, of the values added between two readings; since NULL:
 * since the beginning.  -1 if no value was added. */
double loghist_quantile(const uint64_t *now, const uint64_t *since, double p);

#endif
