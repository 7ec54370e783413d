/* Linear layers of the CUDA table: every plan gives the same bits, a table on the device serves as the head,
 * and weights that cannot be packed are refused.  Also tests mixtures in decoding steps from a graph, whose
 * null rows reach no expert. */
#include "tests/cudasim/cuda_test.h"
#include "tests/cudasim/linear_plan.h"
#include "tests/kernels/experts_test.h"

enum { ROWS = 128 };

static void run(struct kt *t, const struct kern_linear *w, void *out, const void *in, int rows)
{
	cr_assert_eq(t->ops->linear(t->s, w, out, in, rows, true), 0);
}

static void *rows_put(struct kt *t, int n, int k)
{
	float *x = kt_floats((size_t)n * (size_t)k);
	void *dev = kt_put_op(t, x, (size_t)n * (size_t)k);
	free(x);
	return dev;
}

/* Every plan that the kernels offer. */
static const struct linear_plan plans[] = {
	{false, 1, 8, 4, 1},  {false, 1, 8, 8, 1}, {false, 2, 8, 4, 1},  {false, 1, 16, 8, 1},
	{false, 2, 16, 4, 1}, {false, 1, 8, 4, 8}, {false, 2, 8, 4, 2},  {false, 1, 16, 2, 4},
	{false, 2, 16, 8, 4}, {true, 0, 32, 0, 1}, {true, 0, 64, 0, 1},  {true, 0, 128, 0, 1},
	{true, 0, 32, 0, 2},  {true, 0, 64, 0, 8}, {true, 0, 128, 0, 4},
};
enum { N_PLANS = sizeof plans / sizeof plans[0], PLAN_FIRST = 11 };

static void check_plans(struct kt *t, struct kt_part *const *parts, int n_parts, int k, int group,
			bool swiglu)
{
	static const int rows[] = {1, 7, 16, 45, 128};
	char what[128];
	struct kern_linear *w = kt_load(t, k, group, parts, n_parts);
	size_t n = 0;
	for (int i = 0; i < (swiglu ? 1 : n_parts); i++)
		n += (size_t)parts[i]->part.n;
	const size_t each = swiglu ? 2 : sizeof(float), all = ROWS * n * each;
	void *x = rows_put(t, ROWS, k), *out = kt_new(t, all);
	unsigned char *want = xmalloc(all), *got = xmalloc(all);
	cr_assert(linear_slices(w) > 1);
	cr_assert_eq(linear_planned(t->s, w, out, x, ROWS, swiglu, &plans[PLAN_FIRST]), 0);
	kt_get(t, want, out, all);
	for (int p = 0; p < N_PLANS; p++)
		for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
			if (ct_brief() && (rows[r] == 7 || rows[r] == 45))
				continue;
			const size_t bytes = (size_t)rows[r] * n * each;
			cudasim_seed((uint64_t)(p * 10) + r);
			memset(got, 0xee, bytes);
			kt_set(t, out, got, bytes);
			cr_assert_eq(linear_planned(t->s, w, out, x, rows[r], swiglu, &plans[p]), 0);
			kt_get(t, got, out, bytes);
			snprintf(what, sizeof what, "%s group %d, %d inputs, %d slices, plan %d, %d rows",
				 kt_dtype_name(parts[0]->part.dtype), group, k, linear_slices(w), p, rows[r]);
			cr_assert(!memcmp(got, want, bytes), "%s: other bits", what);
		}
	t->ops->linear_free(w);
	kt_del(t, x);
	kt_del(t, out);
	free(want);
	free(got);
}

static struct kt open_rows(void)
{
	struct kt t;
	ct_open(&t, false, (struct kt_size){.rows = ROWS});
	return t;
}

