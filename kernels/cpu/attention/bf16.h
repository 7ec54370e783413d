/* bf16.h - attention of mode bf16: products of BF16 values, summed in FP32 in the order of TDPBF16PS.
 *
 * K and V are stored as type BF16 (kvtype.h).  A query is multiplied by the scale and by log2(e), then
 * rounded to BF16.
 *
 *     scores    a step is 32 d, 16 pairs (i ascending, both chains from 0):
 *                   even = fma(q[2 i], k[2 i], even)
 *                   odd  = fma(q[2 i + 1], k[2 i + 1], odd)
 *               s = s + (even + odd)                             for every step, ascending, from 0
 *     weights   e = 2^(s - max), sum += e                        F32; p: e rounded to BF16, ties up
 *     values    a step is 32 tokens, a pair of tiles (i ascending, both chains from 0):
 *                   first  = fma(p[i], v[i], first)
 *                   second = fma(p[16 + i], v[16 + i], second)
 *               o = o + (first + second)                         for every step, ascending, from 0
 *
 * Every operation rounds to the nearest, ties to even; a denormal counts as 0, both as operand and as result.
 * TDPBF16PS computes exactly this if a pair is tokens i and 16 + i, and so do multiply-adds that flush
 * denormals.  So AMX, AVX-512, AVX2 and plain C are one numerics class.  A token that a query does not see
 * has the weight 0 and changes nothing, unless one of its values is infinite or NaN; in that case AMX tiles
 * are not used (bf16_avx512amx.c). */
#ifndef QUERN_KERNELS_CPU_ATTENTION_BF16_H
#define QUERN_KERNELS_CPU_ATTENTION_BF16_H

#include "kernels/cpu/attention/kvtype.h"

/* Return the best table of this machine within an instruction set: its kv_dots, or AMX. */
const struct cpu_kv_type *cpu_kv_bf16(const struct cpu_isa *isa);

/* NULL if not built, or not supported by this CPU. */
const struct cpu_kv_type *cpu_kv_bf16_amx(void);

#endif
