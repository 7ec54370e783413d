/* emulated_attention.h - attention kernels for instructions that this machine may lack. They are compiled
 * from their own sources (emulate_attention.h) and need AVX2 to run. */
#ifndef QUERN_TESTS_KERNELS_EMULATED_ATTENTION_H
#define QUERN_TESTS_KERNELS_EMULATED_ATTENTION_H

#include "kernels/cpu/attention/int.h"

const struct cpu_kv_ints *emulated_ints_avxvnni(void);
const struct cpu_kv_ints *emulated_ints_avx512vnni(void);
const struct cpu_kv_ints *emulated_ints_amx(void);
const struct cpu_kv_type *emulated_attention_bf16(void); /* by AMX */

#endif
