/* wgmma.cuh - Hopper's warpgroup matrix product (sm_90a), defined for the device and for the emulator as in
 * ptx.cuh.
 *
 *     d[64][N] = a[64][16] b[16][N] (+ d)        N = 8, 16, ... 256; F16 or BF16 in, F32 out
 *
 * All four warps of a warpgroup (threads 128 i to 128 i + 127) call wgmma_ss() or wgmma_rs() together.  The
 * product is asynchronous:
 *
 *     registers and shared memory are written
 *     fence of the asynchronous proxy, barrier      if operands in shared memory were written
 *     wgmma_fence()                                 if d, or a in registers, was written
 *     wgmma_ss() ...                                any number, also into the same d
 *     wgmma_commit()                                closes a group of products
 *     wgmma_wait<N>()                               until all but the last N groups are done
 *
 * Before the wait, nothing may read or write d, nor write a's registers or the operands in shared memory.
 *
 * Registers of warp w in its warpgroup, with g = lane / 4, t = lane % 4:
 *
 *     a0 (row 16 w + g, k 2t), a1 (row + 8), a2 (k + 8), a3 (row + 8, k + 8): pairs, as in mma.m16n8k16
 *     d[4 j .. 4 j + 3] (row 16 w + g, n 8 j + 2t and + 1), (row + 8, same n)
 *
 * A descriptor describes an operand in shared memory.  Rows of a are those of M, rows of b those of N; both
 * have 16 k.  "Along k" (plain): an atom is 8 rows of `width` bytes, and the next 8 rows are `stride` bytes
 * further.  "Along rows" (A_TRANS, B_TRANS): an atom is 8 k of `width` bytes (width / 2 rows each).
 *
 *     swizzle         width   along k                           along rows
 *     WGMMA_PLAIN     16      8 k on: leading; 8 rows: stride   8 k on: leading; 8 rows: stride
 *     WGMMA_SWIZZLE_W W       8 rows: stride; leading unused    8 k on: stride; W / 2 rows: leading
 *
 * A swizzle permutes the 16-byte pieces of 128 bytes: bits 4.. of the address are combined (xor) with bits
 * 7..: one bit for a width of 32 bytes, two for 64, three for 128.  The pattern repeats every 256, 512 or
 * 1024 bytes.  If it does not begin at such an address, base_offset is (address of its beginning / 128) % 8.
 * A start address 32 bytes further reaches the next 16 k within an atom. */
#ifndef QUERN_KERNELS_CUDA_WGMMA_CUH
#define QUERN_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/ptx.cuh"

enum { WGMMA_PLAIN = 0, WGMMA_SWIZZLE_128 = 1, WGMMA_SWIZZLE_64 = 2, WGMMA_SWIZZLE_32 = 3 };

#ifdef QUERN_CUDASIM

#include "tests/cudasim/wgmma_sim.h"

#else

