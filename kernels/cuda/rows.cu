/* rows.cu - operations on single rows: embedding, norm with the residual, q/k norm with rotation and KV
 * store, gather.  A row's sums are added in an order that depends only on its length. */
#include "kernels/cuda/cuda.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROW_THREADS = 256,
	HEAD_WARPS = 4, /* heads per block */
	CONVERT_BYTES = 16 << 20,
	AHEAD = 8,      /* values of a thread that are loaded at once */
	NORM_KEPT = 16, /* values per thread that the norm reads only once: rows of up to 4096 */
};

/* Load N values of a thread from `first` on, with 0 after the end.  All loads are issued before the first
 * value is used.  Otherwise a store between them might change the next value, and the compiler would wait for
 * each load. */
template <int N, typename T> KERN_DEV void ahead(T *v, const T *from, int first, int n)
{
#pragma unroll
	for (int j = 0; j < N; j++) {
		const int i = first + j * ROW_THREADS;
		v[j] = i < n ? from[i] : (T)0;
	}
}

/* ---- sums ---- */

/* Return the sum over the warp, with the same bits in every lane: a butterfly adds the same pairs
 * everywhere. */
KERN_DEV float warp_sum(float v)
{
	for (int m = 16; m; m /= 2)
		v = f32_add_rn(v, shfl_xor(v, m));
	return v;
}

/* Return the sum over ROW_THREADS threads.  sums: ROW_THREADS / WARP floats of shared memory. */
KERN_DEV float block_sum(float v, float *sums)
{
	v = warp_sum(v);
	if (lane_id() == 0)
		sums[warp_id()] = v;
	block_sync();
	float all = 0;
	for (int w = 0; w < ROW_THREADS / WARP; w++)
		all = f32_add_rn(all, sums[w]);
	return all;
}

/* Return a norm's factor, from the sum of n squares. */
KERN_DEV float norm_by(float sum, int n, float eps)
{
	return f32_div_rn(1.0f, f32_sqrt_rn(f32_add_rn(f32_div_rn(sum, (float)n), eps)));
}

/* ---- the embedding ---- */

template <bool BF16>
static __global__ void convert_kernel(uint16_t *out, const void *in, enum kern_dtype from, size_t n)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float v;
	if (from == KERN_F32)
		v = ((const float *)in)[i];
	else if (from == KERN_F16)
		v = f32_of_f16(((const uint16_t *)in)[i]);
	else
		v = f32_of_bf16(((const uint16_t *)in)[i]);
	if (!BF16)
		v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v; /* F16's largest value */
	out[i] = op_of_f32<BF16>(v);
}

/* Load the table: unchanged, or converted on the device in pieces. */
static int table_load(struct kern_dev *d, void *to, const void *from, enum kern_dtype dtype, size_t n)
{
	const size_t size = dtype == KERN_F32 ? 4 : 2, most = CONVERT_BYTES / size;
	if (dtype == d->operand)
		return cuda_upload_now(d, to, from, n * 2);
	cudaStream_t s = NULL;
	void *raw = cuda_mem_new(d, (n < most ? n : most) * size);
	int e = raw ? cuda_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream") : -ENOMEM;
	for (size_t at = 0; at < n && !e; at += most) {
		const size_t part = n - at < most ? n - at : most;
		e = cuda_upload_now(d, raw, (const char *)from + at * size, part * size);
		if (!e && cuda_is_bf16(d))
			e = KERN_LAUNCH(convert_kernel<true>, (unsigned)((part + 255) / 256), 256, 0, s,
					(uint16_t *)to + at, raw, dtype, part);
		else if (!e)
			e = KERN_LAUNCH(convert_kernel<false>, (unsigned)((part + 255) / 256), 256, 0, s,
					(uint16_t *)to + at, raw, dtype, part);
		if (!e)
			e = cuda_check(cudaStreamSynchronize(s), "conversion of the embedding");
	}
	if (s)
		cuda_check(cudaStreamDestroy(s), "end of a stream");
	cuda_mem_free(d, raw, (n < most ? n : most) * size);
	return e;
}

