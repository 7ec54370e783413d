/* Mixtures of experts: the choice of experts against one in double precision, and what experts give against
 * their layers run one row at a time, to the bit: in every mode, whatever rows come to the same expert. */
#include "tests/kernels/kern_test.h"

TestSuite(experts, .timeout = 120);

enum { HIDDEN = 128, INTER = 96, ROWS = 600 };

struct mode {
	enum kern_compute compute;
	const char *isa;
	int threads;
};

static const struct mode modes[] = {
	{KERN_COMPUTE_F32, "plain", 1},    {KERN_COMPUTE_F32, "avx2", 2},    {KERN_COMPUTE_F32, "avx512", 3},
	{KERN_COMPUTE_BF16, "plain", 2},   {KERN_COMPUTE_BF16, "avx512", 2}, {KERN_COMPUTE_INT16, "plain", 2},
	{KERN_COMPUTE_INT16, "avx512", 3}, {KERN_COMPUTE_INT8, "avx2", 2},   {KERN_COMPUTE_INT8, "avx512", 2},
};
enum { N_MODES = sizeof modes / sizeof modes[0] };

/* False where this machine lacks the instruction set, or the table has no experts. */
static bool open_mode(struct kt *t, const struct mode *m)
{
	char why[256] = "";
	struct kern_open_args a = {.compute = m->compute,
				   .isa = kt_on_cpu() ? m->isa : NULL,
				   .n_threads = m->threads,
				   .max_rows = ROWS,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 1,
				   .max_blocks_per_seq = 1};
	*t = (struct kt){.ops = kt_ops(&a.index), .op = KERN_F32, .isa = m->isa};
	if (!t->ops->moe || t->ops->open(&t->dev, &a, why, sizeof why))
		return false;
	t->s = t->ops->stream_new(t->dev);
	return true;
}

/* ---- experts ---- */

struct kind {
	enum kern_dtype dtype;
	int group;
	bool bias;
};

