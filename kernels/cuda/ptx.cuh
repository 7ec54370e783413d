/* ptx.cuh - machine instructions, defined for the device and for the emulator.
 *
 * Kernels use only the functions declared here and plain C++.  A .cu file therefore compiles with nvcc, and
 * with the host's compiler if QUERN_CUDASIM is defined (tests/cudasim/: threads are fibres; blocks run in any
 * order, alone or several at a time).  The emulator also delivers cp.async only at its wait, poisons shared
 * memory at the start, and checks addresses.
 *
 * Rules that let a kernel run on both:
 *  - Shared memory is dynamic only: kern_smem(), sized by the launch, 16-byte aligned (128 on the
 *    device).
 *  - Blocks never wait for one another: the emulator may run them one after another, in any order.
 *    The last block to arrive at a counter may do the remaining work.
 *  - Warp operations are called by full warps; no lane has left the kernel before.
 *  - Results that must be equal everywhere use the *_rn functions: nothing is contracted.
 *
 * A half or bfloat16 is a uint16_t.  A pair of them is a uint32_t with the first in the low half. */
#ifndef QUERN_KERNELS_CUDA_PTX_CUH
#define QUERN_KERNELS_CUDA_PTX_CUH

#include <cuda_runtime.h> /* the emulator has its own */
#include <stdint.h>

#ifdef QUERN_CUDASIM

#include "tests/cudasim/ptx_sim.h"

#else

#define KERN_DEV static __device__ __forceinline__

/* Launch a kernel: 0 or -EIO (see cuda_launched() in cuda.cuh).  A template with a comma needs
 * parentheses. */
#define KERN_LAUNCH(kernel, grid, block, smem_bytes, stream, ...)                                            \
	({                                                                                                   \
		static bool carved_out;                                                                      \
		carved_out = carved_out || cuda_carve_out((const void *)kernel);                             \
		kernel<<<(grid), (block), (smem_bytes), (stream)>>>(__VA_ARGS__);                            \
		cuda_launched(#kernel);                                                                      \
	})

/* ---- shared memory ---- */

extern __shared__ __align__(128) unsigned char kern_smem_bytes[];

KERN_DEV unsigned char *kern_smem(void)
{
	return kern_smem_bytes;
}

KERN_DEV uint32_t smem_u32(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- asynchronous copies into shared memory ---- */

/* Copy 16 bytes; both addresses are aligned to 16.  If pred is false, write zeros: src is not read but must
 * be a valid address. */
KERN_DEV void cp_async_16(void *smem, const void *global, bool pred = true)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(smem_u32(smem)), "l"(global),
		     "r"(pred ? 16 : 0)
		     : "memory");
}

/* Return the cache policy for data that is read once: evicted first from L2. */
KERN_DEV uint64_t l2_evict_first(void)
{
	uint64_t p;
	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(p));
	return p;
}

KERN_DEV void cp_async_16_hint(void *smem, const void *global, uint64_t policy, bool pred = true)
{
	asm volatile(
		"cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;\n" ::"r"(smem_u32(smem)),
		"l"(global), "r"(pred ? 16 : 0), "l"(policy)
		: "memory");
}

KERN_DEV void cp_async_commit(void)
{
	asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Wait until all but the last N committed groups of this thread have arrived. */
template <int N> KERN_DEV void cp_async_wait(void)
{
	asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

/* ---- global memory ---- */

/* Load 16 bytes that this kernel reads once and no kernel writes meanwhile: bypass L1, evict first from
 * L2. */
KERN_DEV uint4 ld_stream_128(const void *p)
{
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];\n"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p));
	return v;
}

KERN_DEV uint4 ld_stream_128_hint(const void *p, uint64_t policy)
{
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;\n"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p), "l"(policy));
	return v;
}

/* Load 16 bytes, cached as usual. */
KERN_DEV uint4 ld_global_128(const void *p)
{
	return *(const uint4 *)p;
}

KERN_DEV uint2 ld_global_64(const void *p)
{
	return *(const uint2 *)p;
}

KERN_DEV void st_global_128(void *p, uint4 v)
{
	*(uint4 *)p = v;
}

/* Load 16, 8 or 4 bytes that no kernel writes meanwhile into v if pred is true.  There is no branch around
 * the load, so that the compiler has no reason to move a value that is still in flight (and wait for it). */
KERN_DEV void ld_global_128_if(uint4 &v, const void *p, bool pred)
{
	asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
		     "@p ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];\n}\n"
		     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
		     : "l"(p), "r"((int)pred));
}