Test(linear_plans, slices_give_the_same_bits_in_every_plan)
{
	struct kt t = open_rows();
	struct kt_part a = kt_part(KERN_AWQ4, 1064, 152, 128, true), b = kt_part(KERN_F16, 1064, 35, 0, true),
		       c = kt_part(KERN_AWQ4, 520, 24, 32, true);
	check_plans(&t, &(struct kt_part *){&a}, 1, 1064, 128, false);
	check_plans(&t, &(struct kt_part *){&b}, 1, 1064, 128, false);
	check_plans(&t, (struct kt_part *[]){&c, &c, &c}, 3, 520, 32, false);
	kt_part_fini(&a);
	kt_part_fini(&b);
	kt_part_fini(&c);
	kt_close(&t);
}

#ifdef QUERN_CUDASIM
/* A block's share of the inputs is longer than its ring for every split, so each stage is filled several
 * times.  With as many multiprocessors as a large device, the table's own plan wraps as well. */
Test(linear_plans, rings_wrap_in_every_plan_on_132_multiprocessors)
{
	enum { K = 8256, N = 40 };
	static const struct linear_plan tile[] = {{true, 0, 32, 0, 8},
						  {true, 0, 64, 0, 8},
						  {true, 0, 128, 0, 8}},
					stream = {false, 1, 8, 4, 8};
	static const int rows[] = {17, 33, 65};
	const size_t all = (size_t)ROWS * N * sizeof(float);
	cudasim_sms(132);
	struct kt t = open_rows();
	float *want = xmalloc(all), *got = xmalloc(all);
	for (int type = 0; type < 2; type++) {
		struct kt_part p = kt_part(type ? KERN_F16 : KERN_AWQ4, K, N, type ? 0 : 128, true);
		struct kern_linear *w = kt_load(&t, K, 128, &(struct kt_part *){&p}, 1);
		void *x = rows_put(&t, ROWS, K), *out = kt_new(&t, all);
		uint64_t before = cudasim_stats().refills;
		cr_assert_eq(linear_slices(w), 8);
		cr_assert_eq(linear_planned(t.s, w, out, x, ROWS, false, &stream), 0);
		kt_get(&t, want, out, all);
		cr_expect_gt(cudasim_stats().refills, before, "the stream kernel's ring does not wrap");
		for (int i = 0; i < 6; i++) { /* first the table's own plan, then a given plan */
			const size_t bytes = (size_t)rows[i % 3] * N * sizeof(float);
			before = cudasim_stats().refills;
			if (i < 3)
				run(&t, w, out, x, rows[i]);
			else
				cr_assert_eq(linear_planned(t.s, w, out, x, rows[i % 3], false, &tile[i % 3]),
					     0);
			kt_get(&t, got, out, bytes);
			cr_expect_gt(cudasim_stats().refills, before, "%d rows: the ring does not wrap",
				     rows[i % 3]);
			cr_expect(!memcmp(got, want, bytes), "%d rows, %s: other bits", rows[i % 3],
				  i < 3 ? "the table's plan" : "a given plan");
		}
		t.ops->linear_free(w);
		kt_del(&t, x);
		kt_del(&t, out);
		kt_part_fini(&p);
	}
	free(want);
	free(got);
	kt_close(&t);
}
#endif

#ifdef QUERN_CUDASIM
/* Load a layer without packing it, to query its plan. */
static struct kern_linear *plan_only(struct kt *t, enum kern_dtype type, int k, int n)
{
	struct kt_part p = kt_part(type, k, n, 128, false);
	cudasim_idle(true);
	struct kern_linear *w = kt_load(t, k, 128, &(struct kt_part *){&p}, 1);
	cudasim_idle(false);
	kt_part_fini(&p);
	return w;
}

/* Return the number of blocks, each of 128 outputs. */
static int blocks_of(struct linear_plan p, int rows, int n)
{
	return (rows + p.rows - 1) / p.rows * ((n + 127) / 128) * p.splits;
}

