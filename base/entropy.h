/* entropy.h - random bits from the system, for seeds and names that cannot be guessed. */
#ifndef QUERN_BASE_ENTROPY_H
#define QUERN_BASE_ENTROPY_H

#include <stdint.h>

uint64_t entropy_u64(void);

#endif
