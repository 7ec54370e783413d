/* ptx_sim.cc - halves, shuffles and matrix fragments of the emulated device. */
#include "kernels/cuda/ptx.cuh"

#include "tests/cudasim/mem.h"
#include "tests/cudasim/race.h"
#include "tests/cudasim/tensor.h"

#include <stdlib.h>

/* ---- halves ---- */

static float f16_value(uint16_t h)
{
	const int e = h >> 10 & 31, m = h & 1023;
	float v = e == 31 ? (m ? NAN : INFINITY)
		  : e     ? ldexpf((float)(1024 + m), e - 25)
			  : ldexpf((float)m, -24);
	return h & 0x8000 ? -v : v;
}

static const float *f16_table_make(void)
{
	static float t[65536];
	for (int i = 0; i < 65536; i++)
		t[i] = f16_value((uint16_t)i);
	return t;
}

const float *cudasim_f16_table = f16_table_make();

static uint64_t f64_bits(double x)
{
	uint64_t u;
	memcpy(&u, &x, 8);
	return u;
}

/* Round x to the nearest value with this many bits of mantissa, ties to even.  least: the format's smallest
 * exponent. */
static double round_to(double x, int bits, int least)
{
	if (x == 0 || !isfinite(x))
		return x;
	uint64_t u = f64_bits(x);
	const int e = (int)(u >> 52 & 2047) - 1023, drop = 52 - bits;
	if (e < least) /* denormal in the format */
		return ldexp(nearbyint(ldexp(x, bits - least)), least - bits);
	u += ((uint64_t)1 << (drop - 1)) - 1 + (u >> drop & 1);
	u &= ~(((uint64_t)1 << drop) - 1);
	memcpy(&x, &u, 8);
	return x;
}

uint16_t cudasim_f16_of(double x)
{
	const uint16_t sign = signbit(x) ? 0x8000 : 0;
	if (x != x)
		return 0x7fff;
	const double v = fabs(round_to(x, 10, -14));
	if (v >= 65520)
		return sign | 0x7c00;
	if (v < 0x1p-14)
		return (uint16_t)(sign | (int)(v * 0x1p24));
	const uint64_t u = f64_bits(v);
	return (uint16_t)(sign | ((u >> 52) - 1023 + 15) << 10 | (u >> 42 & 1023));
}

uint16_t cudasim_bf16_of(double x)
{
	if (x != x)
		return 0x7fff;
	const float v = (float)round_to(x, 7, -126); /* too large: infinity */
	return (uint16_t)((uint32_t)f32_bits(v) >> 16);
}

double cudasim_fma_odd(double a, double b, double c)
{
	const double p = a * b, s = p + c; /* p is exact: 11 bits by 11 */
	if (!isfinite(s))
		return s;
	const double t = s - p, err = (p - (s - t)) + (c - t);
	uint64_t u;
	memcpy(&u, &s, 8);
	if (err == 0 || u & 1)
		return s;
	/* toward the error's side, which makes it odd */
	u += (err > 0) == (s > 0) ? 1 : (uint64_t)-1;
	double odd;
	memcpy(&odd, &u, 8);
	return odd;
}

/* ---- warps ---- */

void cudasim_shfl_work(void **args)
{
	for (int i = 0; i < 32; i++) {
		struct cudasim_shfl *a = (struct cudasim_shfl *)args[i];
		a->out = ((struct cudasim_shfl *)args[a->from])->in;
	}
}

struct ballot {
	bool p;
	uint32_t all;
};

static void ballot_work(void **args)
{
	uint32_t all = 0;
	for (int i = 0; i < 32; i++)
		all |= (uint32_t)((struct ballot *)args[i])->p << i;
	for (int i = 0; i < 32; i++)
		((struct ballot *)args[i])->all = all;
}

uint32_t cudasim_ballot(bool p)
{
	struct ballot a = {p, 0};
	cudasim_warp_op(ballot_work, &a);
	return a.all;
}

static void sync_work(void **)
{
	race_warp_sync(cudasim_thread() / 32);
}

