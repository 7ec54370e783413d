/* experts_test.h - random experts and rows for the mixture tests, and the expected results: the experts'
 * layers run one row at a time. */
#ifndef QUERN_TESTS_KERNELS_EXPERTS_TEST_H
#define QUERN_TESTS_KERNELS_EXPERTS_TEST_H

#include "base/err.h"
#include "tests/kernels/kern_test.h"

/* ---- experts ---- */

struct xt_kind {
	enum kern_dtype dtype;
	int group;
	bool bias;
	enum kern_act act;
};

struct xt_set {
	int n, hidden, inter;
	struct xt_kind kind[16]; /* kind of each expert */
	struct kt_part gate[16], up[16], down[16];
	int asked;        /* last expert that experts_load() requested */
	int rounds;       /* times that the requests started again */
	const bool *here; /* [n] experts that must be requested; NULL: all */
};

static inline bool xt_is_here(const struct xt_set *s, int e)
{
	return !s->here || s->here[e];
}

static inline int xt_group_of(struct xt_kind kind)
{
	return kind.dtype == KERN_AWQ4 ? kind.group : 0;
}

static inline bool xt_clamped(struct xt_kind kind)
{
	return kind.act == KERN_GELU_SIGMOID;
}

static inline void xt_set_new(struct xt_set *s, int n, struct xt_kind kind, int hidden, int inter)
{
	*s = (struct xt_set){.n = n, .hidden = hidden, .inter = inter};
	for (int e = 0; e < n; e++) {
		s->kind[e] = kind;
		s->gate[e] = kt_part(kind.dtype, hidden, inter, kind.group, kind.bias);
		s->up[e] = kt_part(kind.dtype, hidden, inter, kind.group, kind.bias);
		s->down[e] = kt_part(kind.dtype, inter, hidden, kind.group, kind.bias);
	}
}

static inline void xt_part_fini(struct xt_set *s, int e)
{
	kt_part_fini(&s->gate[e]);
	kt_part_fini(&s->up[e]);
	kt_part_fini(&s->down[e]);
}

/* Replace expert e with a random expert of another kind. */
static inline void xt_set_kind(struct xt_set *s, int e, struct xt_kind kind)
{
	xt_part_fini(s, e);
	s->kind[e] = kind;
	s->gate[e] = kt_part(kind.dtype, s->hidden, s->inter, kind.group, kind.bias);
	s->up[e] = kt_part(kind.dtype, s->hidden, s->inter, kind.group, kind.bias);
	s->down[e] = kt_part(kind.dtype, s->inter, s->hidden, kind.group, kind.bias);
}

static inline void xt_set_fini(struct xt_set *s)
{
	for (int e = 0; e < s->n; e++)
		xt_part_fini(s, e);
}

static inline int xt_give(void *arg, int e, struct kern_linear_src *gateup, struct kern_linear_src *down,
			  struct why *why)
{
	struct xt_set *s = arg;
	(void)why;
	if (e <= s->asked) { /* the requests start again */
		s->asked = -1;
		s->rounds++;
	}
	do
		s->asked++;
	while (!xt_is_here(s, s->asked));
	cr_assert_eq(e, s->asked);
	*gateup = (struct kern_linear_src){.name = "gate and up",
					   .k = s->hidden,
					   .group = xt_group_of(s->kind[e]),
					   .act = s->kind[e].act,
					   .limit = xt_clamped(s->kind[e]) ? KT_LIMIT : 0,
					   .up_plus = xt_clamped(s->kind[e]) ? KT_UP_PLUS : 0,
					   .n_parts = 2,
					   .parts = {s->gate[e].part, s->up[e].part}};
	*down = (struct kern_linear_src){.name = "down",
					 .k = s->inter,
					 .group = xt_group_of(s->kind[e]),
					 .n_parts = 1,
					 .parts = {s->down[e].part}};
	return 0;
}

static inline struct kern_experts *xt_load(struct kt *t, struct xt_set *s, int chosen)
{
	struct why why = {""};
	struct kern_experts *x = NULL;
	const struct kern_experts_src src = {.name = "experts",
					     .n_experts = s->n,
					     .n_chosen = chosen,
					     .hidden = s->hidden,
					     .intermediate = s->inter,
					     .here = s->here,
					     .expert = xt_give,
					     .arg = s};
	s->asked = -1;
	s->rounds = 0;
	cr_assert_eq(t->ops->experts_load(t->dev, &src, &x, &why), 0, "%s", why.text);
	for (int e = s->asked + 1; e < s->n; e++)
		cr_assert(!xt_is_here(s, e), "expert %d was not asked for", e);
	return x;
}

/* ---- rows ---- */

/* How experts are assigned to rows. Each row's experts are in ascending order. */
enum xt_spread { XT_EVEN, XT_ALL_THE_SAME, XT_ONE_FULL };