/* The number of blocks is at most that of the multiprocessors, and more than half of it. */
Test(linear_plans, more_than_128_rows_are_spread_over_132_multiprocessors)
{
	static const int outputs[] = {512, 1024, 2048, 4096}, rows[] = {129, 192, 256};
	cudasim_sms(132);
	struct kt t = open_rows();
	for (int i = 0; i < 4; i++) {
		struct kern_linear *w = plan_only(&t, KERN_AWQ4, 2048, outputs[i]);
		for (int r = 0; r < 3; r++) {
			const struct linear_plan p = linear_plan_of(w, rows[r]);
			const int blocks = blocks_of(p, rows[r], outputs[i]);
			cr_expect(blocks > 66 && blocks <= 132,
				  "%d outputs, %d rows: %d blocks of %d rows, %d splits", outputs[i], rows[r],
				  blocks, p.rows, p.splits);
		}
		/* prompts, and layers with enough blocks: the largest tiles, each sum in one block */
		const struct linear_plan p = linear_plan_of(w, 256 * 132);
		cr_expect(p.rows == 128 && p.splits == 1, "%d outputs: %d rows, %d splits", outputs[i],
			  p.rows, p.splits);
		t.ops->linear_free(w);
	}
	kt_close(&t);
}

/* Compare the table's own plan, and other plans, with a plan that takes a few rows at a time. */
static void check_many_rows(struct kt *t, struct kt_part *part, int k, int rows, const char *what)
{
	static const struct linear_plan stream = {false, 1, 16, 8, 1}, given[] = {{true, 0, 64, 0, 8},
										  {true, 0, 64, 0, 2},
										  {true, 0, 128, 0, 4},
										  {true, 0, 32, 0, 1}};
	struct kern_linear *w = kt_load(t, k, 128, &part, 1);
	const size_t all = (size_t)rows * (size_t)part->part.n * sizeof(float);
	void *x = rows_put(t, rows, k), *out = kt_new(t, all);
	unsigned char *want = xmalloc(all), *got = xmalloc(all);
	cr_assert_gt(linear_slices(w), 1);
	cr_assert_eq(linear_planned(t->s, w, out, x, rows, false, &stream), 0);
	kt_get(t, want, out, all);
	for (int i = -1; i < (rows > 256 ? 0 : 4); i++) {
		memset(got, 0xee, all);
		kt_set(t, out, got, all);
		cudasim_seed((uint64_t)(i + 1));
		if (i < 0)
			run(t, w, out, x, rows);
		else
			cr_assert_eq(linear_planned(t->s, w, out, x, rows, false, &given[i]), 0);
		kt_get(t, got, out, all);
		cr_expect(!memcmp(got, want, all), "%s, %d rows, plan %d: other bits", what, rows, i);
	}
	t->ops->linear_free(w);
	kt_del(t, x);
	kt_del(t, out);
	free(want);
	free(got);
}

Test(linear_plans, slices_of_up_to_256_rows_are_spread_with_the_same_bits)
{
	static const int rows[] = {129, 200, 256};
	struct kt t;
	cudasim_sms(132);
	ct_open(&t, false, (struct kt_size){.rows = 256});
	struct kt_part a = kt_part(KERN_AWQ4, 1064, 152, 128, true), b = kt_part(KERN_F16, 1064, 35, 0, true),
		       c = kt_part(KERN_CODES, 1024, 40, KT_Q4_K, false);
	for (int i = 0; i < 3; i++) {
		check_many_rows(&t, &a, 1064, rows[i], "awq");
		check_many_rows(&t, &b, 1064, rows[i], "f16");
		check_many_rows(&t, &c, 1024, rows[i], "q4_k");
	}
	struct kern_linear *w = kt_load(&t, 1064, 128, &(struct kt_part *){&a}, 1);
	cr_expect_gt(linear_plan_of(w, 256).splits, 1);
	cr_expect_eq(linear_plan_of(w, 257).splits, 1);
	t.ops->linear_free(w);
	kt_part_fini(&a);
	kt_part_fini(&b);
	kt_part_fini(&c);
	kt_close(&t);
}

enum { SMALL_SMEM = 99 << 10 }; /* per block, on 8.6, 8.9 and 12.0, with 100 KB per multiprocessor */
static uint64_t most_smem;

static void see_smem(const struct cudasim_launched *l)
{
	most_smem = l->smem > most_smem ? l->smem : most_smem;
}

