/* --fast on the CUDA device: cuBLAS's results compared with those of the default kernels.  In the emulator,
 * cuBLAS is a stand-in that adds in another order. */
#include "tests/cudasim/cuda_test.h"
#include "tests/cudasim/linear_plan.h"

#include <limits.h>

enum { ABOVE = 20, MAX_ROWS = 96 }; /* ABOVE: the crossover of all tests, in rows */

struct kind {
	enum kern_dtype dtype;
	int group;
};

static const struct kind kinds[] = {
	{KERN_F16, 0},   {KERN_BF16, 0},   {KERN_F32, 0},  {KERN_AWQ4, 32},
	{KERN_AWQ4, 64}, {KERN_AWQ4, 128}, {KERN_AWQ4, 0},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- devices ---- */

static struct kt open_with(bool bf16, bool fast, const struct kern_crossover *c, int n)
{
	struct why why = {""};
	const struct kern_open_args a = {
		.compute = bf16 ? KERN_COMPUTE_BF16 : KERN_COMPUTE_F32,
		.max_rows = MAX_ROWS,
		.max_seqs = 1,
		.max_logits = 1,
		.max_context = 16,
		.max_blocks_per_seq = 1,
		.fast = fast,
	};
	struct kt t = {.ops = &kern_cuda_ops, .isa = bf16 ? "bf16" : "f16"};
	int e = t.ops->open(&t.dev, &a, &why);
	cr_assert(e == 0, "%s", why.text);
	t.ops->crossovers(t.dev, c, n);
	t.s = t.ops->stream_new(t.dev);
	return t;
}

static struct kt dev_open(bool bf16, bool fast)
{
	static const struct kern_crossover all[] = {
		{KERN_AWQ4, 0, 0, ABOVE}, {KERN_F16, 0, 0, ABOVE}, {KERN_BF16, 0, 0, ABOVE}};
	return open_with(bf16, fast, all, sizeof all / sizeof *all);
}

static bool is_bf16(const struct kt *t)
{
	return t->isa[0] == 'b';
}

static uint64_t n_products(void)
{
#ifdef QUERN_CUDASIM
	return cudasim_stats().gemms;
#else
	return 0;
#endif
}

/* ---- layers ---- */

/* A layer, MAX_ROWS rows of input, and the expected output in double precision. */
struct layer {
	struct kt_part parts[3];
	int n_parts, k, n, group;
	uint16_t *x;
	double *ref, *size; /* [MAX_ROWS][n]; size: the sum of the absolute values of all addends */
};

static float op_value(const struct kt *t, uint16_t h)
{
	return is_bf16(t) ? half_from_bf16(h) : half_from_f16(h);
}

static struct layer layer_of(const struct kt *t, const struct kt_part *parts, int n_parts, int k, int group)
{
	struct layer l = {.n_parts = n_parts, .k = k, .group = group};
	for (int i = 0; i < n_parts; i++) {
		l.parts[i] = parts[i];
		l.n += parts[i].part.n;
	}
	l.x = xmalloc((size_t)MAX_ROWS * (size_t)k * 2);
	l.ref = xmalloc((size_t)MAX_ROWS * (size_t)l.n * sizeof *l.ref);
	l.size = xmalloc((size_t)MAX_ROWS * (size_t)l.n * sizeof *l.size);
	for (int i = 0; i < MAX_ROWS * k; i++)
		l.x[i] = kt_half(is_bf16(t) ? KERN_BF16 : KERN_F16);
	for (int r = 0; r < MAX_ROWS; r++)
		for (int p = 0, at = r * l.n; p < n_parts; p++)
			for (int c = 0; c < parts[p].part.n; c++, at++) {
				const float *w = parts[p].f + (size_t)c * (size_t)k;
				l.ref[at] = parts[p].bias ? (double)((const float *)parts[p].bias)[c] : 0;
				l.size[at] = fabs(l.ref[at]);
				for (int i = 0; i < k; i++) {
					double v = (double)op_value(t, l.x[r * k + i]) * (double)w[i];
					l.ref[at] += v;
					l.size[at] += fabs(v);
				}
			}
	return l;
}

static struct layer layer_new(const struct kt *t, struct kind kind, int k, int n, bool bias)
{
	const int group = kind.group ? kind.group : k;
	struct kt_part p = kt_part(kind.dtype, k, n, group, bias);
	return layer_of(t, &p, 1, k, group);
}

static void layer_fini(struct layer *l)
{
	for (int i = 0; i < l->n_parts; i++)
		kt_part_fini(&l->parts[i]);
	free(l->x);
	free(l->ref);
	free(l->size);
}

static struct kern_linear *layer_load(struct kt *t, struct layer *l)
{
	struct kt_part *p[3] = {&l->parts[0], &l->parts[1], &l->parts[2]};
	return kt_load(t, l->k, l->group, p, l->n_parts);
}

/* Run the layer.  out: F32 values. */
static void layer_run(struct kt *t, const struct kern_linear *w, const struct layer *l, int rows, bool f32,
		      bool swiglu, float *out)
{
	const int n = swiglu ? l->n / 2 : l->n;
	const size_t all = (size_t)rows * (size_t)n, bytes = all * (f32 ? 4 : 2);
	const size_t x_bytes = (size_t)rows * (size_t)l->k * 2;
	void *x = t->ops->mem_new(t->dev, x_bytes), *y = t->ops->mem_new(t->dev, bytes);
	uint16_t *h = xmalloc(all * 4);
	cr_assert(x && y);
	/* unwritten values stay NaN */
	memset(h, 0xff, bytes);
	cr_assert_eq(t->ops->upload(t->s, x, l->x, x_bytes), 0);
	cr_assert_eq(t->ops->upload(t->s, y, h, bytes), 0);
	cr_assert_eq(swiglu ? t->ops->gateup_swiglu(t->s, w, y, x, rows)
			    : t->ops->linear(t->s, w, y, x, rows, f32),
		     0);
	cr_assert_eq(t->ops->download(t->s, f32 ? (void *)out : h, y, bytes), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
	for (size_t i = 0; !f32 && i < all; i++)
		out[i] = op_value(t, h[i]);
	free(h);
	t->ops->mem_free(t->dev, x, x_bytes);
	t->ops->mem_free(t->dev, y, bytes);
}

/* Return the rounding error: weights and a bias are rounded to the operand type, and sums are added in any
 * order. */
static double rounding(const struct kt *t)
{
	return is_bf16(t) ? 0x1p-8 : 0x1p-11;
}

static void check_linear(struct kt *t, const struct kern_linear *w, const struct layer *l, int rows, bool f32,
			 const char *kind)
{
	char what[160];
	const size_t all = (size_t)rows * (size_t)l->n;
	float *y = xmalloc(all * sizeof *y);
	double *tol = xmalloc(all * sizeof *tol);
	layer_run(t, w, l, rows, f32, false, y);
	for (size_t i = 0; i < all; i++)
		tol[i] = l->size[i] * (rounding(t) + 4e-6) + (f32 ? 0 : fabs(l->ref[i]) * 2 * rounding(t)) +
			 1e-6;
	snprintf(what, sizeof what, "%s operands, %s weights, group %d, %d x %d, %d rows, %s", t->isa, kind,
		 l->group, l->k, l->n, rows, f32 ? "F32 out" : "operands out");
	kt_near(y, l->ref, tol, all, what);
	free(y);
	free(tol);
}

/* ---- many rows ---- */

static void check_kinds(bool bf16)
{
	static const int shapes[][2] = {{64, 64}, {172, 176}, {37, 40}, {296, 264}, {600, 72}, {8, 8}};
	static const int rows[] = {ABOVE - 1, ABOVE, ABOVE + 1, 45, MAX_ROWS};
	struct kt t = dev_open(bf16, true);
	for (int d = 0; d < N_KINDS; d++)
		for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
			/* only AWQ needs a multiple of 8 outputs */
			const int n = shapes[s][1] - (kinds[d].dtype == KERN_AWQ4 ? 0 : (int)s);
			struct layer l = layer_new(&t, kinds[d], shapes[s][0], n, s % 2);
			struct kern_linear *w = layer_load(&t, &l);
			for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
				check_linear(&t, w, &l, rows[r], (r + s) % 2, kt_dtype_name(kinds[d].dtype));
			t.ops->linear_free(w);
			layer_fini(&l);
		}
	kt_close(&t);
}

Test(cuda_fast, gives_what_the_default_does_in_f16)
{
	check_kinds(false);
}

Test(cuda_fast, gives_what_the_default_does_in_bf16)
{
	check_kinds(true);
}

Test(cuda_fast, parts_lie_side_by_side_and_keep_their_types)
{
	enum { K = 160 };
	struct kt t = dev_open(false, true);
	const struct kt_part sets[][3] = {
		{kt_part(KERN_AWQ4, K, 136, 32, true), kt_part(KERN_AWQ4, K, 40, 32, false),
		 kt_part(KERN_AWQ4, K, 24, 32, true)},
		{kt_part(KERN_F16, K, 21, 0, true), kt_part(KERN_F16, K, 64, 0, false),
		 kt_part(KERN_F16, K, 3, 0, true)},
		{kt_part(KERN_F16, K, 21, 0, false), kt_part(KERN_AWQ4, K, 40, 32, true),
		 kt_part(KERN_F16, K, 8, 0, false)},
		{kt_part(KERN_AWQ4, K, 40, 32, false), kt_part(KERN_AWQ4, K, 40, 32, true)},
		{kt_part(KERN_F16, K, 24, 0, false), kt_part(KERN_F16, K, 24, 0, false)},
	};
	for (int i = 0; i < 5; i++) {
		struct layer l = layer_of(&t, sets[i], i < 3 ? 3 : 2, K, 32);
		struct kern_linear *w = layer_load(&t, &l);
		check_linear(&t, w, &l, 33, true, "several");
		check_linear(&t, w, &l, 50, false, "several");
		t.ops->linear_free(w);
		layer_fini(&l);
	}
	kt_close(&t);
}

/* ---- gate and up ---- */

static void check_swiglu(struct kt *t, struct kt_part gate, struct kt_part up, int k)
{
	static const int rows[] = {ABOVE, ABOVE + 1, 70};
	struct layer l = layer_of(t, (struct kt_part[]){gate, up}, 2, k, 64);
	struct kern_linear *w = layer_load(t, &l);
	const int n = l.n / 2;
	const double off = rounding(t);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const size_t all = (size_t)rows[i] * (size_t)n;
		float *y = xmalloc(all * sizeof *y);
		double *ref = xmalloc(all * 8), *tol = xmalloc(all * 8);
		layer_run(t, w, &l, rows[i], false, true, y);
		for (size_t j = 0; j < all; j++) {
			const size_t g = j / (size_t)n * (size_t)l.n + j % (size_t)n, u = g + (size_t)n;
			const double silu = l.ref[g] / (1 + exp(-l.ref[g]));
			/* gate and up are rounded once more than other outputs */
			const double dg = l.size[g] * (off + 4e-6) + fabs(l.ref[g]) * 2 * off,
				     du = l.size[u] * (off + 4e-6) + fabs(l.ref[u]) * 2 * off;
			ref[j] = silu * l.ref[u];
			tol[j] = fabs(l.ref[u]) * dg * 1.2 + fabs(silu) * du + 1.2 * dg * du +
				 fabs(ref[j]) * 2 * off + 1e-6;
		}
		kt_near(y, ref, tol, all, t->isa);
		free(y);
		free(ref);
		free(tol);
	}
	t->ops->linear_free(w);
	layer_fini(&l);
}

