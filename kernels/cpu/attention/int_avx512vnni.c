/* int_avx512vnni.c - attention on INT8 and INT16 keys and values for AVX-512 VNNI.  See ints.h. */
#include "kernels/cpu/attention/int.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(INT_EMULATED)

#include "kernels/cpu/attention/int_avx512.h"

#define INT_NAME "avx512vnni"
#define INT_PAD  256
#include "kernels/cpu/attention/ints.h"

#ifdef INT_EMULATED

const struct cpu_kv_ints *INT_EMULATED(void)
{
	return &ints_table;
}

#else

const struct cpu_kv_ints *cpu_kv_ints_avx512vnni(void)
{
	bool ok = cpu_isa_avx512() && __builtin_cpu_supports("avx512vnni");
	return ok ? &ints_table : NULL;
}

#endif

#else

const struct cpu_kv_ints *cpu_kv_ints_avx512vnni(void)
{
	return NULL;
}

#endif
