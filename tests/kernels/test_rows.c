/* Operations on single rows: norm, q/k norm with rotation and KV store, embedding, gather. Every way of a
 * class gives the same bits, close to a double-precision reference. */
#include "tests/kernels/kern_test.h"

/* ---- rmsnorm ---- */

enum { NORM_ROWS = 5 };

struct norm_case {
	int hidden;
	bool with_add;
	float *x, *add, *weight;
	double *ref; /* before rounding to an operand */
};

static struct norm_case norm_new(int hidden, bool with_add)
{
	const size_t n = (size_t)NORM_ROWS * (size_t)hidden;
	struct norm_case c = {hidden,        with_add, kt_floats(n), kt_floats(n), kt_floats((size_t)hidden),
			      xmalloc(n * 8)};
	for (int r = 0; r < NORM_ROWS; r++) {
		double ss = 0;
		for (int i = 0; i < hidden; i++) {
			size_t at = (size_t)(r * hidden + i);
			c.ref[at] = (double)c.x[at] + (with_add ? (double)c.add[at] : 0);
			ss += c.ref[at] * c.ref[at];
		}
		for (int i = 0; i < hidden; i++)
			c.ref[r * hidden + i] *= (double)c.weight[i] / sqrt(ss / hidden + 1e-6);
	}
	return c;
}

static void norm_free(struct norm_case *c)
{
	free(c->x);
	free(c->add);
	free(c->weight);
	free(c->ref);
}

/* Normalize all rows into got, and check that the last row alone gives the same bits. */
static void norm_run(struct kt *t, const struct norm_case *c, float *got)
{
	const size_t h = (size_t)c->hidden, n = NORM_ROWS * h;
	float *residual = xmalloc(n * 4), *one = xmalloc(h * 4);
	void *x = kt_put(t, c->x, n * 4), *add = kt_put(t, c->add, n * 4), *w = kt_put(t, c->weight, h * 4);
	void *out = kt_new(t, n * kt_op_size(t->op));
	cr_assert_eq(t->ops->rmsnorm(t->s, out, x, c->with_add ? add : NULL, w, NORM_ROWS, c->hidden, 1e-6f),
		     0);
	kt_get_op(t, got, out, n);
	kt_get(t, residual, x, n * 4);
	for (size_t e = 0; e < n; e++)
		cr_assert(residual[e] == (c->with_add ? c->x[e] + c->add[e] : c->x[e]), "residual at %zu", e);
	void *last = kt_put(t, residual + n - h, h * 4);
	cr_assert_eq(t->ops->rmsnorm(t->s, out, last, NULL, w, 1, c->hidden, 1e-6f), 0);
	kt_get_op(t, one, out, h);
	kt_same(one, got + n - h, h, "a row by itself");
	free(residual);
	free(one);
}

static void check_rmsnorm(int c, int hidden, bool with_add)
{
	struct norm_case m = norm_new(hidden, with_add);
	const size_t n = (size_t)NORM_ROWS * (size_t)hidden;
	float *got = xmalloc(n * 4), *want = NULL;
	double *tol = xmalloc(n * sizeof *tol);
	for (size_t i = 0; i < n; i++)
		tol[i] = 1e-6 + (1e-6 + kt_unit(kt_operand(c))) * fabs(m.ref[i]);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = NORM_ROWS}))
			continue;
		norm_run(&t, &m, got);
		kt_near(got, m.ref, tol, n, t.isa);
		if (want)
			kt_same(got, want, n, t.isa);
		else
			want = xmemdup(got, n * sizeof *got);
		kt_close(&t);
	}
	norm_free(&m);
	free(got);
	free(want);
	free(tol);
}

Test(rows, rmsnorm_adds_the_residual_and_normalizes)
{
	static const int sizes[] = {1, 7, 16, 33, 64, 172, 1024, 5000};
	for (int c = 0; c < kt_classes(); c++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			check_rmsnorm(c, sizes[i], true);
			check_rmsnorm(c, sizes[i], false);
		}
}

/* Normalize the same rows in place as F32; the input has no `add`. */
static void check_rmsnorm_f32(int c, int hidden)
{
	struct norm_case m = norm_new(hidden, false);
	const size_t h = (size_t)hidden, n = NORM_ROWS * h;
	float *got = xmalloc(n * 4), *one = xmalloc(h * 4), *want = NULL;
	double *tol = xmalloc(n * sizeof *tol);
	for (size_t i = 0; i < n; i++)
		tol[i] = 1e-6 + 2e-6 * fabs(m.ref[i]);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = NORM_ROWS}))
			continue;
		void *x = kt_put(&t, m.x, n * 4), *w = kt_put(&t, m.weight, h * 4),
		     *last = kt_put(&t, m.x + n - h, h * 4);
		cr_assert_eq(t.ops->rmsnorm_f32(t.s, x, w, NORM_ROWS, hidden, 1e-6f), 0);
		cr_assert_eq(t.ops->rmsnorm_f32(t.s, last, w, 1, hidden, 1e-6f), 0);
		kt_get(&t, got, x, n * 4);
		kt_get(&t, one, last, h * 4);
		kt_near(got, m.ref, tol, n, t.isa);
		kt_same(one, got + n - h, h, "a row by itself");
		if (want)
			kt_same(got, want, n, t.isa);
		else
			want = xmemdup(got, n * sizeof *got);
		kt_close(&t);
	}
	norm_free(&m);
	free(got);
	free(one);
	free(want);
	free(tol);
}

