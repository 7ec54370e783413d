/* int_avx2vnni.c - attention on INT8 and INT16 keys and values for AVX-VNNI: vpdpbusd of 256 bits without
 * AVX-512.
 * See ints.h.  Tests compile it with INT_EMULATED and provide the instruction as a function. */
#include "kernels/cpu/attention/int.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/attention/int_avx2.h"

typedef vq kl, vl;
typedef struct {
	__m256i high, low;
} ks;
typedef ks ws;
typedef struct {
	qa high, low;
} ka;
typedef ka va;

#ifndef INT_EMULATED
/* Asm rather than the builtin, so that no compiler has to support the extension. */
VFN __m256i vpdpbusd256(__m256i acc, __m256i unsigned_bytes, __m256i signed_bytes)
{
	__asm__("%{vex%} vpdpbusd %2,%1,%0" : "+x"(acc) : "x"(unsigned_bytes), "x"(signed_bytes));
	return acc;
}
#endif

/* Load K as unsigned bytes, by adding 128. */
VFN kl kl_load(const unsigned char *p)
{
	const __m256i flip = _mm256_set1_epi8((char)0x80);
	const vq l = vq_load(p);
	return (kl){_mm256_xor_si256(l.lo, flip), _mm256_xor_si256(l.hi, flip)};
}

VFN vl vl_load(const unsigned char *p)
{
	return vq_load(p);
}

VFN ks ks_load(const unsigned char *q, size_t plane)
{
	return (ks){_mm256_set1_epi32(word_at(q)), _mm256_set1_epi32(word_at(q + plane))};
}

VFN ws ws_load(const unsigned char *w)
{
	return ks_load(w, 256);
}

VFN qa k_dot(qa a, kl line, __m256i x)
{
	return (qa){vpdpbusd256(a.lo, line.lo, x), vpdpbusd256(a.hi, line.hi, x)};
}

VFN qa v_dot(qa a, vl line, __m256i x)
{
	return (qa){vpdpbusd256(a.lo, x, line.lo), vpdpbusd256(a.hi, x, line.hi)};
}

VFN ka ka_sums(int32_t high, int32_t low)
{
	return (ka){vq_set1((uint32_t)high * -128u), vq_set1((uint32_t)low * -128u)};
}

#define ka_begin(q, planes) ka_sums((q)->sum_high, (q)->sum_low + ((planes) == 2 ? (q)->sum_high : 0))

VFN ka ka_full(ka a, kl line, ks x)
{
	return (ka){k_dot(a.high, line, x.high), k_dot(a.low, line, x.low)};
}

VFN ka ka_high(ka a, kl line, ks x)
{
	return (ka){a.high, k_dot(a.low, line, x.high)};
}

VFN qa ka_end(ka a)
{
	return qa_add(qa_shl8(a.high), a.low);
}

VFN va va_begin(void)
{
	return (va){vq_set1(0), vq_set1(0)};
}

VFN va va_full(va a, vl line, ws x)
{
	return (va){v_dot(a.high, line, x.high), v_dot(a.low, line, x.low)};
}

VFN va va_high(va a, vl line, ws x)
{
	return (va){a.high, v_dot(a.low, line, x.high)};
}

VFN qa va_end(va a)
{
	return ka_end(a);
}

#define INT_NAME "avxvnni"
#define INT_ACC  2
#define INT_ROWS 2
#include "kernels/cpu/attention/ints.h"

#ifdef INT_EMULATED

const struct cpu_kv_ints *INT_EMULATED(void)
{
	return cpu_kv_ints_avx2() ? &ints_table : NULL;
}

#else

#include <cpuid.h>

const struct cpu_kv_ints *cpu_kv_ints_avxvnni(void)
{
	unsigned a, b, c, d;
	bool ok = cpu_kv_ints_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
	return ok ? &ints_table : NULL;
}

#endif

#else

const struct cpu_kv_ints *cpu_kv_ints_avxvnni(void)
{
	return NULL;
}

#endif