void cudasim_warp_sync(void)
{
	cudasim_warp_op(sync_work, nullptr);
}

/* ---- between blocks ---- */

uint32_t cudasim_exchange(uint32_t *p, uint32_t (*become)(uint32_t was, uint32_t v), uint32_t v)
{
	cudasim_yield();
	const uint32_t was = *p;
	race_atomic(p, sizeof *p);
	*p = become(was, v);
	cudasim_yield();
	return was;
}

/* ---- summation of tensor cores ---- */

/* NVIDIA does not document how tensor cores add.  Analyses of the devices (Fasi et al., Numerical behavior of
 * NVIDIA tensor cores, 2021, and later work for Hopper) found this: products are exact.  A few of them, with
 * the accumulator, are aligned to the largest exponent among them and cut off a few bits after the F32
 * mantissa.  Their sum is cut off, not rounded, to F32.
 *
 *            products together   bits kept after the 24
 *     Volta          4                    0
 *     Ampere         8                    1
 *     Hopper        16                    2
 *
 * Infinite values, NaN, and sums of values that are all below 2^-100 are added as the host adds them. */
typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDEST __attribute__((target_clones("avx2", "default")))
#else
#define WIDEST
#endif

static int way = -1;

void cudasim_tensor(int how)
{
	way = how;
}

static int way_now(void)
{
	static const char *const names[] = {"rounded", "volta", "ampere", "hopper"};
	const char *v = way < 0 ? getenv("QUERN_CUDASIM_TENSOR") : nullptr;
	if (way < 0)
		way = CUDASIM_TENSOR;
	for (int i = 0; v && i < 4; i++)
		if (!strcmp(v, names[i]))
			way = i;
	return way;
}

/* Add k by k, rounding at each step. */
WIDEST static void tile_rounded(float *d, int ldd, const float *a, int rows, const float *b)
{
	v8f bk[16];
	memcpy(bk, b, sizeof bk);
	for (int r = 0; r < rows; r++, d += ldd, a += 16) {
		v8f sum;
		memcpy(&sum, d, sizeof sum);
		for (int k = 0; k < 16; k++)
			sum += a[k] * bk[k];
		memcpy(d, &sum, sizeof sum);
	}
}

/* Exponents in place, as in an F32; least: 2^-100. */
static const int mantissa = 23, infinite = 255 << mantissa;
static const uint32_t bias2 = 254; /* twice the exponent's bias */
static const v8i least = v8i{} + (27 << mantissa);

template <int GROUP, int EXTRA>
WIDEST static void tile_truncated(float *d, int ldd, const float *a, int rows, const float *b)
{
	v8f bk[16];
	memcpy(bk, b, sizeof bk);
	for (int r = 0; r < rows; r++, d += ldd, a += 16) {
		v8f sum;
		memcpy(&sum, d, sizeof sum);
		for (int k0 = 0; k0 < 16; k0 += GROUP) {
			v8f p[GROUP], plain = sum;
			v8i most = (v8i)sum & 0x7fffffff;
			for (int k = 0; k < GROUP; k++) {
				p[k] = a[k0 + k] * bk[k0 + k];
				plain += p[k];
				const v8i size = (v8i)p[k] & 0x7fffffff;
				most = size > most ? size : most;
			}
			const v8i odd = (most >= infinite) | (most < least);
			v8i top = most & infinite;
			top = top < least ? least : top;
			/* 2^(23 + EXTRA) / top, and its inverse */
			const v8f up = (v8f)(((bias2 + (uint32_t)(mantissa + EXTRA)) << mantissa) - (v8u)top);
			const v8f down = (v8f)(top - ((mantissa + EXTRA) << mantissa));
			v8u n = (v8u) __builtin_convertvector(sum * up, v8i);
			for (int k = 0; k < GROUP; k++)
				n += (v8u) __builtin_convertvector(p[k] * up, v8i);
			const v8u sign = n & 0x80000000u;
			const v8i size = (v8i)(sign ? 0 - n : n); /* below 2^31: at most 17 terms of 2^26 */
			v8f f = __builtin_convertvector(size, v8f);
			f = (v8f)((v8i)f + (__builtin_convertvector(f, v8i) > size)); /* round toward zero */
			f = (v8f)((v8u)(f * down) | sign);
			sum = odd ? plain : f;
		}
		memcpy(d, &sum, sizeof sum);
	}
}

