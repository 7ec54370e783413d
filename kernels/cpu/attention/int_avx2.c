/* int_avx2.c - attention on INT8 and INT16 keys and values for AVX2 with FMA: products of words.
 * See ints.h. */
#include "kernels/cpu/attention/int.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/attention/int_avx2.h"

/* 64 bytes as words.  Each product with four words leaves its sum in two adjacent lanes. */
typedef struct {
	__m256i w[4];
} kl;
typedef kl vl, ka;
typedef struct {
	__m256i all, high;
} ks;
typedef struct {
	__m256i high, low;
} ws;
typedef struct {
	ka high, low;
} va;

VFN kl kl_load(const unsigned char *p)
{
	kl l;
	for (int i = 0; i < 4; i++)
		l.w[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + i * 16)));
	return l;
}

VFN vl vl_load(const unsigned char *p)
{
	return kl_load(p);
}

VFN ks ks_load(const unsigned char *q, size_t plane)
{
	ks x;
	x.high = _mm256_cvtepi8_epi16(_mm_set1_epi32(word_at(q)));
	x.all = _mm256_add_epi16(_mm256_slli_epi16(x.high, 8),
				 _mm256_cvtepi8_epi16(_mm_set1_epi32(word_at(q + plane))));
	return x;
}

VFN ws ws_load(const unsigned char *w)
{
	ws x;
	x.high = _mm256_cvtepu8_epi16(_mm_set1_epi32(word_at(w)));
	x.low = _mm256_cvtepu8_epi16(_mm_set1_epi32(word_at(w + 256)));
	return x;
}

VFN ka pairs(ka a, kl line, __m256i x)
{
	for (int i = 0; i < 4; i++)
		a.w[i] = _mm256_add_epi32(a.w[i], _mm256_madd_epi16(line.w[i], x));
	return a;
}

/* Add each pair of lanes, in order. */
VFN qa pairs_end(ka a)
{
	return (qa){_mm256_permute4x64_epi64(_mm256_hadd_epi32(a.w[0], a.w[1]), 0xd8),
		    _mm256_permute4x64_epi64(_mm256_hadd_epi32(a.w[2], a.w[3]), 0xd8)};
}

VFN ka ka_begin(const struct query *q, int planes)
{
	const __m256i zero = _mm256_setzero_si256();
	(void)q, (void)planes;
	return (ka){{zero, zero, zero, zero}};
}

VFN ka ka_full(ka a, kl line, ks x)
{
	return pairs(a, line, x.all);
}

VFN ka ka_high(ka a, kl line, ks x)
{
	return pairs(a, line, x.high);
}

VFN qa ka_end(ka a)
{
	return pairs_end(a);
}

VFN va va_begin(void)
{
	return (va){ka_begin(NULL, 0), ka_begin(NULL, 0)};
}

VFN va va_full(va a, vl line, ws x)
{
	return (va){pairs(a.high, line, x.high), pairs(a.low, line, x.low)};
}

VFN va va_high(va a, vl line, ws x)
{
	return (va){a.high, pairs(a.low, line, x.high)};
}

VFN qa va_end(va a)
{
	return qa_add(qa_shl8(pairs_end(a.high)), pairs_end(a.low));
}

#define INT_NAME "avx2"
#define INT_ACC  2
#define INT_ROWS 2
#include "kernels/cpu/attention/ints.h"

const struct cpu_kv_ints *cpu_kv_ints_avx2(void)
{
	bool ok = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return ok ? &ints_table : NULL;
}

#else

const struct cpu_kv_ints *cpu_kv_ints_avx2(void)
{
	return NULL;
}

#endif
