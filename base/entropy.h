/* entropy.h - random bits from the system, for seeds and names that cannot be guessed. */
#ifndef QUERN_BASE_ENTROPY_H
#define QUERN_BASE_ENTROPY_H

#include <stdint.h>
#include <sys/random.h>

static inline uint64_t entropy_u64(void)
{
	uint64_t v;
	/* getrandom() returns less, or is interrupted, only before the system's generator is ready. */
	while (getrandom(&v, sizeof v, 0) != sizeof v)
		;
	return v;
}

#endif