KERN_DEV void ld_global_64_if(uint2 &v, const void *p, bool pred)
{
	asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p ld.global.nc.v2.u32 {%0,%1}, [%2];\n}\n"
		     : "+r"(v.x), "+r"(v.y)
		     : "l"(p), "r"((int)pred));
}

KERN_DEV void ld_global_32_if(uint32_t &v, const void *p, bool pred)
{
	asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.u32 %0, [%1];\n}\n"
		     : "+r"(v)
		     : "l"(p), "r"((int)pred));
}

/* Load 16 bytes into v if pred is true, from L2, never from a stale L1: for data that another block wrote
 * before its __threadfence() and arrival.  There is no branch, so several consecutive loads are in flight
 * together. */
KERN_DEV void ld_cg_128_if(uint4 &v, const void *p, bool pred)
{
	asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
		     "@p ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];\n}\n"
		     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
		     : "l"(p), "r"((int)pred)
		     : "memory");
}

KERN_DEV float2 ld_cg_f32x2(const float *p) /* p is aligned to 8 */
{
	float2 v;
	asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];\n" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
	return v;
}

/* ---- matrix fragments ---- */

/* Load four 8x8 matrices of 16-bit values.  Lane l gives the address of row l % 8 of matrix l / 8 (16 bytes,
 * aligned). */
KERN_DEV void ldmatrix_x4(uint32_t r[4], const void *smem)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(smem_u32(smem))
		     : "memory");
}

KERN_DEV void ldmatrix_x4_trans(uint32_t r[4], const void *smem)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(smem_u32(smem))
		     : "memory");
}

/* d[16][8] += a[16][16] b[16][8], accumulated in F32.  Fragments as in docs/KERNELS, with g = lane / 4, t =
 * lane % 4: a0 (row g, k 2t), a1 (g+8, 2t), a2 (g, 2t+8), a3 (g+8, 2t+8); b0 (k 2t, n g), b1 (k 2t+8, n g);
 * d0 d1 (row g, n 2t), d2 d3 (row g+8, n 2t). */
KERN_DEV void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
		     "{%8,%9}, {%0,%1,%2,%3};\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

KERN_DEV void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
		     "{%8,%9}, {%0,%1,%2,%3};\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* ---- bits and halves ---- */

/* Apply a function of three bits, given by its truth table: 0xEA is (a & b) | c. */
template <int table> KERN_DEV uint32_t lop3(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;
	asm("lop3.b32 %0, %1, %2, %3, %4;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(table));
	return d;
}

/* Select four of eight bytes, one per nibble of `which`: 0 to 3 are a's bytes, 4 to 7 are b's. */
template <int which> KERN_DEV uint32_t prmt(uint32_t a, uint32_t b)
{
	uint32_t d;
	asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "n"(which));
	return d;
}

KERN_DEV uint32_t f16x2_add(uint32_t a, uint32_t b)
{
	uint32_t d;
	asm("add.rn.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
	return d;
}

KERN_DEV uint32_t f16x2_sub(uint32_t a, uint32_t b)
{
	uint32_t d;
	asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
	return d;
}

KERN_DEV uint32_t f16x2_mul(uint32_t a, uint32_t b)
{
	uint32_t d;
	asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
	return d;
}

KERN_DEV uint32_t f16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;
	asm("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

/* Before sm_90, bfloat16 has only fma; sums and products are written as fma. */
KERN_DEV uint32_t bf16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

KERN_DEV float f32_of_f16(uint16_t h)
{
	float f;
	asm("cvt.f32.f16 %0, %1;\n" : "=f"(f) : "h"(h));
	return f;
}

KERN_DEV float f32_of_bf16(uint16_t h)
{
	return __uint_as_float((uint32_t)h << 16);
}

KERN_DEV uint16_t f16_of_f32(float f) /* rounds to nearest, ties to even */
{
	uint16_t h;
	asm("cvt.rn.f16.f32 %0, %1;\n" : "=h"(h) : "f"(f));
	return h;
}

KERN_DEV uint16_t bf16_of_f32(float f)
{
	uint16_t h;
	asm("cvt.rn.bf16.f32 %0, %1;\n" : "=h"(h) : "f"(f));
	return h;
}

KERN_DEV uint32_t f16x2_of_f32(float first, float second)
{
	uint32_t d;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(d) : "f"(second), "f"(first));
	return d;
}

KERN_DEV uint32_t bf16x2_of_f32(float first, float second)
{
	uint32_t d;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(d) : "f"(second), "f"(first));
	return d;
}

