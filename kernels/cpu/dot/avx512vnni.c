/* avx512vnni.c - the integer kernels for AVX-512 VNNI.  See dots.h. */
#include "kernels/cpu/dot/dot.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(DOT_EMULATED)

#include "kernels/cpu/dot/avx512.h"

#define DOT_NAME "avx512vnni"
#include "kernels/cpu/dot/dots.h"

#ifdef DOT_EMULATED

const struct cpu_dot *DOT_EMULATED(void)
{
	return &dots_table;
}

#else

const struct cpu_dot *cpu_dot_avx512vnni(void)
{
	bool ok = cpu_isa_avx512() && __builtin_cpu_supports("avx512vnni");
	return ok ? &dots_table : NULL;
}

#endif

#else

const struct cpu_dot *cpu_dot_avx512vnni(void)
{
	return NULL;
}

#endif