Test(linear_plans, blocks_of_99_kilobytes_have_tiles_of_64_rows_or_more)
{
	static const struct {
		enum kern_dtype type;
		int k, about;
	} of[] = {{KERN_F16, 1064, 0},          {KERN_AWQ4, 1064, 128},      {KERN_CODES, 1056, KT_Q4_0},
		  {KERN_CODES, 1120, KT_Q8_0},  {KERN_CODES, 2304, KT_Q4_K}, {KERN_CODES, 2304, KT_Q6_K},
		  {KERN_CODES, 1056, KT_MXFP4}, {KERN_BF16, 1064, 0}};
	for (int i = 0; i < 8; i++) {
		const bool bf16 = of[i].type == KERN_BF16;
		struct kt t;
		ct_open(&t, bf16, (struct kt_size){.rows = 300});
		linear_smem(t.dev, SMALL_SMEM);
		struct kt_part p = kt_part(of[i].type, of[i].k, 40, of[i].about, true);
		struct kern_linear *w = kt_load(&t, of[i].k, 128, &(struct kt_part *){&p}, 1);
		const struct linear_plan many = linear_plan_of(w, 300);
		cr_expect(many.rows >= 64 && many.splits == 1, "%s: %d rows, %d splits",
			  kt_dtype_name(of[i].type), many.rows, many.splits);
		t.ops->linear_free(w);
		most_smem = 0;
		cudasim_watch_launches(see_smem);
		check_many_rows(&t, &p, of[i].k, 300, kt_dtype_name(of[i].type));
		cudasim_watch_launches(NULL);
		cr_expect(most_smem > 48 << 10 && most_smem <= SMALL_SMEM, "%llu bytes",
			  (unsigned long long)most_smem);
		kt_part_fini(&p);
		kt_close(&t);
	}
}
#endif

Test(linear_plans, gate_and_up_give_the_same_bits_in_every_plan)
{
	struct kt t = open_rows();
	struct kt_part g = kt_part(KERN_AWQ4, 520, 88, 64, true), u = kt_part(KERN_AWQ4, 520, 88, 64, false);
	check_plans(&t, (struct kt_part *[]){&g, &u}, 2, 520, 64, true);
	check_plans(&t, (struct kt_part *[]){&g, &u}, 2, 520, 64, false);
	kt_part_fini(&g);
	kt_part_fini(&u);
	kt_close(&t);
}

Test(linear_plans, codes_give_the_same_bits_in_every_plan)
{
	static const struct {
		enum kt_codes kind;
		int k, n;
	} of[] = {{KT_Q4_0, 1056, 152},
		  {KT_Q8_0, 1120, 35},
		  {KT_Q4_K, 2304, 40},
		  {KT_Q6_K, 2304, 40},
		  {KT_MXFP4, 1056, 152}};
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct kt t;
		ct_open(&t, bf16, (struct kt_size){.rows = ROWS});
		for (int i = bf16; i < 5; i += ct_brief() ? 2 : 1) {
			struct kt_part p = kt_part(KERN_CODES, of[i].k, of[i].n, of[i].kind, true);
			check_plans(&t, &(struct kt_part *){&p}, 1, of[i].k, 0, false);
			kt_part_fini(&p);
		}
		struct kt_part g = kt_part(KERN_CODES, 1024, 88, KT_Q4_K, true),
			       u = kt_part(KERN_CODES, 1024, 88, KT_Q4_K, false);
		check_plans(&t, (struct kt_part *[]){&g, &u}, 2, 1024, 0, true);
		kt_part_fini(&g);
		kt_part_fini(&u);
		kt_close(&t);
	}
}

/* Codes as AutoGPTQ and others store them, with a row's codes adjacent: they use AWQ's kernels and give the
 * same bits and the same number of bytes. */