Test(rows, rmsnorm_f32_normalizes_in_place)
{
	static const int sizes[] = {1, 16, 33, 172, 1024, 5000};
	for (int c = 0; c < kt_classes(); c++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			check_rmsnorm_f32(c, sizes[i]);
}

/* Without a norm, the next layer reads the sum itself. */
static void check_no_norm(int c, int way, int hidden, bool with_add)
{
	const size_t n = (size_t)NORM_ROWS * (size_t)hidden;
	struct kt t;
	if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = NORM_ROWS}))
		return;
	float *x = kt_floats(n), *add = kt_floats(n), *got = xmalloc(n * 4), *sum = xmalloc(n * 4);
	void *dx = kt_put(&t, x, n * 4), *da = kt_put(&t, add, n * 4),
	     *out = kt_new(&t, n * kt_op_size(t.op));
	cr_assert_eq(t.ops->rmsnorm(t.s, out, dx, with_add ? da : NULL, NULL, NORM_ROWS, hidden, 1e-6f), 0);
	kt_get_op(&t, got, out, n);
	kt_get(&t, sum, dx, n * 4);
	for (size_t i = 0; i < n; i++)
		x[i] += with_add ? add[i] : 0;
	kt_same(sum, x, n, "residual");
	kt_round(t.op, x, n);
	kt_same(got, x, n, "operand");
	free(x);
	free(add);
	free(got);
	free(sum);
	kt_close(&t);
}

Test(rows, a_layer_without_a_norm_reads_the_residual)
{
	static const int sizes[] = {1, 33, 1024, 5000};
	for (int c = 0; c < kt_classes(); c++)
		for (int way = 0; way < KT_WAYS; way++)
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
				check_no_norm(c, way, sizes[i], true);
				check_no_norm(c, way, sizes[i], false);
			}
}

/* ---- value by value ---- */

static void check_add(int c, int width, bool weighed)
{
	enum { ROWS = 3 };
	const size_t n = ROWS * (size_t)width;
	const float by[ROWS] = {0.25f, 0, -3};
	float *x = kt_floats(n), *y = kt_floats(n), *got = xmalloc(n * 4), *want = xmalloc(n * 4);
	for (size_t i = 0; i < n; i++)
		want[i] = x[i] + (weighed ? by[i / (size_t)width] * y[i] : y[i]);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = ROWS}))
			continue;
		void *dx = kt_put(&t, x, n * 4), *dy = kt_put(&t, y, n * 4), *dby = kt_put(&t, by, sizeof by);
		cr_assert_eq(t.ops->add_rows(t.s, dx, dy, weighed ? dby : NULL, ROWS, width), 0);
		kt_get(&t, got, dx, n * 4);
		kt_same(got, want, n, t.isa);
		kt_close(&t);
	}
	free(x);
	free(y);
	free(got);
	free(want);
}

Test(rows, weighed_rows_are_added)
{
	static const int sizes[] = {1, 47, 4096, 9000};
	for (int c = 0; c < kt_classes(); c++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			check_add(c, sizes[i], true);
			check_add(c, sizes[i], false);
		}
}

static void check_map(int c, int width, enum kern_map what, float by)
{
	const size_t n = 3 * (size_t)width;
	float *x = kt_floats(n), *got = xmalloc(n * 4), *want = NULL;
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	for (size_t i = 0; i < n; i++) {
		x[i] *= i % 5 ? 10.0f : 1000.0f;
		ref[i] = what == KERN_MAP_SCALE ? (double)x[i] * (double)by
						: (double)by * tanh((double)x[i] / (double)by);
		tol[i] = 1e-6 * (double)by + 1e-6 * fabs(ref[i]);
	}
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = 3}))
			continue;
		void *dx = kt_put(&t, x, n * 4);
		cr_assert_eq(t.ops->map(t.s, dx, 3, width, what, by), 0);
		kt_get(&t, got, dx, n * 4);
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

Test(rows, values_are_scaled_and_capped)
{
	static const int sizes[] = {1, 16, 47, 4096, 9000};
	for (int c = 0; c < kt_classes(); c++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			check_map(c, sizes[i], KERN_MAP_SCALE, 45.25f);
			check_map(c, sizes[i], KERN_MAP_SOFTCAP, 30);
		}
}

