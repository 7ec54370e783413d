/* isa_avx512.c - kernels/cpu/isa_avx512.c with the instructions in plain C. */
#include "tests/kernels/emulate_avx512.h"
#include "tests/kernels/emulated.h"

#define INNER_EMULATED emulated_avx512
#include "kernels/cpu/isa_avx512.c"
