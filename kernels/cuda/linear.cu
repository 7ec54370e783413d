/* linear.cu - linear layers on the device: loading, and choosing the kernel that computes a layer. */
#include "kernels/cuda/linear_codes.cuh"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "base/alloc.h"
#include "kernels/half.h"
}

/* ---- slices of a shape: they decide bits ---- */

/* The number of slices that K is cut into, by columns of the segment.  One row should have enough warps to
 * keep the memory busy on 130 multiprocessors: 1,500 or more for AWQ and other codes, where a warp's
 * instructions count; half as many for F16, which has four times the bytes per instruction.  More slices cost
 * time at many rows, where a block adds them up.  Estimated, not measured.  A new architecture gets its own
 * lines; changing a line changes the bits of every layer it covers. */
static const struct slices_row {
	int cc_min; /* applies from this compute capability on */
	int cols_max;
	int codes, dense;
} slices_table[] = {
	{90, 128, 8, 8}, {90, 512, 8, 4}, {90, 1024, 4, 2}, {90, 2048, 2, 1}, {90, INT_MAX, 1, 1},
	{0, 128, 8, 8},  {0, 512, 8, 4},  {0, 1024, 4, 2},  {0, 2048, 2, 1},  {0, INT_MAX, 1, 1},
};

/* Return the slices of a segment.  A slice has at least two units: a smaller one costs more than it gains. */
static int slices_of(const struct kern_dev *d, const struct lin_seg *s)
{
	const struct slices_row *r = slices_table;
	while (d->cc < r->cc_min || s->n_cols > r->cols_max)
		r++;
	int n = s->kind == LIN_DENSE ? r->dense : r->codes;
	while (n > 1 && (s->units < 2 * n || s->units < s->quantum * n))
		n /= 2;
	assert(n <= LIN_SLICES_MAX);
	return n;
}

/* ---- blocks of a shape ---- */

/* Return the blocks for tiles of `rows` rows, with all slices in each. */
static int tile_blocks(const struct lin_seg *s, int m, int rows)
{
	return (m + rows - 1) / rows * ((s->n_cols + lin_tile_cols(rows) - 1) / lin_tile_cols(rows));
}

/* Return the most rows with slices spread over blocks.  Above LIN_PARTIAL_ROWS_WIDE slices are spread only if
 * tiles would leave half of the multiprocessors idle; otherwise sums would go through memory for nothing. */
static int partial_rows(const struct kern_dev *d, const struct lin_seg *s)
{
	const bool few = 2 * tile_blocks(s, LIN_PARTIAL_ROWS_WIDE + 1, 64) <= d->sms;
	return few ? LIN_PARTIAL_ROWS : LIN_PARTIAL_ROWS_WIDE;
}

/* ---- load ---- */

/* Read a caller's type as an int: it may be none of the enum's values, which C++ must not load as the
 * enum. */
static int type_of(const enum kern_dtype *t)
{
	int v;
	memcpy(&v, t, sizeof v);
	return v;
}

static bool is_float(int type)
{
	return type == KERN_F32 || type == KERN_F16 || type == KERN_BF16;
}

static int check_codes(const struct kern_linear_src *src, const struct kern_linear_part *p, struct why *why)
{
	const struct codes *c = (const struct codes *)p->w;
	if (c->n != p->n || c->k != src->k || c->group <= 0 || c->super <= 0)
		return err_why(why, -EINVAL, "%s: codes of %d x %d in a layer of %d x %d", src->name, c->n,
			       c->k, p->n, src->k);
	if (p->bias && !is_float(type_of(&p->bias_dtype)))
		return err_why(why, -EINVAL, "%s: a bias of type %d", src->name, type_of(&p->bias_dtype));
	if (lin_kind_of_codes(c) == LIN_KINDS)
		return err_why(why, -ENOTSUP,
			       "%s: codes of %d bits in groups of %d are not known to the CUDA kernels",
			       src->name, c->bits, c->group);
	return 0;
}

