/* Compare linear layers with a double-precision reference. A row must have the same bits for any number of
 * rows and in every kernel. */
#include "tests/kernels/kern_test.h"

struct shape {
	int k, n;
};

struct kind {
	enum kern_dtype dtype;
	int group; /* inputs per group; 0: all inputs */
};

static const struct kind kinds[] = {
	{KERN_F32, 0},   {KERN_F16, 0},    {KERN_BF16, 0}, {KERN_AWQ4, 32},
	{KERN_AWQ4, 64}, {KERN_AWQ4, 128}, {KERN_AWQ4, 0},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- rows and expected outputs ---- */

/* Make n random rows, rounded to operands and stored as floats. */
static float *rows_new(enum kern_dtype op, int n, int k)
{
	const size_t all = (size_t)n * (size_t)k;
	float *x = kt_floats(all);
	kt_round(op, x, all);
	return x;
}

/* Return the largest relative error of a stored weight: a GPU stores weights in the operand type. */
static double weight_error(enum kern_dtype op, enum kern_dtype d)
{
	return op == KERN_F32 || d == KERN_AWQ4 || d == KERN_CODES || d == op ? 0 : kt_unit(op);
}

/* Compute y = x w^T + bias in double precision, and its tolerance. */
static void reference(enum kern_dtype op, const struct kt_part *p, const float *x, int rows, int k, double *y,
		      double *tol)
{
	const double off = weight_error(op, p->part.dtype) + 2e-6;
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < p->part.n; c++) {
			const float *b = p->bias;
			double sum = b ? (double)b[c] : 0, size = fabs(sum);
			for (int i = 0; i < k; i++) {
				double v = (double)x[r * k + i] *
					   (double)p->f[(size_t)c * (size_t)k + (size_t)i];
				sum += v;
				size += fabs(v);
			}
			y[r * p->part.n + c] = sum;
			tol[r * p->part.n + c] = size * off + 1e-9;
		}
}

static void check_against_reference(struct kt *t, struct kind kind, struct shape z, int rows)
{
	char what[128];
	const int group = kind.group ? kind.group : z.k;
	const size_t n = (size_t)rows * (size_t)z.n;
	struct kt_part p = kt_part(kind.dtype, z.k, z.n, group, (z.k + rows) % 2);
	struct kern_linear *w = kt_load(t, z.k, group, &(struct kt_part *){&p}, 1);
	float *x = rows_new(t->op, rows, z.k), *y = xmalloc(n * sizeof *y);
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	void *in = kt_put_op(t, x, (size_t)rows * (size_t)z.k), *out = kt_new(t, n * sizeof *y);
	cr_assert_eq(t->ops->linear(t->s, w, out, in, rows, true), 0);
	kt_get(t, y, out, n * sizeof *y);
	reference(t->op, &p, x, rows, z.k, ref, tol);
	snprintf(what, sizeof what, "%s: %s group %d, %d rows, %d x %d", t->isa, kt_dtype_name(kind.dtype),
		 group, rows, z.k, z.n);
	kt_near(y, ref, tol, n, what);
	cr_assert(t->ops->linear_bytes(w) > 0);
	t->ops->linear_free(w);
	kt_del(t, in);
	kt_del(t, out);
	kt_part_fini(&p);
	free(x);
	free(y);
	free(ref);
	free(tol);
}

/* Check every kind and shape, and every step-th entry of rows. */
static void check_shapes(int c, const struct shape *shapes, size_t n_shapes, const int *rows, size_t n_rows,
			 size_t step)
{
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = 300}))
			continue;
		for (size_t d = 0; d < N_KINDS; d++)
			for (size_t s = 0; s < n_shapes; s++)
				for (size_t r = (s + d) % step; r < n_rows; r += step)
					check_against_reference(&t, kinds[d], shapes[s], rows[r]);
		kt_close(&t);
	}
}

/* Each class has its own test, so that the classes run in parallel. */
static void check_class(int c)
{
	static const struct shape shapes[] = {{1, 8},     {7, 16},    {64, 64},  {172, 176}, {200, 40},
					      {256, 136}, {296, 264}, {600, 72}, {1088, 24}};
	static const int rows[] = {1, 2, 3, 5, 8, 9, 13, 16, 17, 29, 33, 47, 64, 65, 100, 129};
	if (c < kt_classes())
		check_shapes(c, shapes, sizeof shapes / sizeof shapes[0], rows, sizeof rows / sizeof rows[0],
			     4);
}

Test(linear, matches_a_double_precision_reference)
{
	check_class(0);
}

Test(linear, matches_a_double_precision_reference_in_bf16)
{
	if (kt_classes() < 2)
		cr_skip_test("the CPU's operands are F32");
	check_class(1);
}

