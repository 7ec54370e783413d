/* entropy.h - random bits from the system: names that cannot be guessed, seeds. */
#ifndef QUERN_BASE_ENTROPY_H
#define QUERN_BASE_ENTROPY_H

#include <stdint.h>

uint64_t entropy_u64(void);

#endif