Test(rows, what_is_no_number_stays_so_under_a_cap)
{
	const float x[] = {NAN, 1, INFINITY, -INFINITY};
	float y[4];
	for (int c = 0; c < kt_classes(); c++)
		for (int way = 0; way < KT_WAYS; way++) {
			struct kt t;
			if (!kt_open(&t, c, way, (struct kt_size){.rows = 1}))
				continue;
			void *dx = kt_put(&t, x, sizeof x);
			cr_assert_eq(t.ops->map(t.s, dx, 1, 4, KERN_MAP_SOFTCAP, 2), 0);
			kt_get(&t, y, dx, sizeof y);
			cr_expect(isnan(y[0]) && y[1] < 1 && y[2] == 2 && y[3] == -2, "%g %g %g %g",
				  (double)y[0], (double)y[1], (double)y[2], (double)y[3]);
			kt_close(&t);
		}
}

/* ---- q, k: norm and rotation ---- */

struct qk {
	int dim, rope_dim, heads, kv_heads;
	enum kern_rope_style style;
	enum { NO_NORM, OF_HEADS, OF_ALL } norm; /* OF_HEADS: of each head; OF_ALL: one over all heads */
	bool layer, bias, each,
		after; /* layer norms; with biases; weights for each head; after the rotation */
	float clip, beta;
};

enum { QK_FLOOR = 7, QK_ROWS = 20, QK_POS = 3, QK_CONTEXT = QK_ROWS + QK_POS };

struct qk_case {
	struct qk m;
	float *in, *q_norm, *k_norm, *q_bias, *k_bias, *rope;
	double *q, *k; /* reference, [rows][heads][dim] */
	float *v;      /* result of attention with a window of 1 */
};

/* Norm x [m->dim], in place; all: the n values that the norm is computed from. */
static void qk_norm(const struct qk *m, double *x, const double *all, int n, const float *norm,
		    const float *bias)
{
	double mean = 0, ss = 0;
	for (int d = 0; m->layer && d < n; d++)
		mean += all[d] / n;
	for (int d = 0; d < n; d++)
		ss += (all[d] - mean) * (all[d] - mean);
	for (int d = 0; d < m->dim; d++)
		x[d] = (x[d] - mean) / sqrt(ss / n + 1e-6) * (double)norm[d] +
		       (m->bias ? (double)bias[d] : 0);
}

static double qk_clip(const struct qk *m, double x)
{
	return m->clip > 0 ? fmax(-(double)m->clip, fmin((double)m->clip, x)) : x;
}

/* Compute head h of `heads` heads, which start at in. */
static void qk_reference(const struct qk *m, const float *in, int h, int heads, const float *norm,
			 const float *bias, const float *rope, double *out)
{
	const int n = m->norm == OF_ALL ? heads * m->dim : m->dim,
		  own = m->norm == OF_ALL || m->each ? h * m->dim : 0;
	const float *first = m->norm == OF_ALL ? in : in + h * m->dim;
	double all[2048];
	for (int d = 0; d < n; d++)
		all[d] = (double)first[d];
	for (int d = 0; d < m->dim; d++)
		out[d] = (double)in[h * m->dim + d];
	if (m->norm && !m->after)
		qk_norm(m, out, all, n, norm + own, bias + own);
	for (int d = 0; d < m->dim; d++)
		out[d] = qk_clip(m, out[d]);
	for (int i = 0; i < m->rope_dim / 2; i++) {
		int a = m->style == KERN_ROPE_HALVES ? i : 2 * i;
		int b = m->style == KERN_ROPE_HALVES ? i + m->rope_dim / 2 : 2 * i + 1;
		double c = (double)rope[2 * i], s = (double)rope[2 * i + 1], x = out[a], y = out[b];
		out[a] = x * c - y * s;
		out[b] = y * c + x * s;
	}
	if (m->norm && m->after) {
		memcpy(all, out, (size_t)m->dim * sizeof *all);
		qk_norm(m, out, all, m->dim, norm + own, bias + own);
	}
}

static int qk_width(const struct qk *m)
{
	return (m->heads + 2 * m->kv_heads) * m->dim;
}