Test(cuda_fast, gate_and_up_meet_in_swiglu)
{
	enum { K = 136, N = 88 };
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct kt t = dev_open(bf16, true);
		check_swiglu(&t, kt_part(KERN_AWQ4, K, N, 64, false), kt_part(KERN_AWQ4, K, N, 64, false), K);
		check_swiglu(&t, kt_part(KERN_AWQ4, K, N, 64, false), kt_part(KERN_AWQ4, K, N, 64, true), K);
		check_swiglu(&t, kt_part(KERN_F16, K, N, 0, true), kt_part(KERN_BF16, K, N, 0, false), K);
		check_swiglu(&t, kt_part(KERN_F16, K, 13, 0, false), kt_part(KERN_F16, K, 13, 0, false), K);
		check_swiglu(&t, kt_part(KERN_AWQ4, K, N, 64, true), kt_part(KERN_F16, K, N, 0, false), K);
		kt_close(&t);
	}
}

/* F16 ends at 65,504.  A gate far below -65,504 must give 0, not NaN. */
Test(cuda_fast, a_gate_beyond_f16_is_as_good_as_the_largest)
{
	enum { K = 8, N = 8, ROWS = ABOVE + 4 };
	struct kt t = dev_open(false, true);
	struct layer l = layer_of(
		&t, (struct kt_part[]){kt_part(KERN_F16, K, N, 0, false), kt_part(KERN_F16, K, N, 0, false)},
		2, K, 64);
	for (int i = 0; i < N * K; i++) {
		((uint16_t *)l.parts[0].w)[i] = 0xf800; /* -32768 */
		((uint16_t *)l.parts[1].w)[i] = 0x7800;
	}
	for (int i = 0; i < MAX_ROWS * K; i++)
		l.x[i] = 0x4000; /* 2 */
	struct kern_linear *w = layer_load(&t, &l);
	float y[ROWS * N];
	layer_run(&t, w, &l, ROWS, false, true, y);
	for (int i = 0; i < ROWS * N; i++)
		cr_assert(y[i] == 0, "%d: %g", i, (double)y[i]);
	t.ops->linear_free(w);
	layer_fini(&l);
	kt_close(&t);
}

