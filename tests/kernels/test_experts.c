/* Mixtures of experts: compare the router's choice with double precision, and the experts' outputs bit for
 * bit with their layers run one row at a time, in every mode and for any assignment of rows to experts. */
#include "tests/kernels/experts_test.h"

TestSuite(experts, .timeout = 600);

enum { HIDDEN = 128, INTER = 96, ROWS = 600, MOST_ROWS = 2100 };

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

/* On a GPU, a mode is one of the two types of operands. */
static const struct mode gpu_modes[] = {{KERN_COMPUTE_F32, "f16", 1}, {KERN_COMPUTE_BF16, "bf16", 1}};

static int n_modes(void)
{
	return kt_on_cpu() ? N_MODES : 2;
}

static const struct mode *mode_at(int m)
{
	return kt_on_cpu() ? &modes[m] : &gpu_modes[m % 2];
}

/* Return false if this machine lacks the instruction set. */
static bool open_mode(struct kt *t, const struct mode *m)
{
	struct why why = {""};
	struct kern_open_args a = {.compute = m->compute,
				   .isa = kt_on_cpu() ? m->isa : NULL,
				   .n_threads = m->threads,
				   .max_rows = MOST_ROWS,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 1,
				   .max_blocks_per_seq = 1};
	*t = (struct kt){.ops = kt_ops(&a.index), .op = KERN_F32, .isa = m->isa};
	cr_assert(t->ops->moe && t->ops->route, "every table computes experts");
	if (t->ops->open(&t->dev, &a, &why)) {
		cr_assert(kt_on_cpu() && strstr(why.text, m->isa), "%s", why.text);
		return false;
	}
	t->s = t->ops->stream_new(t->dev);
	return true;
}

/* ---- experts ---- */