static struct qk_case qk_new(struct qk m, enum kern_dtype op)
{
	const int width = qk_width(&m), qw = m.heads * m.dim, kw = m.kv_heads * m.dim;
	struct qk_case c = {.m = m};
	c.in = kt_floats((size_t)(QK_ROWS * width));
	kt_round(op, c.in, (size_t)(QK_ROWS * width));
	c.q_norm = kt_floats((size_t)qw);
	c.k_norm = kt_floats((size_t)kw);
	c.q_bias = kt_floats((size_t)qw);
	c.k_bias = kt_floats((size_t)kw);
	c.rope = xcalloc((size_t)(QK_CONTEXT * m.rope_dim) + 1, sizeof *c.rope);
	for (int i = 0; i < QK_CONTEXT * m.rope_dim; i += 2) {
		c.rope[i] = cosf((float)i);
		c.rope[i + 1] = sinf((float)i);
	}
	c.q = xmalloc((size_t)(QK_ROWS * qw) * sizeof *c.q);
	c.k = xmalloc((size_t)(QK_ROWS * kw) * sizeof *c.k);
	c.v = xmalloc((size_t)(QK_ROWS * qw) * sizeof *c.v);
	for (int r = 0; r < QK_ROWS; r++) {
		const float *row = c.in + r * width, *rope = c.rope + (r + QK_POS) * m.rope_dim;
		for (int h = 0; h < m.heads; h++) {
			const int kv = h / (m.heads / m.kv_heads);
			double *q = c.q + r * qw + h * m.dim;
			qk_reference(&m, row, h, m.heads, c.q_norm, c.q_bias, rope, q);
			for (int d = 0; d < m.dim; d++) {
				q[d] *= 1 + (double)m.beta * log(1 + floor((double)(r + QK_POS) / QK_FLOOR));
				c.v[r * qw + h * m.dim + d] = (float)qk_clip(
					&m, (double)row[(m.heads + m.kv_heads + kv) * m.dim + d]);
			}
		}
		for (int i = 0; i < qw; i++)
			c.v[r * qw + i] += 0.0f; /* attention returns +0 for -0 */
		for (int h = 0; h < m.kv_heads; h++)
			qk_reference(&m, row + m.heads * m.dim, h, m.kv_heads, c.k_norm, c.k_bias, rope,
				     c.k + r * kw + h * m.dim);
	}
	return c;
}

static void qk_free(struct qk_case *c)
{
	free(c->in);
	free(c->q_norm);
	free(c->k_norm);
	free(c->q_bias);
	free(c->k_bias);
	free(c->rope);
	free(c->q);
	free(c->k);
	free(c->v);
}

/* Run attention twice. v: result with a window of 1, which shows v alone. out: result over all earlier tokens
 * with scale 1, which shows k. */
static void qk_run(struct kt *t, const struct qk_case *c, float *q, float *v, float *out)
{
	const struct qk *m = &c->m;
	const size_t width = (size_t)qk_width(m), n = (size_t)(QK_ROWS * m->heads * m->dim);
	int32_t row0[] = {0, QK_ROWS}, pos0[] = {QK_POS}, table[] = {1, 0}, token_at[QK_ROWS] = {0};
	struct kern_kv *kv = t->ops->kv_new(t->dev, 1, m->kv_heads, m->dim, 16, 2, 0);
	void *in = kt_put_op(t, c->in, QK_ROWS * width), *dev_q = kt_new(t, n * kt_op_size(t->op));
	void *dev_out = kt_new(t, n * kt_op_size(t->op));
	void *q_norm = kt_put(t, c->q_norm, (size_t)(m->heads * m->dim) * 4),
	     *k_norm = kt_put(t, c->k_norm, (size_t)(m->kv_heads * m->dim) * 4),
	     *q_bias = kt_put(t, c->q_bias, (size_t)(m->heads * m->dim) * 4),
	     *k_bias = kt_put(t, c->k_bias, (size_t)(m->kv_heads * m->dim) * 4),
	     *squares = kt_new(t, QK_ROWS * 2 * sizeof(float));
	const struct kern_batch b = {.n_rows = QK_ROWS,
				     .n_seqs = 1,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = pos0,
				     .tables = table,
				     .table_stride = 2};
	const struct kern_qkv_args a = {
		.q = dev_q,
		.qkv = in,
		.q_norm = m->norm ? q_norm : NULL,
		.k_norm = m->norm ? k_norm : NULL,
		.q_norm_bias = m->bias ? q_bias : NULL,
		.k_norm_bias = m->bias ? k_bias : NULL,
		.norm = m->layer ? KERN_NORM_LAYER : KERN_NORM_RMS,
		.norm_each = m->each,
		.norm_after = m->after,
		.clip = m->clip,
		.q_beta = m->beta,
		.q_floor = QK_FLOOR,
		.squares = m->norm == OF_ALL ? squares : NULL,
		.q_width = m->heads * m->dim,
		.k_width = m->kv_heads * m->dim,
		.eps = 1e-6f,
		.rope = kt_put(t, c->rope, (size_t)(QK_CONTEXT * m->rope_dim) * 4 + 4),
		.rope_dim = m->rope_dim,
		.style = m->style,
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.kv = kv,
	};
	struct kern_attn_args attn = {
		.out = dev_out,
		.q = dev_q,
		.kv = kv,
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.scale = 1,
		.window = 1,
	};
	cr_assert_eq(t->ops->batch_set(t->s, &b), 0);
	cr_assert_eq(t->ops->qkv_squares(t->s, squares, in, QK_ROWS, m->heads, m->kv_heads, m->dim), 0);
	cr_assert_eq(t->ops->qkv(t->s, &a), 0);
	kt_get_op(t, q, dev_q, n);
	cr_assert_eq(t->ops->attention(t->s, &attn), 0);
	kt_get_op(t, v, dev_out, n);
	attn.window = 2;
	cr_assert_eq(t->ops->attention(t->s, &attn), 0);
	kt_get_op(t, out, dev_out, n);
	t->ops->kv_free(kv);
}