int cuda_embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
		    struct why *why)
{
	const int n_vocab = src->n_vocab, hidden = src->hidden;
	assert(n_vocab > 0 && hidden > 0);
	*out = NULL;
	if (src->dtype == KERN_AWQ4 || src->dtype == KERN_CODES)
		return err_why(why, -ENOTSUP, "an embedding cannot be quantized");
	const size_t n = (size_t)n_vocab * (size_t)hidden;
	struct kern_embed *e = (struct kern_embed *)xcalloc(1, sizeof *e);
	e->dev = d;
	e->n_vocab = n_vocab;
	e->hidden = hidden;
	e->bytes = n * 2;
	e->table = cuda_mem_new(d, e->bytes);
	int rc = e->table ? table_load(d, e->table, src->table, src->dtype, n) : -ENOMEM;
	if (!rc)
		rc = cuda_sample_reserve(d, n_vocab);
	if (rc == -ENOMEM)
		err_why(why, rc, "out of memory: %zu bytes for the embedding and what the sampler needs",
			e->bytes);
	else if (rc)
		err_why(why, rc, "loading the embedding failed");
	else
		rc = cuda_linear_of_table(d, e->table, n_vocab, hidden, &e->view, why);
	if (rc) {
		cuda_embed_free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void cuda_embed_free(struct kern_embed *e)
{
	if (!e)
		return;
	cuda_linear_free(e->view);
	cuda_mem_free(e->dev, e->table, e->bytes);
	free(e);
}

int64_t cuda_embed_bytes(const struct kern_embed *e)
{
	return (int64_t)e->bytes;
}

const struct kern_linear *cuda_embed_linear(const struct kern_embed *e)
{
	return e->view;
}

/* One row per block.  No id, or an id outside the table (another rank has it), gives zeros. */
template <bool BF16>
static __global__ void embed_kernel(float *x, const uint16_t *table, const int32_t *tokens,
				    const int32_t *token_at, int first, int n_vocab, int hidden)
{
	const int at = token_at[blockIdx.x], id = at < 0 ? -1 : tokens[at] - first;
	float *out = x + (size_t)blockIdx.x * (size_t)hidden;
	const bool known = id >= 0 && id < n_vocab;
	const uint16_t *in = table + (known ? (size_t)id * (size_t)hidden : 0);
	for (int i0 = (int)threadIdx.x; i0 < hidden; i0 += AHEAD * ROW_THREADS) {
		uint16_t v[AHEAD];
		ahead<AHEAD>(v, in, i0, known ? hidden : 0);
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			const int i = i0 + j * ROW_THREADS;
			if (i < hidden)
				out[i] = op_f32<BF16>(v[j]);
		}
	}
}

int cuda_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x)
{
	const struct cuda_batch *b = &s->dev->batch;
	const uint16_t *table = (const uint16_t *)e->table;
	if (!b->n_rows)
		return 0;
	if (cuda_is_bf16(s->dev))
		return KERN_LAUNCH(embed_kernel<true>, (unsigned)b->n_rows, ROW_THREADS, 0, s->s, (float *)x,
				   table, tokens, b->token_at, first, e->n_vocab, e->hidden);
	return KERN_LAUNCH(embed_kernel<false>, (unsigned)b->n_rows, ROW_THREADS, 0, s->s, (float *)x, table,
			   tokens, b->token_at, first, e->n_vocab, e->hidden);
}

/* ---- the norm ---- */

/* Result of a row: normalized to an operand; x itself as an operand; normalized in place. */
enum { NORM_OPERAND, NORM_NONE, NORM_IN_PLACE };

struct norm_args {
	uint16_t *out;
	float *x;
	const float *add; /* or NULL */
	const float *weight;
	int hidden;
	float eps;
};

/* Load N values of a thread from `first` on and add `add`, store them to x, and add their squares to *sum in
 * order.  WEIGHT: load the weights along with them. */
