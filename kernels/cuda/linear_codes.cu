/* linear_codes.cu - converts stored codes to the layout that the kernels read (linear_codes.cuh draws both).
 *
 * The host reads codes by ranges of outputs, one byte per code, and uploads them; the device packs them.  At
 * most CHUNK_BYTES of a layer exist twice. */
#include "kernels/cuda/linear_codes.cuh"

#include <assert.h>
#include <stdlib.h>

extern "C" {
#include "base/codes.h"
#include "kernels/half.h"
}

enum {
	PACK_THREADS = 256,
	CHUNK_BYTES = 8 << 20,
};

static bool is_e2m1(const float *table)
{
	bool same = table != NULL;
	for (int i = 0; same && i < 16; i++)
		same = table[i] <= codes_e2m1[i] && table[i] >= codes_e2m1[i];
	return same;
}

/* Return whether groups are whole steps of the kernels, or whole rows. */
static bool is_flat(const struct codes *c)
{
	return c->super == c->group && (c->group % 32 == 0 || c->group >= c->k);
}

/* Return whether codes are AWQ's except for their order: 4 bits, with a scale and a zero for each group.
 * With scales in F16 and 8 for all zeros they are Q4_0's instead. */
static bool is_awq(const struct codes *c)
{
	return c->bits == 4 && !c->table && !c->perm && !c->minimums && is_flat(c) && c->zero < 16 &&
	       (c->d_type == CODES_BF16 || (c->d_type == CODES_F16 && c->zero != 8));
}

static bool is_kind(const struct codes *c, const struct lin_code_kind &k)
{
	if (c->perm || c->bits != k.bits || c->minimums != (k.zero < 0) ||
	    c->d_type != (k.e2m1 ? CODES_BF16 : CODES_F16) ||
	    (k.e2m1 ? !is_e2m1(c->table) : c->table != NULL))
		return false;
	if (!c->minimums && c->zero != k.zero)
		return false;
	return k.super ? c->super == k.super && c->group == k.group && c->k % k.super == 0 : is_flat(c);
}

enum lin_kind lin_kind_of_codes(const struct codes *c)
{
	int kind = LIN_AWQ;
	if (!is_awq(c))
		for (kind++; kind < LIN_KINDS && !is_kind(c, lin_code_kinds[kind]); kind++)
			;
	return (enum lin_kind)kind;
}

/* ---- kernels ---- */

/* Outputs row0 .. row0 + n - 1 of a part, as read, on the device. */
struct pack_rows {
	const uint8_t *code;
	const int16_t *scale, *offset;
	const float *d, *dmin;
	int row0, n;
	int group, super, groups, supers;
};

struct pack_codes {
	struct lin_seg seg;
	struct lin_code_kind kind;
	struct pack_rows part[3];
	int col0, n_cols; /* columns of the segment that these outputs fill */
	bool bf16;
	uint4 *w, *scales;
	uint2 *heads;
	uint32_t *zeros; /* AWQ only */
};

/* Return the row at place q of a column and set its part; -1: none, or padding. */
static __device__ __forceinline__ int row_at(const struct pack_codes &a, int col, int q, int *part)
{
	const int i = lin_output(a.seg, col, q, part), row = i - a.part[*part].row0;
	return i >= 0 && row >= 0 && row < a.part[*part].n ? row : -1;
}

/* Pack one lane's share of a unit per thread. */
static __global__ void __launch_bounds__(PACK_THREADS) linear_pack_codes_kernel(const struct pack_codes a)
{
	const struct lin_seg &s = a.seg;
	const size_t at = (size_t)blockIdx.x * PACK_THREADS + threadIdx.x;
	if (at >= (size_t)a.n_cols * (size_t)s.units * 32)
		return;
	const int lane = (int)(at % 32), u = (int)(at / 32 % (size_t)s.units),
		  col = a.col0 + (int)(at / 32 / (size_t)s.units);
	const int g = lane >> 2, t = lane & 3;
	const bool sixteens = a.kind.group == 16, eight = a.kind.bits == 8;
	uint32_t word[8] = {0, 0, 0, 0, 0, 0, 0, 0}, high[2] = {0, 0};
	for (int j = 0; j < 4; j++)
		for (int b = 0; b < 8; b++) {
			/* b as in linear_pack_awq_kernel(); r: the register */
			const int h = j >> 1, p = j & 1, second = b >> 2, r = 2 * (b & 1) + (b >> 1 & 1);
			const int in_half = sixteens ? 16 * p + 4 * t : 8 * t + 4 * p;
			const int k = LIN_UNIT * u + 32 * h + in_half + 2 * (b & 1) + second;
			int part;
			const int row = row_at(a, col, 2 * g + (b >> 1 & 1), &part);
			if (row < 0 || k >= s.k)
				continue;
			const uint32_t code = a.part[part].code[(size_t)row * (size_t)s.k + (size_t)k];
			if (eight) {
				word[2 * j + (b & 1)] |= (a.bf16 ? code ^ 128 : code)
							 << 8 * (2 * second + (r & 1));
			} else {
				word[j] |= (code & 15) << 4 * b;
				high[h] |= (code >> 4 & 3) << (16 * second + 2 * (4 * p + r));
			}
		}
	uint4 *to = a.w + ((size_t)col * (size_t)s.units + (size_t)u) * (size_t)(a.kind.unit_bytes / 16);
	to[lane] = make_uint4(word[0], word[1], word[2], word[3]);
	if (eight)
		to[32 + lane] = make_uint4(word[4], word[5], word[6], word[7]);
	if (sixteens)
		((uint2 *)(void *)(to + 32))[lane] = make_uint2(high[0], high[1]);
}

