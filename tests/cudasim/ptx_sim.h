/* ptx_sim.h - host implementation of kernels/cuda/ptx.cuh, with the same names and meaning. */
#ifndef QUERN_TESTS_CUDASIM_PTX_SIM_H
#define QUERN_TESTS_CUDASIM_PTX_SIM_H

#include "tests/cudasim/race.h"
#include "tests/cudasim/sim.h"

bool cuda_carve_out(const void *kernel); /* defined by the table */

#define KERN_DEV [[maybe_unused]] static inline

#define KERN_LAUNCH(kernel, grid, block, smem_bytes, stream, ...)                                            \
	({                                                                                                   \
		static bool carved_out;                                                                      \
		carved_out = carved_out || cuda_carve_out((const void *)kernel);                             \
		cudasim_launch(kernel, #kernel, (grid), (block), (smem_bytes), (stream), __VA_ARGS__);       \
	})

/* ---- shared memory ---- */

KERN_DEV unsigned char *kern_smem(void)
{
	return cudasim_smem();
}

KERN_DEV void cp_async_16(void *smem, const void *global, bool pred = true)
{
	cudasim_cp_async(smem, global, pred);
}

KERN_DEV uint64_t l2_evict_first(void)
{
	return 1;
}

KERN_DEV void cp_async_16_hint(void *smem, const void *global, uint64_t policy, bool pred = true)
{
	(void)policy;
	cudasim_cp_async(smem, global, pred);
}

KERN_DEV void cp_async_commit(void)
{
	cudasim_cp_commit();
}

template <int N> KERN_DEV void cp_async_wait(void)
{
	cudasim_cp_wait(N);
}

/* ---- global memory ---- */

KERN_DEV uint4 ld_global_128(const void *p)
{
	cudasim_check_device(p, 16, 16, "a 16-byte load");
	uint4 v;
	memcpy(&v, p, 16);
	return v;
}

KERN_DEV void ld_global_128_if(uint4 &v, const void *p, bool pred)
{
	if (pred)
		v = ld_global_128(p);
}

KERN_DEV uint2 ld_global_64(const void *p)
{
	cudasim_check_device(p, 8, 8, "an 8-byte load");
	uint2 v;
	memcpy(&v, p, 8);
	return v;
}

KERN_DEV void ld_global_64_if(uint2 &v, const void *p, bool pred)
{
	if (pred)
		v = ld_global_64(p);
}

KERN_DEV void ld_global_32_if(uint32_t &v, const void *p, bool pred)
{
	if (!pred)
		return;
	cudasim_check_device(p, 4, 4, "a load");
	memcpy(&v, p, 4);
}

KERN_DEV uint4 ld_stream_128(const void *p)
{
	return ld_global_128(p);
}

KERN_DEV uint4 ld_stream_128_hint(const void *p, uint64_t policy)
{
	(void)policy;
	return ld_global_128(p);
}

KERN_DEV void ld_cg_128_if(uint4 &v, const void *p, bool pred)
{
	if (pred)
		v = ld_global_128(p);
}

KERN_DEV float2 ld_cg_f32x2(const float *p)
{
	cudasim_check_device(p, 8, 8, "an 8-byte load");
	float2 v;
	memcpy(&v, p, 8);
	return v;
}

KERN_DEV void st_global_128(void *p, uint4 v)
{
	cudasim_check_device(p, 16, 16, "a 16-byte store");
	memcpy(p, &v, 16);
}

/* ---- bits and halves ---- */

KERN_DEV int f32_bits(float f)
{
	int i;
	memcpy(&i, &f, 4);
	return i;
}

KERN_DEV float f32_from_bits(int i)
{
	float f;
	memcpy(&f, &i, 4);
	return f;
}

template <int which> KERN_DEV uint32_t prmt(uint32_t a, uint32_t b)
{
	const uint64_t all = (uint64_t)b << 32 | a;
	uint32_t d = 0;
	for (int i = 0; i < 4; i++)
		d |= (uint32_t)(all >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
	return d;
}

template <int table> KERN_DEV uint32_t lop3(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d = 0;
	for (int i = 0; i < 8; i++)
		if (table >> i & 1)
			d |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
	return d;
}

extern const float *cudasim_f16_table; /* [65536] */

KERN_DEV float f32_of_f16(uint16_t h)
{
	return cudasim_f16_table[h];
}

KERN_DEV float f32_of_bf16(uint16_t h)
{
	return f32_from_bits((int)((uint32_t)h << 16));
}

/* Round x to nearest, ties to even, in the given format; x may carry a sticky bit. */
uint16_t cudasim_f16_of(double x);
uint16_t cudasim_bf16_of(double x);
/* Return a b + c with the last bit set if inexact; rounding it to a narrower format is then correct. */
double cudasim_fma_odd(double a, double b, double c);

KERN_DEV uint16_t f16_of_f32(float f)
{
	return cudasim_f16_of((double)f);
}

KERN_DEV uint16_t bf16_of_f32(float f)
{
	uint32_t u = (uint32_t)f32_bits(f);
	if (f != f)
		return 0x7fff;
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

KERN_DEV uint32_t f16x2_of_f32(float first, float second)
{
	return f16_of_f32(first) | (uint32_t)f16_of_f32(second) << 16;
}

KERN_DEV uint32_t bf16x2_of_f32(float first, float second)
{
	return bf16_of_f32(first) | (uint32_t)bf16_of_f32(second) << 16;
}

KERN_DEV uint32_t f16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d = 0;
	for (int i = 0; i < 32; i += 16)
		d |= (uint32_t)cudasim_f16_of(cudasim_fma_odd((double)f32_of_f16((uint16_t)(a >> i)),
							      (double)f32_of_f16((uint16_t)(b >> i)),
							      (double)f32_of_f16((uint16_t)(c >> i))))
		     << i;
	return d;
}

KERN_DEV uint32_t f16x2_add(uint32_t a, uint32_t b)
{
	return f16x2_fma(a, 0x3c003c00, b);
}

KERN_DEV uint32_t f16x2_sub(uint32_t a, uint32_t b)
{
	return f16x2_fma(a, 0x3c003c00, b ^ 0x80008000);
}

KERN_DEV uint32_t f16x2_mul(uint32_t a, uint32_t b)
{
	return f16x2_fma(a, b, 0x80008000);
}

KERN_DEV uint32_t bf16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d = 0;
	for (int i = 0; i < 32; i += 16)
		d |= (uint32_t)cudasim_bf16_of(cudasim_fma_odd((double)f32_of_bf16((uint16_t)(a >> i)),
							       (double)f32_of_bf16((uint16_t)(b >> i)),
							       (double)f32_of_bf16((uint16_t)(c >> i))))
		     << i;
	return d;
}

/* ---- single precision (the host compiles with -ffp-contract=off) ---- */

KERN_DEV float f32_mul_rn(float a, float b)
{
	return a * b;
}

KERN_DEV float f32_add_rn(float a, float b)
{
	return a + b;
}

KERN_DEV float f32_fma_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

KERN_DEV float f32_div_rn(float a, float b)
{
	return a / b;
}

KERN_DEV float f32_sqrt_rn(float a)
{
	return sqrtf(a);
}

KERN_DEV double f64_add_rn(double a, double b)
{
	return a + b;
}

KERN_DEV double f64_mul_rn(double a, double b)
{
	return a * b;
}

KERN_DEV double f64_div_rn(double a, double b)
{
	return a / b;
}

KERN_DEV double f64_sqrt_rn(double a)
{
	return sqrt(a);
}

KERN_DEV float f32_exp2_fast(float x)
{
	return exp2f(x);
}

/* ---- matrix fragments ---- */

void cudasim_ldmatrix(uint32_t r[4], const void *smem, bool trans);
void cudasim_mma(float d[4], const uint32_t a[4], const uint32_t b[2], bool bf16);

KERN_DEV void ldmatrix_x4(uint32_t r[4], const void *smem)
{
	cudasim_ldmatrix(r, smem, false);
}

KERN_DEV void ldmatrix_x4_trans(uint32_t r[4], const void *smem)
{
	cudasim_ldmatrix(r, smem, true);
}

KERN_DEV void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	cudasim_mma(d, a, b, false);
}