/* ---- tiles ---- */

static void check_tiles(struct kt *t, struct layer *l)
{
	int tile, all;
	linear_fast_bytes(t->dev, 1); /* the minimum: 64 columns */
	struct kern_linear *w = layer_load(t, l);
	linear_fast_tile(w, &tile, &all);
	cr_assert(tile < all, "%d columns in one tile", all);
	check_linear(t, w, l, 25, true, "tiles");
	check_linear(t, w, l, 31, false, "tiles");
	t->ops->linear_free(w);
}

Test(cuda_fast, a_layer_that_is_too_large_is_taken_in_tiles)
{
	enum { K = 40 };
	struct kt t = dev_open(false, true);
	const struct kt_part three[] = {kt_part(KERN_AWQ4, K, 1016, 32, true),
					kt_part(KERN_AWQ4, K, 1048, 32, true),
					kt_part(KERN_AWQ4, K, 328, 32, false)},
			     two[] = {kt_part(KERN_AWQ4, K, 1200, 32, true),
				      kt_part(KERN_AWQ4, K, 1200, 32, false)};
	struct layer l = layer_of(&t, three, 3, K, 32);
	check_tiles(&t, &l);
	layer_fini(&l);
	l = layer_of(&t, two, 2, K, 32);
	check_tiles(&t, &l);
	layer_fini(&l);
	kt_close(&t);
}

