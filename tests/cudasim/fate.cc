/* fate.cc - what befalls the emulated device, where the environment says so: after it has called this many
 * host functions it is lost (QUERN_CUDASIM_LOST=N), as by a kernel that went astray, or hangs
 * (QUERN_CUDASIM_HUNG=N). */
#include "tests/cudasim/mem.h"

#include <stdlib.h>

static bool comes(const char *name, long *at)
{
	if (*at == 0) {
		const char *v = getenv(name);
		*at = v ? atol(v) : -1;
	}
	return *at > 0 && cudasim_counts.host_calls >= (uint64_t)*at;
}

bool cudasim_lost(void)
{
	static long at;
	return comes("QUERN_CUDASIM_LOST", &at);
}

bool cudasim_hung(void)
{
	static long at;
	return comes("QUERN_CUDASIM_HUNG", &at);
}
