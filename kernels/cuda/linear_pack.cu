/* linear_pack.cu - converts stored weights to the layout that the kernels read (linear.cuh draws both).
 *
 * A layer's weights are uploaded unchanged to a buffer on the device and packed there; the buffer is then
 * freed.  At most one segment exists twice in memory. */
#include "kernels/cuda/linear.cuh"

#include <stdlib.h>

enum { PACK_THREADS = 256 };

/* ---- kernels ---- */

/* AWQ weights as stored, on the device. */
struct pack_awq {
	struct lin_seg seg;
	const uint32_t *qweight[3]; /* [k][n/8] */
	const uint32_t *qzeros[3];  /* [groups][n/8] */
	const uint16_t *scales[3];  /* [groups][n] */
	int groups;
};

/* Return code i of a row; column c of eight is nibble {0, 4, 1, 5, 2, 6, 3, 7}[c] of a word. */
static __device__ __forceinline__ uint32_t pack_nibble(const uint32_t *words, int row, int n, int i)
{
	const int c = i & 7, at = (c & 1) * 4 + (c >> 1);
	return words[(size_t)row * (size_t)(n / 8) + (size_t)(i / 8)] >> (4 * at) & 15;
}

/* Pack one lane's 16 bytes of a unit per thread. */
static __global__ void __launch_bounds__(PACK_THREADS)
	linear_pack_awq_kernel(const struct pack_awq a, uint4 *out)
{
	const struct lin_seg &s = a.seg;
	const size_t at = (size_t)blockIdx.x * PACK_THREADS + threadIdx.x;
	if (at >= (size_t)s.n_cols * (size_t)s.units * 32)
		return;
	const int lane = (int)(at % 32), u = (int)(at / 32 % (size_t)s.units),
		  col = (int)(at / 32 / (size_t)s.units);
	const int g = lane >> 2, t = lane & 3;
	uint32_t word[4] = {0, 0, 0, 0};
	for (int j = 0; j < 4; j++)
		for (int b = 0; b < 8; b++) {
			/* b: bit 0: second register along k; bit 1: row g + 8; bit 2: second of the pair */
			const int k =
				LIN_UNIT * u + 32 * (j >> 1) + 8 * t + 4 * (j & 1) + 2 * (b & 1) + (b >> 2);
			int p;
			const int i = lin_output(s, col, 2 * g + (b >> 1 & 1), &p);
			if (i >= 0 && k < s.k)
				word[j] |= pack_nibble(a.qweight[p], k, s.parts[p].n, i) << (4 * b);
		}
	out[at] = make_uint4(word[0], word[1], word[2], word[3]);
}

/* Pack the scales and zeros of a lane's two places for four groups per thread. */
static __global__ void __launch_bounds__(PACK_THREADS)
	linear_pack_scales_kernel(const struct pack_awq a, uint4 *scales, uint32_t *zeros)
{
	const struct lin_seg &s = a.seg;
	const size_t at = (size_t)blockIdx.x * PACK_THREADS + threadIdx.x;
	if (at >= (size_t)s.n_cols * (size_t)s.quads * 8)
		return;
	const int g = (int)(at % 8), quad = (int)(at / 8 % (size_t)s.quads),
		  col = (int)(at / 8 / (size_t)s.quads);
	uint32_t pair[4] = {0, 0, 0, 0}, zero = 0;
	for (int b = 0; b < 8; b++) {
		const int group = 4 * quad + (b >> 1);
		int p;
		const int i = lin_output(s, col, 2 * g + (b & 1), &p);
		if (i < 0 || group >= a.groups)
			continue;
		pair[b >> 1] |= (uint32_t)a.scales[p][(size_t)group * (size_t)s.parts[p].n + (size_t)i]
				<< (16 * (b & 1));
		zero |= pack_nibble(a.qzeros[p], group, s.parts[p].n, i) << (4 * b);
	}
	scales[at] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
	zeros[at] = zero;
}

/* Conversion of [n][k] of any float type to [n][ldw] of the operand type, with zeros after k. */
struct pack_rows {
	const void *from;
	enum kern_dtype type;
	uint16_t *to;
	int k, ldw, n;
	bool bf16;
};

