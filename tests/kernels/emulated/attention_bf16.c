/* attention_bf16.c - kernels/cpu/attention/bf16_avx512amx.c with tiles in memory. */
#include "tests/kernels/emulate_bf16_amx.h"
#include "tests/kernels/emulated_attention.h"

#define BF16_EMULATED   emulated_attention_bf16
#define amx_configure() amx_begin_rows((const uint8_t[8]){16, 16, 16, 16, 16, 16, 16, 16})

#include "kernels/cpu/attention/bf16_avx512amx.c"