template <bool WEIGHT, int N>
KERN_DEV void norm_add(const struct norm_args &a, size_t row, int first, float v[N], float *weight,
		       float *sum)
{
	float add[N];
	ahead<N>(v, a.x + row, first, a.hidden);
	if (a.add)
		ahead<N>(add, a.add + row, first, a.hidden);
	if constexpr (WEIGHT)
		ahead<N>(weight, a.weight, first, a.hidden);
#pragma unroll
	for (int j = 0; j < N; j++) {
		const int i = first + j * ROW_THREADS;
		if (a.add) {
			v[j] = f32_add_rn(v[j], add[j]);
			if (i < a.hidden)
				a.x[row + (size_t)i] = v[j];
		}
		*sum = f32_fma_rn(v[j], v[j], *sum); /* after the end: 0, which changes nothing */
	}
}

template <bool BF16, int FORM, int N>
KERN_DEV void norm_put(const struct norm_args &a, size_t row, int first, const float v[N],
		       const float weight[N], float by)
{
#pragma unroll
	for (int j = 0; j < N; j++) {
		const int i = first + j * ROW_THREADS;
		if (i >= a.hidden)
			continue;
		const float y = FORM != NORM_NONE ? f32_mul_rn(f32_mul_rn(v[j], by), weight[j]) : v[j];
		if (FORM != NORM_IN_PLACE)
			a.out[row + (size_t)i] = op_of_f32<BF16>(y);
		else
			a.x[row + (size_t)i] = y;
	}
}

/* One row per block.  Thread t takes elements t, t + ROW_THREADS, ... in both passes, so that it reads back
 * only values of x that it wrote.  The first NORM_KEPT of them stay in registers. */
template <bool BF16, int FORM>
static __global__ void __launch_bounds__(ROW_THREADS) rmsnorm_kernel(struct norm_args a)
{
	const size_t row = (size_t)blockIdx.x * (size_t)a.hidden;
	float *sums = (float *)(void *)kern_smem(), sum = 0, kept[NORM_KEPT], weight[NORM_KEPT];
	const int first = (int)threadIdx.x;
	norm_add<FORM != NORM_NONE, NORM_KEPT>(a, row, first, kept, weight, &sum);
	for (int i = first + NORM_KEPT * ROW_THREADS; i < a.hidden; i += AHEAD * ROW_THREADS) {
		float v[AHEAD];
		norm_add<false, AHEAD>(a, row, i, v, NULL, &sum);
	}
	sum = block_sum(sum, sums);
	const float by = f32_div_rn(1.0f, f32_sqrt_rn(f32_add_rn(f32_div_rn(sum, (float)a.hidden), a.eps)));
	norm_put<BF16, FORM, NORM_KEPT>(a, row, first, kept, weight, by);
	for (int i = first + NORM_KEPT * ROW_THREADS; i < a.hidden; i += AHEAD * ROW_THREADS) {
		float v[AHEAD], w[AHEAD];
		ahead<AHEAD>(v, a.x + row, i, a.hidden);
		if constexpr (FORM != NORM_NONE)
			ahead<AHEAD>(w, a.weight, i, a.hidden);
		norm_put<BF16, FORM, AHEAD>(a, row, i, v, w, by);
	}
}

template <bool BF16, int FORM>
static int launch_norm(struct kern_stream *s, const struct norm_args &a, int n_rows)
{
	return KERN_LAUNCH((rmsnorm_kernel<BF16, FORM>), (unsigned)n_rows, ROW_THREADS,
			   ROW_THREADS / WARP * sizeof(float), s->s, a);
}

int cuda_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		 int hidden, float eps)
{
	struct norm_args a = {(uint16_t *)out,       (float *)x, (const float *)add,
			      (const float *)weight, hidden,     eps};
	if (!n_rows)
		return 0;
	if (cuda_is_bf16(s->dev))
		return weight ? launch_norm<true, NORM_OPERAND>(s, a, n_rows)
			      : launch_norm<true, NORM_NONE>(s, a, n_rows);
	return weight ? launch_norm<false, NORM_OPERAND>(s, a, n_rows)
		      : launch_norm<false, NORM_NONE>(s, a, n_rows);
}