static __global__ void __launch_bounds__(PACK_THREADS) linear_pack_rows_kernel(const struct pack_rows a)
{
	const size_t at = (size_t)blockIdx.x * PACK_THREADS + threadIdx.x;
	const int row = (int)(at / (size_t)a.ldw), i = (int)(at % (size_t)a.ldw);
	if (row >= a.n)
		return;
	const size_t from = (size_t)row * (size_t)a.k + (size_t)i;
	uint16_t v = 0;
	if (i < a.k && a.type == (a.bf16 ? KERN_BF16 : KERN_F16)) {
		v = ((const uint16_t *)a.from)[from]; /* copies every bit, of a NaN too */
	} else if (i < a.k) {
		const float f = a.type == KERN_F32   ? ((const float *)a.from)[from]
				: a.type == KERN_F16 ? f32_of_f16(((const uint16_t *)a.from)[from])
						     : f32_of_bf16(((const uint16_t *)a.from)[from]);
		v = a.bf16 ? bf16_of_f32(f) : f16_of_f32(f);
	}
	a.to[at] = v;
}

static unsigned pack_blocks(size_t threads)
{
	return (unsigned)((threads + PACK_THREADS - 1) / PACK_THREADS);
}

int lin_pad_rows(cudaStream_t s, void *dst, int ldw, const void *src, int k, int rows)
{
	const struct pack_rows a = {src, KERN_F16, (uint16_t *)dst, k, ldw, rows, false};
	return KERN_LAUNCH(linear_pack_rows_kernel, dim3(pack_blocks((size_t)rows * (size_t)ldw)),
			   dim3(PACK_THREADS), 0, s, a);
}

/* ---- memory ---- */

void *lin_own(struct kern_linear *w, size_t bytes)
{
	struct cuda_buf *b = &w->owned[w->n_owned];
	if (w->layer == 0) {
		b->bytes = bytes * (size_t)max(w->n_layers, 1);
		b->p = cuda_mem_new(w->dev, b->bytes);
	}
	if (!b->p)
		return NULL;
	w->n_owned++;
	return (unsigned char *)b->p + (size_t)w->layer * bytes;
}

void lin_stage_free(struct kern_linear *w)
{
	for (size_t i = 0; i < sizeof w->stage / sizeof w->stage[0]; i++) {
		cuda_mem_free(w->dev, w->stage[i].p, w->stage[i].bytes);
		w->stage[i] = cuda_buf();
	}
}

int64_t cuda_linear_bytes(const struct kern_linear *w)
{
	int64_t n = 0;
	for (int i = 0; i < w->n_owned; i++)
		n += (int64_t)w->owned[i].bytes;
	return n;
}

void cuda_linear_free(struct kern_linear *w)
{
	if (!w)
		return;
	lin_stage_free(w);
	for (int i = 0; i < w->n_owned; i++)
		cuda_mem_free(w->dev, w->owned[i].p, w->owned[i].bytes);
	free(w);
}

/* Memory that is on the device only while packing: w->stage. */
struct pack_stage {
	struct kern_linear *w;
	cudaStream_t s;
	int n;
};

static int stage_open(struct pack_stage *t, struct kern_linear *w)
{
	*t = pack_stage();
	t->w = w;
	return cuda_check(cudaStreamCreateWithFlags(&t->s, cudaStreamNonBlocking),
			  "a stream to pack weights in");
}

/* Return 0 if all queued work succeeded.  A stack keeps the memory until its last layer is packed. */
static int stage_close(struct pack_stage *t)
{
	int e = cuda_check(cudaStreamSynchronize(t->s), "packing weights");
	if (!t->w->n_layers)
		lin_stage_free(t->w);
	cudaStreamDestroy(t->s);
	return e;
}

static int stage_upload(struct pack_stage *t, const void *host, size_t bytes, const void **out,
			const char *name, struct why *why)
{
	struct cuda_buf *b = &t->w->stage[t->n++];
	if (b->bytes < bytes && cuda_buf_reserve(t->w->dev, b, bytes))
		return err_why(why, -ENOMEM, "%s: no device memory to pack %zu bytes of weights", name,
			       bytes);
	*out = b->p;
	if (cuda_upload_now(t->w->dev, b->p, host, bytes))
		return err_why(why, -EIO, "%s: the weights could not be copied to the device", name);
	return 0;
}

/* ---- segments ---- */

static int no_memory(const struct kern_linear_src *src, size_t bytes, struct why *why)
{
	return err_why(why, -ENOMEM, "%s: no device memory for %zu bytes of weights", src->name, bytes);
}