Test(linear, takes_odd_numbers_of_inputs_and_outputs)
{
	static const int outputs[] = {1, 3, 15, 17, 33, 47, 63, 65, 100, 129, 172};
	static const int inputs[] = {1, 5, 37, 63, 65, 135};
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.rows = 128}))
			continue;
		for (int o = 0; o < (int)(sizeof outputs / sizeof outputs[0]); o++)
			for (int i = 0; i < (int)(sizeof inputs / sizeof inputs[0]); i++)
				check_against_reference(&t, kinds[(o + i) % 3],
							(struct shape){inputs[i], outputs[o]},
							1 + 7 * (o + i));
		kt_close(&t);
	}
}

Test(linear, takes_groups_that_end_inside_a_unit_or_a_slice)
{
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.rows = 40}))
			continue;
		check_against_reference(&t, (struct kind){KERN_AWQ4, 96}, (struct shape){600, 40}, 5);
		check_against_reference(&t, (struct kind){KERN_AWQ4, 96}, (struct shape){608, 40}, 40);
		check_against_reference(&t, (struct kind){KERN_AWQ4, 256}, (struct shape){1088, 40}, 20);
		check_against_reference(&t, (struct kind){KERN_AWQ4, 64}, (struct shape){72, 40}, 3);
		check_against_reference(&t, (struct kind){KERN_AWQ4, 32}, (struct shape){3000, 8}, 3);
		kt_close(&t);
	}
}

/* Types with super-blocks have whole super-blocks of inputs. The inputs of the other types end within a
 * unit. */
Test(linear, codes_of_gguf_match_a_double_precision_reference)
{
	static const struct {
		enum kt_codes kind;
		struct shape shapes[3];
	} of[] = {
		{KT_Q4_0, {{32, 8}, {992, 40}, {1056, 24}}},
		{KT_Q8_0, {{32, 8}, {992, 40}, {1056, 24}}},
		{KT_Q4_K, {{256, 13}, {1024, 40}, {2304, 24}}},
		{KT_Q6_K, {{256, 13}, {1024, 40}, {2304, 24}}},
		{KT_W4, {{64, 8}, {600, 40}, {1160, 24}}},
		{KT_W8, {{40, 8}, {600, 40}, {1160, 24}}},
		{KT_MXFP4, {{32, 8}, {992, 40}, {1056, 24}}},
		{KT_ZEROS, {{64, 8}, {600, 40}, {1160, 24}}},
		{KT_W4_BF16, {{40, 8}, {992, 40}, {1160, 24}}},
	};
	static const int rows[] = {1, 5, 9, 16, 17, 40, 65, 131};
	for (int c = 0; c < kt_classes(); c++) {
		struct kt t;
		kt_open_any(&t, c, (struct kt_size){.threads = 2, .rows = 131});
		for (size_t d = 0; d < sizeof of / sizeof of[0]; d++)
			for (size_t s = 0; s < 3; s++)
				for (size_t r = (s + d) % 3; r < sizeof rows / sizeof rows[0]; r += 3)
					check_against_reference(&t, (struct kind){KERN_CODES, of[d].kind},
								of[d].shapes[s], rows[r]);
		kt_close(&t);
	}
}

Test(linear, takes_more_rows_than_one_round)
{
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.threads = 2, .rows = 600}))
			continue;
		check_against_reference(&t, (struct kind){KERN_AWQ4, 32}, (struct shape){64, 72}, 523);
		check_against_reference(&t, (struct kind){KERN_F16, 0}, (struct shape){64, 72}, 257);
		kt_close(&t);
	}
}

/* ---- bits ---- */

struct bits {
	struct kind kind;
	struct shape z;
	int rows;           /* rows that the first way computed in one call: the expected bits */
	int (*next)(int m); /* next number of rows to check, starting from 1 */
	struct kt_part p;
	float *x, *want, *got;
};

static void bits_way(struct bits *b, struct kt *t)
{
	char what[128];
	const int group = b->kind.group ? b->kind.group : b->z.k, k = b->z.k;
	const size_t n = (size_t)b->z.n, op = kt_op_size(t->op);
	struct kern_linear *w = kt_load(t, k, group, &(struct kt_part *){&b->p}, 1);
	char *in = kt_put_op(t, b->x, (size_t)b->rows * (size_t)k);
	void *out = kt_new(t, (size_t)b->rows * n * sizeof(float));
	if (!b->want) {
		b->want = xmalloc((size_t)b->rows * n * sizeof(float));
		cr_assert_eq(t->ops->linear(t->s, w, out, in, b->rows, true), 0);
		kt_get(t, b->want, out, (size_t)b->rows * n * sizeof(float));
	}
	for (int m = 1; m <= b->rows; m = b->next(m)) {
		const int r0 = m * 37 % (b->rows - m + 1);
		kt_seed((uint64_t)m);
		cr_assert_eq(t->ops->linear(t->s, w, out, in + (size_t)r0 * (size_t)k * op, m, true), 0);
		kt_get(t, b->got, out, (size_t)m * n * sizeof(float));
		snprintf(what, sizeof what, "%s: %s group %d, %d x %d, %d rows from %d", t->isa,
			 kt_dtype_name(b->kind.dtype), group, k, b->z.n, m, r0);
		kt_same(b->got, b->want + (size_t)r0 * n, (size_t)m * n, what);
	}
	t->ops->linear_free(w);
	kt_del(t, in);
	kt_del(t, out);
}