static const struct xt_kind kinds[] = {
	{KERN_F32, 0, true, KERN_SILU},         {KERN_BF16, 0, false, KERN_GELU_TANH},
	{KERN_F16, 0, true, KERN_GELU_SIGMOID}, {KERN_AWQ4, 32, false, KERN_SILU},
	{KERN_CODES, KT_Q4_0, true, KERN_SILU}, {KERN_CODES, KT_Q8_0, false, KERN_SILU},
	{KERN_CODES, KT_W8, true, KERN_SILU},   {KERN_CODES, KT_MXFP4, true, KERN_GELU_SIGMOID},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* Run with all pairs assigned to one expert that is present. */
static void run_all_here(struct kt *t, const struct kern_experts *x, const struct xt_rows *r, int rows, int c,
			 const bool *here, float *out)
{
	struct xt_rows all = *r;
	int first = 0;
	while (!here[first])
		first++;
	all.expert = xmalloc((size_t)(rows * c) * sizeof *all.expert);
	for (int i = 0; i < rows * c; i++)
		all.expert[i] = first;
	xt_run(t, x, &all, rows, c, out);
	free(all.expert);
}

/* Save the experts, restore them to new memory, then restore them again to memory that overlaps it. */
static void check_saved(struct kt *t, struct kern_experts *x, const struct xt_rows *r, int rows, int c,
			const float *want, size_t n, const char *what)
{
	const size_t bytes = t->ops->experts_packed_bytes(x);
	struct kern_info before, after;
	void *host = t->ops->host_new(t->dev, bytes), *at = t->ops->mem_new(t->dev, 256 + bytes);
	float *got = xmalloc(n * 4);
	cr_assert(host && at);
	t->ops->info(t->dev, &before);
	cr_assert_eq(t->ops->experts_save(x, host), 0);
	t->ops->info(t->dev, &after);
	cr_expect_geq(before.bytes_used - after.bytes_used, t->ops->experts_bytes(x), "%s", what);
	for (int i = 0; i < 2; i++) {
		void *there = (char *)at + 256 * (size_t)i;
		t->ops->experts_place(x, there);
		cr_assert_eq(t->ops->upload(t->s, there, host, bytes), 0);
		xt_run(t, x, r, rows, c, got);
		kt_same(got, want, n, what);
	}
	t->ops->experts_free(x);
	t->ops->mem_free(t->dev, at, 256 + bytes);
	t->ops->host_free(t->dev, host, bytes);
	free(got);
}

static void check_set(struct kt *t, struct xt_set *s, const char *what, int c, int rows, enum xt_spread how)
{
	const bool *here = s->here;
	struct xt_rows r;
	struct kern_experts *x = xt_load(t, s, c);
	xt_rows_new(t, &r, s, rows, c, how);
	const size_t all = (size_t)rows * (size_t)s->hidden;
	float *want = xmalloc(all * 4), *got = xmalloc(all * 4);
	cr_assert_gt(t->ops->experts_bytes(x), 0);
	xt_one_by_one(t, s, &r, rows, c, want);
	if (here) /* fill the scratch memory with earlier results where another rank's pairs will be */
		run_all_here(t, x, &r, rows, c, here, got);
	xt_run(t, x, &r, rows, c, got);
	kt_same(got, want, all, what);
	if (t->ops->experts_save)
		check_saved(t, x, &r, rows, c, want, all, what);
	else
		t->ops->experts_free(x);
	xt_rows_fini(t, &r);
	free(want);
	free(got);
}

/* n experts, c of them chosen for each row. */
struct shape {
	int hidden, inter, n, c, rows;
};

static void check_part(const struct mode *m, struct xt_kind kind, struct shape z, enum xt_spread how,
		       const bool *here)
{
	struct kt t;
	struct xt_set s;
	char what[128];
	if (!open_mode(&t, m))
		return;
	xt_set_new(&s, z.n, kind, z.hidden, z.inter);
	s.here = here;
	snprintf(what, sizeof what, "mode %d, %s: %s %d, %d of %d experts, %d rows", m->compute, m->isa,
		 kt_dtype_name(kind.dtype), kind.group, z.c, z.n, z.rows);
	check_set(&t, &s, what, z.c, z.rows, how);
	cr_expect_eq(s.rounds, 0, "%s: experts of one kind are read %d times", what, 1 + s.rounds);
	xt_set_fini(&s);
	kt_close(&t);
}

static void check_shape(const struct mode *m, struct xt_kind kind, struct shape z, enum xt_spread how)
{
	check_part(m, kind, z, how, NULL);
}

static void check(const struct mode *m, struct xt_kind kind, int n, int c, int rows, enum xt_spread how)
{
	check_shape(m, kind, (struct shape){HIDDEN, INTER, n, c, rows}, how);
}

Test(experts, give_what_their_layers_give_row_by_row)
{
	static const int rows[] = {1, 2, 5, 40};
	for (int m = 0; m < n_modes(); m++)
		for (int k = 0; k < N_KINDS; k++)
			check(mode_at(m), kinds[k], 7, 1 + (m + k) % 4, rows[(m + 2 * k) % 4], XT_EVEN);
}

Test(experts, rows_come_to_one_expert_or_to_many)
{
	for (int m = 0; m < n_modes(); m += kt_on_cpu() ? 2 : 1)
		for (int how = XT_EVEN; how <= XT_ONE_FULL; how++)
			check(mode_at(m), kinds[(m + how) % N_KINDS], 9, 3, kt_brief() ? 150 : ROWS,
			      (enum xt_spread)how);
}

Test(experts, all_of_them_may_be_chosen)
{
	for (int m = 0; m < n_modes(); m++)
		if (m % 2)
			check(mode_at(m), kinds[0], 4, 4, 11, XT_EVEN);
		else
			check(mode_at(m), kinds[3], 1, 1, 300, XT_EVEN);
}

/* Inputs that a GPU splits into slices, and value counts that are no multiple of a unit. */
Test(experts, of_many_inputs_give_what_their_layers_give)
{
	for (int m = 0; m < n_modes(); m += kt_on_cpu() ? 4 : 1) {
		check_shape(mode_at(m), kinds[3], (struct shape){552, 264, 3, 2, 3}, XT_EVEN);
		check_shape(mode_at(m), kinds[1], (struct shape){264, 552, 3, 2, 20}, XT_ONE_FULL);
		check_shape(mode_at(m), kinds[1], (struct shape){264, 36, 3, 2, 3}, XT_ONE_FULL);
		check_shape(mode_at(m), kinds[3], (struct shape){264, 552, 2, 1, 1}, XT_EVEN);
		check_shape(mode_at(m), kinds[7], (struct shape){288, 544, 3, 2, 20}, XT_EVEN);
	}
}

/* The sizes are multiples of a super-block of 256. */
Test(experts, of_gguf_give_what_their_layers_give)
{
	static const int rows[] = {1, 6, 21, 90};
	static const struct xt_kind of[] = {{KERN_CODES, KT_Q4_K, true, KERN_SILU},
					    {KERN_CODES, KT_Q6_K, false, KERN_GELU_TANH}};
	for (int m = 0; m < n_modes(); m += kt_on_cpu() ? 2 : 1)
		for (int k = 0; k < 2; k++)
			for (int i = 0; i < 4; i++)
				check_shape(mode_at(m), of[k],
					    (struct shape){256, k ? 256 : 512, 4, 2, rows[i]},
					    i % 2 ? XT_ONE_FULL : XT_EVEN);
}

/* More rows than a GPU processes at once. */
Test(experts, of_thousands_of_rows_give_what_their_layers_give)
{
	const int most = kt_brief() ? 1100 : 2100;
	for (int m = 0; m < n_modes(); m += kt_on_cpu() ? 3 : 1)
		check_shape(mode_at(m), kinds[7], (struct shape){32, 32, 4, 2, most}, XT_ONE_FULL);
}

/* A rank returns the sum over its own experts. Some rows use none of them, and so does one whole batch. */
Test(experts, of_a_part_give_the_sum_of_that_part)
{
	enum { N = 9, C = 3 };
	const int rows[] = {1, 4, 33, kt_brief() ? 70 : ROWS};
	for (int m = 0; m < n_modes(); m++)
		for (int every = 2; every <= N; every += 3) {
			bool here[N];
			for (int e = 0; e < N; e++)
				here[e] = e % every == m % every;
			for (int how = XT_EVEN; how <= XT_ONE_FULL; how++)
				check_part(mode_at(m), kinds[(m + every) % N_KINDS],
					   (struct shape){HIDDEN, INTER, N, C, rows[(m + how) % 4]},
					   (enum xt_spread)how, here);
		}
}

/* One layer mixes types, group sizes, and experts with and without a bias; a rank may have only some of the
 * experts. */
Test(experts, of_several_kinds_give_what_their_layers_give)
{
	enum { N = 9, C = 3 };
	static const struct xt_kind of[] = {{KERN_AWQ4, 32, false, KERN_SILU},
					    {KERN_AWQ4, 64, true, KERN_SILU},
					    {KERN_BF16, 0, false, KERN_SILU},
					    {KERN_CODES, KT_Q4_0, false, KERN_SILU},
					    {KERN_AWQ4, 64, false, KERN_SILU}};
	const int rows[] = {1, 5, 33, kt_brief() ? 70 : ROWS};
	bool here[N];
	for (int e = 0; e < N; e++)
		here[e] = e % 4 != 2;
	for (int m = 0; m < n_modes(); m += kt_on_cpu() ? 3 : 1)
		for (int i = 0; i < 4; i++) {
			struct kt t;
			struct xt_set s;
			if (!open_mode(&t, mode_at(m)))
				continue;
			xt_set_new(&s, N, of[0], HIDDEN, INTER);
			for (int e = 0; e < N; e++)
				xt_set_kind(&s, e, of[e * (i + 1) % (i ? 5 : 2)]);
			s.here = i % 2 ? here : NULL;
			check_set(&t, &s, "experts of several kinds", C, rows[(m + i) % 4],
				  (enum xt_spread)((m + i) % 3));
			xt_set_fini(&s);
			kt_close(&t);
		}
}

/* The other rows of the batch, and their number, do not change a row's result. */
Test(experts, a_row_gives_the_same_alone)
{
	enum { N = 8, C = 2 };
	for (int m = 0; m < n_modes(); m++) {
		struct kt t;
		struct xt_set s;
		struct xt_rows r;
		if (!open_mode(&t, mode_at(m)))
			continue;
		xt_set_new(&s, N, kinds[m % N_KINDS], HIDDEN, INTER);
		struct kern_experts *x = xt_load(&t, &s, C);
		xt_rows_new(&t, &r, &s, ROWS, C, XT_EVEN);
		float *all = xmalloc((size_t)ROWS * HIDDEN * 4), one[HIDDEN];
		xt_run(&t, x, &r, ROWS, C, all);
		for (int row = 0; row < ROWS; row += 97) {
			struct xt_rows alone = r;
			alone.op = (char *)r.op + (size_t)row * t.ops->operand_bytes(t.dev, 1, HIDDEN);
			alone.expert += row * C;
			alone.weight += row * C;
			alone.begin += row * HIDDEN;
			alone.begin_by += row;
			xt_run(&t, x, &alone, 1, C, one);
			kt_same(one, all + (size_t)row * HIDDEN, HIDDEN, mode_at(m)->isa);
		}
		t.ops->experts_free(x);
		xt_rows_fini(&t, &r);
		xt_set_fini(&s);
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
	{KERN_SCORE_SPARSEMIXER, 40, 3, 0, 0, false, false, false, false, 1, KERN_F32},
};
/* SPARSEMIXER's jitter: large enough that most scores are shared. */
static const float jitter = 0.2f;

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

/* Return SPARSEMIXER's score of expert e. */
static double near_score(const struct rule *rule, const double *z, int e)
{
	double sum = 0;
	for (int o = 0; o < rule->n; o++)
		if (z[o] <= z[e] && (z[e] - z[o]) / fmax(fabs(z[o]), z[e]) <= 2 * (double)jitter)
			sum += exp(z[o] - z[e]);
	return 1 / sum;
}

/* Choose experts for one row in double precision. weight: of all experts, 0 for an expert that is not
 * chosen. */
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
		if (rule->score != KERN_SCORE_SPARSEMIXER)
			continue;
		s[e] = near_score(rule, z, e);
		v[e] = z[e];
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
	uint32_t counted[128] = {3, 0, UINT32_MAX}, got[128];
	struct kern_route_args a = {.expert = kt_new(t, picks),
				    .weight = kt_new(t, picks),
				    .shared = rule->shared ? kt_new(t, (size_t)rows * 4) : NULL,
				    .counts = kt_put(t, counted, sizeof counted),
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
				    .scale = rule->scale,
				    .jitter = jitter};
	float *after = xmalloc((size_t)rows * HIDDEN * 4);
	cr_assert_eq(t->ops->route(t->s, &a, rows), 0);
	kt_get(t, out->expert, a.expert, picks);
	kt_get(t, got, a.counts, sizeof got);
	for (int i = 0; i < rows * rule->c; i++)
		counted[out->expert[i]]++;
	cr_assert_arr_eq(got, counted, sizeof got, "rows of each expert are added to what was counted");
	kt_get(t, out->weight, a.weight, picks);
	if (rule->shared)
		kt_get(t, out->shared, a.shared, (size_t)rows * 4);
	kt_get(t, after, a.x, (size_t)rows * HIDDEN * 4);
	kt_same(after, x, (size_t)rows * HIDDEN, "the residual stream is left as it is");
	free(after);
	void *mine[] = {a.expert,
			a.weight,
			a.shared,
			a.counts,
			(void *)(uintptr_t)a.x,
			(void *)(uintptr_t)a.norm,
			(void *)(uintptr_t)a.choice_bias};
	for (int i = 0; i < 7; i++)
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
	struct why why = {""};
	cr_assert_eq(t->ops->linear_load(t->dev, &src, &router, &why), 0, "%s", why.text);
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

/* The router computes in F32 and gives the same bits in every mode and with every instruction set. */
Test(experts, routers_choose_by_every_rule)
{
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		int32_t expert[ROUTED * 8] = {0};
		float weight[ROUTED * 8] = {0};
		for (int m = 0; m < n_modes(); m++) {
			struct kt t;
			kt_state = 77 + i;
			if (!open_mode(&t, mode_at(m)))
				continue;
			check_rule(&t, &rules[i], &(struct routed){expert, weight, NULL});
			kt_close(&t);
		}
	}
}

static void check_equal_scores(struct kt *t)
{
	enum { N = 12, CHOSEN = 5 };
	struct kt_part p = kt_part(KERN_F32, HIDDEN, N, 0, false);
	struct kern_linear_src src = {
		.name = "router", .k = HIDDEN, .exact = true, .n_parts = 1, .parts = {p.part}};
	struct kern_linear *router = NULL;
	struct why why = {""};
	float x[2 * HIDDEN] = {0}, norm[HIDDEN], weight[10];
	int32_t expert[10];
	for (int i = 0; i < HIDDEN; i++)
		norm[i] = 1;
	x[HIDDEN] = NAN;
	cr_assert_eq(t->ops->linear_load(t->dev, &src, &router, &why), 0, "%s", why.text);
	struct kern_route_args a = {.expert = kt_new(t, sizeof expert),
				    .weight = kt_new(t, sizeof weight),
				    .x = kt_put(t, x, sizeof x),
				    .norm = kt_put(t, norm, sizeof norm),
				    .eps = 1e-6f,
				    .router = router,
				    .n_experts = N,
				    .n_chosen = CHOSEN,
				    .hidden = HIDDEN,
				    .normalize = true,
				    .scale = 1};
	cr_assert_eq(t->ops->route(t->s, &a, 2), 0);
	kt_get(t, expert, a.expert, sizeof expert);
	kt_get(t, weight, a.weight, sizeof weight);
	for (int i = 0; i < 10; i++)
		cr_expect_eq(expert[i], i % 5);
	for (int i = 0; i < 5; i++)
		cr_expect_float_eq(weight[i], 0.2, 1e-6);
	t->ops->linear_free(router);
	kt_part_fini(&p);
}

/* Rows of zeros give equal scores: the lowest experts are chosen, in ascending order. NaN ranks below all
 * numbers. */
Test(experts, equal_scores_go_to_the_lower_expert)
{
	for (int m = 0; m < n_modes(); m++) {
		struct kt t;
		if (!open_mode(&t, mode_at(m)))
			continue;
		check_equal_scores(&t);
		kt_close(&t);
	}
}

/* Route rows of zeros, so that only the values added to the scores distinguish experts. */
static void route_zeros(struct kt *t, const float *add, int32_t *expert)
{
	enum { N = 12, CHOSEN = 4 };
	struct kt_part p = kt_part(KERN_F32, HIDDEN, N, 0, false);
	struct kern_linear_src src = {
		.name = "router", .k = HIDDEN, .exact = true, .n_parts = 1, .parts = {p.part}};
	struct kern_linear *router = NULL;
	struct why why = {""};
	float x[HIDDEN] = {0}, norm[HIDDEN];
	for (int i = 0; i < HIDDEN; i++)
		norm[i] = 1;
	cr_assert_eq(t->ops->linear_load(t->dev, &src, &router, &why), 0, "%s", why.text);
	struct kern_route_args a = {.expert = kt_new(t, CHOSEN * 4),
				    .weight = kt_new(t, CHOSEN * 4),
				    .x = kt_put(t, x, sizeof x),
				    .norm = kt_put(t, norm, sizeof norm),
				    .eps = 1e-6f,
				    .router = router,
				    .choice_bias = kt_put(t, add, N * 4),
				    .n_experts = N,
				    .n_chosen = CHOSEN,
				    .hidden = HIDDEN,
				    .n_groups = 4,
				    .groups_chosen = 2,
				    .scale = 1};
	cr_assert_eq(t->ops->route(t->s, &a, 1), 0);
	kt_get(t, expert, a.expert, CHOSEN * 4);
	t->ops->linear_free(router);
	kt_part_fini(&p);
}

/* Among equal groups the lower ones are chosen. The two best scores of a group may be equal too. */
Test(experts, equal_scores_go_to_the_lower_group)
{
	static const struct {
		float add[12];
		int32_t want[4];
	} cases[] = {
		{{0}, {0, 1, 2, 3}},
		{{0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0}, {3, 4, 5, 6}},
		{{3, 3, 0, 5, 0, 0, 4, 1.5f, 0, 0, 0, 0}, {0, 1, 6, 7}}, /* 6, 5, 5.5, 0 */
		{{0, 0, 0, 5, 0, 0, 3, 0, 3, 0, 2, 2}, {3, 4, 6, 8}},    /* 0, 5, 6, 4 */
	};
	for (int m = 0; m < n_modes(); m++) {
		struct kt t;
		if (!open_mode(&t, mode_at(m)))
			continue;
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			int32_t expert[4];
			route_zeros(&t, cases[i].add, expert);
			for (int k = 0; k < 4; k++)
				cr_expect_eq(expert[k], cases[i].want[k], "%s, case %zu: %d is %d",
					     mode_at(m)->isa, i, k, expert[k]);
		}
		kt_close(&t);
	}
}