static void check_as_awq(struct kt *t, int k, int n, int group, int n_parts)
{
	struct kt_part awq = kt_part(KERN_AWQ4, k, n, group, true), codes = awq;
	struct codes c;
	codes_awq(&c, &awq.part, k, group < k ? group : k);
	codes.part.dtype = KERN_CODES;
	codes.part.w = &c;
	struct kern_linear *a = kt_load(t, k, group, (struct kt_part *[]){&awq, &awq, &awq}, n_parts);
	struct kern_linear *b = kt_load(t, k, group, (struct kt_part *[]){&codes, &codes, &codes}, n_parts);
	cr_expect_eq(t->ops->linear_bytes(a), t->ops->linear_bytes(b));
	for (int rows = 1; rows <= 33; rows += 16) {
		const size_t all = (size_t)rows * (size_t)(n * n_parts);
		void *x = rows_put(t, rows, k), *out = kt_new(t, all * 4);
		float *want = xmalloc(all * 4), *got = xmalloc(all * 4);
		run(t, a, out, x, rows);
		kt_get(t, want, out, all * 4);
		run(t, b, out, x, rows);
		kt_get(t, got, out, all * 4);
		kt_same(got, want, all, "codes of 4 bits, and AWQ");
		free(want);
		free(got);
		kt_del(t, x);
		kt_del(t, out);
	}
	t->ops->linear_free(a);
	t->ops->linear_free(b);
	kt_part_fini(&awq);
}

Test(linear_plans, codes_of_four_bits_with_zeros_are_computed_as_awq)
{
	struct kt t = open_rows();
	check_as_awq(&t, 520, 152, 128, 1);
	check_as_awq(&t, 520, 24, 32, 3);
	check_as_awq(&t, 520, 88, 64, 2);
	check_as_awq(&t, 200, 40, 200, 1);
	kt_close(&t);
}

/* Parts with different group sizes, of both layouts and of plain weights, become separate segments. */
Test(linear_plans, groups_of_different_sizes_lie_side_by_side)
{
	enum { K = 576, A = 40, B = 24, ROW = A + 2 * B };
	struct kt t = open_rows();
	struct kt_part a = kt_part(KERN_CODES, K, A, KT_ZEROS, true), b = kt_part(KERN_AWQ4, K, B, 96, false),
		       c = kt_part(KERN_CODES, K, B, KT_W4_BF16, true);
	struct kt_part *const parts[] = {&a, &b, &c};
	static const int n[] = {A, B, B};
	struct kern_linear *all = kt_load(&t, K, 96, parts, 3);
	void *x = rows_put(&t, 20, K), *out = kt_new(&t, 20 * ROW * 4);
	float got[20 * ROW], one[20 * A];
	run(&t, all, out, x, 20);
	kt_get(&t, got, out, sizeof got);
	for (int i = 0, n0 = 0; i < 3; n0 += n[i++]) {
		struct kern_linear *w = kt_load(&t, K, 96, &parts[i], 1);
		run(&t, w, out, x, 20);
		kt_get(&t, one, out, (size_t)(20 * n[i]) * 4);
		for (int r = 0; r < 20; r++)
			kt_same(got + r * ROW + n0, one + r * n[i], (size_t)n[i], "a part and itself alone");
		t.ops->linear_free(w);
	}
	t.ops->linear_free(all);
	kt_del(&t, x);
	kt_del(&t, out);
	kt_part_fini(&a);
	kt_part_fini(&b);
	kt_part_fini(&c);
	kt_close(&t);
}

static int load_codes(struct kt *t, const struct codes *c, struct why *why)
{
	struct kern_linear *w = NULL;
	struct kern_linear_src src = {.name = "layers.3.mlp.down", .k = 256, .n_parts = 1};
	src.parts[0] = (struct kern_linear_part){.dtype = KERN_CODES, .n = 8, .w = c};
	const int e = t->ops->linear_load(t->dev, &src, &w, why);
	t->ops->linear_free(w);
	return e;
}

static void read_scales_of_nine_bits(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	kt_codes_read(c, n0, n1, out);
	out->scale[0] = 256;
}

static void read_scales_below_f16(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	kt_codes_read(c, n0, n1, out);
	out->d[1] = ldexpf(1, -30);
}