/* Make a descriptor.  leading, stride: bytes, multiples of 16 below 256 KB; smem: aligned to 16. */
KERN_DEV uint64_t wgmma_desc(const void *smem, int leading, int stride, int swizzle, int base_offset = 0)
{
	return (uint64_t)(smem_u32(smem) >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
	       (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)(base_offset & 7) << 49 |
	       (uint64_t)swizzle << 62;
}

KERN_DEV void wgmma_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

KERN_DEV void wgmma_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Wait until all but the last N committed groups are done. */
template <int N> KERN_DEV void wgmma_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

/* Registers of d, as named by the instruction and by the compiler: 4 more for every 8 of N. */
#define WGMMA_OUT(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_D8     "%0, %1, %2, %3"
#define WGMMA_OUT8   WGMMA_OUT(0)
#define WGMMA_D16    WGMMA_D8 ", %4, %5, %6, %7"
#define WGMMA_OUT16  WGMMA_OUT8, WGMMA_OUT(4)
#define WGMMA_D24    WGMMA_D16 ", %8, %9, %10, %11"
#define WGMMA_OUT24  WGMMA_OUT16, WGMMA_OUT(8)
#define WGMMA_D32    WGMMA_D24 ", %12, %13, %14, %15"
#define WGMMA_OUT32  WGMMA_OUT24, WGMMA_OUT(12)
#define WGMMA_D40    WGMMA_D32 ", %16, %17, %18, %19"
#define WGMMA_OUT40  WGMMA_OUT32, WGMMA_OUT(16)
#define WGMMA_D48    WGMMA_D40 ", %20, %21, %22, %23"
#define WGMMA_OUT48  WGMMA_OUT40, WGMMA_OUT(20)
#define WGMMA_D56    WGMMA_D48 ", %24, %25, %26, %27"
#define WGMMA_OUT56  WGMMA_OUT48, WGMMA_OUT(24)
#define WGMMA_D64    WGMMA_D56 ", %28, %29, %30, %31"
#define WGMMA_OUT64  WGMMA_OUT56, WGMMA_OUT(28)
#define WGMMA_D72    WGMMA_D64 ", %32, %33, %34, %35"
#define WGMMA_OUT72  WGMMA_OUT64, WGMMA_OUT(32)
#define WGMMA_D80    WGMMA_D72 ", %36, %37, %38, %39"
#define WGMMA_OUT80  WGMMA_OUT72, WGMMA_OUT(36)
#define WGMMA_D88    WGMMA_D80 ", %40, %41, %42, %43"
#define WGMMA_OUT88  WGMMA_OUT80, WGMMA_OUT(40)
#define WGMMA_D96    WGMMA_D88 ", %44, %45, %46, %47"
#define WGMMA_OUT96  WGMMA_OUT88, WGMMA_OUT(44)
#define WGMMA_D104   WGMMA_D96 ", %48, %49, %50, %51"
#define WGMMA_OUT104 WGMMA_OUT96, WGMMA_OUT(48)
#define WGMMA_D112   WGMMA_D104 ", %52, %53, %54, %55"
#define WGMMA_OUT112 WGMMA_OUT104, WGMMA_OUT(52)
#define WGMMA_D120   WGMMA_D112 ", %56, %57, %58, %59"
#define WGMMA_OUT120 WGMMA_OUT112, WGMMA_OUT(56)
#define WGMMA_D128   WGMMA_D120 ", %60, %61, %62, %63"
#define WGMMA_OUT128 WGMMA_OUT120, WGMMA_OUT(60)
#define WGMMA_D136   WGMMA_D128 ", %64, %65, %66, %67"
#define WGMMA_OUT136 WGMMA_OUT128, WGMMA_OUT(64)
#define WGMMA_D144   WGMMA_D136 ", %68, %69, %70, %71"
#define WGMMA_OUT144 WGMMA_OUT136, WGMMA_OUT(68)
#define WGMMA_D152   WGMMA_D144 ", %72, %73, %74, %75"
#define WGMMA_OUT152 WGMMA_OUT144, WGMMA_OUT(72)
#define WGMMA_D160   WGMMA_D152 ", %76, %77, %78, %79"
#define WGMMA_OUT160 WGMMA_OUT152, WGMMA_OUT(76)
#define WGMMA_D168   WGMMA_D160 ", %80, %81, %82, %83"
#define WGMMA_OUT168 WGMMA_OUT160, WGMMA_OUT(80)
#define WGMMA_D176   WGMMA_D168 ", %84, %85, %86, %87"
#define WGMMA_OUT176 WGMMA_OUT168, WGMMA_OUT(84)
#define WGMMA_D184   WGMMA_D176 ", %88, %89, %90, %91"
#define WGMMA_OUT184 WGMMA_OUT176, WGMMA_OUT(88)
#define WGMMA_D192   WGMMA_D184 ", %92, %93, %94, %95"
#define WGMMA_OUT192 WGMMA_OUT184, WGMMA_OUT(92)
#define WGMMA_D200   WGMMA_D192 ", %96, %97, %98, %99"
#define WGMMA_OUT200 WGMMA_OUT192, WGMMA_OUT(96)
#define WGMMA_D208   WGMMA_D200 ", %100, %101, %102, %103"
#define WGMMA_OUT208 WGMMA_OUT200, WGMMA_OUT(100)
#define WGMMA_D216   WGMMA_D208 ", %104, %105, %106, %107"
#define WGMMA_OUT216 WGMMA_OUT208, WGMMA_OUT(104)
#define WGMMA_D224   WGMMA_D216 ", %108, %109, %110, %111"
#define WGMMA_OUT224 WGMMA_OUT216, WGMMA_OUT(108)
#define WGMMA_D232   WGMMA_D224 ", %112, %113, %114, %115"
#define WGMMA_OUT232 WGMMA_OUT224, WGMMA_OUT(112)
#define WGMMA_D240   WGMMA_D232 ", %116, %117, %118, %119"
#define WGMMA_OUT240 WGMMA_OUT232, WGMMA_OUT(116)
#define WGMMA_D248   WGMMA_D240 ", %120, %121, %122, %123"
#define WGMMA_OUT248 WGMMA_OUT240, WGMMA_OUT(120)
#define WGMMA_D256   WGMMA_D248 ", %124, %125, %126, %127"
#define WGMMA_OUT256 WGMMA_OUT248, WGMMA_OUT(124)

/* Operand numbers after those of d. */
#define WGMMA_SS(TYPE, N, o0, o1, o2, o3, o4, o5, o6, ...)                                                   \
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #o2 ", 0;\n"                                       \
		     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_D##N         \
		     "}, "                                                                                   \
		     "%" #o0 ", %" #o1 ", p, %" #o3 ", %" #o4 ", %" #o5 ", %" #o6 ";\n}\n"                   \
		     : WGMMA_OUT##N                                                                          \
		     : "l"(a), "l"(b), "r"((int)add), "n"(A_SIGN), "n"(B_SIGN), "n"((int)A_TRANS),           \
		       "n"((int)B_TRANS))