KERN_DEV void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	cudasim_mma(d, a, b, true);
}

/* ---- warps and blocks ---- */

static constexpr int WARP = 32;

KERN_DEV int lane_id(void)
{
	return (int)(threadIdx.x % 32);
}

KERN_DEV int warp_id(void)
{
	return (int)(threadIdx.x / 32);
}

struct cudasim_shfl {
	uint32_t in, out;
	int from;
};

void cudasim_shfl_work(void **args);

template <typename T> KERN_DEV T cudasim_shfl_from(T v, int from)
{
	static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes");
	struct cudasim_shfl a = {0, 0, from};
	memcpy(&a.in, &v, 4);
	cudasim_warp_op(cudasim_shfl_work, &a);
	memcpy(&v, &a.out, 4);
	return v;
}

template <typename T> KERN_DEV T shfl(T v, int lane)
{
	return cudasim_shfl_from(v, lane & 31);
}

template <typename T> KERN_DEV T shfl_xor(T v, int mask)
{
	return cudasim_shfl_from(v, lane_id() ^ mask);
}

template <typename T> KERN_DEV T shfl_down(T v, int by)
{
	return cudasim_shfl_from(v, lane_id() + by < 32 ? lane_id() + by : lane_id());
}

template <typename T> KERN_DEV T shfl_up(T v, int by)
{
	return cudasim_shfl_from(v, lane_id() - by >= 0 ? lane_id() - by : lane_id());
}

