/* isa_avx2.c - the inner kernels for AVX2 with FMA and F16C.  See inner.h. */
#include "kernels/cpu/isa.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <string.h>

#include "kernels/cpu/vec_avx2.h"

#define INNER_NAME  "avx2"
#define INNER_ROWS  6 /* x 2 registers: 12 accumulators for 16 registers */
#define INNER_ROWS2 2
#define INNER_ROWS4 1
#define INNER_AWQ2  1
#define INNER_AWQ4  0
#define INNER_AHEAD 1
#define ATTN_HEADS4 1
#define ATTN_HEADS2 2
#define ATTN_TILES2 2
#define ATTN_WIDE8  0
#define ATTN_WIDE4  1
#define ATTN_WIDE2  2
#define ATTN_SPAN   36
#include "kernels/cpu/inner.h"

/* Every CPU with AVX2 and FMA has F16C, which not every compiler can test by name. */
const struct cpu_isa *cpu_isa_avx2(void)
{
	bool ok = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return ok ? &inner_table : NULL;
}

#else

const struct cpu_isa *cpu_isa_avx2(void)
{
	return NULL;
}

#endif