/* Pack the scales of a lane's two places for a chunk of 128 inputs per thread. */
static __global__ void __launch_bounds__(PACK_THREADS) linear_pack_heads_kernel(const struct pack_codes a)
{
	const struct lin_seg &s = a.seg;
	const size_t at = (size_t)blockIdx.x * PACK_THREADS + threadIdx.x;
	if (at >= (size_t)a.n_cols * (size_t)s.quads * 8)
		return;
	const int g = (int)(at % 8), chunk = (int)(at / 8 % (size_t)s.quads),
		  col = a.col0 + (int)(at / 8 / (size_t)s.quads);
	const bool supers = a.kind.super > 0, minimums = a.kind.zero < 0;
	uint32_t word[4] = {0, 0, 0, 0}, d = 0, dmin = 0;
	for (int e = 0; e < 2; e++) {
		int part;
		const int row = row_at(a, col, 2 * g + e, &part);
		if (row < 0)
			continue;
		const struct pack_rows &p = a.part[part];
		const int16_t *scale = p.scale + (size_t)row * (size_t)p.groups;
		const int16_t *offset = p.offset + (size_t)row * (size_t)p.groups;
		const float *of = p.d + (size_t)row * (size_t)p.supers;
		for (int h = 0; h < 4; h++) {
			const int k = CODE_CHUNK * chunk + 32 * h, i = k / p.group;
			if (k >= s.k)
				break;
			if (minimums)
				word[h] |= (uint32_t)scale[i] << 8 * e | (uint32_t)offset[i] << (16 + 8 * e);
			else if (supers)
				word[h] |= (uint32_t)(scale[i] + 128) << 8 * e |
					   (uint32_t)(scale[i + 1] + 128) << (16 + 8 * e);
			else if (a.kind.e2m1)
				word[h] |= (uint32_t)bf16_of_f32(of[k / p.super]) << 16 * e;
			else
				word[h] |= (uint32_t)f16_of_f32(of[k / p.super]) << 16 * e;
		}
		if (supers)
			d |= (uint32_t)f16_of_f32(of[chunk / 2]) << 16 * e;
		if (minimums)
			dmin |= (uint32_t)f16_of_f32(
					p.dmin[(size_t)row * (size_t)p.supers + (size_t)(chunk / 2)])
				<< 16 * e;
	}
	a.scales[((size_t)col * (size_t)s.quads + (size_t)chunk) * 8 + (size_t)g] =
		make_uint4(word[0], word[1], word[2], word[3]);
	if (supers && chunk % 2 == 0)
		a.heads[((size_t)col * (size_t)(s.quads / 2) + (size_t)(chunk / 2)) * 8 + (size_t)g] =
			make_uint2(d, dmin);
}

/* AWQ: pack the scales and zeros of a lane's two places for four groups per thread. */
static __global__ void __launch_bounds__(PACK_THREADS) linear_pack_groups_kernel(const struct pack_codes a)
{
	const struct lin_seg &s = a.seg;
	const size_t at = (size_t)blockIdx.x * PACK_THREADS + threadIdx.x;
	if (at >= (size_t)a.n_cols * (size_t)s.quads * 8)
		return;
	const int g = (int)(at % 8), quad = (int)(at / 8 % (size_t)s.quads),
		  col = a.col0 + (int)(at / 8 / (size_t)s.quads);
	uint32_t pair[4] = {0, 0, 0, 0}, zero = 0;
	for (int b = 0; b < 8; b++) {
		int part;
		const int row = row_at(a, col, 2 * g + (b & 1), &part), group = 4 * quad + (b >> 1);
		if (row < 0 || group >= a.part[part].groups)
			continue;
		const size_t i = (size_t)row * (size_t)a.part[part].groups + (size_t)group;
		pair[b >> 1] |= (uint32_t)f16_of_f32(a.part[part].d[i]) << (16 * (b & 1));
		zero |= (uint32_t)a.part[part].offset[i] << (4 * b);
	}
	const size_t to = ((size_t)col * (size_t)s.quads + (size_t)quad) * 8 + (size_t)g;
	a.scales[to] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
	a.zeros[to] = zero;
}