int cuda_rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps)
{
	struct norm_args a = {NULL, (float *)x, NULL, (const float *)weight, hidden, eps};
	return n_rows ? launch_norm<false, NORM_IN_PLACE>(s, a, n_rows) : 0;
}

struct layernorm_args {
	uint16_t *out; /* NULL: in place */
	float *x;
	const float *add, *weight, *bias; /* add and bias: or NULL */
	int hidden;
	float eps;
};

/* One row per block.  A thread takes the same elements in all passes, so that it reads back only values of x
 * that it wrote. */
template <bool BF16>
static __global__ void __launch_bounds__(ROW_THREADS) layernorm_kernel(struct layernorm_args a)
{
	const size_t row = (size_t)blockIdx.x * (size_t)a.hidden;
	float *x = a.x + row, *sums = (float *)(void *)kern_smem(), sum = 0, squares = 0;
	for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS) {
		if (a.add)
			x[i] = f32_add_rn(x[i], a.add[row + (size_t)i]);
		sum = f32_add_rn(sum, x[i]);
	}
	const float mean = f32_div_rn(block_sum(sum, sums), (float)a.hidden);
	for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS) {
		const float d = f32_add_rn(x[i], -mean);
		squares = f32_fma_rn(d, d, squares);
	}
	const float by = norm_by(block_sum(squares, sums + ROW_THREADS / WARP), a.hidden, a.eps);
	for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS) {
		float y = f32_mul_rn(f32_mul_rn(f32_add_rn(x[i], -mean), by), a.weight[i]);
		if (a.bias)
			y = f32_add_rn(y, a.bias[i]);
		if (a.out)
			a.out[row + (size_t)i] = op_of_f32<BF16>(y);
		else
			x[i] = y;
	}
}

int cuda_layernorm(struct kern_stream *s, const struct kern_layernorm_args *in, int n_rows)
{
	const struct layernorm_args a = {(uint16_t *)in->out,
					 (float *)in->x,
					 (const float *)in->add,
					 (const float *)in->weight,
					 (const float *)in->bias,
					 in->hidden,
					 in->eps};
	const size_t smem = 2 * ROW_THREADS / WARP * sizeof(float);
	if (!n_rows)
		return 0;
	if (cuda_is_bf16(s->dev))
		return KERN_LAUNCH(layernorm_kernel<true>, (unsigned)n_rows, ROW_THREADS, smem, s->s, a);
	return KERN_LAUNCH(layernorm_kernel<false>, (unsigned)n_rows, ROW_THREADS, smem, s->s, a);
}

/* One row per block.  A null row has no position. */
static __global__ void positions_kernel(float *x, const float *table, const int32_t *token_at,
					const int32_t *row_pos, int hidden)
{
	if (token_at[blockIdx.x] < 0)
		return;
	x += (size_t)blockIdx.x * (size_t)hidden;
	table += (size_t)row_pos[blockIdx.x] * (size_t)hidden;
	for (int i = (int)threadIdx.x; i < hidden; i += ROW_THREADS)
		x[i] = f32_add_rn(x[i], table[i]);
}

int cuda_positions(struct kern_stream *s, void *x, const void *table, int hidden)
{
	const struct cuda_batch *b = &s->dev->batch;
	if (!b->n_rows)
		return 0;
	return KERN_LAUNCH(positions_kernel, (unsigned)b->n_rows, ROW_THREADS, 0, s->s, (float *)x,
			   (const float *)table, b->token_at, b->row_pos, hidden);
}

/* ---- value by value ---- */