static int check_part(const struct kern_linear_src *src, int i, struct why *why)
{
	const struct kern_linear_part *p = &src->parts[i];
	const int type = type_of(&p->dtype), bias_type = type_of(&p->bias_dtype);
	if (p->n <= 0 || !p->w)
		return err_why(why, -EINVAL, "%s: part %d has %d outputs", src->name, i, p->n);
	if (type == KERN_CODES)
		return check_codes(src, p, why);
	if (!is_float(type) && type != KERN_AWQ4)
		return err_why(why, -ENOTSUP, "%s: weights of type %d are not known to the CUDA kernels",
			       src->name, type);
	if (p->bias && !is_float(bias_type))
		return err_why(why, -EINVAL, "%s: a bias of type %d", src->name, bias_type);
	if (type != KERN_AWQ4)
		return 0;
	if (p->n % 8 || src->group <= 0 || !p->qzeros || !p->scales)
		return err_why(why, -EINVAL,
			       "%s: AWQ needs outputs in eights, a group size, zeros and scales (%d outputs, "
			       "group %d)",
			       src->name, p->n, src->group);
	if (src->group < src->k && src->group % 32)
		return err_why(
			why, -ENOTSUP,
			"%s: groups of %d inputs: the CUDA kernels take multiples of 32, and whole rows",
			src->name, src->group);
	return 0;
}

static int check(const struct kern_linear_src *src, struct why *why)
{
	int64_t n = 0;
	if (src->k <= 0 || src->k > INT_MAX - LIN_UNIT || src->n_parts < 1 || src->n_parts > 3)
		return err_why(why, -EINVAL, "%s: %d inputs, %d parts", src->name, src->k, src->n_parts);
	for (int i = 0; i < src->n_parts; i++) {
		int e = check_part(src, i, why);
		if (e)
			return e;
		n += src->parts[i].n;
	}
	if (n > INT_MAX - LIN_COL)
		return err_why(why, -EINVAL, "%s: %lld outputs", src->name, (long long)n);
	return 0;
}

static enum lin_kind kind_of(const struct kern_linear_part *p)
{
	if (p->dtype == KERN_CODES)
		return lin_kind_of_codes((const struct codes *)p->w);
	return p->dtype == KERN_AWQ4 ? LIN_AWQ : LIN_DENSE;
}

/* Return the inputs of an AWQ group. */
static int group_of(const struct kern_linear_src *src, const struct kern_linear_part *p)
{
	const int group = p->dtype == KERN_CODES ? ((const struct codes *)p->w)->group : src->group;
	return min(group, src->k);
}

/* Set the fields that the group size determines.  The last unit's padding may extend beyond the last
 * group. */
static void set_groups(struct lin_seg *s, int group)
{
	s->group32 = group < s->k ? group / 32 : 2 * s->units;
	s->quads = ((2 * s->units + s->group32 - 1) / s->group32 + 3) / 4;
}

/* Return whether two parts are stored and read in the same way. */
static bool parts_alike(const struct kern_linear_src *src, const struct kern_linear_part *a,
			const struct kern_linear_part *b)
{
	if (kind_of(a) != kind_of(b))
		return false;
	return kind_of(a) != LIN_AWQ || (a->dtype == b->dtype && group_of(src, a) == group_of(src, b));
}

/* Make segments of consecutive parts of one kind; each segment is one launch. */
static void make_segs(struct kern_linear *w, const struct kern_linear_src *src)
{
	assert(src->act == KERN_GELU_SIGMOID || (!(src->limit > 0) && !(src->up_plus > 0)));
	w->k = src->k;
	w->n_parts = src->n_parts;
	w->act = {src->act, src->limit > 0 ? src->limit : INFINITY, src->up_plus};
	for (int i = 0; i < src->n_parts; i++) {
		const struct kern_linear_part *p = &src->parts[i];
		const enum lin_kind kind = kind_of(p);
		if (!i || !parts_alike(src, p - 1, p))
			w->n_segs++;
		struct lin_seg *s = &w->segs[w->n_segs - 1];
		struct lin_part *q = &s->parts[s->n_parts++];
		q->n = p->n;
		q->n0 = w->n;
		q->col0 = s->n_cols;
		s->kind = kind;
		s->quantum = lin_is_codes(kind) ? (int)CODE_CHUNK / (int)LIN_UNIT : 1;
		s->k = src->k;
		s->units = (src->k + LIN_UNIT - 1) / LIN_UNIT;
		s->ldw = (src->k + 7) / 8 * 8;
		s->n_cols += (p->n + LIN_COL - 1) / LIN_COL;
		if (kind == LIN_AWQ)
			set_groups(s, group_of(src, p));
		w->part_n[i] = p->n;
		w->n += p->n;
	}
	struct lin_seg *s = &w->segs[0];
	if (w->n_segs == 1 && s->n_parts == 2 && s->parts[0].n == s->parts[1].n) {
		s->paired = true;
		s->parts[1].col0 = 0;
		s->n_cols = (s->parts[0].n + 7) / 8;
	}
	for (int i = 0; i < w->n_segs; i++)
		w->segs[i].slices = slices_of(w->dev, &w->segs[i]);
}

