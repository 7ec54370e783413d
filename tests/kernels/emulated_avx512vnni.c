/* emulated_avx512vnni.c - kernels/cpu/dot/avx512vnni.c with the AVX-512 intrinsics in plain C. */
#include "tests/kernels/emulate_avx512.h"
#include "tests/kernels/emulated.h"

#define DOT_EMULATED emulated_avx512vnni
#include "kernels/cpu/dot/avx512vnni.c"