static const struct kind kinds[] = {{KERN_F32, 0, true},         {KERN_BF16, 0, false},
				    {KERN_F16, 0, true},         {KERN_AWQ4, 32, false},
				    {KERN_CODES, KT_Q4_0, true}, {KERN_CODES, KT_Q8_0, false},
				    {KERN_CODES, KT_W8, true}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

struct expert_set {
	int n;
	struct kind kind;
	struct kt_part gate[16], up[16], down[16];
	int asked; /* the next one that experts_load() has to ask for */
};

static int group_of(struct kind kind)
{
	return kind.dtype == KERN_AWQ4 ? kind.group : 0;
}

static void set_new(struct expert_set *s, int n, struct kind kind)
{
	*s = (struct expert_set){.n = n, .kind = kind};
	for (int e = 0; e < n; e++) {
		s->gate[e] = kt_part(kind.dtype, HIDDEN, INTER, kind.group, kind.bias);
		s->up[e] = kt_part(kind.dtype, HIDDEN, INTER, kind.group, kind.bias);
		s->down[e] = kt_part(kind.dtype, INTER, HIDDEN, kind.group, kind.bias);
	}
}

static void set_fini(struct expert_set *s)
{
	for (int e = 0; e < s->n; e++) {
		kt_part_fini(&s->gate[e]);
		kt_part_fini(&s->up[e]);
		kt_part_fini(&s->down[e]);
	}
}

static int give(void *arg, int e, struct kern_linear_src *gateup, struct kern_linear_src *down, char *why,
		size_t why_n)
{
	struct expert_set *s = arg;
	(void)why, (void)why_n;
	cr_assert_eq(e, s->asked++);
	*gateup = (struct kern_linear_src){.name = "gate and up",
					   .k = HIDDEN,
					   .group = group_of(s->kind),
					   .n_parts = 2,
					   .parts = {s->gate[e].part, s->up[e].part}};
	*down = (struct kern_linear_src){.name = "down",
					 .k = INTER,
					 .group = group_of(s->kind),
					 .n_parts = 1,
					 .parts = {s->down[e].part}};
	return 0;
}

static struct kern_experts *load(struct kt *t, struct expert_set *s, int chosen)
{
	char why[256] = "";
	struct kern_experts *x = NULL;
	const struct kern_experts_src src = {.name = "experts",
					     .n_experts = s->n,
					     .n_chosen = chosen,
					     .hidden = HIDDEN,
					     .intermediate = INTER,
					     .expert = give,
					     .arg = s};
	s->asked = 0;
	cr_assert_eq(t->ops->experts_load(t->dev, &src, &x, why, sizeof why), 0, "%s", why);
	cr_assert_eq(s->asked, s->n);
	return x;
}

/* ---- rows ---- */

/* Which experts rows have: ascending, by a rule that a case chooses. */
enum spread { EVEN, ALL_THE_SAME, ONE_FULL };

static void choose(enum spread how, int n, int c, int rows, int32_t *expert, float *weight)
{
	for (int r = 0; r < rows; r++)
		for (int i = 0, e = -1; i < c; i++) {
			const int room = n - c - (e + 1 - i); /* that may be passed over */
			e += 1 + (how == EVEN            ? (int)(kt_rand() % (uint32_t)(room + 1))
				  : how == ONE_FULL && i ? (r + i) % (room + 1)
							 : 0);
			expert[r * c + i] = e;
			weight[r * c + i] = fabsf(kt_float());
		}
}

struct rows {
	float *in, *begin, *begin_by, *weight;
	int32_t *expert;
	void *x, *op; /* on the device */
};

static void rows_new(struct kt *t, struct rows *r, int rows, int n, int c, enum spread how)
{
	const size_t all = (size_t)rows * HIDDEN;
	r->in = kt_floats(all);
	r->begin = kt_floats(all);
	r->begin_by = kt_floats((size_t)rows);
	r->weight = xmalloc((size_t)(rows * c) * sizeof *r->weight);
	r->expert = xmalloc((size_t)(rows * c) * sizeof *r->expert);
	choose(how, n, c, rows, r->expert, r->weight);
	r->x = kt_put(t, r->in, all * 4);
	r->op = kt_new(t, t->ops->operand_bytes(t->dev, rows, HIDDEN));
	cr_assert_eq(t->ops->rmsnorm(t->s, r->op, r->x, NULL, NULL, rows, HIDDEN, 0), 0);
}

static void rows_fini(struct kt *t, struct rows *r)
{
	kt_del(t, r->x);
	kt_del(t, r->op);
	free(r->in);
	free(r->begin);
	free(r->begin_by);
	free(r->weight);
	free(r->expert);
}

/* Every row's sum, by the layers of one expert after the other, a row at a time. */
static void one_by_one(struct kt *t, const struct expert_set *s, const struct rows *r, int rows, int c,
		       float *out)
{
	const struct kern_ops *k = t->ops;
	struct kern_linear *gateup[16], *down[16];
	const size_t in_row = k->operand_bytes(t->dev, 1, HIDDEN);
	void *mid = kt_new(t, k->operand_bytes(t->dev, 1, INTER)), *y = kt_new(t, HIDDEN * 4);
	float got[HIDDEN];
	for (int e = 0; e < s->n; e++) {
		struct kt_part gate = s->gate[e], up = s->up[e], last = s->down[e];
		gateup[e] = kt_load(t, HIDDEN, group_of(s->kind), (struct kt_part *[]){&gate, &up}, 2);
		down[e] = kt_load(t, INTER, group_of(s->kind), (struct kt_part *[]){&last}, 1);
	}
	for (int i = 0; i < rows * c; i++) {
		const int row = i / c, e = r->expert[i];
		float *to = out + (size_t)row * HIDDEN;
		const char *in = (const char *)r->op + (size_t)row * in_row;
		cr_assert_eq(k->gateup_swiglu(t->s, gateup[e], mid, in, 1), 0);
		cr_assert_eq(k->linear(t->s, down[e], y, mid, 1, true), 0);
		kt_get(t, got, y, sizeof got);
		for (int o = 0; o < HIDDEN; o++) {
			if (i % c == 0)
				to[o] = r->begin_by[row] * r->begin[(size_t)row * HIDDEN + (size_t)o];
			to[o] += r->weight[i] * got[o];
		}
	}
	for (int e = 0; e < s->n; e++) {
		k->linear_free(gateup[e]);
		k->linear_free(down[e]);
	}
	kt_del(t, mid);
	kt_del(t, y);
}

static void run(struct kt *t, const struct kern_experts *x, const struct rows *r, int rows, int c, float *out)
{
	const size_t all = (size_t)rows * HIDDEN * 4, picks = (size_t)(rows * c) * 4;
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

static void check(const struct mode *m, struct kind kind, int n, int c, int rows, enum spread how)
{
	struct kt t;
	struct expert_set s;
	struct rows r;
	char what[128];
	if (!open_mode(&t, m))
		return;
	set_new(&s, n, kind);
	struct kern_experts *x = load(&t, &s, c);
	rows_new(&t, &r, rows, n, c, how);
	float *want = xmalloc((size_t)rows * HIDDEN * 4), *got = xmalloc((size_t)rows * HIDDEN * 4);
	cr_assert_gt(t.ops->experts_bytes(x), 0);
	one_by_one(&t, &s, &r, rows, c, want);
	run(&t, x, &r, rows, c, got);
	snprintf(what, sizeof what, "mode %d, %s: %s %d, %d of %d experts, %d rows", m->compute, m->isa,
		 kt_dtype_name(kind.dtype), kind.group, c, n, rows);
	kt_same(got, want, (size_t)rows * HIDDEN, what);
	t.ops->experts_free(x);
	rows_fini(&t, &r);
	set_fini(&s);
	free(want);
	free(got);
	kt_close(&t);
}

Test(experts, give_what_their_layers_give_row_by_row)
{
	static const int rows[] = {1, 2, 5, 40};
	for (int m = 0; m < N_MODES; m++)
		for (int k = 0; k < N_KINDS; k++)
			check(&modes[m], kinds[k], 7, 1 + (m + k) % 4, rows[(m + 2 * k) % 4], EVEN);
}

Test(experts, rows_come_to_one_expert_or_to_many)
{
	for (int m = 0; m < N_MODES; m += 2)
		for (int how = EVEN; how <= ONE_FULL; how++)
			check(&modes[m], kinds[(m + how) % N_KINDS], 9, 3, ROWS, (enum spread)how);
}

Test(experts, all_of_them_may_be_chosen)
{
	check(&modes[1], kinds[0], 4, 4, 11, EVEN);
	check(&modes[8], kinds[3], 1, 1, 300, EVEN);
}

/* The batch's other rows, and their number, change nothing. */
Test(experts, a_row_gives_the_same_alone)
{
	enum { N = 8, C = 2 };
	for (int m = 0; m < N_MODES; m++) {
		struct kt t;
		struct expert_set s;
		struct rows r;
		if (!open_mode(&t, &modes[m]))
			continue;
		set_new(&s, N, kinds[m % N_KINDS]);
		struct kern_experts *x = load(&t, &s, C);
		rows_new(&t, &r, ROWS, N, C, EVEN);
		float *all = xmalloc((size_t)ROWS * HIDDEN * 4), one[HIDDEN];
		run(&t, x, &r, ROWS, C, all);
		for (int row = 0; row < ROWS; row += 97) {
			struct rows alone = r;
			alone.op = (char *)r.op + (size_t)row * t.ops->operand_bytes(t.dev, 1, HIDDEN);
			alone.expert += row * C;
			alone.weight += row * C;
			alone.begin += row * HIDDEN;
			alone.begin_by += row;
			run(&t, x, &alone, 1, C, one);
			kt_same(one, all + (size_t)row * HIDDEN, HIDDEN, modes[m].isa);
		}
		t.ops->experts_free(x);
		rows_fini(&t, &r);
		set_fini(&s);
		free(all);
		kt_close(&t);
	}
}

/* ---- the router ---- */

struct rule {
	enum kern_score score;
	int n, c, n_groups, groups_chosen;
	bool normalize, bias, choice_bias, shared;
	float scale;
	enum kern_dtype dtype;
};

static const struct rule rules[] = {
	{KERN_SCORE_SOFTMAX, 16, 4, 0, 0, true, false, false, false, 1, KERN_BF16},
	{KERN_SCORE_SOFTMAX, 60, 6, 0, 0, false, false, false, true, 1, KERN_F16},
	{KERN_SCORE_SIGMOID, 32, 5, 8, 3, true, false, true, false, 2.5f, KERN_F32},
	{KERN_SCORE_SOFTMAX, 33, 1, 0, 0, false, true, false, false, 0.5f, KERN_F32},
	{KERN_SCORE_SIGMOID, 128, 8, 1, 1, false, false, false, true, 1, KERN_BF16},
};

static double rank_of(const struct rule *rule, const double *v, int g)
{
	const int each = rule->n / rule->n_groups;
	double first = -INFINITY, second = each > 1 ? -INFINITY : 0;
	for (int i = g * each; i < (g + 1) * each; i++) {
		second = v[i] > first ? first : v[i] > second ? v[i] : second;
		first = v[i] > first ? v[i] : first;
	}
	return first + second;
}

/* The choice of one row in double; the weights of all experts, 0 where one is not chosen. */
static void choice(const struct rule *rule, const double *z, const float *add, double *weight)
{
	double s[128], v[128], sum = 0, chosen = 0, most = -INFINITY;
	for (int e = 0; e < rule->n; e++)
		most = fmax(most, z[e]);
	for (int e = 0; e < rule->n; e++) {
		s[e] = rule->score == KERN_SCORE_SIGMOID ? 1 / (1 + exp(-z[e])) : exp(z[e] - most);
		sum += s[e];
	}
	for (int e = 0; e < rule->n; e++) {
		s[e] /= rule->score == KERN_SCORE_SIGMOID ? 1 : sum;
		v[e] = s[e] + (rule->choice_bias ? (double)add[e] : 0);
		weight[e] = 0;
	}
	for (int g = 0; g < rule->n_groups; g++) {
		int better = 0;
		for (int o = 0; o < rule->n_groups; o++)
			better += rank_of(rule, v, o) > rank_of(rule, v, g);
		for (int e = 0; better >= rule->groups_chosen && e < rule->n / rule->n_groups; e++)
			s[g * (rule->n / rule->n_groups) + e] = -1;
	}
	for (int i = 0; i < rule->c; i++) {
		int best = -1;
		for (int e = 0; e < rule->n; e++)
			if (s[e] >= 0 && !(weight[e] > 0) && (best < 0 || v[e] > v[best]))
				best = e;
		weight[best] = s[best];
		chosen += s[best];
	}
	for (int e = 0; e < rule->n; e++)
		weight[e] *= (double)rule->scale / (rule->normalize ? chosen : 1);
}

static void normalize(const float *x, const float *norm, double *y)
{
	double sum = 0;
	for (int i = 0; i < HIDDEN; i++)
		sum += (double)x[i] * (double)x[i];
	for (int i = 0; i < HIDDEN; i++)
		y[i] = (double)x[i] / sqrt(sum / HIDDEN + 1e-6) * (double)norm[i];
}

static double dot(const struct kt_part *p, int row, const double *y)
{
	double sum = p->bias ? (double)((float *)p->bias)[row] : 0;
	for (int i = 0; i < HIDDEN; i++)
		sum += y[i] * (double)p->f[row * HIDDEN + i];
	return sum;
}

struct routed {
	int32_t *expert;
	float *weight, *shared;
};

static void route(struct kt *t, const struct rule *rule, const struct kern_linear *router, const float *x,
		  const float *norm, const float *add, int rows, struct routed *out)
{
	const size_t picks = (size_t)(rows * rule->c) * 4;
	struct kern_route_args a = {.expert = kt_new(t, picks),
				    .weight = kt_new(t, picks),
				    .shared = rule->shared ? kt_new(t, (size_t)rows * 4) : NULL,
				    .x = kt_put(t, x, (size_t)rows * HIDDEN * 4),
				    .norm = kt_put(t, norm, HIDDEN * 4),
				    .eps = 1e-6f,
				    .router = router,
				    .choice_bias = rule->choice_bias ? kt_put(t, add, 128 * 4) : NULL,
				    .n_experts = rule->n,
				    .n_chosen = rule->c,
				    .hidden = HIDDEN,
				    .n_groups = rule->n_groups,
				    .groups_chosen = rule->groups_chosen,
				    .score = rule->score,
				    .normalize = rule->normalize,
				    .scale = rule->scale};
	float *after = xmalloc((size_t)rows * HIDDEN * 4);
	cr_assert_eq(t->ops->route(t->s, &a, rows), 0);
	kt_get(t, out->expert, a.expert, picks);
	kt_get(t, out->weight, a.weight, picks);
	if (rule->shared)
		kt_get(t, out->shared, a.shared, (size_t)rows * 4);
	kt_get(t, after, a.x, (size_t)rows * HIDDEN * 4);
	kt_same(after, x, (size_t)rows * HIDDEN, "the residual stream is left as it is");
	free(after);
	void *mine[] = {a.expert,
			a.weight,
			a.shared,
			(void *)(uintptr_t)a.x,
			(void *)(uintptr_t)a.norm,
			(void *)(uintptr_t)a.choice_bias};
	for (int i = 0; i < 6; i++)
		if (mine[i])
			kt_del(t, mine[i]);
}

enum { ROUTED = 70 };

static void check_rule(struct kt *t, const struct rule *rule, const struct routed *first)
{
	struct kt_part p = kt_part(rule->dtype, HIDDEN, rule->n, 0, rule->bias);
	struct kt_part gate = kt_part(rule->dtype, HIDDEN, 1, 0, false);
	float *x = kt_floats((size_t)ROUTED * HIDDEN), *norm = kt_floats(HIDDEN), *add = kt_floats(128);
	struct kern_linear_src src = {.name = "router",
				      .k = HIDDEN,
				      .exact = true,
				      .n_parts = rule->shared ? 2 : 1,
				      .parts = {p.part, gate.part}};
	struct kern_linear *router = NULL;
	int32_t expert[ROUTED * 8], one_expert[8];
	float weight[ROUTED * 8], shared[ROUTED], one_weight[8], one_shared[1];
	char why[256] = "";
	cr_assert_eq(t->ops->linear_load(t->dev, &src, &router, why, sizeof why), 0, "%s", why);
	route(t, rule, router, x, norm, add, ROUTED, &(struct routed){expert, weight, shared});
	for (int r = 0; r < ROUTED; r++) {
		double y[HIDDEN], z[128], w[128];
		normalize(x + r * HIDDEN, norm, y);
		for (int e = 0; e < rule->n; e++)
			z[e] = dot(&p, e, y);
		choice(rule, z, add, w);
		for (int i = 0; i < rule->c; i++) {
			const int e = expert[r * rule->c + i];
			cr_assert(i == 0 || e > expert[r * rule->c + i - 1]);
			cr_assert_float_eq(weight[r * rule->c + i], w[e], 1e-5 * fabs(w[e]) + 1e-7,
					   "rule %d, %s, row %d: expert %d has %g, expected %g",
					   (int)(rule - rules), t->isa, r, e, (double)weight[r * rule->c + i],
					   w[e]);
		}
		if (rule->shared)
			cr_assert_float_eq(shared[r], 1 / (1 + exp(-dot(&gate, 0, y))), 1e-5);
		if (r % 23 == 0) {
			route(t, rule, router, x + r * HIDDEN, norm, add, 1,
			      &(struct routed){one_expert, one_weight, one_shared});
			cr_assert_arr_eq(one_expert, expert + r * rule->c, (size_t)rule->c * 4);
			kt_same(one_weight, weight + r * rule->c, (size_t)rule->c, "alone");
		}
	}
	if (first->weight[0] == 0) {
		memcpy(first->weight, weight, sizeof weight);
		memcpy(first->expert, expert, sizeof expert);
	}
	cr_assert_arr_eq(expert, first->expert, (size_t)(ROUTED * rule->c) * 4);
	kt_same(weight, first->weight, (size_t)(ROUTED * rule->c), "the first mode's weights");
	t->ops->linear_free(router);
	kt_part_fini(&p);
	kt_part_fini(&gate);
	free(x);
	free(norm);
	free(add);
}

/* In F32, and to the same bits, in every mode and with every instruction set. */
Test(experts, routers_choose_by_every_rule)
{
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		int32_t expert[ROUTED * 8] = {0};
		float weight[ROUTED * 8] = {0};
		for (int m = 0; m < N_MODES; m++) {
			struct kt t;
			kt_state = 77 + i;
			if (!open_mode(&t, &modes[m]))
				continue;
			check_rule(&t, &rules[i], &(struct routed){expert, weight, NULL});
			kt_close(&t);
		}
	}
}

/* Rows of zeros have equal scores: the lowest experts, ascending; NaN chooses as if it were the least. */
Test(experts, equal_scores_go_to_the_lower_expert)
{
	struct kt t;
	struct rule rule = {KERN_SCORE_SOFTMAX, 12, 5, 0, 0, true, false, false, false, 1, KERN_F32};
	if (!open_mode(&t, &modes[1]))
		cr_skip_test("no experts on this device");
	struct kt_part p = kt_part(KERN_F32, HIDDEN, rule.n, 0, false);
	struct kern_linear_src src = {
		.name = "router", .k = HIDDEN, .exact = true, .n_parts = 1, .parts = {p.part}};
	struct kern_linear *router = NULL;
	char why[256] = "";
	float x[2 * HIDDEN] = {0}, norm[HIDDEN], weight[10];
	int32_t expert[10];
	for (int i = 0; i < HIDDEN; i++)
		norm[i] = 1;
	x[HIDDEN] = NAN;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &router, why, sizeof why), 0, "%s", why);
	struct kern_route_args a = {.expert = kt_new(&t, sizeof expert),
				    .weight = kt_new(&t, sizeof weight),
				    .x = kt_put(&t, x, sizeof x),
				    .norm = kt_put(&t, norm, sizeof norm),
				    .eps = 1e-6f,
				    .router = router,
				    .n_experts = rule.n,
				    .n_chosen = rule.c,
				    .hidden = HIDDEN,
				    .normalize = true,
				    .scale = 1};
	cr_assert_eq(t.ops->route(t.s, &a, 2), 0);
	kt_get(&t, expert, a.expert, sizeof expert);
	kt_get(&t, weight, a.weight, sizeof weight);
	for (int i = 0; i < 10; i++)
		cr_expect_eq(expert[i], i % 5);
	for (int i = 0; i < 5; i++)
		cr_expect_float_eq(weight[i], 0.2, 1e-6);
	t.ops->linear_free(router);
	kt_part_fini(&p);
	kt_close(&t);
}