static int load_bias(struct kern_linear *w, const struct kern_linear_src *src, struct why *why)
{
	bool any = false;
	for (int i = 0; i < src->n_parts; i++)
		any = any || src->parts[i].bias;
	if (!any)
		return 0;
	const size_t bytes = (size_t)w->n * sizeof(float);
	float *to = (float *)lin_own(w, bytes);
	if (!to)
		return err_why(why, -ENOMEM, "%s: no device memory for the bias", src->name);
	if (!w->layer)
		w->bias = to;
	float *f = (float *)xcalloc((size_t)w->n, sizeof *f);
	for (int i = 0, n0 = 0; i < src->n_parts; n0 += src->parts[i++].n)
		for (int c = 0; src->parts[i].bias && c < src->parts[i].n; c++)
			f[n0 + c] = half_load(src->parts[i].bias, src->parts[i].bias_dtype, (size_t)c);
	int e = cuda_upload_now(w->dev, to, f, bytes);
	free(f);
	return e ? err_why(why, e, "%s: the bias could not be copied to the device", src->name) : 0;
}

/* ---- the workspace ---- */

static size_t align_up(size_t bytes)
{
	return (bytes + 255) & ~(size_t)255;
}

/* CUDA_WS_PARTIAL holds, in this order: padded rows, sums of slices, gate and up in F32. */
static size_t ws_rows_bytes(const struct kern_linear *w, int rows)
{
	if (w->k % 8 == 0)
		return 0; /* 16-byte loads can read the rows in place */
	return align_up((size_t)rows * (size_t)w->segs[0].ldw * 2);
}

static size_t ws_partial_bytes(const struct kern_linear *w, int rows)
{
	size_t most = 0;
	for (int i = 0; i < w->n_segs; i++) {
		const struct lin_seg *s = &w->segs[i];
		const int split = min(rows, partial_rows(w->dev, s));
		size_t bytes = (size_t)s->slices * (size_t)s->n_cols * (size_t)((split + 7) / 8) * 512;
		if (s->slices > 1 && bytes > most)
			most = bytes;
	}
	return align_up(most);
}

static bool ws_needs_gate(const struct kern_linear *w)
{
	return w->n_parts == 2 && w->part_n[0] == w->part_n[1] && !w->segs[0].paired;
}

static int reserve(struct kern_linear *w, const char *name, struct why *why)
{
	struct kern_dev *d = w->dev;
	const int rows = d->args.max_rows;
	size_t gate = ws_needs_gate(w) ? align_up((size_t)rows * (size_t)w->n * 4) : 0;
	size_t bytes = ws_rows_bytes(w, rows) + ws_partial_bytes(w, rows) + gate;
	int e = cuda_ws_reserve(d, CUDA_WS_PARTIAL, bytes);
	/* One counter per block of one column and 8 rows is enough for any plan. */
	if (!e && ws_partial_bytes(w, rows))
		e = cuda_ws_reserve(d, CUDA_WS_COUNT,
				    (size_t)(w->n / 8 + 3) * ((size_t)LIN_PARTIAL_ROWS / 8) * sizeof(int));
	if (!e)
		e = lin_fast_reserve(w);
	return e ? err_why(why, e, "%s: no device memory for %zu bytes of workspace", name, bytes) : 0;
}

/* Raise the shared memory limit above 48 KB for the kernels that the layer uses. */
static int allow(const struct kern_linear *w)
{
	const struct kern_dev *d = w->dev;
	int e = 0;
	for (int i = 0; i < w->n_segs && !e; i++) {
		e = lin_stream_allow(w->segs[i].kind, cuda_is_bf16(d));
		if (!e)
			e = lin_tile_allow(w->segs[i].kind, d->smem_max, cuda_is_bf16(d));
	}
	return e;
}