static void read_zeros_of_five_bits(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	kt_codes_read(c, n0, n1, out);
	out->offset[1] = 16;
}

/* -ENOTSUP: the caller unpacks the codes. */
Test(linear_plans, codes_that_no_kernel_takes_are_refused_with_the_layers_name)
{
	static const float table[16] = {0};
	static const int32_t perm[256] = {0};
	struct why why;
	struct kt t = open_rows();
	struct kt_part p = kt_part(KERN_CODES, 256, 8, KT_Q4_K, false);
	const struct codes good = *(struct codes *)p.w;
	struct codes bad[8];
	for (int i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].table = table;
	bad[1].perm = perm;
	bad[2].d_type = CODES_F32;
	bad[3].bits = 5;
	bad[4].group = 16;
	bad[5].super = 128;
	bad[6].read = read_scales_of_nine_bits;
	bad[7].minimums = false;
	cr_assert_eq(load_codes(&t, &good, &why), 0, "%s", why.text);
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(load_codes(&t, &bad[i], &why), -ENOTSUP, "%d", i);
		cr_expect(strstr(why.text, "layers.3.mlp.down"), "%s", why.text);
	}
	struct kt_part w4 = kt_part(KERN_CODES, 256, 8, KT_W4_BF16, false),
		       zeros = kt_part(KERN_CODES, 256, 8, KT_ZEROS, false);
	bad[0] = *(struct codes *)w4.w;
	cr_assert_eq(load_codes(&t, &bad[0], &why), 0, "%s", why.text);
	bad[0].read = read_scales_below_f16;
	cr_assert_eq(load_codes(&t, &bad[0], &why), -ENOTSUP);
	bad[0] = *(struct codes *)zeros.w;
	cr_assert_eq(load_codes(&t, &bad[0], &why), 0, "%s", why.text);
	bad[0].perm = perm;
	cr_assert_eq(load_codes(&t, &bad[0], &why), -ENOTSUP);
	bad[0] = *(struct codes *)zeros.w;
	bad[0].read = read_zeros_of_five_bits;
	cr_assert_eq(load_codes(&t, &bad[0], &why), -ENOTSUP);
	kt_part_fini(&w4);
	kt_part_fini(&zeros);
	bad[0] = good;
	bad[0].n = 9;
	cr_assert_eq(load_codes(&t, &bad[0], &why), -EINVAL);
	kt_part_fini(&p);
	kt_close(&t);
}

Test(linear_plans, a_table_on_the_device_serves_as_the_head)
{
	static const int shapes[][2] = {{64, 301}, {36, 77}, {520, 50}};
	struct kt t = open_rows();
	for (int i = 0; i < 3; i++) {
		const int k = shapes[i][0], n = shapes[i][1];
		struct kt_part p = kt_part(KERN_F16, k, n, 0, false);
		void *table = kt_put(&t, p.w, (size_t)k * (size_t)n * 2);
		struct kern_linear *w = NULL, *own = kt_load(&t, k, k, &(struct kt_part *){&p}, 1);
		cr_assert_eq(linear_of_table(t.dev, table, n, k, &w), 0);
		for (int rows = 1; rows < 60; rows += 19) {
			const size_t all = (size_t)rows * (size_t)n;
			void *x = rows_put(&t, rows, k), *out = kt_new(&t, all * 4);
			float *a = xmalloc(all * 4), *b = xmalloc(all * 4);
			run(&t, w, out, x, rows);
			kt_get(&t, a, out, all * 4);
			run(&t, own, out, x, rows);
			kt_get(&t, b, out, all * 4);
			kt_same(a, b, all, "the table and a layer of its own");
			free(a);
			free(b);
			kt_del(&t, x);
			kt_del(&t, out);
		}
		t.ops->linear_free(w);
		t.ops->linear_free(own);
		kt_del(&t, table);
		kt_part_fini(&p);
	}
	kt_close(&t);
}