Test(cuda_fast, gate_and_up_that_are_too_large_are_taken_in_tiles)
{
	enum { K = 40 };
	for (int bias = 0; bias < 2; bias++) {
		struct kt t = dev_open(false, true);
		linear_fast_bytes(t.dev, 1);
		check_swiglu(&t, kt_part(KERN_AWQ4, K, 1208, 64, bias), kt_part(KERN_AWQ4, K, 1208, 64, bias),
			     K);
		check_swiglu(&t, kt_part(KERN_F16, K, 1203, 0, bias), kt_part(KERN_F16, K, 1203, 0, false),
			     K);
		kt_close(&t);
	}
}

/* ---- the head ---- */

Test(cuda_fast, an_embedding_serves_as_the_head)
{
	static const int shapes[][2] = {{64, 301}, {36, 77}};
	struct kt t = dev_open(false, true);
	for (int i = 0; i < 2; i++) {
		const int k = shapes[i][0], n = shapes[i][1];
		struct layer l = layer_new(&t, (struct kind){KERN_F16, 0}, k, n, false);
		struct why why = {""};
		struct kern_embed *e;
		cr_assert_eq(t.ops->embed_load(t.dev,
					       &(struct kern_embed_src){l.parts[0].w, KERN_F16, n, k, true},
					       &e, &why),
			     0, "%s", why.text);
		check_linear(&t, t.ops->embed_linear(e), &l, 60, true, "a table");
		t.ops->embed_free(e);
		layer_fini(&l);
	}
	kt_close(&t);
}