/* A sigmoid is 0 for what is far below 0. */
Test(experts, outputs_far_below_zero_are_not_chosen)
{
	static const float outputs[] = {-100, -89, -1000, -5, 0, 3, -2, -1e4f};
	static const double sigmoids[] = {0.0066928509, 0.5, 0.9525741268, 0.1192029220};
	for (int m = 0; m < N_MODES; m++) {
		struct kt t;
		float w[9 * HIDDEN] = {0}, x[HIDDEN] = {1}, weight[4], shared;
		int32_t expert[4];
		char why[256] = "";
		if (!open_mode(&t, &modes[m]))
			continue;
		for (int e = 0; e < 9; e++)
			w[e * HIDDEN] = e < 8 ? outputs[e] : -100;
		struct kern_linear *router = NULL;
		struct kern_linear_src src = {.name = "router",
					      .k = HIDDEN,
					      .exact = true,
					      .n_parts = 2,
					      .parts = {{.dtype = KERN_F32, .n = 8, .w = w},
							{.dtype = KERN_F32, .n = 1, .w = w + 8 * HIDDEN}}};
		cr_assert_eq(t.ops->linear_load(t.dev, &src, &router, why, sizeof why), 0, "%s", why);
		struct kern_route_args a = {.expert = kt_new(&t, sizeof expert),
					    .weight = kt_new(&t, sizeof weight),
					    .shared = kt_new(&t, sizeof shared),
					    .x = kt_put(&t, x, sizeof x),
					    .router = router,
					    .n_experts = 8,
					    .n_chosen = 4,
					    .hidden = HIDDEN,
					    .score = KERN_SCORE_SIGMOID,
					    .scale = 1};
		cr_assert_eq(t.ops->route(t.s, &a, 1), 0);
		kt_get(&t, expert, a.expert, sizeof expert);
		kt_get(&t, weight, a.weight, sizeof weight);
		kt_get(&t, &shared, a.shared, sizeof shared);
		for (int i = 0; i < 4; i++) {
			cr_expect_eq(expert[i], 3 + i, "%s: %d", modes[m].isa, expert[i]);
			cr_expect_float_eq(weight[i], sigmoids[i], 1e-6);
		}
		cr_expect_float_eq(shared, 0, 1e-30, "%s: %g", modes[m].isa, (double)shared);
		void *mine[] = {a.expert, a.weight, a.shared, (void *)(uintptr_t)a.x};
		for (int i = 0; i < 4; i++)
			kt_del(&t, mine[i]);
		t.ops->linear_free(router);
		kt_close(&t);
	}
}

Test(experts, a_router_of_codes_is_refused)
{
	struct kt t;
	if (!open_mode(&t, &modes[1]))
		cr_skip_test("no experts on this device");
	struct kt_part p = kt_part(KERN_AWQ4, HIDDEN, 16, 32, false);
	struct kern_linear_src src = {
		.name = "router", .k = HIDDEN, .group = 32, .exact = true, .n_parts = 1, .parts = {p.part}};
	struct kern_linear *router = NULL;
	char why[256] = "";
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &router, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "F32, F16 or BF16"), "%s", why);
	kt_part_fini(&p);
	kt_close(&t);
}