Test(linear_plans, a_group_that_no_kernel_takes_is_refused_with_its_size)
{
	struct why why;
	const uint32_t q[256] = {0};
	struct kt t = open_rows();
	struct kern_linear *w;
	struct kern_linear_src src = {.name = "layers.3.mlp.down", .k = 48, .group = 24, .n_parts = 1};
	src.parts[0] =
		(struct kern_linear_part){.dtype = KERN_AWQ4, .n = 8, .w = q, .qzeros = q, .scales = q};
	cr_assert_eq(t.ops->linear_load(t.dev, &src, &w, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "24") && strstr(why.text, "layers.3.mlp.down"), "%s", why.text);
	kt_close(&t);
}

#ifdef QUERN_CUDASIM
Test(linear_plans, no_device_memory_is_left_behind)
{
	struct kt t = open_rows();
	struct kt_part p = kt_part(KERN_AWQ4, 128, 48, 32, true);
	struct kern_linear *w = kt_load(&t, 128, 32, &(struct kt_part *){&p}, 1);
	const uint64_t before = cudasim_stats().live_pieces;
	struct kern_linear *again = kt_load(&t, 128, 32, &(struct kt_part *){&p}, 1);
	cr_assert_gt(cudasim_stats().live_pieces, before);
	t.ops->linear_free(again);
	cr_assert_eq(cudasim_stats().live_pieces, before);
	t.ops->linear_free(w);
	kt_part_fini(&p);
	kt_close(&t);
}
#endif

/* ---- mixtures ---- */

enum { HIDDEN = 64, INTER = 32, EXPERTS = 6, CHOSEN = 2, PADDED = 24, CONTEXT = 16 };

/* Set a padded batch of n decodes with one block each. */
static void batch_set(struct kt *t, int n)
{
	int32_t token_at[PADDED] = {0}, row0[PADDED + 1] = {0}, pos0[PADDED] = {0}, table[PADDED] = {0};
	for (int i = 0; i < n; i++)
		row0[i + 1] = i + 1;
	const struct kern_batch b = {.n_rows = n,
				     .n_seqs = n,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = pos0,
				     .tables = table,
				     .table_stride = 1,
				     .n_logits = n,
				     .logits_row = token_at,
				     .pad_to = PADDED};
	cr_assert_eq(t->ops->batch_set(t->s, &b), 0);
}

/* Experts in a graph that is captured with one batch and launched for others.  Its null rows have experts
 * too, as a router would give them. */
static void check_graph(bool bf16, enum kern_dtype type, enum kern_act act)
{
	struct kt t;
	struct xt_set s;
	struct xt_rows r;
	struct kern_graph *g = NULL;
	const size_t all = PADDED * HIDDEN;
	float *want = xmalloc(all * 4), *got = xmalloc(all * 4);
	ct_open(&t, bf16,
		(struct kt_size){.rows = PADDED, .seqs = PADDED, .logits = PADDED, .context = CONTEXT});
	xt_set_new(&s, EXPERTS, (struct xt_kind){type, type == KERN_CODES ? KT_MXFP4 : 32, true, act}, HIDDEN,
		   INTER);
	struct kern_experts *x = xt_load(&t, &s, CHOSEN);
	struct kern_kv *kv = t.ops->kv_new(t.dev, 1, 1, 32, 16, PADDED, 0);
	xt_rows_new(&t, &r, &s, PADDED, CHOSEN, XT_ONE_FULL);
	xt_one_by_one(&t, &s, &r, PADDED, CHOSEN, want);
	struct kern_moe_args a = {.out = kt_new(&t, all * 4),
				  .in = r.op,
				  .expert = kt_put(&t, r.expert, PADDED * CHOSEN * 4),
				  .weight = kt_put(&t, r.weight, PADDED * CHOSEN * 4),
				  .begin = kt_put(&t, r.begin, all * 4),
				  .begin_by = kt_put(&t, r.begin_by, PADDED * 4)};
	batch_set(&t, PADDED);
	cr_assert_eq(t.ops->moe(t.s, x, &a, PADDED), 0);
	cr_assert_eq(t.ops->graph_begin(t.s), 0);
	cr_assert_eq(t.ops->moe(t.s, x, &a, PADDED), 0);
	cr_assert_eq(t.ops->graph_end(t.s, &g), 0);
	static const int rows[] = {PADDED, 1, 17, 9};
	for (int i = 0; i < 4; i++) {
		const size_t n = (size_t)rows[i] * HIDDEN;
		batch_set(&t, rows[i]);
		memset(got, 0xee, all * 4);
		kt_set(&t, a.out, got, all * 4);
		cr_assert_eq(t.ops->graph_launch(t.s, g), 0);
		kt_get(&t, got, a.out, all * 4);
		kt_same(got, want, n, "from a graph");
		for (size_t o = n; o < all; o++)
			cr_assert(got[o] == r.begin_by[o / HIDDEN] * r.begin[o],
				  "%d rows: a null row has output of experts at %zu", rows[i], o);
	}
	t.ops->graph_free(g);
	t.ops->experts_free(x);
	t.ops->kv_free(kv);
	xt_rows_fini(&t, &r);
	xt_set_fini(&s);
	free(want);
	free(got);
	kt_close(&t);
}

