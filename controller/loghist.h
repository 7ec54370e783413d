/* loghist.h - how long something took, over the last while: a histogram fine enough to read
 * percentiles from, and cheap enough to be added to for every token.
 * 16 buckets to each power of two: what is read is at most 1/32 off.  Any thread adds, any reads. */
#ifndef QUERN_CONTROLLER_LOGHIST_H
#define QUERN_CONTROLLER_LOGHIST_H

#include <stdatomic.h>
#include <stdint.h>

/* The last bucket takes all from 2^40 us, 12 days, on. */
enum { LOGHIST_BUCKETS = 16 * 38 };

/* Zero-initialised is empty. */
struct loghist {
	atomic_uint_fast64_t n[LOGHIST_BUCKETS];
};

void loghist_add(struct loghist *h, int64_t us);
/* The counts so far. */
void loghist_read(const struct loghist *h, uint64_t out[LOGHIST_BUCKETS]);
/* The value in microseconds below which p of 0..1 of them lie that came between two readings
 * (since: NULL for the beginning); a negative number when none came. */
double loghist_quantile(const uint64_t *now, const uint64_t *since, double p);

#endif