uint32_t cudasim_ballot(bool p);

KERN_DEV uint32_t warp_ballot(bool p)
{
	return cudasim_ballot(p);
}

KERN_DEV uint32_t warp_add(uint32_t v)
{
	for (int m = 16; m; m /= 2)
		v += shfl_xor(v, m);
	return v;
}

void cudasim_warp_sync(void);

KERN_DEV void warp_sync(void)
{
	cudasim_warp_sync();
}

KERN_DEV void block_sync(void)
{
	cudasim_barrier(0, 0);
}

KERN_DEV void named_sync(int barrier, int n_threads)
{
	cudasim_barrier(barrier, n_threads);
}

/* ---- between blocks ---- */

KERN_DEV void fence_device(void)
{
	race_fence();
	cudasim_yield();
}

uint32_t cudasim_exchange(uint32_t *p, uint32_t (*become)(uint32_t was, uint32_t v), uint32_t v);

KERN_DEV uint32_t atomic_add(uint32_t *p, uint32_t v)
{
	return cudasim_exchange(
		p, [](uint32_t was, uint32_t by) { return was + by; }, v);
}

KERN_DEV int atomic_add(int *p, int v)
{
	return (int)atomic_add((uint32_t *)(void *)p, (uint32_t)v);
}

KERN_DEV int atomic_max(int *p, int v)
{
	return (int)cudasim_exchange((uint32_t *)(void *)p,
				     [](uint32_t was, uint32_t n) { return (int)was > (int)n ? was : n; },
				     (uint32_t)v);
}

KERN_DEV uint32_t atomic_min(uint32_t *p, uint32_t v)
{
	return cudasim_exchange(
		p, [](uint32_t was, uint32_t n) { return was < n ? was : n; }, v);
}

KERN_DEV uint32_t atomic_or(uint32_t *p, uint32_t v)
{
	return cudasim_exchange(
		p, [](uint32_t was, uint32_t n) { return was | n; }, v);
}

KERN_DEV uint32_t atomic_exch(uint32_t *p, uint32_t v)
{
	return cudasim_exchange(
		p, [](uint32_t, uint32_t n) { return n; }, v);
}

/* The device's bit-count functions. */
KERN_DEV int __popc(uint32_t x)
{
	return __builtin_popcount(x);
}

KERN_DEV int __ffs(uint32_t x)
{
	return __builtin_ffs((int)x);
}

KERN_DEV int __clz(uint32_t x)
{
	return x ? __builtin_clz(x) : 32;
}

#endif