/* ---- lifetime ---- */

static struct kern_linear *linear_new(struct kern_dev *d, const struct kern_linear_src *src)
{
	struct kern_linear *w = (struct kern_linear *)xcalloc(1, sizeof *w);
	w->dev = d;
	make_segs(w, src);
	return w;
}

static int pack(struct kern_linear *w, struct lin_seg *seg, const struct kern_linear_src *src, int first,
		struct why *why)
{
	return src->parts[first].dtype == KERN_CODES ? lin_pack_codes(w, seg, src, first, why)
						     : lin_pack(w, seg, src, first, why);
}

int cuda_linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		     struct why *why)
{
	*out = NULL;
	if (src->exact)
		return cuda_router_load(d, src, out, why);
	int e = check(src, why);
	if (e)
		return e;
	struct kern_linear *w = linear_new(d, src);
	e = allow(w);
	if (e)
		err_why(why, e, "%s: the device refuses %d bytes of shared memory", src->name, d->smem_max);
	for (int i = 0, first = 0; !e && i < w->n_segs; first += w->segs[i++].n_parts)
		e = pack(w, &w->segs[i], src, first, why);
	if (!e)
		e = load_bias(w, src, why);
	if (!e)
		e = reserve(w, src->name, why);
	if (e) {
		cuda_linear_free(w);
		return e;
	}
	*out = w;
	return 0;
}

int cuda_linear_of_table(struct kern_dev *d, const void *table, int n_vocab, int hidden,
			 struct kern_linear **out, struct why *why)
{
	struct kern_linear_src src = {};
	src.name = "embedding";
	src.k = hidden;
	src.n_parts = 1;
	src.parts[0].dtype = d->operand;
	src.parts[0].n = n_vocab;
	src.parts[0].w = table;
	*out = NULL;
	int e = check(&src, why);
	if (e)
		return e;
	struct kern_linear *w = linear_new(d, &src);
	struct lin_seg *s = &w->segs[0];
	s->parts[0].w = table;
	e = allow(w);
	if (!e && s->ldw != hidden) {
		/* 16-byte loads cannot read these rows: copy them, padded, to memory of this view. */
		void *copy = lin_own(w, (size_t)n_vocab * (size_t)s->ldw * 2);
		cudaStream_t stream = NULL;
		e = copy ? cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream")
			 : -ENOMEM;
		if (!e) {
			e = lin_pad_rows(stream, copy, s->ldw, table, hidden, n_vocab);
			int late = cuda_check(cudaStreamSynchronize(stream), "padding an embedding");
			e = e ? e : late;
			cudaStreamDestroy(stream);
			s->parts[0].w = copy;
		}
	}
	if (e)
		err_why(why, e,
			"the embedding cannot serve as the head: no device memory, or a failed launch");
	else
		e = reserve(w, src.name, why);
	if (e) {
		cuda_linear_free(w);
		return e;
	}
	*out = w;
	return 0;
}

/* ---- layers of one shape: experts ---- */

static bool has_bias(const struct kern_linear_src *src)
{
	bool any = false;
	for (int i = 0; i < src->n_parts; i++)
		any = any || src->parts[i].bias;
	return any;
}

int lin_stack_signature(const struct kern_linear_src *src, struct lin_signature *out, struct why *why)
{
	int e = check(src, why);
	if (e)
		return e;
	const enum lin_kind kind = kind_of(&src->parts[0]);
	*out = {kind, kind == LIN_AWQ ? group_of(src, &src->parts[0]) : 0, has_bias(src)};
	if (src->n_parts == 2 && !parts_alike(src, &src->parts[0], &src->parts[1]))
		return err_why(
			why, -ENOTSUP,
			"%s: the CUDA kernels take experts with one type of gate and up; --experts cpu "
			"computes others on the CPU",
			src->name);
	return 0;
}

/* Make the stack from its first layer's shape and kind. */
static int stack_new(struct kern_dev *d, const struct kern_linear_src *src, int n, struct kern_linear **out,
		     struct why *why)
{
	struct kern_linear *w = *out = linear_new(d, src);
	const enum lin_kind kind = w->segs[0].kind;
	assert(w->n_segs == 1 && (src->n_parts == 1 || w->segs[0].paired));
	w->n_layers = n;
	int e = lin_stream_list_allow(kind, cuda_is_bf16(d));
	if (!e)
		e = lin_tile_list_allow(kind, d->smem_max, cuda_is_bf16(d));
	return e ? err_why(why, e, "%s: the device refuses %d bytes of shared memory", src->name, d->smem_max)
		 : 0;
}

