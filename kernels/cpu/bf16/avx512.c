/* avx512.c - the kernels of mode bf16 for AVX-512 without BF16.
 * See fma.h.  Tests compile it with BF16_EMULATED and provide the instructions as functions. */
#include "kernels/cpu/bf16/bf16.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(BF16_EMULATED)

#include "kernels/cpu/vec_avx512.h"

#define FMA_NAME  "avx512"
#define FMA_TILES 2
#define FMA_ROWS  4
#include "kernels/cpu/bf16/fma.h"

#ifdef BF16_EMULATED

const struct cpu_bf16 *BF16_EMULATED(void)
{
	return &fma_table;
}

#else

const struct cpu_bf16 *cpu_bf16_avx512(void)
{
	return cpu_isa_avx512() ? &fma_table : NULL;
}

#endif

#else

const struct cpu_bf16 *cpu_bf16_avx512(void)
{
	return NULL;
}

#endif