/* ---- single precision: one rounding each, never contracted; __fmaf_rn and friends are available too ---- */

KERN_DEV float f32_mul_rn(float a, float b)
{
	return __fmul_rn(a, b);
}

KERN_DEV float f32_add_rn(float a, float b)
{
	return __fadd_rn(a, b);
}

KERN_DEV float f32_fma_rn(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}

KERN_DEV float f32_div_rn(float a, float b)
{
	return __fdiv_rn(a, b);
}

KERN_DEV float f32_sqrt_rn(float a)
{
	return __fsqrt_rn(a);
}

KERN_DEV double f64_add_rn(double a, double b)
{
	return __dadd_rn(a, b);
}

KERN_DEV double f64_mul_rn(double a, double b)
{
	return __dmul_rn(a, b);
}

KERN_DEV double f64_div_rn(double a, double b)
{
	return __ddiv_rn(a, b);
}

KERN_DEV double f64_sqrt_rn(double a)
{
	return __dsqrt_rn(a);
}

/* Return 2^x by the machine's instruction: 1 at 0, 0 at -infinity.  Results on one device have the same
 * bits. */
KERN_DEV float f32_exp2_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
	return y;
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

/* All lanes of the warp call these functions together.  T is a 4-byte type. */
template <typename T> KERN_DEV T shfl(T v, int lane)
{
	return __shfl_sync(0xffffffffu, v, lane);
}

template <typename T> KERN_DEV T shfl_xor(T v, int mask)
{
	return __shfl_xor_sync(0xffffffffu, v, mask);
}

template <typename T> KERN_DEV T shfl_down(T v, int by)
{
	return __shfl_down_sync(0xffffffffu, v, by);
}

template <typename T> KERN_DEV T shfl_up(T v, int by)
{
	return __shfl_up_sync(0xffffffffu, v, by);
}

KERN_DEV uint32_t warp_ballot(bool p)
{
	return __ballot_sync(0xffffffffu, p);
}

/* Return the sum of the lanes' v, modulo 2^32, in every lane. */
KERN_DEV uint32_t warp_add(uint32_t v)
{
	return __reduce_add_sync(0xffffffffu, v);
}

KERN_DEV void warp_sync(void)
{
	__syncwarp();
}

KERN_DEV void block_sync(void)
{
	__syncthreads();
}

/* Wait at named barrier 1..15 for n_threads (a multiple of 32); all of them call it. */
KERN_DEV void named_sync(int barrier, int n_threads)
{
	asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(n_threads) : "memory");
}

/* ---- between blocks ---- */

KERN_DEV void fence_device(void)
{
	__threadfence();
}

/* The atomics return the previous value. */
KERN_DEV int atomic_add(int *p, int v)
{
	return atomicAdd(p, v);
}

KERN_DEV uint32_t atomic_add(uint32_t *p, uint32_t v)
{
	return atomicAdd(p, v);
}

KERN_DEV int atomic_max(int *p, int v)
{
	return atomicMax(p, v);
}

KERN_DEV uint32_t atomic_min(uint32_t *p, uint32_t v)
{
	return atomicMin(p, v);
}

KERN_DEV uint32_t atomic_or(uint32_t *p, uint32_t v)
{
	return atomicOr(p, v);
}

KERN_DEV uint32_t atomic_exch(uint32_t *p, uint32_t v)
{
	return atomicExch(p, v);
}

KERN_DEV int f32_bits(float f)
{
	return __float_as_int(f);
}

KERN_DEV float f32_from_bits(int i)
{
	return __int_as_float(i);
}

#endif
#endif