int lin_stack_load(struct kern_dev *d, const struct kern_linear_src *src, int layer, int n,
		   struct kern_linear **out, struct why *why)
{
	struct lin_signature signature;
	int e = lin_stack_signature(src, &signature, why);
	if (!e && layer == 0)
		e = stack_new(d, src, n, out, why);
	if (e)
		return e;
	struct kern_linear *w = *out;
	struct lin_seg seg = w->segs[0];
	const int owned = w->n_owned;
	if (layer == 0)
		w->signature = signature;
	assert(lin_same_signature(&w->signature, &signature) && src->k == w->k && src->act == w->act.act);
	assert(src->n_parts == w->n_parts && src->parts[0].n == w->part_n[0]);
	w->layer = layer;
	w->n_owned = 0; /* lin_own() returns this layer's place in each buffer again */
	e = pack(w, &seg, src, 0, why);
	if (!e)
		e = load_bias(w, src, why);
	if (layer == 0)
		w->segs[0] = seg;
	else
		w->n_owned = owned;
	return e;
}

void lin_stack_list(const struct kern_linear *w, struct lin_list *l)
{
	struct lin_seg *s = &l->a.seg;
	*s = w->segs[0];
	l->n_layers = w->n_layers;
	l->cols = s->n_cols;
	l->n = w->part_n[0];
	for (int i = 0; i < s->n_parts; i++)
		s->parts[i].n = w->n_layers * lin_stack_rows(*s);
	s->n_cols *= w->n_layers;
	l->a.bias = w->bias;
	l->a.act = w->act;
	l->a.splits = 1;
	l->a.block_slices = s->slices;
}

/* ---- run ---- */

/* Return the number of blocks that share an output's slices, for about two blocks per multiprocessor; for
 * many rows, which have more sums to exchange, at most one. */
static int split(const struct kern_dev *d, const struct lin_seg *seg, int blocks, int m)
{
	/* the number of blocks may double up to here */
	const int most = m > LIN_PARTIAL_ROWS_WIDE ? d->sms / 2 : 2 * d->sms - 1;
	int n = 1;
	while (m <= partial_rows(d, seg) && n < seg->slices && blocks * n <= most)
		n *= 2;
	return n;
}

struct lin_plan lin_plan_for(const struct kern_dev *d, const struct lin_seg *seg, int m)
{
	struct lin_plan p = {};
	if (m <= 16) {
		p.kernel = LIN_STREAM;
		p.rows = m <= 8 ? 8 : 16;
		p.warps = max(4, seg->slices);
		p.splits = 1;
		/* Two columns per warp halve the cost of rows, once there are enough warps. */
		p.cols = (int64_t)seg->n_cols * seg->slices >= 20 * (int64_t)d->sms ? 2 : 1;
		return p;
	}
	p.kernel = LIN_TILE;
	p.rows = m <= 32 ? 32 : m <= 64 ? 64 : 128;
	/* If each tile of 64 rows gets its own multiprocessor, tiles of 128 would leave half of them idle. */
	if (m > LIN_PARTIAL_ROWS_WIDE && tile_blocks(seg, m, 64) <= d->sms)
		p.rows = 64;
	p.splits = split(d, seg, tile_blocks(seg, m, p.rows), m);
	if (p.rows == 128 && lin_tile_128_smem(seg->kind, p.splits == 1 && seg->slices > 1) > d->smem_max) {
		p.rows = 64;
		p.splits = split(d, seg, tile_blocks(seg, m, p.rows), m);
	}
	return p;
}

static int run_seg(struct kern_stream *s, const struct kern_linear *w, const struct lin_seg *seg,
		   struct lin_args *a, const struct lin_plan *force)
{
	struct lin_plan p = force ? *force : lin_plan_for(w->dev, seg, a->m);
	p.splits = a->m <= partial_rows(w->dev, seg) ? min(p.splits, seg->slices) : 1;
	a->seg = *seg;
	a->splits = p.splits;
	a->block_slices = seg->slices / p.splits;
	if (p.kernel == LIN_STREAM) {
		p.warps = max(p.warps, a->block_slices);
		return lin_stream_launch(s, a, &p, cuda_is_bf16(w->dev));
	}
	return lin_tile_launch(s, a, &p, cuda_is_bf16(w->dev));
}