/* Check row r and head h: softmax over two scores from the reference's q and k. */
static void check_k(const struct qk_case *c, const float *out, double unit)
{
	const struct qk *m = &c->m;
	const int qw = m->heads * m->dim, kw = m->kv_heads * m->dim;
	for (int r = 1; r < QK_ROWS; r++)
		for (int h = 0; h < m->heads; h++) {
			const int kv = h / (m->heads / m->kv_heads);
			const double *q = c->q + r * qw + h * m->dim;
			double s[2] = {0}, size = 0, ref[256], tol[256];
			for (int j = 0; j < 2; j++)
				for (int d = 0; d < m->dim; d++) {
					double x = q[d] * c->k[(r - 1 + j) * kw + kv * m->dim + d];
					s[j] += x;
					size += fabs(x);
				}
			const double p = 1 / (1 + exp(s[0] - s[1]));
			for (int d = 0; d < m->dim; d++) {
				const double v0 = (double)c->v[(r - 1) * qw + h * m->dim + d];
				const double v1 = (double)c->v[r * qw + h * m->dim + d];
				ref[d] = (1 - p) * v0 + p * v1;
				/* q, k rounded, then p and the result */
				tol[d] = (2 * unit + 4e-6) * (size + 1);
			}
			kt_near(out + r * qw + h * m->dim, ref, tol, (size_t)m->dim, "k, seen by attention");
		}
}

static void check_qkv(int c, struct qk m)
{
	const enum kern_dtype op = kt_operand(c);
	const size_t n = (size_t)(QK_ROWS * m.heads * m.dim);
	struct qk_case k = qk_new(m, op);
	float *q = xmalloc(n * 4), *v = xmalloc(n * 4), *out = xmalloc(n * 4), *want = NULL, *want_out = NULL;
	double *tol = xmalloc(n * sizeof *tol);
	for (size_t i = 0; i < n; i++)
		tol[i] = 2e-6 + (kt_unit(op) + 1e-6) * (fabs(k.q[i]) + 0.01);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(
			    &t, c, way,
			    (struct kt_size){.threads = 1 + way * 6, .rows = QK_ROWS, .context = QK_CONTEXT}))
			continue;
		qk_run(&t, &k, q, v, out);
		kt_near(q, k.q, tol, n, t.isa);
		kt_same(v, k.v, n, "v");
		if (want) {
			kt_same(q, want, n, t.isa);
			kt_same(out, want_out, n, t.isa);
		} else {
			check_k(&k, out, kt_unit(op));
			want = xmemdup(q, n * 4);
			want_out = xmemdup(out, n * 4);
		}
		kt_close(&t);
	}
	qk_free(&k);
	free(q);
	free(v);
	free(out);
	free(want);
	free(want_out);
	free(tol);
}

Test(rows, qkv_normalizes_rotates_and_stores)
{
	for (int c = 0; c < kt_classes(); c++)
		for (int style = KERN_ROPE_HALVES; style <= KERN_ROPE_PAIRS; style++)
			for (int norm = NO_NORM; norm <= OF_ALL; norm++) {
				enum kern_rope_style s = (enum kern_rope_style)style;
				check_qkv(c, (struct qk){8, 8, 4, 2, s, norm, .clip = 0});
				check_qkv(c, (struct qk){64, 64, 2, 2, s, norm, .clip = 0});
				check_qkv(c, (struct qk){128, 128, 2, 1, s, norm, .clip = 0});
				check_qkv(c, (struct qk){40, 40, 6, 3, s, norm, .clip = 0});
				check_qkv(c, (struct qk){256, 64, 1, 1, s, norm, .clip = 0});
				/* rotates part of the head */
				check_qkv(c, (struct qk){24, 10, 3, 1, s, norm, .clip = 0});
				check_qkv(c, (struct qk){16, 0, 2, 1, s, norm, .clip = 0});
			}
}

Test(rows, qkv_has_the_norms_clips_and_scales_of_other_families)
{
	static const struct qk forms[] = {
		{40, 20, 6, 3, KERN_ROPE_HALVES, OF_HEADS, .layer = true},
		{40, 20, 6, 3, KERN_ROPE_HALVES, OF_HEADS, .layer = true, .bias = true},
		{64, 64, 4, 2, KERN_ROPE_PAIRS, OF_HEADS, .layer = true, .each = true},
		{64, 64, 4, 2, KERN_ROPE_HALVES, OF_HEADS, .layer = true, .bias = true, .each = true},
		{64, 64, 4, 2, KERN_ROPE_HALVES, OF_HEADS, .after = true},
		{24, 10, 3, 1, KERN_ROPE_PAIRS, OF_HEADS, .after = true, .layer = true},
		{128, 128, 2, 2, KERN_ROPE_HALVES, OF_ALL, .clip = 0.375f},
		{24, 24, 4, 2, KERN_ROPE_HALVES, NO_NORM, .clip = 0.25f},
		{64, 32, 4, 1, KERN_ROPE_PAIRS, NO_NORM, .beta = 0.3f},
		{16, 0, 2, 1, KERN_ROPE_HALVES, OF_HEADS, .beta = 0.1f},
	};
	for (int c = 0; c < kt_classes(); c++)
		for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
			check_qkv(c, forms[i]);
}