KERN_DEV float activated(const struct kern_act_args &a, float g)
{
	switch (a.act) {
	case KERN_SILU:
		return f32_div_rn(g, f32_add_rn(1.0f, expf(-g)));
	case KERN_GELU_TANH: {
		const float u = f32_fma_rn(f32_mul_rn(g, g), 0.0713548162726f, 1.5957691216057f);
		return f32_div_rn(g, f32_add_rn(1.0f, expf(-f32_mul_rn(g, u))));
	}
	case KERN_GELU_SIGMOID:
		return f32_div_rn(g, f32_add_rn(1.0f, expf(-f32_mul_rn(g, 1.702f))));
	case KERN_GELU:
		return f32_mul_rn(f32_mul_rn(0.5f, g),
				  f32_add_rn(1.0f, erff(f32_mul_rn(g, 0.70710678118655f))));
	case KERN_RELU:
		return g > 0 ? g : f32_mul_rn(0.0f, g); /* NaN stays */
	case KERN_RELU2:
		return g > 0 ? f32_mul_rn(g, g) : f32_mul_rn(0.0f, g);
	case KERN_XIELU:
		break;
	}
	const float linear = f32_mul_rn(a.beta, g);
	if (g > 0)
		return f32_fma_rn(f32_mul_rn(a.alpha_p, g), g, linear);
	return f32_fma_rn(f32_add_rn(expm1f(g < a.eps ? g : a.eps), -g), a.alpha_n, linear);
}

template <bool BF16>
static __global__ void activate_kernel(uint16_t *out, const float *x, size_t n, struct kern_act_args a)
{
	const size_t i = (size_t)blockIdx.x * ROW_THREADS + threadIdx.x;
	if (i < n)
		out[i] = op_of_f32<BF16>(activated(a, x[i]));
}

int cuda_activate(struct kern_stream *s, void *out, void *x, int n_rows, int width,
		  const struct kern_act_args *a)
{
	const size_t n = (size_t)n_rows * (size_t)width;
	const unsigned blocks = (unsigned)((n + ROW_THREADS - 1) / ROW_THREADS);
	if (!n)
		return 0;
	if (cuda_is_bf16(s->dev))
		return KERN_LAUNCH(activate_kernel<true>, blocks, ROW_THREADS, 0, s->s, (uint16_t *)out,
				   (const float *)x, n, *a);
	return KERN_LAUNCH(activate_kernel<false>, blocks, ROW_THREADS, 0, s->s, (uint16_t *)out,
			   (const float *)x, n, *a);
}

static __global__ void map_kernel(float *x, size_t n, enum kern_map what, float by)
{
	const size_t i = (size_t)blockIdx.x * ROW_THREADS + threadIdx.x;
	if (i >= n)
		return;
	x[i] = what == KERN_MAP_SOFTCAP ? cuda_softcap(x[i], by, f32_div_rn(1.0f, by)) : f32_mul_rn(x[i], by);
}

int cuda_map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by)
{
	const size_t n = (size_t)n_rows * (size_t)width;
	if (!n)
		return 0;
	return KERN_LAUNCH(map_kernel, (unsigned)((n + ROW_THREADS - 1) / ROW_THREADS), ROW_THREADS, 0, s->s,
			   (float *)x, n, what, by);
}

/* by: [rows], or NULL */
static __global__ void add_rows_kernel(float *x, const float *y, const float *by, size_t n, size_t width)
{
	const size_t i = (size_t)blockIdx.x * ROW_THREADS + threadIdx.x;
	if (i < n)
		x[i] = f32_add_rn(x[i], by ? f32_mul_rn(by[i / width], y[i]) : y[i]);
}

int cuda_add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width)
{
	const size_t n = (size_t)n_rows * (size_t)width;
	if (!n)
		return 0;
	return KERN_LAUNCH(add_rows_kernel, (unsigned)((n + ROW_THREADS - 1) / ROW_THREADS), ROW_THREADS, 0,
			   s->s, (float *)x, (const float *)y, by, n, (size_t)width);
}

/* ---- q, k, v ---- */

struct squares_args {
	float *out;
	const uint16_t *qkv;
	int q, k; /* values per row */
};

/* Sum of squares of q or k of one row per block. */
template <bool BF16> static __global__ void squares_kernel(struct squares_args a)
{
	const int first = blockIdx.y ? a.q : 0, n = blockIdx.y ? a.k : a.q;
	const uint16_t *in = a.qkv + (size_t)blockIdx.x * (size_t)(a.q + 2 * a.k) + first;
	float sum = 0;
	for (int i0 = (int)threadIdx.x; i0 < n; i0 += AHEAD * ROW_THREADS) {
		uint16_t v[AHEAD];
		ahead<AHEAD>(v, in, i0, n);
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			const float x = op_f32<BF16>(v[j]);
			sum = f32_fma_rn(x, x, sum);
		}
	}
	sum = block_sum(sum, (float *)(void *)kern_smem());
	if (threadIdx.x == 0)
		a.out[2 * blockIdx.x + blockIdx.y] = sum;
}