/* A sigmoid of large negative inputs is 0. */
Test(experts, outputs_far_below_zero_are_not_chosen)
{
	static const float outputs[] = {-100, -89, -1000, -5, 0, 3, -2, -1e4f};
	static const double sigmoids[] = {0.0066928509, 0.5, 0.9525741268, 0.1192029220};
	for (int m = 0; m < n_modes(); m++) {
		struct kt t;
		float w[9 * HIDDEN] = {0}, x[HIDDEN] = {1}, weight[4], shared;
		int32_t expert[4];
		struct why why = {""};
		if (!open_mode(&t, mode_at(m)))
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
		cr_assert_eq(t.ops->linear_load(t.dev, &src, &router, &why), 0, "%s", why.text);
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
			cr_expect_eq(expert[i], 3 + i, "%s: %d", mode_at(m)->isa, expert[i]);
			cr_expect_float_eq(weight[i], sigmoids[i], 1e-6);
		}
		cr_expect_float_eq(shared, 0, 1e-30, "%s: %g", mode_at(m)->isa, (double)shared);
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
	cr_assert(open_mode(&t, mode_at(0)));
	struct kt_part p = kt_part(KERN_AWQ4, HIDDEN, 16, 32, false);
	struct kern_linear_src src = {
		.name = "router", .k = HIDDEN, .group = 32, .exact = true, .n_parts = 1, .parts = {p.part}};
	struct kern_linear *router = NULL;
	struct why why = {""};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &router, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "F32, F16 or BF16"), "%s", why.text);
	kt_part_fini(&p);
	kt_close(&t);
}
