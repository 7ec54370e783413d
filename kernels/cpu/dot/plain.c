/* plain.c - the integer kernels in plain C, for any machine.  See dots.h. */
#include "kernels/cpu/vec_plain.h"

typedef struct {
	unsigned char b[64];
} qv;
typedef const signed char *qx;
typedef int32_t qa __attribute__((vector_size(64)));
typedef qa qh;

VFN qv qv_load(const unsigned char *p)
{
	qv q;
	memcpy(&q, p, sizeof q);
	return q;
}

VFN void qv_store(unsigned char *p, qv q)
{
	memcpy(p, &q, sizeof q);
}

VFN qv qv_low(qv q)
{
	for (int i = 0; i < 64; i++)
		q.b[i] &= 15;
	return q;
}

VFN qv qv_high(qv q)
{
	for (int i = 0; i < 64; i++)
		q.b[i] >>= 4;
	return q;
}

VFN qv qv_pair(qv q, const int j)
{
	for (int i = 0; i < 64; i++)
		q.b[i] = q.b[i] >> 2 * j & 3;
	return q;
}

VFN qv qv_join(qv low, qv q, const int j)
{
	q = qv_pair(q, j);
	for (int i = 0; i < 64; i++)
		low.b[i] = (unsigned char)(low.b[i] | q.b[i] << 4);
	return low;
}

VFN qx qx_load(const unsigned char *p)
{
	return (const signed char *)p;
}

VFN qh qh_begin(qa a)
{
	return a;
}

VFN qh qh_dot(qh h, qv q, qx x)
{
	LANES(i)
	h[i] += q.b[4 * i] * x[0] + q.b[4 * i + 1] * x[1] + q.b[4 * i + 2] * x[2] + q.b[4 * i + 3] * x[3];
	return h;
}

VFN qa qh_end(qa a, qh h)
{
	(void)a;
	return h;
}

VFN qa qa_set1(int32_t a)
{
	return (qa){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}

VFN qa qa_zero(void)
{
	return qa_set1(0);
}

/* Adds modulo 2^32, since intermediate sums may exceed an int32. */
VFN qa qa_add(qa a, qa b)
{
	return (qa)((vq)a + (vq)b);
}

VFN qa qa_mul(qa a, qa b)
{
	return (qa)((vq)a * (vq)b);
}

VFN qa qa_shl(qa a, int n)
{
	return (qa)((vq)a << (uint32_t)n);
}

VFN qa qa_u8(const unsigned char *p)
{
	qa a;
	LANES(i) a[i] = p[i];
	return a;
}

VFN vf qa_float(qa a)
{
	vf f;
	LANES(i) f[i] = (float)a[i];
	return f;
}

VFN qa qa_bits(vf f)
{
	return (qa)f;
}

VFN qa qa_shr8(qa a)
{
	return a >> 8;
}

VFN void qa_store8(unsigned char *p, qa a)
{
	LANES(i) p[i] = (unsigned char)a[i];
}

VFN int32_t qa_hsum(qa a)
{
	uint32_t sum = 0;
	LANES(i) sum += (uint32_t)a[i];
	return (int32_t)sum;
}

VFN void qa_hsum8(int32_t out[16], const qa q[8])
{
	for (int i = 0; i < 8; i++)
		out[i] = qa_hsum(q[i]);
}

#define DOT_NAME   "plain"
#define DOT_ACC    2
#define DOT_ROWS   1
#define DOT_FOLD   0
#define DOT_SPLIT8 0
#define DOT_UNPACK 0
#include "kernels/cpu/dot/dots.h"

const struct cpu_dot *cpu_dot_plain(void)
{
	return &dots_table;
}