static int stage_awq(struct pack_stage *t, struct pack_awq *a, const struct kern_linear_src *src, int first,
		     struct why *why)
{
	for (int i = 0; i < a->seg.n_parts; i++) {
		const struct kern_linear_part *p = &src->parts[first + i];
		const size_t row = (size_t)(p->n / 8) * 4, groups = (size_t)a->groups;
		const void *q = NULL, *z = NULL, *s = NULL;
		int e = stage_upload(t, p->w, (size_t)src->k * row, &q, src->name, why);
		if (!e)
			e = stage_upload(t, p->qzeros, groups * row, &z, src->name, why);
		if (!e)
			e = stage_upload(t, p->scales, groups * (size_t)p->n * 2, &s, src->name, why);
		if (e)
			return e;
		a->qweight[i] = (const uint32_t *)q;
		a->qzeros[i] = (const uint32_t *)z;
		a->scales[i] = (const uint16_t *)s;
	}
	return 0;
}

static int pack_awq_seg(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src,
			int first, struct pack_stage *t, struct why *why)
{
	const int group = src->group < src->k ? src->group : src->k;
	struct pack_awq a = {};
	a.groups = (src->k + group - 1) / group;
	const size_t n_w = (size_t)seg->n_cols * (size_t)seg->units * 32;
	const size_t n_s = (size_t)seg->n_cols * (size_t)seg->quads * 8;
	uint4 *out = (uint4 *)lin_own(w, n_w * 16), *scales = (uint4 *)lin_own(w, n_s * 16);
	uint32_t *zeros = (uint32_t *)lin_own(w, n_s * 4);
	if (!out || !scales || !zeros)
		return no_memory(src, n_w * 16 + n_s * 20, why);
	seg->w = out;
	seg->scales = scales;
	seg->zeros = zeros;
	a.seg = *seg;
	int e = stage_awq(t, &a, src, first, why);
	if (e)
		return e;
	e = KERN_LAUNCH(linear_pack_awq_kernel, dim3(pack_blocks(n_w)), dim3(PACK_THREADS), 0, t->s, a, out);
	if (!e)
		e = KERN_LAUNCH(linear_pack_scales_kernel, dim3(pack_blocks(n_s)), dim3(PACK_THREADS), 0,
				t->s, a, scales, zeros);
	return e ? err_why(why, e, "%s: the weights could not be packed", src->name) : 0;
}

static int pack_rows_seg(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src,
			 int first, struct pack_stage *t, struct why *why)
{
	const size_t row = (size_t)seg->ldw * 2;
	size_t rows = 0;
	for (int i = 0; i < seg->n_parts; i++)
		rows += (size_t)(w->n_layers ? lin_stack_rows(*seg) : seg->parts[i].n);
	/* The parts of a single layer are adjacent, so that they can be read as one matrix.  Those of a stack
	 * are separate, so that each part is one matrix of all experts. */
	uint16_t *out = w->n_layers ? NULL : (uint16_t *)lin_own(w, rows * row);
	for (int i = 0; i < seg->n_parts; out += (size_t)seg->parts[i++].n * (size_t)seg->ldw) {
		if (w->n_layers)
			out = (uint16_t *)lin_own(w, (size_t)lin_stack_rows(*seg) * row);
		if (!out)
			return no_memory(src, rows * row, why);
		const struct kern_linear_part *p = &src->parts[first + i];
		const size_t from = (size_t)p->n * (size_t)src->k * (p->dtype == KERN_F32 ? 4 : 2);
		const size_t threads = (size_t)p->n * (size_t)seg->ldw;
		const void *raw;
		seg->parts[i].w = out;
		if (p->dtype == w->dev->operand && seg->ldw == src->k) {
			if (cuda_upload_now(w->dev, out, p->w, from))
				return err_why(why, -EIO, "%s: the weights could not be copied to the device",
					       src->name);
			continue;
		}
		int e = stage_upload(t, p->w, from, &raw, src->name, why);
		if (e)
			return e;
		const struct pack_rows a = {raw, p->dtype, out, src->k, seg->ldw, p->n, cuda_is_bf16(w->dev)};
		e = KERN_LAUNCH(linear_pack_rows_kernel, dim3(pack_blocks(threads)), dim3(PACK_THREADS), 0,
				t->s, a);
		if (e)
			return err_why(why, e, "%s: the weights could not be packed", src->name);
	}
	return 0;
}

int lin_pack(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src, int first,
	     struct why *why)
{
	struct pack_stage t;
	int e = stage_open(&t, w);
	if (e)
		return err_why(why, e, "%s: no stream to pack the weights in", src->name);
	if (seg->kind == LIN_AWQ)
		e = pack_awq_seg(w, seg, src, first, &t, why);
	else
		e = pack_rows_seg(w, seg, src, first, &t, why);
	int late = stage_close(&t);
	if (late && !e)
		e = err_why(why, late, "%s: the weights could not be packed", src->name);
	return e;
}
