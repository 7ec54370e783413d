/* emulated_bf16_avx512.c - kernels/cpu/bf16/avx512.c with the AVX-512 intrinsics in plain C. */
#include "tests/kernels/emulate_avx512.h"
#include "tests/kernels/emulated.h"

#define BF16_EMULATED emulated_bf16_avx512
#include "kernels/cpu/bf16/avx512.c"