int cuda_qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		     int n_kv_heads, int head_dim)
{
	const struct squares_args a = {(float *)squares, (const uint16_t *)qkv, n_q_heads * head_dim,
				       n_kv_heads * head_dim};
	const dim3 grid((unsigned)n_rows, 2);
	const size_t smem = ROW_THREADS / WARP * sizeof(float);
	if (!n_rows)
		return 0;
	if (cuda_is_bf16(s->dev))
		return KERN_LAUNCH(squares_kernel<true>, grid, ROW_THREADS, smem, s->s, a);
	return KERN_LAUNCH(squares_kernel<false>, grid, ROW_THREADS, smem, s->s, a);
}

struct qkv_args {
	uint16_t *q;
	const uint16_t *qkv;
	const float *q_norm, *k_norm, *q_norm_bias, *k_norm_bias, *squares, *rope;
	bool layer, each, after; /* as norm, norm_each and norm_after of kern_qkv_args */
	float clip, q_beta;
	int q_floor;
	int q_width, k_width;
	float eps;
	int rope_dim, n_q, n_kv, dim, dim_pad;
	bool pairs; /* adjacent values are rotated together; otherwise the two halves */
	const int32_t *row_table, *row_pos, *token_at, *tables;
	int table_stride, block_size;
	unsigned char *pool; /* pool, offset to the layer */
	size_t block_bytes, head_bytes;
};

/* Make a value of V finite: attention multiplies unseen values by 0. */
template <bool BF16> KERN_DEV float finite(float v)
{
	const float most = BF16 ? 0x1.fep127f : 65504.0f;
	v = v == v ? v : 0.0f;
	return v > most ? most : v < -most ? -most : v;
}

/* Clip x [dim] in shared memory. */
KERN_DEV void head_clip(const struct qkv_args &a, float *x)
{
	for (int i = lane_id(); a.clip > 0 && i < a.dim; i += WARP)
		x[i] = x[i] > a.clip ? a.clip : x[i] < -a.clip ? -a.clip : x[i];
	warp_sync();
}

/* Layer norm of x [dim] in shared memory, in place, by one warp. */
KERN_DEV void head_center(const struct qkv_args &a, float *x, const float *norm, const float *bias)
{
	float sum = 0, squares = 0;
	for (int i = lane_id(); i < a.dim; i += WARP)
		sum = f32_add_rn(sum, x[i]);
	const float mean = f32_div_rn(warp_sum(sum), (float)a.dim);
	for (int i = lane_id(); i < a.dim; i += WARP) {
		const float d = f32_add_rn(x[i], -mean);
		squares = f32_fma_rn(d, d, squares);
	}
	const float by = norm_by(warp_sum(squares), a.dim, a.eps);
	for (int i = lane_id(); i < a.dim; i += WARP) {
		const float y = f32_mul_rn(f32_mul_rn(f32_add_rn(x[i], -mean), by), norm[i]);
		x[i] = bias ? f32_add_rn(y, bias[i]) : y;
	}
}

/* Normalize x [dim] in shared memory, in place, by one warp.  by > 0: factor of a norm over all heads. */
KERN_DEV void head_norm(const struct qkv_args &a, float *x, const float *norm, const float *bias, float by)
{
	if (a.layer) {
		head_center(a, x, norm, bias);
		return;
	}
	if (by == 0) {
		float sum = 0;
		for (int i = lane_id(); i < a.dim; i += WARP)
			sum = f32_fma_rn(x[i], x[i], sum);
		by = norm_by(warp_sum(sum), a.dim, a.eps);
	}
	for (int i = lane_id(); i < a.dim; i += WARP)
		x[i] = f32_mul_rn(f32_mul_rn(x[i], by), norm[i]);
}

