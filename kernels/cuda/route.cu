/* route.cu - chooses each row's experts: the router in F32, and the choice by kern.h's rules.
 *
 * An output is the sum of one chain of products per lane and slice.  Inputs are distributed 4 to a lane, 128
 * to a round; SLICES warps take equal runs of rounds.  Lanes are added by a butterfly, slices in ascending
 * order: the order does not depend on how many rows and outputs a block takes.  The row's norm is a factor of
 * the sum; its squares are added up in the same way. */
#include "kernels/cuda/linear.cuh"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

extern "C" {
#include "kernels/half.h"
}

enum {
	SLICES = 8, /* warps per block */
	ROUND = 128,
	MANY_ROWS = 8, /* rows per block, if a batch has more than FEW_ROWS */
	FEW_ROWS = 4,
	CHOICE_ROWS = 4, /* rows per block, one per warp */
};

/* ---- load ---- */

static int check(const struct kern_linear_src *src, struct why *why)
{
	int64_t n = 0;
	if (src->k <= 0 || src->k > INT_MAX - ROUND || src->n_parts < 1 || src->n_parts > 2)
		return err_why(why, -EINVAL, "%s: a router with %d inputs and %d parts", src->name, src->k,
			       src->n_parts);
	for (int i = 0; i < src->n_parts; i++) {
		const struct kern_linear_part *p = &src->parts[i];
		if (p->n <= 0 || !p->w)
			return err_why(why, -EINVAL, "%s: part %d has %d outputs", src->name, i, p->n);
		if (p->dtype == KERN_AWQ4 || p->dtype == KERN_CODES)
			return err_why(why, -ENOTSUP, "%s: a router has to be F32, F16 or BF16", src->name);
		n += p->n;
	}
	if (n > KERN_EXPERTS_MAX + 1)
		return err_why(why, -EINVAL, "%s: a router with %lld outputs", src->name, (long long)n);
	return 0;
}

static int fill(struct kern_linear *w, const struct kern_linear_src *src)
{
	const size_t k = (size_t)w->k, n = (size_t)w->n;
	float *f = (float *)xcalloc(n * (k + 1), sizeof *f), *bias = f + n * k;
	size_t row = 0;
	for (int i = 0; i < src->n_parts; i++) {
		const struct kern_linear_part *p = &src->parts[i];
		for (int c = 0; c < p->n; c++, row++) {
			for (size_t j = 0; j < k; j++)
				f[row * k + j] = half_load(p->w, p->dtype, (size_t)c * k + j);
			if (p->bias)
				bias[row] = half_load(p->bias, p->bias_dtype, (size_t)c);
		}
	}
	int e = cuda_upload_now(w->dev, w->exact, f, n * k * sizeof *f);
	if (!e)
		e = cuda_upload_now(w->dev, w->bias, bias, n * sizeof *f);
	free(f);
	return e;
}

int cuda_router_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		     struct why *why)
{
	*out = NULL;
	int e = check(src, why);
	if (e)
		return e;
	struct kern_linear *w = (struct kern_linear *)xcalloc(1, sizeof *w);
	w->dev = d;
	w->k = src->k;
	w->n_parts = src->n_parts;
	for (int i = 0; i < src->n_parts; i++)
		w->n += w->part_n[i] = src->parts[i].n;
	const size_t n = (size_t)w->n * sizeof(float);
	w->exact = (float *)lin_own(w, n * (size_t)w->k);
	w->bias = (float *)lin_own(w, n);
	e = w->exact && w->bias ? cuda_ws_reserve(d, CUDA_WS_ROUTE, (size_t)d->args.max_rows * n) : -ENOMEM;
	if (e)
		err_why(why, e, "%s: no device memory for a router", src->name);
	else if ((e = fill(w, src)))
		err_why(why, e, "%s: the weights could not be copied to the device", src->name);
	if (e) {
		cuda_linear_free(w);
		return e;
	}
	*out = w;
	return 0;
}

/* ---- the router's outputs ---- */

struct outputs_args {
	float *z;          /* [n_rows][n] */
	const float *x;    /* [n_rows][k] */
	const float *norm; /* [k] or NULL */
	const float *w;    /* [n][k] */
	const float *bias; /* [n] */
	float eps;
	int n_rows, n, k;
};

/* Return four of k floats from i on, with zeros after the end. */
KERN_DEV float4 four(const float *p, int i, int k)
{
	if (k % 4 == 0)
		return i < k ? *(const float4 *)(p + i) : make_float4(0, 0, 0, 0);
	return make_float4(i < k ? p[i] : 0, i + 1 < k ? p[i + 1] : 0, i + 2 < k ? p[i + 2] : 0,
			   i + 3 < k ? p[i + 3] : 0);
}