/* threads: largest number of threads (CPU). */
static void check_bits(int c, struct kind kind, struct shape z, int rows, int threads, int (*next)(int m))
{
	struct bits b = {.kind = kind, .z = z, .rows = rows, .next = next};
	b.p = kt_part(kind.dtype, z.k, z.n, kind.group ? kind.group : z.k, true);
	b.x = rows_new(kt_operand(c), rows, z.k);
	b.got = xmalloc((size_t)rows * (size_t)z.n * sizeof *b.got);
	for (int way = 0; way < (kt_on_cpu() ? KT_WAYS : 1); way++)
		for (int n = 1; n <= (kt_on_cpu() ? threads : 1); n++) {
			struct kt t;
			if (!kt_open(&t, c, way, (struct kt_size){.threads = n, .rows = rows}))
				break;
			bits_way(&b, &t);
			kt_close(&t);
		}
	kt_part_fini(&b.p);
	free(b.x);
	free(b.want);
	free(b.got);
}

/* Step through 1 to 18 rows, where the kernels change most, then through some counts, or all with
 * QUERN_TEST_LONG. */
static int next_rows(int m)
{
	return m < 18 || getenv("QUERN_TEST_LONG") ? m + 1 : m + (kt_brief() ? 61 : 17) + m % 13;
}

static int next_few(int m)
{
	return m < 5 ? m + 1 : m + 61;
}

/* Up to 300 rows, odd sizes, and groups of 32, 64, 128 and all inputs. */
Test(linear, a_rows_bits_depend_on_nothing_but_the_row)
{
	check_bits(0, kinds[1], (struct shape){516, 24}, 300, 1, next_rows);
	check_bits(0, kinds[3], (struct shape){600, 40}, 300, 1, next_rows);
	check_bits(0, kinds[4], (struct shape){328, 72}, 300, 1, next_rows);
	check_bits(0, kinds[5], (struct shape){1096, 24}, 300, 1, next_rows);
	check_bits(0, kinds[6], (struct shape){712, 40}, 300, 1, next_rows);
	if (kt_classes() < 2)
		return;
	check_bits(1, kinds[2], (struct shape){520, 40}, 300, 1, next_rows);
	check_bits(1, kinds[5], (struct shape){648, 40}, 300, 1, next_rows);
}

Test(linear, a_rows_bits_depend_on_nothing_but_the_row_in_codes)
{
	for (int c = 0; c < kt_classes(); c++) {
		check_bits(c, (struct kind){KERN_CODES, KT_Q4_0}, (struct shape){1056, 40}, 140, 1,
			   next_rows);
		check_bits(c, (struct kind){KERN_CODES, KT_Q8_0}, (struct shape){992, 40}, 140, 1, next_rows);
		check_bits(c, (struct kind){KERN_CODES, KT_Q4_K}, (struct shape){1024, 24}, 140, 1,
			   next_rows);
		check_bits(c, (struct kind){KERN_CODES, KT_Q6_K}, (struct shape){1280, 24}, 140, 1,
			   next_rows);
		check_bits(c, (struct kind){KERN_CODES, KT_MXFP4}, (struct shape){1056, 40}, 140, 1,
			   next_rows);
		check_bits(c, (struct kind){KERN_CODES, KT_ZEROS}, (struct shape){1056, 40}, 140, 1,
			   next_rows);
	}
}

Test(linear, a_rows_bits_do_not_depend_on_threads)
{
	for (int d = 0; d < N_KINDS; d++) {
		check_bits(0, kinds[d], (struct shape){172, 200}, 70, 3, next_few);
		check_bits(0, kinds[d], (struct shape){288, 72}, 70, 3, next_few);
	}
}

/* Layers of Qwen3-8B with 1 to 4,096 rows, on a GPU only. */
static int next_wide(int m)
{
	return m < 18 ? m + 1 : m + 191 + m % 67;
}

