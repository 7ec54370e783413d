/* avx2vnni.c - the integer kernels for AVX-VNNI: vpdpbusd of 256 bits without AVX-512.
 * See dots.h.  Tests compile it with DOT_EMULATED and provide the instruction as a function. */
#include "kernels/cpu/dot/dot.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/dot/avx2.h"

#ifndef DOT_EMULATED
/* Asm rather than the builtin, so that no compiler has to support the extension. */
VFN __m256i vpdpbusd256(__m256i acc, __m256i q, __m256i x)
{
	__asm__("%{vex%} vpdpbusd %2,%1,%0" : "+x"(acc) : "x"(q), "x"(x));
	return acc;
}
#endif

VFN qh qh_begin(qa a)
{
	return a;
}

VFN qh qh_dot(qh h, qv q, qx x)
{
	return (qh){vpdpbusd256(h.lo, q.lo, x), vpdpbusd256(h.hi, q.hi, x)};
}

VFN qa qh_end(qa a, qh h)
{
	(void)a;
	return h;
}

#define DOT_NAME   "avxvnni"
#define DOT_ACC    4
#define DOT_ROWS   4
#define DOT_FOLD   0
#define DOT_SPLIT8 0
#define DOT_UNPACK 0
#include "kernels/cpu/dot/dots.h"

#ifdef DOT_EMULATED

const struct cpu_dot *DOT_EMULATED(void)
{
	return cpu_dot_avx2() ? &dots_table : NULL;
}

#else

#include <cpuid.h>

const struct cpu_dot *cpu_dot_avxvnni(void)
{
	unsigned a, b, c, d;
	bool ok = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		  __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
	return ok ? &dots_table : NULL;
}

#endif

#else

const struct cpu_dot *cpu_dot_avxvnni(void)
{
	return NULL;
}

#endif