/* Normalize, clip and rotate x [dim] in shared memory, in place, by one warp. */
KERN_DEV void norm_and_rotate(const struct qkv_args &a, float *x, const float *norm, const float *bias,
			      float by, const float *rope)
{
	if (norm && !a.after)
		head_norm(a, x, norm, bias, by);
	warp_sync();
	head_clip(a, x);
	const int half = a.rope_dim / 2;
	for (int i = lane_id(); i < half; i += WARP) {
		const int ia = a.pairs ? 2 * i : i, ib = a.pairs ? 2 * i + 1 : i + half;
		const float c = rope[2 * i], s = rope[2 * i + 1], va = x[ia], vb = x[ib];
		x[ia] = f32_fma_rn(va, c, -f32_mul_rn(vb, s));
		x[ib] = f32_fma_rn(vb, c, f32_mul_rn(va, s));
	}
	warp_sync();
	if (norm && a.after)
		head_norm(a, x, norm, bias, by);
	warp_sync();
}

/* Multiply q by the factor of its position. */
KERN_DEV void scale_query(const struct qkv_args &a, float *x, int pos)
{
	const float by = f32_fma_rn(a.q_beta, logf((float)(1 + pos / a.q_floor)), 1.0f);
	for (int i = lane_id(); i < a.dim; i += WARP)
		x[i] = f32_mul_rn(x[i], by);
	warp_sync();
}

/* Process one head of one row per warp: q heads, then k, then v. */
template <bool BF16> static __global__ void qkv_kernel(struct qkv_args a)
{
	const int row = (int)blockIdx.x, heads = a.n_q + 2 * a.n_kv;
	const int head = (int)blockIdx.y * HEAD_WARPS + warp_id();
	if (head >= heads) /* true for the whole warp */
		return;
	/* Null rows share one position of the null block, which stays zero. */
	if (head >= a.n_q && a.token_at[row] < 0)
		return;
	float *x = (float *)(void *)kern_smem() + warp_id() * a.dim;
	const uint16_t *in = a.qkv + ((size_t)row * (size_t)heads + (size_t)head) * (size_t)a.dim;
	const int pos = a.row_pos[row];
	const bool is_q = head < a.n_q, is_v = head >= a.n_q + a.n_kv;
	for (int i = lane_id(); i < a.dim; i += WARP)
		x[i] = op_f32<BF16>(in[i]);
	warp_sync();
	if (!is_v) {
		const float *norm = is_q ? a.q_norm : a.k_norm, *bias = is_q ? a.q_norm_bias : a.k_norm_bias;
		const int first = a.squares || a.each ? (is_q ? head : head - a.n_q) * a.dim : 0;
		float by = 0;
		if (a.squares)
			by = norm_by(a.squares[2 * row + !is_q], is_q ? a.q_width : a.k_width, a.eps);
		norm_and_rotate(a, x, norm ? norm + first : NULL, bias ? bias + first : NULL, by,
				a.rope + (size_t)pos * (size_t)a.rope_dim);
		if (is_q && a.q_beta > 0)
			scale_query(a, x, pos);
	} else {
		head_clip(a, x);
	}
	uint16_t *out;
	if (is_q) {
		out = a.q + ((size_t)row * (size_t)a.n_q + (size_t)head) * (size_t)a.dim;
	} else {
		const int block = a.tables[(size_t)a.row_table[row] * (size_t)a.table_stride +
					   (size_t)(pos / a.block_size)];
		/* k heads, then v heads: the pool's order */
		out = (uint16_t *)(void *)(a.pool + (size_t)block * a.block_bytes +
					   (size_t)(head - a.n_q) * a.head_bytes) +
		      (size_t)(pos % a.block_size) * (size_t)a.dim_pad;
	}
	for (int i = 2 * lane_id(); i < a.dim; i += 2 * WARP) {
		const float first = is_v ? finite<BF16>(x[i]) : x[i];
		const float second = is_v ? finite<BF16>(x[i + 1]) : x[i + 1];
		*(uint32_t *)(void *)(out + i) = op2_of_f32<BF16>(first, second);
	}
}

