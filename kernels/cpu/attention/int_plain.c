/* int_plain.c - attention on INT8 and INT16 keys and values in plain C, for any machine.  See ints.h. */
#include "kernels/cpu/vec_plain.h"

typedef int32_t qa __attribute__((vector_size(64)));
typedef const signed char *kl, *vl;
typedef qa ka, va;
typedef struct {
	int32_t all[4], high[4];
} ks, ws;
struct query;

VFN vf v_swap(vf a, const int n)
{
	vf r;
	LANES(i) r[i] = a[i ^ n];
	return r;
}

VFN qa qa_load(const int32_t *p)
{
	qa a;
	memcpy(&a, p, sizeof a);
	return a;
}

VFN void qa_store(int32_t *p, qa a)
{
	memcpy(p, &a, sizeof a);
}

VFN qa qa_add(qa a, qa b)
{
	return (qa)((vq)a + (vq)b);
}

VFN vf qa_float(qa a)
{
	vf f;
	LANES(i) f[i] = (float)a[i];
	return f;
}

VFN kl kl_load(const unsigned char *p)
{
	return (const signed char *)p;
}

VFN vl vl_load(const unsigned char *p)
{
	return (const signed char *)p;
}

VFN ks ks_load(const unsigned char *q, size_t plane)
{
	ks x;
	for (int i = 0; i < 4; i++) {
		x.high[i] = (signed char)q[i];
		x.all[i] = x.high[i] * 256 + (signed char)q[plane + (size_t)i];
	}
	return x;
}

VFN ws ws_load(const unsigned char *w)
{
	ws x;
	for (int i = 0; i < 4; i++) {
		x.high[i] = w[i];
		x.all[i] = w[i] * 256 + w[256 + i];
	}
	return x;
}

VFN qa dot4(qa a, const signed char *line, const int32_t x[4])
{
	LANES(i)
	a[i] += line[4 * i] * x[0] + line[4 * i + 1] * x[1] + line[4 * i + 2] * x[2] + line[4 * i + 3] * x[3];
	return a;
}

VFN ka ka_begin(const struct query *q, int planes)
{
	(void)q, (void)planes;
	return (qa){0};
}

VFN ka ka_full(ka a, kl line, ks x)
{
	return dot4(a, line, x.all);
}

VFN ka ka_high(ka a, kl line, ks x)
{
	return dot4(a, line, x.high);
}

VFN qa ka_end(ka a)
{
	return a;
}

VFN va va_begin(void)
{
	return (qa){0};
}

VFN va va_full(va a, vl line, ws x)
{
	return dot4(a, line, x.all);
}

VFN va va_high(va a, vl line, ws x)
{
	return dot4(a, line, x.high);
}

VFN qa va_end(va a)
{
	return a;
}

/* Converts like the instructions: to the nearest, ties to even; NaN and values that an int32 cannot hold give
 * 0. */
VFN void w_store(unsigned char *high, unsigned char *low, const vf e[4])
{
	for (int t = 0; t < 4; t++)
		LANES(i)
		{
			const bool fits = e[t][i] >= 0 && e[t][i] < 0x1p31f;
			const float f = (fits ? e[t][i] : 0) + 8388608.0f;
			uint32_t u;
			memcpy(&u, &f, 4);
			u -= 0x4b000000u;
			u = u > 65535 ? 65535 : u;
			high[t * 16 + i] = (unsigned char)(u >> 8);
			low[t * 16 + i] = (unsigned char)u;
		}
}

#define INT_NAME             "plain"
#define INT_ACC              1
#define INT_ROWS             1
#define INT_PAD              256
#define INT_W_AT(tile, quad) ((tile)*4 + (quad))
#include "kernels/cpu/attention/ints.h"

const struct cpu_kv_ints *cpu_kv_ints_plain(void)
{
	return &ints_table;
}
