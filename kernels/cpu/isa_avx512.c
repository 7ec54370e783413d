/* isa_avx512.c - the inner kernels for AVX-512 (F, BW, DQ, VL).
 * See inner.h.  Tests compile it with INNER_EMULATED and provide the instructions as functions. */
#include "kernels/cpu/isa.h"

#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)) ||     \
	defined(INNER_EMULATED)

#include <string.h>

#include "kernels/cpu/vec_avx512.h"

#define INNER_NAME  "avx512"
#define INNER_ROWS  10 /* more rows are not faster, and clang 14 no longer keeps them in registers */
#define INNER_ROWS2 4
#define INNER_ROWS4 4
#define INNER_AWQ2  3 /* 6 accumulators, 6 zeros, 6 constants, 6 words */
#define INNER_AWQ4  2
#define INNER_AHEAD 0
#define ATTN_HEADS4 2
#define ATTN_HEADS2 5
#define ATTN_TILES2 10
#define ATTN_WIDE8  2
#define ATTN_WIDE4  6
#define ATTN_WIDE2  10
#define ATTN_SPAN   40
#include "kernels/cpu/inner.h"

#ifdef INNER_EMULATED

const struct cpu_isa *INNER_EMULATED(void)
{
	return &inner_table;
}

#else

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

const struct cpu_isa *cpu_isa_avx512(void)
{
	bool ok = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		  __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return ok ? &inner_table : NULL;
}

bool cpu_isa_amx(void)
{
	enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
	unsigned a, b, c, d;
	return cpu_isa_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) &&
	       syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

#endif

#else

const struct cpu_isa *cpu_isa_avx512(void)
{
	return NULL;
}

bool cpu_isa_amx(void)
{
	return false;
}

#endif
