/* avx2.c - the integer kernels for AVX2 with FMA and F16C.
 * See dots.h.  maddubs adds two products of an unsigned and a signed byte in 16 bits, and saturates.  With
 * codes of at most 15 and bytes of at least -128, eight of its results add up to at most 30,720 in size,
 * which 16 bits hold.  Codes of 8 bits are split into their halves. */
#include "kernels/cpu/dot/dot.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/dot/avx2.h"

VFN qh qh_begin(qa a)
{
	(void)a;
	return qa_zero();
}

VFN qh qh_dot(qh h, qv q, qx x)
{
	return (qh){_mm256_add_epi16(h.lo, _mm256_maddubs_epi16(q.lo, x)),
		    _mm256_add_epi16(h.hi, _mm256_maddubs_epi16(q.hi, x))};
}

VFN qa qh_end(qa a, qh h)
{
	const __m256i ones = _mm256_set1_epi16(1);
	return qa_add(a, (qa){_mm256_madd_epi16(h.lo, ones), _mm256_madd_epi16(h.hi, ones)});
}

#define DOT_NAME   "avx2"
#define DOT_ACC    4
#define DOT_ROWS   4
#define DOT_FOLD   1
#define DOT_SPLIT8 1
#define DOT_UNPACK 0
#include "kernels/cpu/dot/dots.h"

const struct cpu_dot *cpu_dot_avx2(void)
{
	bool ok = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return ok ? &dots_table : NULL;
}

#else

const struct cpu_dot *cpu_dot_avx2(void)
{
	return NULL;
}

#endif