int cuda_qkv(struct kern_stream *s, const struct kern_qkv_args *in)
{
	const struct kern_dev *d = s->dev;
	const struct cuda_batch *b = &d->batch;
	const struct kern_kv *kv = in->kv;
	assert(in->head_dim == kv->dim && in->n_kv_heads == kv->n_kv_heads);
	assert(in->kind >= 0 && in->kind < d->args.n_kinds);
	assert(in->layer >= 0 && in->layer < kv->n_layers && kv->block_size == d->block_size);
	assert(!(in->squares && (in->norm_after || in->norm == KERN_NORM_LAYER)));
	assert(in->rope_dim >= 0 && in->rope_dim % 2 == 0 && in->rope_dim <= in->head_dim);
	if (!b->n_rows)
		return 0;
	struct qkv_args a = {};
	a.q = (uint16_t *)in->q;
	a.qkv = (const uint16_t *)in->qkv;
	a.q_norm = (const float *)in->q_norm;
	a.k_norm = (const float *)in->k_norm;
	a.q_norm_bias = (const float *)in->q_norm_bias;
	a.k_norm_bias = (const float *)in->k_norm_bias;
	a.layer = in->norm == KERN_NORM_LAYER;
	a.each = in->norm_each;
	a.after = in->norm_after;
	a.clip = in->clip;
	a.q_beta = in->q_beta;
	a.q_floor = in->q_floor;
	a.squares = (const float *)in->squares;
	a.q_width = in->q_width;
	a.k_width = in->k_width;
	a.rope = (const float *)in->rope;
	a.eps = in->eps;
	a.rope_dim = in->rope_dim;
	a.n_q = in->n_q_heads;
	a.n_kv = in->n_kv_heads;
	a.dim = in->head_dim;
	a.dim_pad = kv->dim_pad;
	a.pairs = in->style == KERN_ROPE_PAIRS;
	a.row_table = b->row_table;
	a.row_pos = b->row_pos;
	a.token_at = b->token_at;
	a.tables = b->tables + (size_t)in->kind * (size_t)b->table_stride;
	a.table_stride = b->table_stride;
	a.block_size = kv->block_size;
	a.pool = kv->pool + (size_t)in->layer * kv->layer_bytes;
	a.block_bytes = kv->block_bytes;
	a.head_bytes = kv->head_bytes;
	const unsigned heads = (unsigned)(a.n_q + 2 * a.n_kv);
	const dim3 grid((unsigned)b->n_rows, (heads + HEAD_WARPS - 1) / HEAD_WARPS);
	const size_t smem = HEAD_WARPS * (size_t)a.dim * sizeof(float);
	if (cuda_is_bf16(d))
		return KERN_LAUNCH(qkv_kernel<true>, grid, HEAD_WARPS * WARP, smem, s->s, a);
	return KERN_LAUNCH(qkv_kernel<false>, grid, HEAD_WARPS * WARP, smem, s->s, a);
}

/* ---- gather ---- */

static __global__ void gather_kernel(float *out, const float *x, const int32_t *row, int hidden)
{
	const float *in = x + (size_t)row[blockIdx.x] * (size_t)hidden;
	out += (size_t)blockIdx.x * (size_t)hidden;
	for (int i0 = (int)threadIdx.x; i0 < hidden; i0 += AHEAD * ROW_THREADS) {
		float v[AHEAD];
		ahead<AHEAD>(v, in, i0, hidden);
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			const int i = i0 + j * ROW_THREADS;
			if (i < hidden)
				out[i] = v[j];
		}
	}
}

int cuda_gather(struct kern_stream *s, void *out, const void *x, int hidden)
{
	const struct cuda_batch *b = &s->dev->batch;
	if (!b->n_logits)
		return 0;
	return KERN_LAUNCH(gather_kernel, (unsigned)b->n_logits, ROW_THREADS, 0, s->s, (float *)out,
			   (const float *)x, b->logits_row, hidden);
}