void cudasim_tensor_tile(float *d, int ldd, const float *a, int rows, const float *b)
{
	switch (way_now()) {
	case CUDASIM_TENSOR_VOLTA:
		tile_truncated<4, 0>(d, ldd, a, rows, b);
		break;
	case CUDASIM_TENSOR_AMPERE:
		tile_truncated<8, 1>(d, ldd, a, rows, b);
		break;
	case CUDASIM_TENSOR_HOPPER:
		tile_truncated<16, 2>(d, ldd, a, rows, b);
		break;
	default:
		tile_rounded(d, ldd, a, rows, b);
	}
}

/* ---- fragments ---- */

struct ldmatrix {
	const void *row;
	uint32_t *r;
};

static void ldmatrix_work(void **args)
{
	for (int i = 0; i < 32; i++)
		for (int m = 0; m < 4; m++)
			memcpy(&((struct ldmatrix *)args[i])->r[m],
			       (const char *)((struct ldmatrix *)args[m * 8 + i / 4])->row + i % 4 * 4, 4);
}

static void ldmatrix_trans_work(void **args)
{
	for (int i = 0; i < 32; i++)
		for (int m = 0; m < 4; m++) {
			uint16_t lo, hi;
			const int row = m * 8 + i % 4 * 2, col = i / 4 * 2;
			memcpy(&lo, (const char *)((struct ldmatrix *)args[row])->row + col, 2);
			memcpy(&hi, (const char *)((struct ldmatrix *)args[row + 1])->row + col, 2);
			((struct ldmatrix *)args[i])->r[m] = lo | (uint32_t)hi << 16;
		}
}

void cudasim_ldmatrix(uint32_t r[4], const void *smem, bool trans)
{
	struct ldmatrix a = {smem, r};
	cudasim_check_smem(smem, 16, 16, "ldmatrix");
	race_read(smem, 16);
	cudasim_warp_op(trans ? ldmatrix_trans_work : ldmatrix_work, &a);
}

struct mma {
	float *d;
	const uint32_t *a, *b;
};

template <bool BF16> static void mma_work(void **args)
{
	float a[16][16], b[16][8], d[16][8];
	auto value = [](uint32_t v) { return BF16 ? f32_of_bf16((uint16_t)v) : f32_of_f16((uint16_t)v); };
	for (int i = 0; i < 32; i++) {
		const struct mma *m = (const struct mma *)args[i];
		const int g = i / 4, t = i % 4 * 2;
		for (int half = 0; half < 2; half++) {
			const int s = 16 * half;
			a[g][t + half] = value(m->a[0] >> s & 0xffff);
			a[g + 8][t + half] = value(m->a[1] >> s & 0xffff);
			a[g][t + 8 + half] = value(m->a[2] >> s & 0xffff);
			a[g + 8][t + 8 + half] = value(m->a[3] >> s & 0xffff);
			b[t + half][g] = value(m->b[0] >> s & 0xffff);
			b[t + 8 + half][g] = value(m->b[1] >> s & 0xffff);
			d[g][t + half] = m->d[half];
			d[g + 8][t + half] = m->d[2 + half];
		}
	}
	cudasim_tensor_tile(d[0], 8, a[0], 16, b[0]);
	for (int i = 0; i < 32; i++) {
		const struct mma *m = (const struct mma *)args[i];
		const int g = i / 4, t = i % 4 * 2;
		for (int half = 0; half < 2; half++) {
			m->d[half] = d[g][t + half];
			m->d[2 + half] = d[g + 8][t + half];
		}
	}
	cudasim_counts.mmas++;
}

void cudasim_mma(float d[4], const uint32_t a[4], const uint32_t b[2], bool bf16)
{
	struct mma m = {d, a, b};
	cudasim_warp_op(bf16 ? mma_work<true> : mma_work<false>, &m);
}