/* Set a->x to rows that 16-byte loads can read: in place, or padded in the workspace. */
static int align_rows(struct kern_stream *s, const struct kern_linear *w, struct lin_args *a, const void *in)
{
	a->x = (const uint16_t *)in;
	a->ldx = w->k;
	if (w->k % 8 == 0) {
		assert((uintptr_t)in % 16 == 0);
		return 0;
	}
	void *copy = w->dev->ws[CUDA_WS_PARTIAL].p;
	a->x = (const uint16_t *)copy;
	a->ldx = w->segs[0].ldw;
	return lin_pad_rows(s->s, copy, a->ldx, in, w->k, a->m);
}

int lin_run(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
	    enum lin_out to, const struct lin_plan *force)
{
	struct kern_dev *d = w->dev;
	struct lin_args a = {};
	assert(s->dev == d && n_rows >= 0 && n_rows <= d->args.max_rows);
	if (n_rows == 0)
		return 0;
	a.m = n_rows;
	a.out = out;
	a.to = to;
	a.act = w->act;
	a.ldo = to == LIN_OUT_SWIGLU ? w->part_n[0] : w->n;
	a.bias = w->bias;
	a.partial =
		(float4 *)((unsigned char *)d->ws[CUDA_WS_PARTIAL].p + ws_rows_bytes(w, d->args.max_rows));
	a.counts = (int *)d->ws[CUDA_WS_COUNT].p;
	int e = align_rows(s, w, &a, in);
	for (int i = 0; !e && i < w->n_segs; i++) {
		bool even = w->n % 2 == 0 && (uintptr_t)out % 8 == 0;
		for (int p = 0; p < w->segs[i].n_parts; p++)
			even = even && w->segs[i].parts[p].n0 % 2 == 0;
		a.wide = even;
		e = !force && n_rows > w->segs[i].fast_above ? lin_fast_run(s, w, &w->segs[i], &a)
							     : run_seg(s, w, &w->segs[i], &a, force);
	}
	return e;
}

int cuda_linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		bool out_f32)
{
	return lin_run(s, w, out, in, n_rows, out_f32 ? LIN_OUT_F32 : LIN_OUT_OPERAND, NULL);
}

/* ---- gate and up of different types ---- */

template <bool BF16>
static __global__ void __launch_bounds__(256)
	swiglu_kernel(uint16_t *out, const float *gate_up, struct lin_act act, int rows, int n)
{
	const size_t at = (size_t)blockIdx.x * 256 + threadIdx.x;
	const size_t row = at / (size_t)n, i = at % (size_t)n;
	if (row >= (size_t)rows)
		return;
	const float *in = gate_up + row * 2 * (size_t)n;
	const float v = lin_glu(act, in[i], in[(size_t)n + i]);
	out[at] = BF16 ? bf16_of_f32(v) : f16_of_f32(v);
}

int cuda_gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		       int n_rows)
{
	struct kern_dev *d = w->dev;
	assert(w->n_parts == 2 && w->part_n[0] == w->part_n[1]);
	if (w->segs[0].paired)
		return lin_run(s, w, out, in, n_rows, LIN_OUT_SWIGLU, NULL);
	const int rows = d->args.max_rows, n = w->part_n[0];
	float *both = (float *)(void *)((unsigned char *)d->ws[CUDA_WS_PARTIAL].p + ws_rows_bytes(w, rows) +
					ws_partial_bytes(w, rows));
	int e = lin_run(s, w, both, in, n_rows, LIN_OUT_F32, NULL);
	if (e || n_rows == 0)
		return e;
	const dim3 grid((unsigned)(((size_t)n_rows * (size_t)n + 255) / 256));
	if (cuda_is_bf16(d))
		return KERN_LAUNCH(swiglu_kernel<true>, grid, dim3(256), 0, s->s, (uint16_t *)out,
				   (const float *)both, w->act, n_rows, n);
	return KERN_LAUNCH(swiglu_kernel<false>, grid, dim3(256), 0, s->s, (uint16_t *)out,
			   (const float *)both, w->act, n_rows, n);
}
