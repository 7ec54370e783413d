/* emulated.h - kernels for instructions that this machine may lack. They are compiled from their own sources
 * against an emulation of the few instructions they use (emulate_avx512.h) and need AVX2 to run. */
#ifndef QUERN_TESTS_KERNELS_EMULATED_H
#define QUERN_TESTS_KERNELS_EMULATED_H

#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/dot/dot.h"

const struct cpu_dot *emulated_avxvnni(void);
const struct cpu_dot *emulated_avx512vnni(void);
const struct cpu_dot *emulated_amx(void);
const struct cpu_isa *emulated_avx512(void);
const struct cpu_bf16 *emulated_bf16_avx512(void);
const struct cpu_bf16 *emulated_bf16_vdp(void);
const struct cpu_bf16 *emulated_bf16_amx(void);

#endif
