/* emulated_attn_avx512vnni.c - kernels/cpu/attention/int_avx512vnni.c with the AVX-512 intrinsics in plain
 * C. */
#include "tests/kernels/emulate_attention.h"
#include "tests/kernels/emulated_attention.h"

#define INT_EMULATED emulated_ints_avx512vnni
#include "kernels/cpu/attention/int_avx512vnni.c"