Test(linear, a_rows_bits_depend_on_nothing_but_the_row_in_real_shapes)
{
	if (kt_on_cpu() || kt_seeder())
		cr_skip_test("takes a GPU");
	check_bits(0, kinds[5], (struct shape){4096, 6144}, 4096, 1, next_wide);
	check_bits(0, kinds[5], (struct shape){12288, 4096}, 4096, 1, next_wide);
	check_bits(0, kinds[1], (struct shape){4096, 4096}, 4096, 1, next_wide);
	check_bits(1, kinds[2], (struct shape){4096, 4096}, 4096, 1, next_wide);
	check_bits(1, kinds[5], (struct shape){4096, 4096}, 4096, 1, next_wide);
}

/* ---- parts ---- */

static void check_parts(struct kt *t, struct kt_part *const *parts, int n_parts, int k, int group)
{
	struct kern_linear *w = kt_load(t, k, group, parts, n_parts);
	int n = 0;
	for (int i = 0; i < n_parts; i++)
		n += parts[i]->part.n;
	for (int rows = 1; rows <= 40; rows += 13) {
		const size_t all = (size_t)rows * (size_t)n;
		float *x = rows_new(t->op, rows, k), *y = xmalloc(all * 4), *got = xmalloc(all * 4);
		double *ref = xmalloc(all * sizeof *ref), *tol = xmalloc(all * sizeof *tol);
		void *in = kt_put_op(t, x, (size_t)rows * (size_t)k), *out = kt_new(t, all * 4);
		cr_assert_eq(t->ops->linear(t->s, w, out, in, rows, true), 0);
		kt_get(t, y, out, all * 4);
		for (int i = 0, n0 = 0; i < n_parts; n0 += parts[i++]->part.n) {
			const int pn = parts[i]->part.n;
			for (int r = 0; r < rows; r++)
				memcpy(got + r * pn, y + r * n + n0, (size_t)pn * sizeof *got);
			reference(t->op, parts[i], x, rows, k, ref, tol);
			kt_near(got, ref, tol, (size_t)(rows * pn), kt_dtype_name(parts[i]->part.dtype));
		}
		kt_del(t, in);
		kt_del(t, out);
		free(x);
		free(y);
		free(got);
		free(ref);
		free(tol);
	}
	t->ops->linear_free(w);
}

Test(linear, parts_lie_side_by_side_and_keep_their_types)
{
	enum { K = 160 };
	struct kt_part a = kt_part(KERN_AWQ4, K, 136, 32, true), b = kt_part(KERN_F16, K, 21, 0, false),
		       c = kt_part(KERN_BF16, K, 64, 0, true), d = kt_part(KERN_AWQ4, K, 40, 32, false),
		       e = kt_part(KERN_F16, K, 21, 0, true), f = kt_part(KERN_AWQ4, K, 40, 32, true);
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.threads = 2, .rows = 40}))
			continue;
		check_parts(&t, (struct kt_part *[]){&a, &b, &c}, 3, K, 32);
		check_parts(&t, (struct kt_part *[]){&b, &a, &c}, 3, K, 32);
		check_parts(&t, (struct kt_part *[]){&a, &d, &f}, 3, K, 32);
		check_parts(&t, (struct kt_part *[]){&d, &f}, 2, K, 32);
		check_parts(&t, (struct kt_part *[]){&b, &e}, 2, K, 32);
		check_parts(&t, (struct kt_part *[]){&b, &c}, 2, K, 32);
		kt_close(&t);
	}
	struct kt_part *all[] = {&a, &b, &c, &d, &e, &f};
	for (int i = 0; i < 6; i++)
		kt_part_fini(all[i]);
}

Test(linear, parts_of_several_codes_lie_side_by_side)
{
	enum { K = 256 };
	struct kt_part a = kt_part(KERN_CODES, K, 136, KT_Q4_K, true),
		       b = kt_part(KERN_CODES, K, 40, KT_Q4_K, false),
		       c = kt_part(KERN_CODES, K, 40, KT_Q6_K, true), d = kt_part(KERN_F16, K, 21, 0, true),
		       e = kt_part(KERN_CODES, K, 21, KT_Q8_0, false),
		       f = kt_part(KERN_CODES, K, 21, KT_Q8_0, true);
	struct kt t;
	kt_open_any(&t, 0, (struct kt_size){.threads = 2, .rows = 40});
	check_parts(&t, (struct kt_part *[]){&a, &b, &c}, 3, K, K);
	check_parts(&t, (struct kt_part *[]){&c, &d, &a}, 3, K, K);
	check_parts(&t, (struct kt_part *[]){&e, &f}, 2, K, K);
	kt_close(&t);
	struct kt_part *all[] = {&a, &b, &c, &d, &e, &f};
	for (int i = 0; i < 6; i++)
		kt_part_fini(all[i]);
}