Test(linear_plans, a_graph_gives_the_bits_of_single_rows_and_null_rows_have_no_expert)
{
	check_graph(false, KERN_AWQ4, KERN_SILU);
	check_graph(true, KERN_BF16, KERN_SILU);
	check_graph(true, KERN_CODES, KERN_GELU_SIGMOID);
}

static void experts_refused(struct kt *t, struct xt_set *s, int e, const char *reason)
{
	struct why why = {""};
	struct kern_experts *x = NULL;
	struct kern_info before, after;
	const struct kern_experts_src src = {.name = "experts",
					     .n_experts = s->n,
					     .n_chosen = 1,
					     .hidden = s->hidden,
					     .intermediate = s->inter,
					     .expert = xt_give,
					     .arg = s};
	s->asked = -1;
	t->ops->info(t->dev, &before);
	cr_expect_eq(t->ops->experts_load(t->dev, &src, &x, &why), e, "%s", why.text);
	cr_expect(strstr(why.text, reason), "%s", why.text);
	cr_expect_null(x);
	t->ops->info(t->dev, &after);
	cr_expect_eq(after.bytes_used, before.bytes_used, "refused experts keep memory");
}

Test(linear_plans, experts_that_the_kernels_cannot_take_are_refused_by_name)
{
	struct kt t;
	struct xt_set s;
	ct_open(&t, false, (struct kt_size){.rows = 4});
	xt_set_new(&s, 3, (struct xt_kind){KERN_CODES, KT_Q8_0, false, KERN_SILU}, HIDDEN, INTER);
	((struct codes *)s.gate[0].w)->bits = 5;
	experts_refused(&t, &s, -ENOTSUP, "codes of 5 bits in groups of 32");
	xt_set_fini(&s);
	xt_set_new(&s, 3, (struct xt_kind){KERN_F16, 0, false, KERN_SILU}, 36, INTER);
	experts_refused(&t, &s, -ENOTSUP, "multiple of 8, not 36");
	xt_set_fini(&s);
	xt_set_new(&s, 3, (struct xt_kind){KERN_AWQ4, 32, false, KERN_SILU}, HIDDEN, INTER);
	kt_part_fini(&s.up[2]);
	s.up[2] = kt_part(KERN_F16, HIDDEN, INTER, 0, false);
	experts_refused(&t, &s, -ENOTSUP, "one type of gate and up; --experts cpu");
	xt_set_fini(&s);
	enum { MANY = 9 };
	xt_set_new(&s, MANY, (struct xt_kind){KERN_AWQ4, 32, false, KERN_SILU}, 320, 320);
	for (int e = 0; e < MANY; e++)
		xt_set_kind(&s, e, (struct xt_kind){KERN_AWQ4, 32 * (e + 1), false, KERN_SILU});
	experts_refused(&t, &s, -ENOTSUP, "more than 8 kinds");
	xt_set_fini(&s);
	kt_close(&t);
}
