/* emulated_bf16_amx.c - kernels/cpu/bf16/avx512amx.c with AMX tiles emulated in memory. */
#include "tests/kernels/emulate_bf16_amx.h"
#include "tests/kernels/emulated.h"

#define BF16_EMULATED emulated_bf16_amx
#define amx_configure amx_begin_rows

#include "kernels/cpu/bf16/avx512amx.c"