/* ---- the crossover ---- */

Test(cuda_fast, up_to_the_crossover_bits_are_the_defaults)
{
	enum { K = 264, N = 72 };
	for (int d = 0; d < N_KINDS; d++) {
		struct kt slow = dev_open(false, false), fast = dev_open(false, true);
		struct layer l = layer_new(&slow, kinds[d], K, N, true);
		struct kern_linear *ws = layer_load(&slow, &l), *wf = layer_load(&fast, &l);
		float a[ABOVE * N], b[ABOVE * N];
		for (int rows = 1; rows <= ABOVE; rows += rows < 4 ? 1 : 8) {
			layer_run(&slow, ws, &l, rows, true, false, a);
			layer_run(&fast, wf, &l, rows, true, false, b);
			kt_same(b, a, (size_t)rows * N, kt_dtype_name(kinds[d].dtype));
		}
		slow.ops->linear_free(ws);
		fast.ops->linear_free(wf);
		layer_fini(&l);
		kt_close(&slow);
		kt_close(&fast);
	}
	cr_assert_eq(n_products(), 0);
}

#ifdef QUERN_CUDASIM

/* Return the number of products that a 64 x 64 layer takes for this many rows, with these crossovers. */
static uint64_t products_of(const struct kern_crossover *c, int n, int rows)
{
	struct kt t = open_with(false, true, c, n);
	struct layer l = layer_new(&t, (struct kind){KERN_AWQ4, 32}, 64, 64, false);
	struct kern_linear *w = layer_load(&t, &l);
	float *y = xmalloc((size_t)rows * 64 * sizeof *y);
	const uint64_t before = n_products();
	layer_run(&t, w, &l, rows, true, false, y);
	const uint64_t after = n_products();
	free(y);
	t.ops->linear_free(w);
	layer_fini(&l);
	kt_close(&t);
	return after - before;
}

Test(cuda_fast, the_crossover_of_its_shape_counts_else_that_of_all_others)
{
	const struct kern_crossover list[] = {{KERN_AWQ4, 0, 0, 11},
					      {KERN_F16, 64, 64, 1},
					      {KERN_AWQ4, 64, 72, 2},
					      {KERN_AWQ4, 64, 64, 40},
					      {KERN_AWQ4, 0, 0, 10}},
				    never[] = {{KERN_AWQ4, 0, 0, INT_MAX}};
	cr_assert_eq(products_of(list, 5, 40), 0);
	cr_assert_eq(products_of(list, 5, 41), 1);
	cr_assert_eq(products_of(list, 3, 11), 0);
	cr_assert_eq(products_of(list, 3, 12), 1);
	cr_assert_eq(products_of(never, 1, MAX_ROWS), 0);
	cr_assert_eq(products_of(NULL, 0, MAX_ROWS), 0); /* the built-in crossover is above 128 */
}

/* ---- the library ---- */

Test(cuda_fast, the_default_mode_never_opens_cublas)
{
	struct kt t = dev_open(false, false);
	struct layer l = layer_new(&t, (struct kind){KERN_AWQ4, 32}, 64, 64, false);
	struct kern_linear *w = layer_load(&t, &l);
	float *y = xmalloc(MAX_ROWS * 64 * sizeof *y);
	layer_run(&t, w, &l, MAX_ROWS, true, false, y);
	cr_assert_eq(cudasim_stats().cublas_opened, 0);
	cr_assert_eq(n_products(), 0);
	free(y);
	t.ops->linear_free(w);
	layer_fini(&l);
	kt_close(&t);
}

Test(cuda_fast, where_there_is_no_cublas_it_says_what_to_install)
{
	struct why why = {""};
	struct kern_dev *d;
	struct kern_open_args a = {.max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 16,
				   .max_blocks_per_seq = 1,
				   .fast = true};
	const uint64_t before = cudasim_stats().live_pieces;
	cudasim_cublas(0, 0);
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "libcublas.so.13") && strstr(why.text, "install"), "%s", why.text);
	cr_assert_eq(cudasim_stats().live_pieces, before);
	a.fast = false;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), 0, "%s", why.text);
	kern_cuda_ops.close(d);
}