static double activated(enum kern_act act, double g)
{
	if (act == KERN_GELU_TANH)
		return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)));
	if (act == KERN_GELU_SIGMOID) {
		g = fmin(g, (double)KT_LIMIT);
		return g / (1 + exp(-1.702 * g));
	}
	return g / (1 + exp(-g));
}

/* Return the factor of an activated gate. */
static double shifted(enum kern_act act, double u)
{
	if (act != KERN_GELU_SIGMOID)
		return u;
	return fmax(fmin(u, (double)KT_LIMIT), -(double)KT_LIMIT) + KT_UP_PLUS;
}

/* Compute act(gate) * up in double precision from both references. */
static void swiglu_reference(enum kern_dtype op, enum kern_act act, double *g, double *tol_g, const double *u,
			     const double *tol_u, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const double a = activated(act, g[i]), by = shifted(act, u[i]);
		tol_g[i] = fabs(by) * (tol_g[i] * 1.2 + fabs(a) * 1e-6) + fabs(a) * tol_u[i] +
			   fabs(a * by) * kt_unit(op) + (op == KERN_F32 ? 1e-9 : 1e-7);
		/* gelu's tail: the exponent's error is relative to it */
		tol_g[i] += act == KERN_SILU ? 0 : fabs(a * by) * 1e-6 * fabs(g[i]);
		g[i] = a * by;
	}
}

/* y: result of the first way; NULL in the first way itself. */
static void swiglu_way(struct kt *t, struct kt_part *g, struct kt_part *u, enum kern_act act, int k,
		       const float *x, int rows, float **want)
{
	const size_t all = (size_t)rows * (size_t)g->part.n;
	struct kern_linear *w = kt_load_act(t, k, 64, (struct kt_part *[]){g, u}, 2, act);
	float *y = xmalloc(all * sizeof *y);
	double *rg = xmalloc(all * 8), *tg = xmalloc(all * 8), *ru = xmalloc(all * 8), *tu = xmalloc(all * 8);
	void *in = kt_put_op(t, x, (size_t)rows * (size_t)k), *out = kt_new(t, all * kt_op_size(t->op));
	cr_assert_eq(t->ops->gateup_swiglu(t->s, w, out, in, rows), 0);
	kt_get_op(t, y, out, all);
	reference(t->op, g, x, rows, k, rg, tg);
	reference(t->op, u, x, rows, k, ru, tu);
	swiglu_reference(t->op, act, rg, tg, ru, tu, all);
	kt_near(y, rg, tg, all, t->isa);
	if (*want)
		kt_same(y, *want, all, t->isa);
	else
		*want = xmemdup(y, all * sizeof *y);
	t->ops->linear_free(w);
	kt_del(t, in);
	kt_del(t, out);
	free(y);
	free(rg);
	free(tg);
	free(ru);
	free(tu);
}

static void check_swiglu(int c, struct kt_part *g, struct kt_part *u, enum kern_act act, int k)
{
	static const int rows[] = {1, 6, 14, 29, 50, 70, 131};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		float *x = rows_new(kt_operand(c), rows[i], k), *want = NULL;
		for (int way = 0; way < KT_WAYS; way++) {
			struct kt t;
			if (!kt_open(&t, c, way, (struct kt_size){.threads = 2, .rows = rows[i]}))
				continue;
			swiglu_way(&t, g, u, act, k, x, rows[i], &want);
			kt_close(&t);
		}
		free(x);
		free(want);
	}
}

Test(linear, gate_and_up_meet_in_swiglu_and_geglu)
{
	enum { K = 136, N = 88 };
	struct kt_part a = kt_part(KERN_AWQ4, K, N, 64, false), b = kt_part(KERN_AWQ4, K, N, 64, true),
		       c = kt_part(KERN_F16, K, N, 0, true), d = kt_part(KERN_BF16, K, N, 0, false),
		       e = kt_part(KERN_F16, K, 13, 0, true), f = kt_part(KERN_F16, K, 13, 0, false),
		       g = kt_part(KERN_CODES, K, 88, KT_W4, true),
		       h = kt_part(KERN_CODES, K, 88, KT_W4, false);
	for (int class = 0; class < kt_classes(); class ++) {
		check_swiglu(class, &g, &h, KERN_GELU_SIGMOID, K);
		check_swiglu(class, &a, &b, KERN_SILU, K);
		check_swiglu(class, &c, &d, KERN_SILU, K);
		check_swiglu(class, &a, &c, KERN_SILU, K);
		check_swiglu(class, &e, &f, KERN_SILU, K);
		check_swiglu(class, &c, &d, KERN_GELU_TANH, K);
		check_swiglu(class, &a, &c, KERN_GELU_TANH, K);
		check_swiglu(class, &g, &h, KERN_SILU, K);
		check_swiglu(class, &c, &d, KERN_GELU_SIGMOID, K);
		check_swiglu(class, &e, &f, KERN_GELU_SIGMOID, K);
		check_swiglu(class, &a, &c, KERN_GELU_SIGMOID, K);
	}
	struct kt_part *all[] = {&a, &b, &c, &d, &e, &f, &g, &h};
	for (int i = 0; i < 8; i++)
		kt_part_fini(all[i]);
}