static inline void xt_choose(enum xt_spread how, int n, int c, int rows, int32_t *expert, float *weight)
{
	for (int r = 0; r < rows; r++)
		for (int i = 0, e = -1; i < c; i++) {
			const int room = n - c - (e + 1 - i); /* experts that may be skipped */
			e += 1 + (how == XT_EVEN            ? (int)(kt_rand() % (uint32_t)(room + 1))
				  : how == XT_ONE_FULL && i ? (r + i) % (room + 1)
							    : 0);
			expert[r * c + i] = e;
			weight[r * c + i] = fabsf(kt_float());
		}
}

struct xt_rows {
	int hidden;
	float *in, *begin, *begin_by, *weight;
	int32_t *expert;
	void *x, *op; /* on the device */
};

static inline void xt_rows_new(struct kt *t, struct xt_rows *r, const struct xt_set *s, int rows, int c,
			       enum xt_spread how)
{
	const size_t all = (size_t)rows * (size_t)s->hidden;
	r->hidden = s->hidden;
	r->in = kt_floats(all);
	r->begin = kt_floats(all);
	r->begin_by = kt_floats((size_t)rows);
	r->weight = xmalloc((size_t)(rows * c) * sizeof *r->weight);
	r->expert = xmalloc((size_t)(rows * c) * sizeof *r->expert);
	xt_choose(how, s->n, c, rows, r->expert, r->weight);
	r->x = kt_put(t, r->in, all * 4);
	r->op = kt_new(t, t->ops->operand_bytes(t->dev, rows, s->hidden));
	cr_assert_eq(t->ops->rmsnorm(t->s, r->op, r->x, NULL, NULL, rows, s->hidden, 0), 0);
}

static inline void xt_rows_fini(struct kt *t, struct xt_rows *r)
{
	kt_del(t, r->x);
	kt_del(t, r->op);
	free(r->in);
	free(r->begin);
	free(r->begin_by);
	free(r->weight);
	free(r->expert);
}

/* Compute each row's sum over the experts present, expert by expert and row by row, with single layers. */
static inline void xt_one_by_one(struct kt *t, const struct xt_set *s, const struct xt_rows *r, int rows,
				 int c, float *out)
{
	const struct kern_ops *k = t->ops;
	struct kern_linear *gateup[16], *down[16];
	const size_t h = (size_t)s->hidden, in_row = k->operand_bytes(t->dev, 1, s->hidden);
	void *mid = kt_new(t, k->operand_bytes(t->dev, 1, s->inter)), *y = kt_new(t, h * 4);
	float *got = xmalloc(h * 4);
	for (int e = 0; e < s->n; e++) {
		struct kt_part gate = s->gate[e], up = s->up[e], last = s->down[e];
		const struct xt_kind kind = s->kind[e];
		gateup[e] = kt_load_act(t, s->hidden, xt_group_of(kind), (struct kt_part *[]){&gate, &up}, 2,
					kind.act);
		down[e] = kt_load(t, s->inter, xt_group_of(kind), (struct kt_part *[]){&last}, 1);
	}
	for (int i = 0; i < rows * c; i++) {
		const int row = i / c, e = r->expert[i];
		float *to = out + (size_t)row * h;
		const char *in = (const char *)r->op + (size_t)row * in_row;
		for (int o = 0; i % c == 0 && o < s->hidden; o++)
			to[o] = r->begin_by[row] * r->begin[(size_t)row * h + (size_t)o];
		if (!xt_is_here(s, e))
			continue;
		cr_assert_eq(k->gateup_swiglu(t->s, gateup[e], mid, in, 1), 0);
		cr_assert_eq(k->linear(t->s, down[e], y, mid, 1, true), 0);
		kt_get(t, got, y, h * 4);
		for (int o = 0; o < s->hidden; o++)
			to[o] += r->weight[i] * got[o];
	}
	for (int e = 0; e < s->n; e++) {
		k->linear_free(gateup[e]);
		k->linear_free(down[e]);
	}
	kt_del(t, mid);
	kt_del(t, y);
	free(got);
}

static inline void xt_run(struct kt *t, const struct kern_experts *x, const struct xt_rows *r, int rows,
			  int c, float *out)
{
	const size_t all = (size_t)rows * (size_t)r->hidden * 4, picks = (size_t)(rows * c) * 4;
	struct kern_moe_args a = {.out = kt_new(t, all),
				  .in = r->op,
				  .expert = kt_put(t, r->expert, picks),
				  .weight = kt_put(t, r->weight, picks),
				  .begin = kt_put(t, r->begin, all),
				  .begin_by = kt_put(t, r->begin_by, (size_t)rows * 4)};
	cr_assert_eq(t->ops->moe(t->s, x, &a, rows), 0);
	kt_get(t, out, a.out, all);
	void *mine[] = {a.out, (void *)(uintptr_t)a.expert, (void *)(uintptr_t)a.weight,
			(void *)(uintptr_t)a.begin, (void *)(uintptr_t)a.begin_by};
	for (int i = 0; i < 5; i++)
		kt_del(t, mine[i]);
}

#endif