/* ---- embedding and gather ---- */

enum { EMBED_H = 72, EMBED_ROWS = 6, EMBED_V = 100 };

/* Pick KERN_PICK_MAX values per call, in more calls than the host queues before it waits. */
static void check_picks(int c, int way)
{
	enum { N = KERN_PICK_MAX, CALLS = 6, X = 5000 };
	static uint32_t pairs[CALLS][N][2];
	struct kt t;
	if (!kt_open(&t, c, way, (struct kt_size){0}))
		return;
	float *x = kt_floats(X), *out = t.ops->host_new(t.dev, CALLS * N * sizeof *out);
	void *dx = kt_put(&t, x, X * sizeof *x);
	cr_assert(out);
	for (int i = 0; i < CALLS * N; i++)
		out[i] = -1;
	for (uint32_t k = 0; k < CALLS; k++)
		for (uint32_t i = 0; i < N; i++) {
			pairs[k][i][0] = (i * 37 + k * 11) % X;
			pairs[k][i][1] = k * N + (i * 5 + k) % N;
		}
	for (int k = 0; k < CALLS; k++) /* the last call picks three values */
		cr_assert_eq(t.ops->pick(t.s, out, dx, (const uint32_t(*)[2])pairs[k], k < CALLS - 1 ? N : 3),
			     0);
	cr_assert_eq(t.ops->pick(t.s, out, dx, NULL, 0), 0);
	cr_assert_eq(t.ops->stream_sync(t.s), 0);
	for (int k = 0; k < CALLS; k++)
		for (int i = 0; i < N; i++) {
			const float want = k < CALLS - 1 || i < 3 ? x[pairs[k][i][0]] : -1;
			cr_assert(!memcmp(&out[pairs[k][i][1]], &want, sizeof want), "call %d, pair %d", k,
				  i);
		}
	t.ops->host_free(t.dev, out, CALLS * N * sizeof *out);
	free(x);
	kt_close(&t);
}

Test(rows, values_that_are_picked_come_to_their_places)
{
	for (int c = 0; c < kt_classes(); c++)
		for (int way = 0; way < KT_WAYS; way++)
			check_picks(c, way);
}

static void check_embedding(int c, int way, enum kern_dtype d, const struct kt_part *p)
{
	enum { H = EMBED_H, ROWS = EMBED_ROWS, V = EMBED_V, PARTS = 10 };
	/* the last token but one is outside the vocabulary: a row of zeros */
	static const int32_t tokens[] = {99, 0, 63, 64, 5, 1000, 17}, token_at[ROWS] = {0, 1, 2, 3, 5, 6};
	static const int32_t row0[] = {0, ROWS}, pos0[] = {0}, table[] = {0}, wanted[] = {3, 0, 3};
	struct kt t;
	struct kern_embed *e;
	struct why why = {""};
	float *f = xmemdup(p->f, V * H * 4), x[ROWS * H], y[V], g[3 * H];
	if (!kt_open(&t, c, way,
		     (struct kt_size){.threads = 2, .rows = ROWS, .logits = 3, .context = ROWS})) {
		free(f);
		return;
	}
	kt_round(t.op, f, V * H);
	cr_assert_eq(t.ops->embed_load(t.dev, &(struct kern_embed_src){p->w, d, V, H, true}, &e, &why), 0,
		     "%s", why.text);
	void *dt = kt_put(&t, tokens, sizeof tokens), *dx = kt_new(&t, sizeof x), *dy = kt_new(&t, sizeof g);
	const struct kern_batch b = {.n_rows = ROWS,
				     .n_seqs = 1,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = pos0,
				     .tables = table,
				     .table_stride = 1,
				     .n_logits = 3,
				     .logits_row = wanted};
	cr_assert_eq(t.ops->batch_set(t.s, &b), 0);
	for (int first = PARTS; first >= 0; first -= PARTS) { /* one rank's shard: ids from 10 on */
		cr_assert_eq(t.ops->embed(t.s, e, dt, first, dx), 0);
		kt_get(&t, x, dx, sizeof x);
		for (int r = 0; r < ROWS; r++) {
			static const float zeros[H];
			const int id = tokens[token_at[r]] - first;
			kt_same(x + r * H, id < 0 || id >= V ? zeros : f + id * H, H, "embedding");
		}
	}
	cr_assert_eq(t.ops->gather(t.s, dy, dx, H), 0);
	kt_get(&t, g, dy, sizeof g);
	for (int r = 0; r < 3; r++)
		kt_same(g + r * H, x + wanted[r] * H, H, "gathered");
	cr_assert(t.ops->embed_bytes(e) >= V * H * (int)kt_op_size(t.op == KERN_F32 ? d : t.op));
	/* Tied embedding: the table serves as the output head. */
	void *in = kt_put_op(&t, f + 99 * H, H), *logits = kt_new(&t, sizeof y);
	cr_assert_eq(t.ops->linear(t.s, t.ops->embed_linear(e), logits, in, 1, true), 0);
	kt_get(&t, y, logits, sizeof y);
	double dot = 0;
	for (int k = 0; k < H; k++)
		dot += (double)f[99 * H + k] * (double)f[99 * H + k];
	cr_assert(fabs((double)y[99] - dot) < 1e-5 * dot);
	t.ops->embed_free(e);
	kt_close(&t);
	free(f);
}