KERN_DEV float chain(float sum, float4 a, float4 b)
{
	sum = f32_fma_rn(a.x, b.x, sum);
	sum = f32_fma_rn(a.y, b.y, sum);
	sum = f32_fma_rn(a.z, b.z, sum);
	return f32_fma_rn(a.w, b.w, sum);
}

KERN_DEV float lanes_sum(float v)
{
	for (int m = 16; m; m /= 2)
		v = f32_add_rn(v, shfl_xor(v, m));
	return v;
}

/* grid: (blocks of N outputs, blocks of R rows).  The last column of sums holds the rows' sums of squares. */
template <int R, int N>
static __global__ void __launch_bounds__(SLICES * 32) route_outputs_kernel(const struct outputs_args a)
{
	float *sums = (float *)(void *)kern_smem(); /* [slice][R][N + 1] */
	const int slice = warp_id(), lane = lane_id();
	const int row0 = (int)blockIdx.y * R, out0 = (int)blockIdx.x * N;
	const int rounds = (a.k + ROUND - 1) / ROUND;
	float sum[R][N + 1];
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int o = 0; o <= N; o++)
			sum[r][o] = 0;
#pragma unroll 1
	for (int u = rounds * slice / SLICES; u < rounds * (slice + 1) / SLICES; u++) {
		const int i = u * ROUND + lane * 4;
		float4 w[N], norm = make_float4(1, 1, 1, 1);
		if (a.norm)
			norm = four(a.norm, i, a.k);
#pragma unroll
		for (int o = 0; o < N; o++) /* outputs after the last repeat it and are not stored */
			w[o] = four(a.w + (size_t)min(out0 + o, a.n - 1) * (size_t)a.k, i, a.k);
#pragma unroll
		for (int r = 0; r < R; r++) {
			float4 x = four(a.x + (size_t)min(row0 + r, a.n_rows - 1) * (size_t)a.k, i, a.k);
			sum[r][N] = chain(sum[r][N], x, x);
			if (a.norm)
				x = make_float4(f32_mul_rn(x.x, norm.x), f32_mul_rn(x.y, norm.y),
						f32_mul_rn(x.z, norm.z), f32_mul_rn(x.w, norm.w));
#pragma unroll
			for (int o = 0; o < N; o++)
				sum[r][o] = chain(sum[r][o], x, w[o]);
		}
	}
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int o = 0; o <= N; o++) {
			const float v = lanes_sum(sum[r][o]);
			if (lane == 0)
				sums[(slice * R + r) * (N + 1) + o] = v;
		}
	block_sync();
	const int r = (int)threadIdx.x / N, o = (int)threadIdx.x % N;
	if (r >= R || row0 + r >= a.n_rows || out0 + o >= a.n)
		return;
	float z = 0, squares = 0;
	for (int s = 0; s < SLICES; s++) {
		z = f32_add_rn(z, sums[(s * R + r) * (N + 1) + o]);
		squares = f32_add_rn(squares, sums[(s * R + r) * (N + 1) + N]);
	}
	if (a.norm)
		z = f32_div_rn(z, f32_sqrt_rn(f32_add_rn(f32_div_rn(squares, (float)a.k), a.eps)));
	a.z[(size_t)(row0 + r) * (size_t)a.n + (size_t)(out0 + o)] = f32_add_rn(z, a.bias[out0 + o]);
}

/* ---- the choice ---- */

struct choice_args {
	int32_t *expert;
	float *weight, *shared;
	uint32_t *counts;        /* as in kern_route_args */
	const int32_t *token_at; /* the batch's: null rows are not counted; or NULL */
	const float *z, *choice_bias;
	int n_rows, stride; /* stride of z */
	int n, n_chosen, n_groups, groups_chosen;
	enum kern_score score;
	bool normalize;
	float scale, jitter;
};

/* Return, to all lanes of a warp, the index of the largest of n values, the lowest index if several are
 * equal; -1: all are -inf or NaN. */
KERN_DEV int largest(const float *v, int n)
{
	float most = -INFINITY;
	int at = -1;
	for (int i = lane_id(); i < n; i += WARP)
		if (v[i] > most) {
			most = v[i];
			at = i;
		}
	for (int m = 16; m; m /= 2) {
		const float other = shfl_xor(most, m);
		const int there = shfl_xor(at, m);
		if (there >= 0 && (at < 0 || other > most || (other == most && there < at))) {
			most = other;
			at = there;
		}
	}
	return at;
}

KERN_DEV float sigmoid(float z)
{
	return f32_div_rn(1.0f, f32_add_rn(1.0f, expf(-z)));
}