/* ---- outputs, widening, refusals ---- */

Test(linear, an_output_of_operand_type_is_the_f32_one_rounded)
{
	enum { K = 72, ROWS = 37 };
	static const int outputs[] = {40, 41};
	for (int c = 0; c < kt_classes(); c++)
		for (int i = 0; i < 2; i++) {
			struct kt t;
			const size_t all = ROWS * (size_t)outputs[i];
			struct kt_part p = kt_part(KERN_F16, K, outputs[i], 0, true);
			float *x = rows_new(kt_operand(c), ROWS, K), *y = xmalloc(all * 4),
			      *o = xmalloc(all * 4);
			kt_open_any(&t, c, (struct kt_size){.rows = ROWS});
			struct kern_linear *w = kt_load(&t, K, K, &(struct kt_part *){&p}, 1);
			void *in = kt_put_op(&t, x, ROWS * K), *out = kt_new(&t, all * 4);
			cr_assert_eq(t.ops->linear(t.s, w, out, in, ROWS, true), 0);
			kt_get(&t, y, out, all * 4);
			cr_assert_eq(t.ops->linear(t.s, w, out, in, ROWS, false), 0);
			kt_get_op(&t, o, out, all);
			kt_round(t.op, y, all);
			kt_same(o, y, all, t.isa);
			t.ops->linear_free(w);
			kt_close(&t);
			kt_part_fini(&p);
			free(x);
			free(y);
			free(o);
		}
}

/* The weights have the operands' type if that is 16 bits wide: 1 times a weight gives the weight. */
Test(linear, every_16_bit_float_is_widened_exactly)
{
	uint16_t *all = xmalloc(65536 * 2);
	float *y = kt_floats(65536);
	const float one = 1;
	for (int i = 0; i < 65536; i++)
		all[i] = (uint16_t)i;
	for (int c = 0; c < kt_classes(); c++)
		for (int way = 0; way < KT_WAYS; way++)
			for (int d = KERN_F16; d <= KERN_BF16; d++) {
				struct kt t;
				const bool f16 = d == KERN_F16;
				if ((kt_operand(c) != KERN_F32 && d != (int)kt_operand(c)) ||
				    !kt_open(&t, c, way, (struct kt_size){.rows = 1}))
					continue;
				struct kt_part p = {
					.part = {.dtype = (enum kern_dtype)d, .n = 65536, .w = all}};
				struct kern_linear *w = kt_load(&t, 1, 1, &(struct kt_part *){&p}, 1);
				void *in = kt_put_op(&t, &one, 1), *out = kt_new(&t, 65536 * 4);
				cr_assert_eq(t.ops->linear(t.s, w, out, in, 1, true), 0);
				kt_get(&t, y, out, 65536 * 4);
				for (int v = 0; v < 65536; v++) {
					float f = f16 ? half_from_f16((uint16_t)v)
						      : half_from_bf16((uint16_t)v);
					cr_assert(f == y[v] || (f != f && y[v] != y[v]),
						  "%s %s %04x: %g, expected %g", t.isa,
						  kt_dtype_name((enum kern_dtype)d), (unsigned)v,
						  (double)y[v], (double)f);
				}
				t.ops->linear_free(w);
				kt_close(&t);
			}
	free(all);
	free(y);
}

/* Number of ranges of outputs read so far. A table may choose the ranges; the bits must be those of the
 * weights. */
static int ranges_read;

static void read_and_count(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	struct codes awq = *(const struct codes *)c->from[0];
	cr_assert(n0 >= 0 && n0 < n1 && n1 <= c->n);
	__atomic_fetch_add(&ranges_read, 1, __ATOMIC_RELAXED);
	awq.read(&awq, n0, n1, out);
}