/* The emulated kernels are built for cuBLAS 12. */
Test(cuda_fast, the_cublas_of_the_build_comes_first)
{
	cudasim_cublas(CUDASIM_CUBLAS_12 | CUDASIM_CUBLAS_13, 0);
	struct kt t = dev_open(false, true);
	cr_assert_eq(cudasim_stats().cublas_opened, 1);
	kt_close(&t);
	cudasim_cublas(CUDASIM_CUBLAS_12 | CUDASIM_CUBLAS_13, CUDASIM_CUBLAS_13);
	t = dev_open(false, true);
	cr_assert_eq(cudasim_stats().cublas_opened, 2);
	kt_close(&t);
}

Test(cuda_fast, a_cublas_that_gives_no_handle_is_passed_over)
{
	cudasim_cublas(CUDASIM_CUBLAS_12 | CUDASIM_CUBLAS_13, CUDASIM_CUBLAS_12);
	struct kt t = dev_open(false, true);
	cr_assert_eq(cudasim_stats().cublas_opened, 2);
	kt_close(&t);
	struct why why = {""};
	struct kern_open_args a = {.max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 16,
				   .max_blocks_per_seq = 1,
				   .fast = true};
	cudasim_cublas(CUDASIM_CUBLAS_12, CUDASIM_CUBLAS_12);
	struct kern_dev *d;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -EIO);
	cr_assert(strstr(why.text, "libcublas.so.12") && strstr(why.text, "driver"), "%s", why.text);
	cr_assert_eq(cudasim_stats().live_pieces, 0);
}

/* The emulator ends the process at a product on a stream without quern's workspace. */
Test(cuda_fast, nothing_is_allocated_after_loading_whatever_the_stream)
{
	struct kt t = dev_open(false, true);
	struct layer l = layer_of(&t,
				  (struct kt_part[]){kt_part(KERN_AWQ4, 72, 64, 32, true),
						     kt_part(KERN_AWQ4, 72, 64, 32, true)},
				  2, 72, 32);
	struct kern_linear *w = layer_load(&t, &l);
	struct kern_stream *other = t.ops->stream_new(t.dev);
	void *x = t.ops->mem_new(t.dev, MAX_ROWS * 72 * 2), *y = t.ops->mem_new(t.dev, MAX_ROWS * 128 * 4);
	const uint64_t before = cudasim_stats().allocs;
	for (int i = 0; i < 4; i++) {
		struct kern_stream *s = i % 2 ? other : t.s;
		cr_assert_eq(t.ops->linear(s, w, y, x, MAX_ROWS - i, true), 0);
		cr_assert_eq(t.ops->gateup_swiglu(s, w, y, x, MAX_ROWS - i), 0);
		cr_assert_eq(t.ops->stream_sync(s), 0);
	}
	cr_assert_gt(n_products(), 0);
	cr_assert_eq(cudasim_stats().allocs, before);
	t.ops->mem_free(t.dev, x, 0);
	t.ops->mem_free(t.dev, y, 0);
	t.ops->stream_free(other);
	t.ops->linear_free(w);
	layer_fini(&l);
	kt_close(&t);
	cr_assert_eq(cudasim_stats().live_pieces, 0);
}

#endif

Test(cuda_fast, it_is_a_numerics_class_of_its_own)
{
	struct kt slow = dev_open(true, false), fast = dev_open(true, true);
	struct kern_info a, b;
	slow.ops->info(slow.dev, &a);
	fast.ops->info(fast.dev, &b);
	cr_assert(!strstr(a.numerics, "fast"), "%s", a.numerics);
	cr_assert(strstr(b.numerics, "bf16") && strstr(b.numerics, " fast"), "%s", b.numerics);
	cr_assert_str_eq(a.build, b.build);
	cr_assert_neq(a.build[0], 0);
	kt_close(&slow);
	kt_close(&fast);
}