Test(rows, embedding_rows_are_read_through_the_token_buffer_and_serve_as_the_head)
{
	for (int d = KERN_F32; d <= KERN_BF16; d++) {
		struct kt_part p = kt_part((enum kern_dtype)d, EMBED_H, EMBED_V, 0, false);
		for (int c = 0; c < kt_classes(); c++)
			for (int way = 0; way < KT_WAYS; way++)
				check_embedding(c, way, (enum kern_dtype)d, &p);
		kt_part_fini(&p);
	}
}

Test(rows, an_embedding_is_not_awq)
{
	static const int32_t words[64];
	struct kt t;
	struct kern_embed *e;
	struct why why;
	kt_open_any(&t, 0, (struct kt_size){0});
	cr_assert_eq(
		t.ops->embed_load(t.dev, &(struct kern_embed_src){words, KERN_AWQ4, 8, 8, true}, &e, &why),
		-ENOTSUP);
	kt_close(&t);
}

/* ---- embeddings of codes ---- */

static const struct kern_ops *cpu_ops(void)
{
	int index;
	return kt_ops(&index);
}

struct coded {
	struct kt t;
	struct kern_embed *e;
};

static void open_coded(struct coded *o, enum kern_compute compute, enum kern_head type, const struct codes *c,
		       bool head)
{
	const struct kern_open_args a = {.index = -1,
					 .compute = compute,
					 .head = type,
					 .n_threads = 2,
					 .max_rows = 2,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 2,
					 .max_blocks_per_seq = 1};
	const struct kern_embed_src src = {c, KERN_CODES, c->n, c->k, head};
	struct why why = {""};
	*o = (struct coded){.t = {.ops = cpu_ops()}};
	cr_assert_eq(cpu_ops()->open(&o->t.dev, &a, &why), 0, "%s", why.text);
	o->t.s = cpu_ops()->stream_new(o->t.dev);
	cr_assert_eq(cpu_ops()->embed_load(o->t.dev, &src, &o->e, &why), 0, "%s", why.text);
}

static void close_coded(struct coded *o)
{
	cpu_ops()->embed_free(o->e);
	kt_close(&o->t);
}

/* Look up two tokens at a time and compare with the values of their codes, bit for bit. */
static void check_coded_rows(const struct coded *o, const float *want, int n_vocab, int h)
{
	static const int32_t row0[] = {0, 2}, pos0[] = {0}, table[] = {0}, token_at[] = {0, 1};
	const struct kern_batch b = {.n_rows = 2,
				     .n_seqs = 1,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = pos0,
				     .tables = table,
				     .table_stride = 1};
	float *x = xmalloc(2 * (size_t)h * sizeof *x);
	cr_assert_eq(cpu_ops()->batch_set(o->t.s, &b), 0);
	for (int id = 0; id + 1 < n_vocab; id++) {
		const int32_t tokens[] = {id, id + 1};
		cr_assert_eq(cpu_ops()->embed(o->t.s, o->e, tokens, 0, x), 0);
		kt_same(x, want + (size_t)id * (size_t)h, 2 * (size_t)h, "rows of codes");
	}
	free(x);
}

/* Compute the logits of one row with w, or with the embedding as the output head. */
static void coded_logits(const struct coded *o, const struct kern_linear *w, const float *x, float *out,
			 int h)
{
	const size_t bytes = cpu_ops()->operand_bytes(o->t.dev, 1, h);
	float *ones = xmalloc((size_t)h * sizeof *ones), *copy = xmemdup(x, (size_t)h * sizeof *x);
	void *in = cpu_ops()->mem_new(o->t.dev, bytes);
	for (int i = 0; i < h; i++)
		ones[i] = 1;
	cr_assert_eq(cpu_ops()->rmsnorm(o->t.s, in, copy, NULL, ones, 1, h, 1e-6f), 0);
	cr_assert_eq(cpu_ops()->linear(o->t.s, w ? w : cpu_ops()->embed_linear(o->e), out, in, 1, true), 0);
	cpu_ops()->mem_free(o->t.dev, in, bytes);
	free(ones);
	free(copy);
}

