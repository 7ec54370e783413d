/* bf16_vdp.c - kernels/cpu/bf16/avx512bf16.c with the instructions in plain C. */
#include "tests/kernels/emulate_bf16.h"
#include "tests/kernels/emulated.h"

#define BF16_EMULATED emulated_bf16_vdp
#include "kernels/cpu/bf16/avx512bf16.c"