Test(linear, codes_give_the_bits_of_what_they_were_read_from)
{
	static const struct {
		int k, n, group;
	} shapes[] = {{256, 136, 64}, {200, 40, 32}, {172, 176, 172}};
	enum { ROWS = 13 };
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		const int k = shapes[i].k, n = shapes[i].n;
		struct kt_part awq = kt_part(KERN_AWQ4, k, n, shapes[i].group, true), part = awq;
		struct codes from, c;
		float *x = rows_new(KERN_F32, ROWS, k), *want = kt_floats((size_t)(ROWS * n));
		codes_awq(&from, &awq.part, k, shapes[i].group);
		c = from;
		c.read = read_and_count;
		c.from[0] = &from;
		part.part.dtype = KERN_CODES;
		part.part.w = &c;
		ranges_read = 0;
		for (int way = 0; way < 2; way++) {
			struct kt t;
			kt_open_any(&t, 0, (struct kt_size){.threads = 2, .rows = ROWS});
			float *y = kt_new(&t, sizeof *y * (size_t)(ROWS * n));
			struct kern_linear *w =
				kt_load(&t, k, shapes[i].group, &(struct kt_part *){way ? &part : &awq}, 1);
			cr_assert_eq(t.ops->linear(t.s, w, y, x, ROWS, true), 0);
			if (way)
				kt_same(y, want, (size_t)(ROWS * n), "codes");
			else
				memcpy(want, y, sizeof *y * (size_t)(ROWS * n));
			t.ops->linear_free(w);
			kt_close(&t);
		}
		cr_assert_eq(ranges_read, (n + 63) / 64);
		kt_part_fini(&awq);
		free(x);
		free(want);
	}
}

/* Ranges that begin and end within words, with inputs that are no multiple of eight. */
Test(linear, awq_is_read_by_any_range_of_outputs)
{
	static const int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7},
			 ranges[][2] = {{0, 136}, {3, 6}, {5, 88}, {64, 131}};
	enum { K = 75, N = 136 };
	struct kt_part p = kt_part(KERN_AWQ4, K, N, 32, false);
	const uint32_t *words = p.part.w;
	struct codes c;
	struct code_rows r;
	codes_awq(&c, &p.part, K, 32);
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		const int n0 = ranges[i][0], n1 = ranges[i][1];
		codes_rows_new(&r, &c, n1 - n0);
		c.read(&c, n0, n1, &r);
		for (int n = n0; n < n1; n++)
			for (int k = 0; k < K; k++)
				cr_assert_eq(r.code[(n - n0) * K + k],
					     words[k * (N / 8) + n / 8] >> 4 * nibble[n % 8] & 15,
					     "outputs %d to %d: output %d, input %d", n0, n1, n, k);
		codes_rows_free(&r);
	}
	kt_part_fini(&p);
}

/* In mode f32, codes give the same bits as the layer in F32: 5-bit codes with a common zero, with minimums,
 * or with a table, in groups that are no multiple of a line. */
static void read_any(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const int groups = codes_groups(c), supers = codes_supers(c);
	for (int n = n0; n < n1; n++) {
		for (int i = 0; i < c->k; i++)
			out->code[(n - n0) * c->k + i] = (uint8_t)((n * 37 + i * 11) % (1 << c->bits));
		for (int g = 0; g < groups; g++) {
			out->scale[(n - n0) * groups + g] = (int16_t)((n + g) % 40 - 20);
			out->offset[(n - n0) * groups + g] = (int16_t)(c->zero >= 0 ? c->zero : (n + g) % 9);
		}
		for (int s = 0; s < supers; s++) {
			const float unit = c->d_type == CODES_F16 ? 0x1p-10f : 0.001f;
			out->d[(n - n0) * supers + s] = unit * (float)(1 + n % 7 + s);
			if (c->minimums)
				out->dmin[(n - n0) * supers + s] = 2 * unit * (float)(1 + n % 5 + s);
		}
	}
}

