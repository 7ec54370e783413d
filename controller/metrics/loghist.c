#include "controller/metrics/loghist.h"

enum { PARTS = 16, LOG_PARTS = 4 };

/* Return the bucket of a value.  Values below 16 have a bucket each.  Above, a bucket is an exponent and the
 * four bits after the leading one: 0b1abcd... is bucket abcd of its power of two. */
static unsigned bucket_of(uint64_t us)
{
	if (us < PARTS)
		return (unsigned)us;
	unsigned e = 63 - (unsigned)__builtin_clzll(us);
	unsigned i = (e - LOG_PARTS + 1) * PARTS + (unsigned)(us >> (e - LOG_PARTS) & (PARTS - 1));
	return i < LOGHIST_BUCKETS ? i : LOGHIST_BUCKETS - 1;
}

/* Return the middle of a bucket's range. */
static double middle_of(unsigned i)
{
	if (i < PARTS)
		return i;
	unsigned e = i / PARTS + LOG_PARTS - 1;
	double part = (double)(1ull << (e - LOG_PARTS));
	return (double)(1ull << e) + (i % PARTS) * part + (part - 1) / 2;
}

void loghist_add(struct loghist *h, int64_t us)
{
	atomic_fetch_add_explicit(&h->n[bucket_of(us > 0 ? (uint64_t)us : 0)], 1, memory_order_relaxed);
}

void loghist_read(const struct loghist *h, uint64_t out[LOGHIST_BUCKETS])
{
	for (int i = 0; i < LOGHIST_BUCKETS; i++)
		out[i] = atomic_load_explicit(&h->n[i], memory_order_relaxed);
}

double loghist_quantile(const uint64_t *now, const uint64_t *since, double p)
{
	uint64_t total = 0, seen = 0;
	for (int i = 0; i < LOGHIST_BUCKETS; i++)
		total += now[i] - (since ? since[i] : 0);
	if (!total)
		return -1;
	/* Nearest-rank method. */
	uint64_t rank = (uint64_t)(p * (double)(total - 1) + 0.5);
	for (unsigned i = 0; i < LOGHIST_BUCKETS; i++) {
		seen += now[i] - (since ? since[i] : 0);
		if (seen > rank)
			return middle_of(i);
	}
	return middle_of(LOGHIST_BUCKETS - 1);
}
