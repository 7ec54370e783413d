/* route.c - chooses each row's experts: the router in F32, and the choice by the rules of kern.h. */
#include "kernels/cpu/linear.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct route_job {
	struct kern_dev *dev;
	const struct kern_route_args *a;
	float *rows;    /* [n_rows][H], normalized */
	const float *z; /* [n_rows][stride] outputs of the router */
	size_t stride;
};

static void norm_row(void *arg, int t, int thread)
{
	const struct route_job *j = arg;
	const int h = j->a->hidden;
	float *row = j->rows + (size_t)t * (size_t)h;
	(void)thread;
	memcpy(row, (const float *)j->a->x + (size_t)t * (size_t)h, (size_t)h * sizeof *row);
	if (j->a->norm)
		j->dev->isa->rmsnorm(row, row, NULL, j->a->norm, h, j->a->eps);
}

/* 1 / (1 + e^-z) of each value, with the same bits from every instruction set.  exp_block() computes e^x for
 * x up to 88. */
static void sigmoid(const struct cpu_isa *isa, float *s, const float *z, int n)
{
	(void)isa->exp_block(s, z, n, 0, -1);
	for (int i = 0; i < n; i++)
		s[i] = z[i] < -88 ? 0 : 1.0f / (1.0f + s[i]);
}

static void scores(const struct cpu_isa *isa, enum kern_score how, float *s, const float *z, int n)
{
	if (how == KERN_SCORE_SIGMOID) {
		sigmoid(isa, s, z, n);
		return;
	}
	const float sum = isa->exp_block(s, z, n, isa->max_block(z, n), 1);
	for (int i = 0; i < n; i++)
		s[i] /= sum;
}

/* Return the index of the largest of n, the lowest of equals; -1: all are -inf or NaN. */
static int largest(const float *v, int n)
{
	int best = -1;
	for (int i = 0; i < n; i++)
		if (v[i] > (best < 0 ? -INFINITY : v[best]))
			best = i;
	return best;
}

/* Return the sum of the two best values of a group. */
static float group_rank(const float *v, int n)
{
	const int first = largest(v, n);
	if (first < 0)
		return -INFINITY;
	float second = n > 1 ? -INFINITY : 0;
	for (int i = 0; i < n; i++)
		if (i != first && v[i] > second)
			second = v[i];
	return v[first] + second;
}

/* Keep only the experts of the best groups. */
static void keep_groups(const struct kern_route_args *a, float *v)
{
	const int each = a->n_experts / a->n_groups;
	float rank[KERN_EXPERTS_MAX];
	bool keep[KERN_EXPERTS_MAX] = {false};
	for (int g = 0; g < a->n_groups; g++)
		rank[g] = group_rank(v + g * each, each);
	for (int i = 0; i < a->groups_chosen; i++) {
		const int g = largest(rank, a->n_groups);
		if (g < 0)
			break;
		keep[g] = true;
		rank[g] = -INFINITY;
	}
	for (int e = 0; e < a->n_experts; e++)
		if (!keep[e / each])
			v[e] = -INFINITY;
}

/* Choose the n_chosen best of v, ascending.  If NaN leaves fewer, add the lowest experts left. */
static void choose(float *v, int n, int n_chosen, int32_t *out)
{
	bool chosen[KERN_EXPERTS_MAX] = {false};
	int left = n_chosen;
	for (int e; left && (e = largest(v, n)) >= 0; left--) {
		chosen[e] = true;
		v[e] = -INFINITY;
	}
	for (int e = 0; left && e < n; e++)
		if (!chosen[e]) {
			chosen[e] = true;
			left--;
		}
	for (int e = 0; e < n; e++)
		if (chosen[e])
			*out++ = e;
}

/* Compute SPARSEMIXER's scores of the n_chosen best experts.  v: room for n values. */
static void sparsemixer(const struct kern_route_args *a, float *s, const float *z, float *v)
{
	const int n = a->n_experts;
	memcpy(v, z, (size_t)n * sizeof *v);
	memset(s, 0, (size_t)n * sizeof *s);
	for (int i = 0, best; i < a->n_chosen && (best = largest(v, n)) >= 0; i++) {
		const float most = v[best];
		float sum = 0;
		for (int e = 0; e < n; e++) {
			const float size = fabsf(z[e]);
			if (v[e] > -INFINITY &&
			    !((most - z[e]) / (size > most ? size : most) > 2 * a->jitter))
				sum += expf(v[e] - most);
		}
		s[best] = 1 / sum;
		v[best] = -INFINITY;
	}
}

static void route_row(void *arg, int t, int thread)
{
	const struct route_job *j = arg;
	const struct kern_route_args *a = j->a;
	const float *z = j->z + (size_t)t * j->stride, *add = a->choice_bias;
	int32_t *expert = a->expert + (size_t)t * (size_t)a->n_chosen;
	float *weight = a->weight + (size_t)t * (size_t)a->n_chosen, sum = 0;
	float s[KERN_EXPERTS_MAX], v[KERN_EXPERTS_MAX];
	(void)thread;
	const bool by_z = a->score == KERN_SCORE_SPARSEMIXER;
	if (by_z)
		sparsemixer(a, s, z, v);
	else
		scores(j->dev->isa, a->score, s, z, a->n_experts);
	for (int e = 0; e < a->n_experts; e++)
		v[e] = (by_z ? z[e] : s[e]) + (add ? add[e] : 0);
	if (a->n_groups)
		keep_groups(a, v);
	choose(v, a->n_experts, a->n_chosen, expert);
	for (int i = 0; i < a->n_chosen; i++)
		sum += s[expert[i]];
	for (int i = 0; i < a->n_chosen; i++) {
		weight[i] = s[expert[i]];
		if (a->normalize)
			weight[i] /= sum;
		weight[i] *= a->scale;
	}
	if (a->shared)
		sigmoid(j->dev->isa, &a->shared[t], z + a->n_experts, 1);
}

int cpu_route(struct kern_stream *s, const struct kern_route_args *a, int n_rows)
{
	struct kern_dev *d = s->dev;
	const struct kern_linear *w = a->router;
	struct route_job j = {.dev = d, .a = a, .rows = d->wide, .z = d->routes, .stride = (size_t)w->n};
	assert(w->dev == d && w->k == a->hidden && w->parts[0].n == a->n_experts);
	assert(a->n_experts <= KERN_EXPERTS_MAX && a->n_chosen <= a->n_experts);
	assert(a->n_chosen > 0 && a->n_chosen <= KERN_CHOSEN_MAX && w->n_parts == (a->shared ? 2 : 1));
	assert(!a->n_groups || (a->n_experts % a->n_groups == 0 && a->groups_chosen <= a->n_groups));
	assert((size_t)n_rows * (size_t)w->k * sizeof(float) <= d->wide_bytes);
	cpu_run(d, n_rows, (int64_t)n_rows * a->hidden * 2, norm_row, &j);
	cpu_linear_floats(w, d->routes, d->wide, n_rows);
	cpu_run(d, n_rows, (int64_t)n_rows * a->n_experts * 4, route_row, &j);
	for (int i = 0; a->counts && i < n_rows * a->n_chosen; i++)
		a->counts[a->expert[i]]++;
	return 0;
}
