/* Layer norms, learned positions and activations: every way of a class gives the same bits, close to a
 * double-precision reference. */
#include "tests/kernels/kern_test.h"

enum { ROWS = 5 };

/* ---- layer norm ---- */

struct norm_case {
	int hidden;
	bool add, bias, in_place;
};

/* Compute the reference, and its tolerance for results rounded by `unit`. */
static void norm_reference(const struct norm_case *c, const float *x, const float *add, const float *weight,
			   const float *bias, double unit, double *ref, double *tol)
{
	const int h = c->hidden;
	for (int r = 0; r < ROWS; r++) {
		double *y = ref + r * h, mean = 0, ss = 0;
		for (int i = 0; i < h; i++) {
			y[i] = (double)x[r * h + i] + (c->add ? (double)add[r * h + i] : 0);
			mean += y[i] / h;
		}
		for (int i = 0; i < h; i++)
			ss += (y[i] - mean) * (y[i] - mean);
		for (int i = 0; i < h; i++) {
			const double by = (double)weight[i] / sqrt(ss / h + 1e-5);
			/* The mean's error, of values of about 1, is scaled like the values. */
			tol[r * h + i] = 1e-6 + 2e-6 * fabs(by) * (1 + fabs(y[i]));
			y[i] = (y[i] - mean) * by + (c->bias ? (double)bias[i] : 0);
			tol[r * h + i] += unit * fabs(y[i]);
		}
	}
}

static void check_layernorm(int class, struct norm_case c)
{
	const size_t h = (size_t)c.hidden, n = ROWS * h;
	float *x = kt_floats(n), *add = kt_floats(n), *weight = kt_floats(h), *bias = kt_floats(h),
	      *got = xmalloc(n * 4), *one = xmalloc(h * 4), *sum = xmalloc(n * 4), *want = NULL;
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	norm_reference(&c, x, add, weight, bias, c.in_place ? 0 : kt_unit(kt_operand(class)), ref, tol);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, class, way, (struct kt_size){.threads = 2, .rows = ROWS}))
			continue;
		void *out = kt_new(&t, n * 4);
		struct kern_layernorm_args a = {.out = c.in_place ? NULL : out,
						.x = kt_put(&t, x, n * 4),
						.add = c.add ? kt_put(&t, add, n * 4) : NULL,
						.weight = kt_put(&t, weight, h * 4),
						.bias = c.bias ? kt_put(&t, bias, h * 4) : NULL,
						.hidden = c.hidden,
						.eps = 1e-5f};
		cr_assert_eq(t.ops->layernorm(t.s, &a, ROWS), 0);
		if (c.in_place) {
			kt_get(&t, got, a.x, n * 4);
		} else {
			kt_get_op(&t, got, out, n);
			kt_get(&t, sum, a.x, n * 4);
			for (size_t i = 0; i < n; i++)
				cr_assert(sum[i] == (c.add ? x[i] + add[i] : x[i]), "residual at %zu", i);
			/* The last row alone. */
			a.x = kt_put(&t, sum + n - h, h * 4);
			a.add = NULL;
			cr_assert_eq(t.ops->layernorm(t.s, &a, 1), 0);
			kt_get_op(&t, one, out, h);
			kt_same(one, got + n - h, h, "a row by itself");
		}
		kt_near(got, ref, tol, n, t.isa);
		if (want)
			kt_same(got, want, n, t.isa);
		else
			want = xmemdup(got, n * 4);
		kt_close(&t);
	}
	free(x);
	free(add);
	free(weight);
	free(bias);
	free(got);
	free(one);
	free(sum);
	free(want);
	free(ref);
	free(tol);
}

Test(layernorm, rows_have_mean_0_and_deviation_1_before_weights_and_bias)
{
	static const int sizes[] = {2, 7, 16, 33, 64, 172, 1024, 5000};
	for (int c = 0; c < kt_classes(); c++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			check_layernorm(c, (struct norm_case){sizes[i], true, true, false});
			check_layernorm(c, (struct norm_case){sizes[i], false, false, false});
			check_layernorm(c, (struct norm_case){sizes[i], true, true, true});
			check_layernorm(c, (struct norm_case){sizes[i], false, false, true});
		}
}

/* ---- positions ---- */