/* ---- a range of outputs ---- */

/* A part's rows, on the host and on the device, with room for `most` of them. */
struct range {
	const struct codes *c;
	int most;
	struct code_rows host;
	struct cuda_buf own[5], *dev; /* code, scale, offset, d, dmin; dev: own, or the stage of a stack */
};

static void range_sizes(const struct range *r, int n, size_t bytes[5])
{
	const size_t rows = (size_t)n, groups = (size_t)codes_groups(r->c),
		     supers = (size_t)codes_supers(r->c);
	bytes[0] = rows * (size_t)r->c->k;
	bytes[1] = bytes[2] = rows * groups * sizeof(int16_t);
	bytes[3] = rows * supers * sizeof(float);
	bytes[4] = r->c->minimums ? bytes[3] : 0;
}

static int range_open(struct range *r, struct kern_dev *d, const struct codes *c, struct cuda_buf *stage)
{
	size_t bytes[5];
	r->c = c;
	r->dev = stage ? stage : r->own;
	r->most = (int)min((int64_t)c->n, max((int64_t)1, (int64_t)CHUNK_BYTES / c->k / LIN_COL) * LIN_COL);
	codes_rows_new(&r->host, c, r->most);
	range_sizes(r, r->most, bytes);
	for (int i = 0; i < 5; i++)
		if (cuda_buf_reserve(d, &r->dev[i], bytes[i]))
			return -ENOMEM;
	return 0;
}

static void range_close(struct range *r, struct kern_dev *d)
{
	if (!r->c)
		return;
	codes_rows_free(&r->host);
	for (int i = 0; i < 5; i++)
		cuda_mem_free(d, r->own[i].p, r->own[i].bytes);
}

/* Return whether F16 represents these values exactly. */
static bool fit_f16(const float *v, size_t n)
{
	bool fit = true;
	for (size_t i = 0; i < n; i++) {
		const float f = half_from_f16(half_near_f16(v[i]));
		fit &= f >= v[i] && f <= v[i];
	}
	return fit;
}

/* Return whether the kind has room for the scales, zeros and minimums. */
static bool range_fits(const struct range *r, enum lin_kind kind, int n)
{
	const size_t all = (size_t)n * (size_t)codes_groups(r->c);
	const int16_t *s = r->host.scale, *m = r->host.offset;
	const bool supers = lin_code_kinds[kind].super > 0, minimums = lin_code_kinds[kind].zero < 0;
	bool fits = true;
	for (size_t i = 0; i < all; i++) {
		if (minimums)
			fits &= (s[i] & ~255) == 0 && (m[i] & ~255) == 0;
		else if (supers)
			fits &= s[i] >= -128 && s[i] <= 127;
		else
			fits &= s[i] == 1 && (kind != LIN_AWQ || (m[i] & ~15) == 0);
	}
	return fits && (kind != LIN_AWQ || fit_f16(r->host.d, all));
}

/* Read outputs row0 .. row0 + n - 1 and upload them: 0, -ENOTSUP, -EIO. */
static int range_read(struct range *r, struct kern_dev *d, enum lin_kind kind, int row0, int n,
		      struct pack_rows *out)
{
	const void *from[5] = {r->host.code, r->host.scale, r->host.offset, r->host.d, r->host.dmin};
	size_t bytes[5];
	r->c->read(r->c, row0, row0 + n, &r->host);
	if (!range_fits(r, kind, n))
		return -ENOTSUP;
	range_sizes(r, n, bytes);
	for (int i = 0; i < 5; i++)
		if (bytes[i] && cuda_upload_now(d, r->dev[i].p, from[i], bytes[i]))
			return -EIO;
	*out = (struct pack_rows){(const uint8_t *)r->dev[0].p,
				  (const int16_t *)r->dev[1].p,
				  (const int16_t *)r->dev[2].p,
				  (const float *)r->dev[3].p,
				  (const float *)r->dev[4].p,
				  row0,
				  n,
				  r->c->group,
				  r->c->super,
				  codes_groups(r->c),
				  codes_supers(r->c)};
	return 0;
}

/* ---- a segment ---- */

