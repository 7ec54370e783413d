#include "base/entropy.h"

#include <sys/random.h>

uint64_t entropy_u64(void)
{
	uint64_t v;
	/* getrandom() returns less, or is interrupted, only before the system's generator is ready. */
	while (getrandom(&v, sizeof v, 0) != sizeof v)
		;
	return v;
}
