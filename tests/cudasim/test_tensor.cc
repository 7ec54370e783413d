/* Tensor cores, element by element.  The places of a fragment's or operand's elements are written here a
 * second time, from NVIDIA's description of the instructions (PTX ISA), in other formulas than the
 * emulator's.  The truncation of sums follows the published analyses. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "kernels/cuda/ptx_async.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "tests/cudasim/cudasim.h"

/* ---- the tables ---- */

/* mma.m16n8k16, per register half.  groupID is lane / 4, threadID_in_group is lane % 4. */
static const struct {
	int row, k;
} a_at[8] = {{0, 0}, {0, 1}, {8, 0}, {8, 1}, {0, 8}, {0, 9}, {8, 8}, {8, 9}}; /* + group, + 2 thread */
static const int b_at[4] = {0, 1, 8, 9};                                      /* k + 2 thread; n = group */
static const struct {
	int row, n;
} d_at[4] = {{0, 0}, {0, 1}, {8, 0}, {8, 1}}; /* + group, + 2 thread */

/* wgmma.m64nNk16, register i of a lane: 16 rows per warp; pairs of columns, every other pair 8 rows below. */
static int wg_row(int thread, int i)
{
	return thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
}

static int wg_col(int thread, int i)
{
	return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* ---- device memory ---- */

struct buffer {
	void *p;
	size_t bytes;
	buffer(const void *from, size_t n) : bytes(n)
	{
		cr_assert(cudaMalloc(&p, n) == cudaSuccess);
		cr_assert(cudaMemcpy(p, from, n, cudaMemcpyHostToDevice) == cudaSuccess);
	}
	~buffer()
	{
		cudaFree(p);
	}
	void get(void *to) const
	{
		cr_assert(cudaMemcpy(to, p, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
	}
};

static cudaStream_t stream(void)
{
	static cudaStream_t s;
	if (!s)
		cr_assert(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
	return s;
}

static uint16_t half_of(float f, bool bf16)
{
	return bf16 ? bf16_of_f32(f) : f16_of_f32(f);
}

static float float_of(uint16_t h, bool bf16)
{
	return bf16 ? f32_of_bf16(h) : f32_of_f16(h);
}

/* ---- mma ---- */

/* Compute d [16][8] += a [16][16] b [16][8]; the tables fill and read each lane's registers. */
template <bool BF16> static void mma_kernel(float *d, const uint16_t *a, const uint16_t *b)
{
	const int g = lane_id() / 4, t = lane_id() % 4;
	uint32_t ra[4] = {}, rb[2] = {};
	float rd[4];
	for (int i = 0; i < 8; i++)
		ra[i / 2] |= (uint32_t)a[(a_at[i].row + g) * 16 + a_at[i].k + 2 * t] << 16 * (i % 2);
	for (int i = 0; i < 4; i++)
		rb[i / 2] |= (uint32_t)b[(b_at[i] + 2 * t) * 8 + g] << 16 * (i % 2);
	for (int i = 0; i < 4; i++)
		rd[i] = d[(d_at[i].row + g) * 8 + d_at[i].n + 2 * t];
	if (BF16)
		mma_m16n8k16_bf16(rd, ra, rb);
	else
		mma_m16n8k16_f16(rd, ra, rb);
	for (int i = 0; i < 4; i++)
		d[(d_at[i].row + g) * 8 + d_at[i].n + 2 * t] = rd[i];
}

static void mma(float *d, const uint16_t *a, const uint16_t *b, bool bf16)
{
	buffer bd(d, 128 * 4), ba(a, 256 * 2), bb(b, 128 * 2);
	void (*const kernel)(float *, const uint16_t *, const uint16_t *) =
		bf16 ? mma_kernel<true> : mma_kernel<false>;
	cr_assert(KERN_LAUNCH(kernel, 1, 32, 0, stream(), (float *)bd.p, (const uint16_t *)ba.p,
			      (const uint16_t *)bb.p) == 0);
	cr_assert(cudaStreamSynchronize(stream()) == cudaSuccess);
	bd.get(d);
}

/* A single 1 in A picks a row of B, so every place of every fragment is tested alone. */
Test(fragments, of_mma_are_where_the_isa_has_them)
{
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int at = 0; at < 256; at++) {
			uint16_t a[256] = {0}, b[128];
			float d[128];
			a[at] = half_of(1, bf16);
			for (int i = 0; i < 128; i++) {
				b[i] = half_of((float)(i + 1), bf16);
				d[i] = (float)(1000 * i);
			}
			mma(d, a, b, bf16);
			for (int i = 0; i < 128; i++)
				cr_assert(d[i] == (float)(1000 * i +
							  (i / 8 == at / 16 ? at % 16 * 8 + i % 8 + 1 : 0)),
					  "A[%d][%d], D[%d][%d]: %f", at / 16, at % 16, i / 8, i % 8,
					  (double)d[i]);
		}
}

static void ldmatrix_kernel(uint32_t *out, bool trans)
{
	uint16_t *x = (uint16_t *)(void *)kern_smem(); /* four matrices with rows 48 bytes apart */
	for (int i = lane_id(); i < 32 * 24; i += 32)
		x[i] = (uint16_t)(i % 24 < 8 ? i / 24 * 8 + i % 24 : 0xffff);
	block_sync();
	uint32_t r[4];
	if (trans)
		ldmatrix_x4_trans(r, x + lane_id() * 24);
	else
		ldmatrix_x4(r, x + lane_id() * 24);
	for (int m = 0; m < 4; m++)
		out[m * 32 + lane_id()] = r[m];
}

/* Lane l gets row l / 4, columns 2 (l % 4) and the next; transposed, column l / 4 of those rows. */
Test(fragments, of_ldmatrix_are_where_the_isa_has_them)
{
	for (int trans = 0; trans < 2; trans++) {
		uint32_t got[128];
		buffer out(got, sizeof got);
		cr_assert(KERN_LAUNCH(ldmatrix_kernel, 1, 32, 2048, stream(), (uint32_t *)out.p,
				      trans != 0) == 0);
		cr_assert(cudaStreamSynchronize(stream()) == cudaSuccess);
		out.get(got);
		for (int i = 0; i < 128; i++) {
			const int m = i / 32, line = i % 32 / 4, pair = i % 4 * 2;
			const int first = m * 64 + (trans ? pair * 8 + line : line * 8 + pair);
			cr_assert_eq(got[i], (uint32_t)(first | (first + (trans ? 8 : 1)) << 16),
				     "matrix %d, lane %d: %x", m, i % 32, got[i]);
		}
	}
}

/* ---- truncation of sums ---- */

/* Return c + the products x[i] y[i] at k[i], in row 0, column 0. */
static float sum_of(int way, float c, std::vector<int> k, std::vector<float> x, std::vector<float> y)
{
	uint16_t a[256] = {0}, b[128] = {0};
	float d[128] = {c};
	for (size_t i = 0; i < k.size(); i++) {
		a[k[i]] = f16_of_f32(x[i]);
		b[k[i] * 8] = f16_of_f32(y[i]);
	}
	cudasim_tensor(way);
	mma(d, a, b, false);
	return d[0];
}

Test(sums, are_cut_off_where_the_devices_cut_them_off)
{
	enum {
		R = CUDASIM_TENSOR_ROUNDED,
		V = CUDASIM_TENSOR_VOLTA,
		A = CUDASIM_TENSOR_AMPERE,
		H = CUDASIM_TENSOR_HOPPER
	};
	const float ulp = 0x1p-23f, e12 = 0x1p-12f, e13 = 0x1p-13f;
	/* three quarters of a unit: rounded up, or truncated toward zero for both signs */
	for (int way = R; way <= H; way++) {
		cr_expect_eq(sum_of(way, 1, {0}, {1.5f * e12}, {e12}), way == R ? 1 + ulp : 1, "%d", way);
		cr_expect_eq(sum_of(way, -1, {5}, {-1.5f * e12}, {e12}), way == R ? -1 - ulp : -1, "%d", way);
	}
	/* two halves of a unit: kept with one extra bit */
	cr_expect_eq(sum_of(R, 1, {0, 1}, {e12, e12}, {e12, e12}), 1);
	cr_expect_eq(sum_of(V, 1, {0, 1}, {e12, e12}, {e12, e12}), 1);
	cr_expect_eq(sum_of(A, 1, {0, 1}, {e12, e12}, {e12, e12}), 1 + ulp);
	cr_expect_eq(sum_of(H, 1, {0, 1}, {e12, e12}, {e12, e12}), 1 + ulp);
	/* four quarters of a unit: kept with two extra bits */
	cr_expect_eq(sum_of(A, 1, {0, 1, 2, 3}, {e12, e12, e12, e12}, {e13, e13, e13, e13}), 1);
	cr_expect_eq(sum_of(H, 1, {0, 1, 2, 3}, {e12, e12, e12, e12}, {e13, e13, e13, e13}), 1 + ulp);
	/* the term that cancels the 1 is in the same group, or in a later one */
	cr_expect_eq(sum_of(V, ulp / 2, {0, 4}, {1, -1}, {1, 1}), 0);
	cr_expect_eq(sum_of(V, ulp, {0, 3}, {1, -1}, {1, 1}), ulp);
	cr_expect_eq(sum_of(A, ulp / 2, {0, 8}, {1, -1}, {1, 1}), 0);
	cr_expect_eq(sum_of(A, ulp / 2, {0, 7}, {1, -1}, {1, 1}), ulp / 2);
	cr_expect_eq(sum_of(H, ulp / 2, {0, 15}, {1, -1}, {1, 1}), ulp / 2);
	cr_expect_eq(sum_of(H, ulp / 8, {0, 15}, {1, -1}, {1, 1}), 0);
}

Test(sums, of_what_is_no_number_stay_in_their_place)
{
	for (int way = CUDASIM_TENSOR_ROUNDED; way <= CUDASIM_TENSOR_HOPPER; way++) {
		uint16_t a[256], b[128];
		float d[128] = {};
		for (int i = 0; i < 256; i++)
			a[i] = f16_of_f32(1);
		for (int i = 0; i < 128; i++)
			b[i] = f16_of_f32(i % 8 == 3 && i / 8 == 9 ? INFINITY : 0x1p-14f);
		d[5] = NAN;
		d[6] = 0x1p-130f;
		cudasim_tensor(way);
		mma(d, a, b, false);
		for (int i = 0; i < 128; i++) {
			if (i % 8 == 3)
				cr_expect(isinf(d[i]) && d[i] > 0);
			else if (i == 5)
				cr_expect(isnan(d[i]));
			else
				cr_expect_eq(d[i], 16 * 0x1p-14f, "%d: %g", i, (double)d[i]);
		}
	}
}

/* ---- wgmma ---- */

/* An operand in shared memory: rows of M or N, 16 k per step. */
struct operand {
	int width;   /* width of the swizzle: 16 (none), 32, 64, 128 */
	bool across; /* lines hold rows of one k, instead of k of one row */
	int rows, steps;
	int at;                    /* offset in shared memory */
	int leading, stride, step; /* step: distance of consecutive 16 k */
	int base;
};

static int swizzle_of(int width)
{
	return width == 16   ? WGMMA_PLAIN
	       : width == 32 ? WGMMA_SWIZZLE_32
	       : width == 64 ? WGMMA_SWIZZLE_64
			     : WGMMA_SWIZZLE_128;
}

/* Return the byte offset of element (row, k).  A line holds adjacent elements: k of a row, or rows of a k. */
static int place(const struct operand &o, int row, int k)
{
	const int line = o.across ? k : row, along = o.across ? row : k;
	const int in_line = o.width / 2; /* elements per line */
	int piece = along % in_line / 8, byte = along % 8 * 2, groups;
	if (o.width == 16)
		groups = o.across ? row / 8 * o.stride + k / 8 * o.leading
				  : row / 8 * o.stride + k / 8 * o.leading;
	else
		groups = line / 8 * o.stride + along / in_line * o.leading;
	/* 16-byte pieces in an atom's eight lines: the xor applied to the pieces of each line */
	static const int turn[4][8] = {{0, 0, 0, 0, 0, 0, 0, 0},
				       {0, 0, 0, 0, 1, 1, 1, 1},
				       {0, 0, 1, 1, 2, 2, 3, 3},
				       {0, 1, 2, 3, 4, 5, 6, 7}};
	piece ^= turn[o.width == 16 ? 0 : o.width == 32 ? 1 : o.width == 64 ? 2 : 3][line % 8];
	return o.at + groups + line % 8 * o.width + piece * 16 + byte;
}

static int end_of(const struct operand &o)
{
	int end = 0;
	for (int r = 0; r < o.rows; r++)
		for (int k = 0; k < 16 * o.steps; k++)
			end = max(end, place(o, r, k) + 2);
	return end;
}

/* Place atoms one after another, with gaps between some of them. */
static struct operand operand_of(int width, bool across, int rows, int steps, int at, int room)
{
	struct operand o = {width, across, rows, steps, at, 0, 0, 0, 0};
	const int atom = 8 * width;
	if (width == 16) {
		o.stride = 128 + room;                 /* to the next 8 rows */
		o.leading = (rows + 7) / 8 * o.stride; /* to the next 8 k */
		o.step = 2 * o.leading;
	} else if (across) {
		o.stride = atom;                         /* to the next 8 k */
		o.leading = atom * 2 * steps + 8 * room; /* to the next rows */
		o.step = 2 * o.stride;
	} else {
		o.stride = atom + 8 * room;
		o.leading = 16;
		o.step = 32;
	}
	return o;
}

struct wg_args {
	const unsigned char *image;
	int bytes, a_step, b_step, steps;
	int a_at, a_leading, a_stride, a_swizzle, a_base;
	int b_at, b_leading, b_stride, b_swizzle, b_base;
	const uint16_t *a; /* [64][16 steps], for A in registers */
	float *d;          /* [64][N] */
	bool add;
};

template <bool BF16, int N, bool A_TRANS, bool B_TRANS, bool REGS>
static void wgmma_kernel(const struct wg_args w)
{
	const int t = (int)threadIdx.x;
	for (int i = t; i < w.bytes / 4; i += 128)
		((uint32_t *)(void *)kern_smem())[i] = ((const uint32_t *)(const void *)w.image)[i];
	fence_proxy_async_shared();
	block_sync();
	float d[N / 2];
	for (int i = 0; i < N / 2; i++)
		d[i] = w.add ? w.d[wg_row(t, i) * N + wg_col(t, i)] : NAN;
	uint32_t a[2][4] = {};
	for (int s = 0; REGS && s < w.steps; s++)
		for (int i = 0; i < 8; i++) { /* like A of mma.m16n8k16, with 16 rows per warp */
			const int row = t / 32 * 16 + t % 32 / 4 + a_at[i].row,
				  k = s * 16 + t % 4 * 2 + a_at[i].k;
			a[s][i / 2] |= (uint32_t)w.a[row * 16 * w.steps + k] << 16 * (i % 2);
		}
	wgmma_fence();
	for (int s = 0; s < w.steps; s++) {
		const uint64_t b = wgmma_desc(kern_smem() + w.b_at + s * w.b_step, w.b_leading, w.b_stride,
					      w.b_swizzle, w.b_base);
		if constexpr (REGS) {
			wgmma_rs<BF16, N, B_TRANS, 1, -1>(d, a[s], b, w.add || s);
		} else {
			const uint64_t m = wgmma_desc(kern_smem() + w.a_at + s * w.a_step, w.a_leading,
						      w.a_stride, w.a_swizzle, w.a_base);
			wgmma_ss<BF16, N, A_TRANS, B_TRANS, -1, 1>(d, m, b, w.add || s);
		}
	}
	wgmma_commit();
	wgmma_wait<0>();
	for (int i = 0; i < N / 2; i++)
		w.d[wg_row(t, i) * N + wg_col(t, i)] = d[i];
}

/* Check d = -a b (+ d) with small integers, which are exact, so that every element is tested. */
template <bool BF16, int N, bool A_TRANS, bool B_TRANS, bool REGS>
static void check_wgmma(const struct operand &oa, const struct operand &ob, bool add)
{
	const int k_all = 16 * oa.steps;
	std::vector<uint16_t> a((size_t)(64 * k_all)), b((size_t)(N * k_all));
	std::vector<float> d(64 * N), want(64 * N);
	const int bytes = (max(REGS ? 0 : end_of(oa), end_of(ob)) + 15) / 16 * 16;
	std::vector<unsigned char> image((size_t)bytes, 0x7f);
	uint32_t x = 12345;
	auto next = [&x]() { return (float)((int)((x = x * 1664525u + 1013904223u) >> 24) % 17 - 8); };
	for (int r = 0; r < 64; r++)
		for (int k = 0; k < k_all; k++) {
			const uint16_t v = a[(size_t)(r * k_all + k)] = half_of(next(), BF16);
			if (!REGS)
				memcpy(&image[(size_t)place(oa, r, k)], &v, 2);
		}
	for (int n = 0; n < N; n++)
		for (int k = 0; k < k_all; k++) {
			const uint16_t v = b[(size_t)(n * k_all + k)] = half_of(next(), BF16);
			memcpy(&image[(size_t)place(ob, n, k)], &v, 2);
		}
	for (int i = 0; i < 64 * N; i++) {
		d[(size_t)i] = next();
		want[(size_t)i] = add ? d[(size_t)i] : 0;
		for (int k = 0; k < k_all; k++)
			want[(size_t)i] -= float_of(a[(size_t)(i / N * k_all + k)], BF16) *
					   float_of(b[(size_t)(i % N * k_all + k)], BF16);
	}
	buffer bi(image.data(), image.size()), ba(a.data(), a.size() * 2), bd(d.data(), d.size() * 4);
	const struct wg_args w = {(const unsigned char *)bi.p,
				  bytes,
				  oa.step,
				  ob.step,
				  oa.steps,
				  oa.at,
				  oa.leading,
				  oa.stride,
				  swizzle_of(oa.width),
				  oa.base,
				  ob.at,
				  ob.leading,
				  ob.stride,
				  swizzle_of(ob.width),
				  ob.base,
				  (const uint16_t *)ba.p,
				  (float *)bd.p,
				  add};
	void (*const kernel)(const struct wg_args) = wgmma_kernel<BF16, N, A_TRANS, B_TRANS, REGS>;
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	cr_assert(KERN_LAUNCH(kernel, 1, 128, (size_t)bytes, stream(), w) == 0);
	cr_assert(cudaStreamSynchronize(stream()) == cudaSuccess);
	bd.get(d.data());
	for (int i = 0; i < 64 * N; i++)
		cr_assert(d[(size_t)i] == want[(size_t)i],
			  "N %d, A %d %s%s, B %d %s: D[%d][%d] is %f, not %f", N, oa.width,
			  oa.across ? "across" : "along", REGS ? " in registers" : "", ob.width,
			  ob.across ? "across" : "along", i / N, i % N, (double)d[(size_t)i],
			  (double)want[(size_t)i]);
}

static const int widths[] = {16, 32, 64, 128};

static int up_to(int at, int pattern)
{
	return (at + pattern - 1) / pattern * pattern;
}

template <bool BF16, int N, bool A_TRANS, bool B_TRANS> static void check_layouts(void)
{
	for (int wa : widths)
		for (int wb : widths) {
			const int steps = (!A_TRANS && wa == 32) || (!B_TRANS && wb == 32) ? 1 : 2;
			const int room = wa == wb ? 0 : 128;
			const struct operand a = operand_of(wa, A_TRANS, 64, steps, 0, room);
			const struct operand b =
				operand_of(wb, B_TRANS, N, steps, up_to(end_of(a), 1024), room);
			check_wgmma<BF16, N, A_TRANS, B_TRANS, false>(a, b, wa == 64);
			if (!A_TRANS)
				check_wgmma<BF16, N, false, B_TRANS, true>(a, b, wa == 64);
		}
}

Test(wgmma, layouts_of_operands_along_k)
{
	check_layouts<false, 8, false, false>();
	check_layouts<true, 72, false, false>();
}

Test(wgmma, layouts_of_operands_across_k)
{
	check_layouts<false, 64, true, true>();
	check_layouts<true, 128, true, false>();
	check_layouts<false, 192, false, true>();
}

template <int N> static void check_sizes(void)
{
	const struct operand a = operand_of(128, false, 64, 2, 0, 0);
	check_wgmma<false, N, false, false, false>(a, operand_of(128, false, N, 2, end_of(a), 0), true);
	if constexpr (N < 256)
		check_sizes<N + 8>();
}

Test(wgmma, registers_of_every_size)
{
	check_sizes<8>();
}

/* A swizzle pattern that does not begin at its natural alignment. */
Test(wgmma, a_base_offset_moves_the_pattern)
{
	for (int base = 1; base < 8; base++) {
		struct operand a = operand_of(128, false, 64, 2, 128 * base, 0);
		struct operand b = operand_of(128, false, 32, 2, 16384 + 128 * base, 0);
		a.base = b.base = base;
		check_wgmma<false, 32, false, false, false>(a, b, false);
	}
}

/* ---- faults that are detected ---- */

enum wrong {
	FINE,
	READS_EARLY,
	WRITES_EARLY,
	WRITES_OPERAND_EARLY,
	STORES_EARLY,
	NO_FENCE,
	NO_FENCE_AGAIN,
	NO_WAIT,
	THREE_WARPS,
	OTHER_DESCRIPTOR,
	BEYOND,
	ODD_ADDRESS,
	WAITS_FOR_FEWER,
};

/* Two products into d, the second after a change of d and a. */
static void careless_kernel(float *out, int wrong)
{
	const int t = (int)threadIdx.x;
	for (int i = t; i < 1024; i += (int)blockDim.x)
		((uint32_t *)(void *)kern_smem())[i] = 0x3c003c00; /* 1, 1 */
	fence_proxy_async_shared();
	block_sync();
	float d[4] = {1, 1, 1, 1};
	uint32_t a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
	const int shift = wrong == BEYOND ? 4096 - 112 : wrong == ODD_ADDRESS ? 8 : 0;
	const uint64_t b = wgmma_desc(kern_smem() + shift + (wrong == OTHER_DESCRIPTOR && t == 77 ? 16 : 0),
				      128, 128, WGMMA_PLAIN);
	if (wrong == THREE_WARPS && warp_id() == 3)
		return;
	if (wrong != NO_FENCE)
		wgmma_fence();
	wgmma_rs<false, 8>(d, a, b, true);
	wgmma_commit();
	if (wrong == READS_EARLY)
		out[t] = d[0];
	if (wrong == WRITES_EARLY)
		d[3] += 1;
	if (wrong == WRITES_OPERAND_EARLY && t == 50)
		a[2] = 0;
	if (wrong == STORES_EARLY && t == 0)
		((uint16_t *)(void *)kern_smem())[60] = 0;
	if (wrong == WAITS_FOR_FEWER) {
		wgmma_wait<1>();
		out[t] = d[1];
	}
	if (wrong == NO_WAIT)
		return;
	wgmma_wait<0>();
	const float first = d[0];
	d[0] = 2;
	a[1] = 0;
	if (wrong != NO_FENCE_AGAIN)
		wgmma_fence();
	wgmma_rs<false, 8>(d, a, b, true);
	wgmma_commit();
	wgmma_wait<0>();
	if (wrong != READS_EARLY && wrong != WAITS_FOR_FEWER)
		out[t] = first * 100 + d[0] + d[2];
}

static void careless(int wrong, float want)
{
	float got[128] = {};
	buffer out(got, sizeof got);
	cr_assert(KERN_LAUNCH(careless_kernel, 1, 128, 4096, stream(), (float *)out.p, wrong) == 0);
	cr_assert(cudaStreamSynchronize(stream()) == cudaSuccess);
	out.get(got);
	for (int i = 0; i < 128; i++)
		cr_expect(want == want ? got[i] == want : got[i] != got[i], "%d: %f", i, (double)got[i]);
}

/* The first product gives 17 + 100.  Then the rows below lose half of their products: 2 + 16 and 17 + 8. */
Test(wgmma, registers_may_change_between_a_wait_and_a_fence)
{
	careless(FINE, 17 * 100 + 18 + 25);
}

Test(wgmma, accumulators_are_poison_until_their_wait)
{
	careless(READS_EARLY, NAN);
	careless(WAITS_FOR_FEWER, NAN);
}

#define CARELESS(name, wrong)                                                                                \
	Test(wgmma, name, .signal = SIGABRT)                                                                 \
	{                                                                                                    \
		careless(wrong, 0);                                                                          \
	}
CARELESS(an_accumulator_written_before_the_wait_aborts, WRITES_EARLY)
CARELESS(an_operand_register_written_before_the_wait_aborts, WRITES_OPERAND_EARLY)
CARELESS(an_operand_in_shared_memory_written_before_the_wait_aborts, STORES_EARLY)
CARELESS(a_product_without_a_fence_aborts, NO_FENCE)
CARELESS(registers_written_without_a_fence_behind_them_abort, NO_FENCE_AGAIN)
CARELESS(a_block_that_ends_before_the_wait_aborts, NO_WAIT)
CARELESS(a_warpgroup_of_three_warps_aborts, THREE_WARPS)
CARELESS(threads_that_name_other_operands_abort, OTHER_DESCRIPTOR)
CARELESS(an_operand_beyond_shared_memory_aborts, BEYOND)
CARELESS(an_operand_that_is_not_aligned_aborts, ODD_ADDRESS)

Test(wgmma, a_block_of_three_warps_aborts, .signal = SIGABRT)
{
	float got[128] = {};
	buffer out(got, sizeof got);
	cr_assert(KERN_LAUNCH(careless_kernel, 1, 96, 4096, stream(), (float *)out.p, 0) == 0);
	cudaStreamSynchronize(stream());
}