/* The output head gives the same bits as a layer with the same codes. */
static void check_coded_head(const struct coded *o, struct kt_part *p, int n_vocab, int h)
{
	struct kern_linear_src src = {.name = "head", .k = h, .head = true, .n_parts = 1, .parts = {p->part}};
	struct kern_linear *w;
	float *x = kt_floats((size_t)h), *got = kt_floats((size_t)n_vocab),
	      *want = kt_floats((size_t)n_vocab);
	struct why why = {""};
	cr_assert_eq(cpu_ops()->linear_load(o->t.dev, &src, &w, &why), 0, "%s", why.text);
	coded_logits(o, w, x, want, h);
	coded_logits(o, NULL, x, got, h);
	kt_same(got, want, (size_t)n_vocab, "the head");
	cpu_ops()->linear_free(w);
	free(x);
	free(got);
	free(want);
}

Test(rows, embeddings_of_codes_give_their_bits_in_every_mode)
{
	enum { H = 512, V = 150 };
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	for (int kind = KT_Q4_0; kind <= KT_W8; kind++) {
		struct kt_part p = kt_part(KERN_CODES, H, V, kind, false);
		for (int mode = KERN_COMPUTE_F32; mode <= KERN_COMPUTE_INT8; mode++)
			for (int head = 0; head < 2; head++) {
				struct coded o;
				open_coded(&o, (enum kern_compute)mode, KERN_HEAD_MODE, p.part.w, head);
				check_coded_rows(&o, p.f, V, H);
				if (head)
					check_coded_head(&o, &p, V, H);
				close_coded(&o);
			}
		kt_part_fini(&p);
	}
}

/* A tied embedding of codes is held once, unless the head has another format: mode bf16 adds a BF16 copy. */
Test(rows, a_tied_embedding_of_codes_is_held_once)
{
	enum { H = 512, V = 256 };
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	struct kt_part p = kt_part(KERN_CODES, H, V, KT_Q6_K, false);
	for (int mode = KERN_COMPUTE_F32; mode <= KERN_COMPUTE_INT8; mode++) {
		struct coded alone, tied;
		open_coded(&alone, (enum kern_compute)mode, KERN_HEAD_MODE, p.part.w, false);
		open_coded(&tied, (enum kern_compute)mode, KERN_HEAD_MODE, p.part.w, true);
		const double once = (double)cpu_ops()->embed_bytes(alone.e);
		const double both = (double)cpu_ops()->embed_bytes(tied.e);
		cr_expect_eq(once, H * V * 6.5625 / 8);
		if (mode == KERN_COMPUTE_BF16) /* this mode keeps the head in BF16 */
			cr_expect_eq(both, once + H * V * 2);
		else
			cr_expect_eq(both, once, "mode %d", mode);
		close_coded(&alone);
		close_coded(&tied);
	}
	kt_part_fini(&p);
}

/* A float embedding with an INT8 head has a second copy for the head; without a head there is none. */
Test(rows, an_embedding_that_is_not_the_head_has_no_copy_for_it)
{
	enum { H = 256, V = 64 };
	const struct kern_open_args a = {.index = -1,
					 .compute = KERN_COMPUTE_INT8,
					 .n_threads = 1,
					 .max_rows = 1,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 1,
					 .max_blocks_per_seq = 1};
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	struct kt_part p = kt_part(KERN_F16, H, V, 0, false);
	struct kern_dev *d;
	int64_t bytes[2];
	cr_assert_eq(cpu_ops()->open(&d, &a, NULL), 0);
	for (int head = 0; head < 2; head++) {
		struct kern_embed *e;
		const struct kern_embed_src src = {p.w, KERN_F16, V, H, head};
		cr_assert_eq(cpu_ops()->embed_load(d, &src, &e, NULL), 0);
		bytes[head] = cpu_ops()->embed_bytes(e);
		cpu_ops()->embed_free(e);
	}
	cr_expect_eq(bytes[0], H * V * 2);
	cr_expect_gt(bytes[1], H * V * 3);
	cpu_ops()->close(d);
	kt_part_fini(&p);
}

/* Codes stay codes if INT8 heads are requested: the bits are the same, also in modes with their own operand
 * types. */
Test(rows, a_head_of_codes_is_the_same_with_heads_in_int8)
{
	enum { H = 512, V = 64 };
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	struct kt_part p = kt_part(KERN_CODES, H, V, KT_Q8_0, false);
	float *x = kt_floats(H), y[2][V];
	for (int mode = KERN_COMPUTE_F32; mode <= KERN_COMPUTE_INT16; mode++) {
		for (int head = 0; head < 2; head++) {
			struct coded o;
			open_coded(&o, (enum kern_compute)mode, head ? KERN_HEAD_INT8 : KERN_HEAD_MODE,
				   p.part.w, true);
			coded_logits(&o, NULL, x, y[head], H);
			close_coded(&o);
		}
		kt_same(y[1], y[0], V, "with heads in INT8");
	}
	free(x);
	kt_part_fini(&p);
}