#define WGMMA_RS(TYPE, N, o0, o1, o2, o3, o4, o5, o6, o7, o8)                                                \
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #o5 ", 0;\n"                                       \
		     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_D##N         \
		     "}, "                                                                                   \
		     "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", p, %" #o6 ", %" #o7 ", %" #o8      \
		     ";\n}\n"                                                                                \
		     : WGMMA_OUT##N                                                                          \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(A_SIGN),       \
		       "n"(B_SIGN), "n"((int)B_TRANS))

#define WGMMA_FOR(X)                                                                                         \
	X(8, 4, 5, 6, 7, 8, 9, 10, 11, 12)                                                                   \
	X(16, 8, 9, 10, 11, 12, 13, 14, 15, 16)                                                              \
	X(24, 12, 13, 14, 15, 16, 17, 18, 19, 20)                                                            \
	X(32, 16, 17, 18, 19, 20, 21, 22, 23, 24)                                                            \
	X(40, 20, 21, 22, 23, 24, 25, 26, 27, 28)                                                            \
	X(48, 24, 25, 26, 27, 28, 29, 30, 31, 32)                                                            \
	X(56, 28, 29, 30, 31, 32, 33, 34, 35, 36)                                                            \
	X(64, 32, 33, 34, 35, 36, 37, 38, 39, 40)                                                            \
	X(72, 36, 37, 38, 39, 40, 41, 42, 43, 44)                                                            \
	X(80, 40, 41, 42, 43, 44, 45, 46, 47, 48)                                                            \
	X(88, 44, 45, 46, 47, 48, 49, 50, 51, 52)                                                            \
	X(96, 48, 49, 50, 51, 52, 53, 54, 55, 56)                                                            \
	X(104, 52, 53, 54, 55, 56, 57, 58, 59, 60)                                                           \
	X(112, 56, 57, 58, 59, 60, 61, 62, 63, 64)                                                           \
	X(120, 60, 61, 62, 63, 64, 65, 66, 67, 68)                                                           \
	X(128, 64, 65, 66, 67, 68, 69, 70, 71, 72)                                                           \
	X(136, 68, 69, 70, 71, 72, 73, 74, 75, 76)                                                           \
	X(144, 72, 73, 74, 75, 76, 77, 78, 79, 80)                                                           \
	X(152, 76, 77, 78, 79, 80, 81, 82, 83, 84)                                                           \
	X(160, 80, 81, 82, 83, 84, 85, 86, 87, 88)                                                           \
	X(168, 84, 85, 86, 87, 88, 89, 90, 91, 92)                                                           \
	X(176, 88, 89, 90, 91, 92, 93, 94, 95, 96)                                                           \
	X(184, 92, 93, 94, 95, 96, 97, 98, 99, 100)                                                          \
	X(192, 96, 97, 98, 99, 100, 101, 102, 103, 104)                                                      \
	X(200, 100, 101, 102, 103, 104, 105, 106, 107, 108)                                                  \
	X(208, 104, 105, 106, 107, 108, 109, 110, 111, 112)                                                  \
	X(216, 108, 109, 110, 111, 112, 113, 114, 115, 116)                                                  \
	X(224, 112, 113, 114, 115, 116, 117, 118, 119, 120)                                                  \
	X(232, 116, 117, 118, 119, 120, 121, 122, 123, 124)                                                  \
	X(240, 120, 121, 122, 123, 124, 125, 126, 127, 128)                                                  \
	X(248, 124, 125, 126, 127, 128, 129, 130, 131, 132)                                                  \
	X(256, 128, 129, 130, 131, 132, 133, 134, 135, 136)

/* Compute d = a b, plus d if `add` is set; otherwise d's old value is not read.  A_SIGN, B_SIGN: 1 or -1. */
template <bool BF16, int N, bool A_TRANS = false, bool B_TRANS = false, int A_SIGN = 1, int B_SIGN = 1>
KERN_DEV void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
{
	static_assert(N % 8 == 0 && N >= 8 && N <= 256, "");
#define WGMMA_CASE(SIZE, ...)                                                                                \
	if constexpr (N == SIZE && BF16)                                                                     \
		WGMMA_SS("bf16", SIZE, __VA_ARGS__);                                                         \
	if constexpr (N == SIZE && !BF16)                                                                    \
		WGMMA_SS("f16", SIZE, __VA_ARGS__);
	WGMMA_FOR(WGMMA_CASE)
#undef WGMMA_CASE
}

template <bool BF16, int N, bool B_TRANS = false, int A_SIGN = 1, int B_SIGN = 1>
KERN_DEV void wgmma_rs(float (&d)[N / 2], uint32_t (&a)[4], uint64_t b, bool add)
{
	static_assert(N % 8 == 0 && N >= 8 && N <= 256, "");
#define WGMMA_CASE(SIZE, ...)                                                                                \
	if constexpr (N == SIZE && BF16)                                                                     \
		WGMMA_RS("bf16", SIZE, __VA_ARGS__);                                                         \
	if constexpr (N == SIZE && !BF16)                                                                    \
		WGMMA_RS("f16", SIZE, __VA_ARGS__);
	WGMMA_FOR(WGMMA_CASE)
#undef WGMMA_CASE
}

#endif
#endif