/* Compute the scores s [n] of a row, in shared memory. */
KERN_DEV void scores(const struct choice_args &a, float *s, const float *z)
{
	float most = -INFINITY, sum = 0;
	for (int i = lane_id(); i < a.n && a.score == KERN_SCORE_SOFTMAX; i += WARP)
		most = z[i] > most ? z[i] : most;
	for (int m = 16; m; m /= 2) {
		const float other = shfl_xor(most, m);
		most = other > most ? other : most;
	}
	for (int i = lane_id(); i < a.n; i += WARP) {
		s[i] = a.score == KERN_SCORE_SIGMOID ? sigmoid(z[i]) : expf(f32_add_rn(z[i], -most));
		sum = f32_add_rn(sum, s[i]);
	}
	sum = lanes_sum(sum);
	for (int i = lane_id(); i < a.n && a.score == KERN_SCORE_SOFTMAX; i += WARP)
		s[i] = f32_div_rn(s[i], sum);
}

/* Compute SPARSEMIXER's scores of the n_chosen best experts.  v: [n], in shared memory. */
KERN_DEV void sparsemixer(const struct choice_args &a, float *s, const float *z, float *v)
{
	for (int i = lane_id(); i < a.n; i += WARP) {
		v[i] = z[i];
		s[i] = 0;
	}
	warp_sync();
	for (int i = 0; i < a.n_chosen; i++) {
		const int best = largest(v, a.n);
		if (best < 0)
			break;
		const float most = v[best];
		float sum = 0;
		for (int e = lane_id(); e < a.n; e += WARP) {
			const float away = f32_div_rn(f32_add_rn(most, -z[e]), fmaxf(fabsf(z[e]), most));
			if (v[e] > -INFINITY && !(away > 2 * a.jitter))
				sum = f32_add_rn(sum, expf(f32_add_rn(v[e], -most)));
		}
		sum = lanes_sum(sum);
		warp_sync();
		if (best % WARP == lane_id()) {
			s[best] = f32_div_rn(1.0f, sum);
			v[best] = -INFINITY;
		}
		warp_sync();
	}
}

/* Set the values of all experts outside the best groups to -inf.  rank: [groups], in shared memory. */
KERN_DEV void keep_groups(const struct choice_args &a, float *v, float *rank)
{
	const int each = a.n / a.n_groups;
	for (int g = lane_id(); g < a.n_groups; g += WARP) {
		float first = -INFINITY, second = -INFINITY;
		int at = -1;
		for (int i = 0; i < each; i++)
			if (v[g * each + i] > first) {
				first = v[g * each + i];
				at = i;
			}
		for (int i = 0; i < each; i++)
			if (i != at && v[g * each + i] > second)
				second = v[g * each + i];
		rank[g] = at < 0 ? -INFINITY : f32_add_rn(first, each > 1 ? second : 0.0f);
	}
	warp_sync();
	uint32_t kept = 0; /* this lane's kept groups: bit i is group lane + 32 i */
	for (int i = 0; i < a.groups_chosen; i++) {
		const int g = largest(rank, a.n_groups);
		warp_sync();
		if (g < 0)
			break;
		if (g % WARP == lane_id()) {
			kept |= 1u << g / WARP;
			rank[g] = -INFINITY;
		}
		warp_sync();
	}
	for (int g = lane_id(); g < a.n_groups; g += WARP)
		for (int i = 0; !(kept >> g / WARP & 1) && i < each; i++)
			v[g * each + i] = -INFINITY;
	warp_sync();
}

/* Write the n_chosen best of v, ascending.  If NaN leaves fewer, the lowest remaining experts fill the rest.
 * Sets v of the chosen to -inf.  Lane l keeps one bit for each of the experts l, l + 32, ... */
KERN_DEV void choose(const struct choice_args &a, float *v, int32_t *out)
{
	uint32_t chosen = 0;
	int left = a.n_chosen, at = 0;
	for (; left; left--) {
		const int e = largest(v, a.n);
		warp_sync();
		if (e < 0)
			break;
		if (e % WARP == lane_id()) {
			chosen |= 1u << e / WARP;
			v[e] = -INFINITY;
		}
		warp_sync();
	}
	const uint32_t below = (1u << lane_id()) - 1;
	for (int i = 0; i * WARP < a.n; i++) {
		const bool mine = chosen >> i & 1, free_one = !mine && i * WARP + lane_id() < a.n;
		const uint32_t frees = warp_ballot(free_one);
		const bool takes = mine || (free_one && __popc(frees & below) < left);
		const uint32_t all = warp_ballot(takes);
		left -= min(left, __popc(frees));
		if (takes)
			out[at + __popc(all & below)] = i * WARP + lane_id();
		at += __popc(all);
	}
}