/* Two runs, at positions 3.. and 0..: each row gets its own position's embedding. */
Test(layernorm, positions_are_added_row_by_row)
{
	enum { H = 70, CONTEXT = 8, FIRST = 3 };
	const int32_t row0[] = {0, FIRST, ROWS}, pos0[] = {3, 0}, tables[] = {0, 0}, token_at[ROWS] = {0};
	float *x = kt_floats(ROWS * H), *table = kt_floats(CONTEXT * H), got[ROWS * H], want[ROWS * H];
	const struct kern_batch b = {.n_rows = ROWS,
				     .n_seqs = 2,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = pos0,
				     .tables = tables,
				     .table_stride = 1};
	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < H; i++)
			want[r * H + i] = x[r * H + i] + table[(r < FIRST ? r + 3 : r - FIRST) * H + i];
	for (int c = 0; c < kt_classes(); c++)
		for (int way = 0; way < KT_WAYS; way++) {
			struct kt t;
			if (!kt_open(&t, c, way,
				     (struct kt_size){
					     .threads = 2, .rows = ROWS, .seqs = 2, .context = CONTEXT}))
				continue;
			void *dx = kt_put(&t, x, ROWS * H * 4), *dt = kt_put(&t, table, CONTEXT * H * 4);
			struct kern_kv *kv = t.ops->kv_new(t.dev, 1, 1, 16, 16, 1, 0);
			cr_assert_eq(t.ops->batch_set(t.s, &b), 0);
			cr_assert_eq(t.ops->positions(t.s, dx, dt, H), 0);
			kt_get(&t, got, dx, ROWS * H * 4);
			kt_same(got, want, ROWS * H, t.isa);
			t.ops->kv_free(kv);
			kt_close(&t);
		}
	free(x);
	free(table);
}

/* ---- activations ---- */

static const struct kern_act_args xielu = {KERN_XIELU, 0.8f, 1.3f, 0.5f, -1e-6f};

static double act_reference(const struct kern_act_args *a, double g)
{
	const double c = sqrt(2 / 3.14159265358979323846);
	switch (a->act) {
	case KERN_SILU:
		return g / (1 + exp(-g));
	case KERN_GELU_TANH:
		return 0.5 * g * (1 + tanh(c * (g + 0.044715 * g * g * g)));
	case KERN_GELU_SIGMOID:
		return g / (1 + exp(-1.702 * g));
	case KERN_GELU:
		return 0.5 * g * (1 + erf(g / sqrt(2)));
	case KERN_RELU:
		return fmax(g, 0);
	case KERN_RELU2:
		return fmax(g, 0) * fmax(g, 0);
	case KERN_XIELU:
		break;
	}
	return g > 0 ? (double)a->alpha_p * g * g + (double)a->beta * g
		     : (double)a->alpha_n * (expm1(fmin(g, (double)a->eps)) - g) + (double)a->beta * g;
}

static void check_act(int class, enum kern_act act, int width)
{
	const size_t n = ROWS * (size_t)width;
	float *x = kt_floats(n), *got = xmalloc(n * 4), *want = NULL;
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	struct kern_act_args a = xielu;
	a.act = act;
	for (size_t i = 0; i < n; i++) {
		x[i] *= i % 7 ? 3.0f : 40.0f;
		x[i] = i % 11 ? x[i] : 0;
		ref[i] = act_reference(&a, (double)x[i]);
		tol[i] = 1e-6 * (1 + fabs((double)x[i])) + (2e-6 + kt_unit(kt_operand(class))) * fabs(ref[i]);
	}
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, class, way, (struct kt_size){.threads = 2, .rows = ROWS}))
			continue;
		void *dx = kt_put(&t, x, n * 4), *out = kt_new(&t, n * kt_op_size(t.op));
		cr_assert_eq(t.ops->activate(t.s, out, dx, ROWS, width, &a), 0);
		kt_get_op(&t, got, out, n);
		kt_near(got, ref, tol, n, t.isa);
		if (want)
			kt_same(got, want, n, t.isa);
		else
			want = xmemdup(got, n * 4);
		kt_close(&t);
	}
	free(x);
	free(got);
	free(want);
	free(ref);
	free(tol);
}

Test(layernorm, values_are_activated)
{
	static const int sizes[] = {1, 16, 47, 256, 1500};
	for (int c = 0; c < kt_classes(); c++)
		for (int act = KERN_SILU; act <= KERN_XIELU; act++)
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
				check_act(c, (enum kern_act)act, sizes[i]);
}
