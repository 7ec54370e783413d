/* avx2.c - the kernels of mode bf16 for AVX2 with FMA and F16C.  See fma.h. */
#include "kernels/cpu/bf16/bf16.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/vec_avx2.h"

#define FMA_NAME  "avx2"
#define FMA_TILES 1
#define FMA_ROWS  2
#include "kernels/cpu/bf16/fma.h"

const struct cpu_bf16 *cpu_bf16_avx2(void)
{
	return cpu_isa_avx2() ? &fma_table : NULL;
}

#else

const struct cpu_bf16 *cpu_bf16_avx2(void)
{
	return NULL;
}

#endif