static unsigned pack_blocks(size_t threads)
{
	return (unsigned)((threads + PACK_THREADS - 1) / PACK_THREADS);
}

static int pack_columns(const struct pack_codes &a, cudaStream_t s)
{
	const size_t cols = (size_t)a.n_cols;
	int e = KERN_LAUNCH(linear_pack_codes_kernel, dim3(pack_blocks(cols * (size_t)a.seg.units * 32)),
			    dim3(PACK_THREADS), 0, s, a);
	const dim3 scales(pack_blocks(cols * (size_t)a.seg.quads * 8));
	if (!e && a.zeros)
		e = KERN_LAUNCH(linear_pack_groups_kernel, scales, dim3(PACK_THREADS), 0, s, a);
	else if (!e)
		e = KERN_LAUNCH(linear_pack_heads_kernel, scales, dim3(PACK_THREADS), 0, s, a);
	/* the buffers that the kernels read are written again for the next columns */
	return e ? e : cuda_check(cudaStreamSynchronize(s), "packing codes");
}

/* Pack parts p0 .. p0 + n - 1, which share columns: one part, or both parts of a paired layer. */
static int pack_parts(struct kern_dev *d, struct pack_codes *a, struct range *r, int p0, int n,
		      cudaStream_t s)
{
	const struct lin_part *part = &a->seg.parts[p0];
	const int each = LIN_COL / n; /* outputs per column */
	int most = part->n, e = 0;
	for (int i = 0; i < n; i++)
		most = min(most, max(r[p0 + i].most / each, 1) * each);
	for (int row = 0; row < part->n && !e; row += most) {
		const int rows = min(most, part->n - row);
		for (int i = 0; i < n && !e; i++)
			e = range_read(&r[p0 + i], d, a->seg.kind, row, rows, &a->part[p0 + i]);
		a->col0 = part->col0 + row / each;
		a->n_cols = (rows + each - 1) / each;
		e = e ? e : pack_columns(*a, s);
	}
	return e;
}

static int pack_new(struct kern_linear *w, struct lin_seg *seg, struct pack_codes *a)
{
	const struct lin_code_kind *kind = &lin_code_kinds[seg->kind];
	const bool awq = seg->kind == LIN_AWQ;
	const size_t cols = (size_t)seg->n_cols;
	if (!awq)
		seg->quads = (seg->units + 1) / 2;
	const size_t n_w = cols * (size_t)seg->units * (size_t)kind->unit_bytes;
	const size_t n_s = cols * (size_t)seg->quads * 128, n_h = kind->super ? n_s / 4 : 0;
	a->w = (uint4 *)lin_own(w, n_w);
	a->scales = (uint4 *)lin_own(w, n_s);
	a->heads = n_h ? (uint2 *)lin_own(w, n_h) : NULL;
	a->zeros = awq ? (uint32_t *)lin_own(w, n_s / 4) : NULL;
	seg->w = a->w;
	seg->scales = a->scales;
	seg->heads = a->heads;
	seg->zeros = a->zeros;
	a->seg = *seg;
	a->kind = *kind;
	a->bf16 = cuda_is_bf16(w->dev);
	return a->w && a->scales && (a->heads || !n_h) && (a->zeros || !awq) ? 0 : -ENOMEM;
}

int lin_pack_codes(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src, int first,
		   struct why *why)
{
	struct pack_codes a = {};
	struct range r[3] = {};
	cudaStream_t s = NULL;
	int e = cuda_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "a stream to pack codes in");
	if (!e)
		e = pack_new(w, seg, &a);
	assert(!w->n_layers || 5 * seg->n_parts <= (int)(sizeof w->stage / sizeof w->stage[0]));
	for (int i = 0; i < seg->n_parts && !e; i++)
		e = range_open(&r[i], w->dev, (const struct codes *)src->parts[first + i].w,
			       /* a stack keeps the stage until its last layer */
			       w->n_layers ? &w->stage[5 * i] : NULL);
	for (int i = 0; i < seg->n_parts && !e; i += seg->paired ? 2 : 1)
		e = pack_parts(w->dev, &a, r, i, seg->paired ? 2 : 1, s);
	for (int i = 0; i < seg->n_parts; i++)
		range_close(&r[i], w->dev);
	if (s)
		cudaStreamDestroy(s);
	if (e == -ENOMEM)
		return err_why(why, e, "%s: no device memory for the weights", src->name);
	if (e == -ENOTSUP)
		return err_why(why, e, "%s: a scale of the codes is none that the CUDA kernels know",
			       src->name);
	return e ? err_why(why, e, "%s: the weights could not be packed", src->name) : 0;
}