Test(linear, codes_of_every_form_are_their_floats)
{
	enum { K = 300, N = 70, ROWS = 5 };
	static const float table[16] = {-8, -7, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 9, 10};
	const struct {
		int bits, group, super, zero;
		bool minimums;
		const float *table;
		enum codes_float d_type;
	} forms[] = {
		{5, 20, 60, 16, false, NULL, CODES_F32},    {8, 300, 300, 128, false, NULL, CODES_F32},
		{2, 20, 100, -1, true, NULL, CODES_F32},    {6, 100, 300, -1, true, NULL, CODES_F32},
		{4, 60, 60, 0, false, table, CODES_F32},    {3, 12, 36, 4, false, NULL, CODES_F32},
		{6, 48, 144, 32, false, NULL, CODES_F16},   {4, 20, 60, -1, true, NULL, CODES_F16},
		{5, 16, 32, -1, true, NULL, CODES_F16},     {6, 12, 60, 32, false, NULL, CODES_F16},
		{6, 300, 300, 32, false, NULL, CODES_BF16}, {4, 12, 36, 200, false, NULL, CODES_F16},
	};
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	float *x = kt_floats(ROWS * K), *floats = kt_floats(N * K);
	float *y = kt_floats(ROWS * N), *want = kt_floats(ROWS * N);
	for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
		struct kt t;
		struct kern_linear *w, *v;
		struct why why;
		const struct codes c = {.n = N,
					.k = K,
					.bits = forms[f].bits,
					.group = forms[f].group,
					.super = forms[f].super,
					.zero = forms[f].zero,
					.minimums = forms[f].minimums,
					.d_type = forms[f].d_type,
					.table = forms[f].table,
					.read = read_any};
		struct kern_linear_src src = {.name = "down", .k = K, .n_parts = 1};
		kt_open_any(&t, 2, (struct kt_size){.rows = ROWS});
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = N, .w = &c};
		cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), 0, "%s", why.text);
		codes_floats(&c, 0, N, floats);
		src.parts[0] = (struct kern_linear_part){.dtype = KERN_F32, .n = N, .w = floats};
		cr_assert_eq(t.ops->linear_load(t.dev, &src, &v, &why), 0, "%s", why.text);
		for (int rows = 1; rows <= ROWS; rows += 4) {
			cr_assert_eq(t.ops->linear(t.s, w, y, x, rows, true), 0);
			cr_assert_eq(t.ops->linear(t.s, v, want, x, rows, true), 0);
			cr_expect_arr_eq(y, want, sizeof *y * (size_t)(rows * N), "form %zu, %d rows", f,
					 rows);
		}
		t.ops->linear_free(w);
		t.ops->linear_free(v);
		kt_close(&t);
	}
	free(x);
	free(floats);
	free(y);
	free(want);
}

Test(linear, codes_of_a_wrong_shape_are_refused_with_the_layers_name)
{
	struct why why;
	struct kt t;
	struct kern_linear *w;
	if (!kt_on_cpu())
		cr_skip_test("the CPU's table only");
	struct kt_part awq = kt_part(KERN_AWQ4, 64, 8, 32, false);
	struct codes c;
	codes_awq(&c, &awq.part, 64, 32);
	struct kern_linear_src src = {.name = "layers.3.mlp.down", .k = 64, .group = 32, .n_parts = 1};
	src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = 8, .w = &c};
	kt_open_any(&t, 0, (struct kt_size){.rows = 1});
	c.bits = 9;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -EINVAL);
	cr_assert(strstr(why.text, "layers.3.mlp.down"), "%s", why.text);
	c.bits = 4;
	c.k = 32;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -EINVAL);
	c.k = 64;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), 0, "%s", why.text);
	t.ops->linear_free(w);
	kt_close(&t);
	kt_part_fini(&awq);
}

/* Column c of eight is stored in nibble {0,4,1,5,2,6,3,7}[c], as AutoAWQ does. */
Test(linear, awq_nibbles_stand_in_autoawq_order)
{
	const uint32_t q = 0x75316420; /* columns 0..7 hold 0..7 */
	const uint32_t zero = 0x11111111;
	uint16_t scale[8];
	const float one = 1;
	float y[8];
	for (int c = 0; c < 8; c++)
		scale[c] = 0x3c00; /* 1 */
	struct kt_part p = {.part = {.dtype = KERN_AWQ4, .n = 8, .w = &q, .qzeros = &zero, .scales = scale}};
	for (int way = 0; way < KT_WAYS; way++) {
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){.rows = 1}))
			continue;
		struct kern_linear *w = kt_load(&t, 1, 1, &(struct kt_part *){&p}, 1);
		void *in = kt_put_op(&t, &one, 1), *out = kt_new(&t, sizeof y);
		cr_assert_eq(t.ops->linear(t.s, w, out, in, 1, true), 0);
		kt_get(&t, y, out, sizeof y);
		for (int c = 0; c < 8; c++)
			cr_assert(y[c] == (float)(c - 1), "column %d: %g", c, (double)y[c]);
		t.ops->linear_free(w);
		kt_close(&t);
	}
}

Test(linear, what_cannot_be_packed_is_refused_with_its_name)
{
	struct why why;
	struct kt t;
	struct kern_linear *w;
	const uint32_t q[4] = {0};
	kt_open_any(&t, 0, (struct kt_size){.rows = 1});
	struct kern_linear_src src = {.name = "layers.3.mlp.down", .k = 4, .group = 4, .n_parts = 1};
	src.parts[0] =
		(struct kern_linear_part){.dtype = KERN_AWQ4, .n = 12, .w = q, .qzeros = q, .scales = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -EINVAL);
	cr_assert(strstr(why.text, "layers.3.mlp.down"), "%s", why.text);
	src.parts[0].n = 0;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -EINVAL);
	src.parts[0] = (struct kern_linear_part){.dtype = (enum kern_dtype)9, .n = 8, .w = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -ENOTSUP);
	src.k = 0;
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -EINVAL);
	kt_close(&t);
}