/* Choose one row's experts per warp. */
static __global__ void __launch_bounds__(CHOICE_ROWS * 32) route_choice_kernel(const struct choice_args a)
{
	const int row = (int)blockIdx.x * CHOICE_ROWS + warp_id();
	float *s =
		/* followed by v and ranks */
		(float *)(void *)kern_smem() + warp_id() * (2 * a.n + a.n_groups);
	float *v = s + a.n;
	if (row >= a.n_rows) /* true for the whole warp */
		return;
	const float *z = a.z + (size_t)row * (size_t)a.stride;
	int32_t *expert = a.expert + (size_t)row * (size_t)a.n_chosen;
	const bool by_z = a.score == KERN_SCORE_SPARSEMIXER;
	if (by_z)
		sparsemixer(a, s, z, v);
	else
		scores(a, s, z);
	for (int i = lane_id(); i < a.n; i += WARP) {
		const float by = by_z ? z[i] : s[i];
		v[i] = a.choice_bias ? f32_add_rn(by, a.choice_bias[i]) : by;
	}
	warp_sync();
	if (a.n_groups)
		keep_groups(a, v, v + a.n);
	choose(a, v, expert);
	warp_sync();
	float sum = 0;
	for (int i = 0; i < a.n_chosen; i++)
		sum = f32_add_rn(sum, s[expert[i]]);
	for (int i = lane_id(); i < a.n_chosen; i += WARP) {
		float w = s[expert[i]];
		if (a.normalize)
			w = f32_div_rn(w, sum);
		a.weight[(size_t)row * (size_t)a.n_chosen + (size_t)i] = f32_mul_rn(w, a.scale);
	}
	if (a.shared && lane_id() == 0)
		a.shared[row] = sigmoid(z[a.n]);
	if (a.counts && !(a.token_at && a.token_at[row] < 0))
		for (int i = lane_id(); i < a.n_chosen; i += WARP)
			atomic_add(&a.counts[expert[i]], 1u);
}

/* ---- run ---- */

template <int R, int N> static int outputs(struct kern_stream *s, const struct outputs_args &a)
{
	const dim3 grid((unsigned)((a.n + N - 1) / N), (unsigned)((a.n_rows + R - 1) / R));
	return KERN_LAUNCH((route_outputs_kernel<R, N>), grid, dim3(SLICES * 32),
			   SLICES * R * (N + 1) * sizeof(float), s->s, a);
}

int cuda_route(struct kern_stream *s, const struct kern_route_args *r, int n_rows)
{
	struct kern_dev *d = s->dev;
	const struct kern_linear *w = r->router;
	assert(w->dev == d && w->exact && w->k == r->hidden && w->part_n[0] == r->n_experts);
	assert(r->n_experts <= KERN_EXPERTS_MAX && r->n_chosen <= r->n_experts);
	assert(r->n_chosen > 0 && r->n_chosen <= KERN_CHOSEN_MAX && w->n_parts == (r->shared ? 2 : 1));
	assert(!r->n_groups || (r->n_experts % r->n_groups == 0 && r->groups_chosen <= r->n_groups));
	assert(n_rows <= d->args.max_rows);
	if (!n_rows)
		return 0;
	const struct outputs_args o = {(float *)d->ws[CUDA_WS_ROUTE].p,
				       (const float *)r->x,
				       (const float *)r->norm,
				       w->exact,
				       w->bias,
				       r->eps,
				       n_rows,
				       w->n,
				       w->k};
	const struct cuda_batch *b = &d->batch;
	const struct choice_args c = {r->expert,
				      r->weight,
				      r->shared,
				      r->counts,
				      b->pad_to > 1 && b->pad_to == n_rows ? b->token_at : NULL,
				      o.z,
				      (const float *)r->choice_bias,
				      n_rows,
				      w->n,
				      r->n_experts,
				      r->n_chosen,
				      r->n_groups,
				      r->groups_chosen,
				      r->score,
				      r->normalize,
				      r->scale,
				      r->jitter};
	int e = n_rows > FEW_ROWS ? outputs<MANY_ROWS, 8>(s, o) : outputs<1, 4>(s, o);
	if (!e)
		e = KERN_LAUNCH(route_choice_kernel,
				dim3((unsigned)((n_rows + CHOICE_ROWS - 1) / CHOICE_ROWS)),
				dim3(CHOICE_ROWS * 32),
				(size_t)(CHOICE_ROWS * (2 * c.n + c.n_groups)) * sizeof(float), s->s, c);
	return e;
}
