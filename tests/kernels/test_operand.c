/* Operations that write their results as operands: the bytes must equal those of quantizing the floats, in
 * every mode and with any number of threads. */
#include "kernels/cpu/cpu.h"
#include "tests/kernels/kern_test.h"

enum { ROWS = 7, MOST_ROWS = 300 };

static struct kern_dev *device(enum kern_compute compute, int threads)
{
	const struct kern_open_args a = {.index = -1,
					 .compute = compute,
					 .n_threads = threads,
					 .kv = KERN_KV_INT16,
					 .max_rows = MOST_ROWS,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = MOST_ROWS,
					 .max_blocks_per_seq = (MOST_ROWS + 15) / 16};
	struct kern_dev *d;
	struct why why;
	cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
	return d;
}

/* Load a layer that reads k inputs, because a device reserves operand memory for its loaded layers only. */
static struct kern_linear *reader(struct kern_dev *d, int k)
{
	float *w = kt_floats((size_t)k * 16);
	const struct kern_linear_src src = {
		.name = "reader", .k = k, .n_parts = 1, .parts = {{.dtype = KERN_F32, .n = 16, .w = w}}};
	struct kern_linear *l;
	struct why why;
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &l, &why), 0, "%s", why.text);
	free(w);
	return l;
}

static void check_norm(enum kern_compute compute, int hidden, int threads)
{
	struct kern_dev *d = device(compute, threads);
	struct kern_stream s = {.dev = d};
	struct kern_linear *l = reader(d, hidden);
	const size_t n = (size_t)ROWS * (size_t)hidden, bytes = cpu_operand_bytes(d, ROWS, hidden);
	float *x = kt_floats(n), *add = kt_floats(n), *weight = kt_floats((size_t)hidden);
	float *x2 = xmemdup(x, n * 4), *y = xcalloc(n, 4);
	unsigned char *got = alloc_big(bytes), *want = alloc_big(bytes);
	cr_assert_eq(kern_cpu_ops.rmsnorm(&s, got, x, add, weight, ROWS, hidden, 1e-6f), 0);
	for (int r = 0; r < ROWS; r++) {
		const size_t at = (size_t)r * (size_t)hidden;
		d->isa->rmsnorm(y + at, x2 + at, add + at, weight, hidden, 1e-6f);
	}
	if (cpu_has_operands(d))
		cpu_quantize(d, want, y, ROWS, hidden);
	else
		memcpy(want, y, bytes);
	cr_assert_eq(memcmp(got, want, bytes), 0, "mode %d, %d wide, %d threads", (int)compute, hidden,
		     threads);
	kt_same(x, x2, n, "the residual stream");
	alloc_big_free(got, bytes);
	alloc_big_free(want, bytes);
	free(x);
	free(x2);
	free(add);
	free(weight);
	free(y);
	kern_cpu_ops.linear_free(l);
	kern_cpu_ops.close(d);
}

Test(operand, a_normed_row_is_quantized_as_its_floats)
{
	static const int hidden[] = {16, 1000, 1024, 33000}; /* the last exceeds a thread's scratch */
	for (int compute = KERN_COMPUTE_F32; compute <= KERN_COMPUTE_INT8; compute++)
		for (int i = 0; i < 4; i++)
			for (int threads = 1; threads <= 3; threads++)
				check_norm((enum kern_compute)compute, hidden[i], threads);
}

/* Load a layer of random gate and up weights. */
static struct kern_linear *gate_and_up(struct kern_dev *d, int k, int n)
{
	float *w = kt_floats((size_t)k * (size_t)n * 2);
	const struct kern_linear_src src = {
		.name = "gate and up",
		.k = k,
		.n_parts = 2,
		.parts = {{.dtype = KERN_F32, .n = n, .w = w},
			  {.dtype = KERN_F32, .n = n, .w = w + (size_t)k * (size_t)n}}};
	struct kern_linear *l;
	struct why why;
	cr_assert_eq(kern_cpu_ops.linear_load(d, &src, &l, &why), 0, "%s", why.text);
	free(w);
	return l;
}

/* SwiGLU quantizes groups while other groups are still being computed. Compare with quantizing whole rows
 * afterwards. */
static void check_gateup(enum kern_compute compute, int n, int rows, int threads)
{
	enum { K = 96 };
	struct kern_dev *d = device(compute, threads);
	struct kern_stream s = {.dev = d};
	struct kern_linear *l = gate_and_up(d, K, n);
	const size_t in_bytes = cpu_operand_bytes(d, rows, K), out_bytes = cpu_operand_bytes(d, rows, n);
	float *x = kt_floats((size_t)rows * K), *both = xcalloc((size_t)rows * (size_t)n * 2, 4);
	float *floats = xcalloc((size_t)rows * (size_t)n, 4);
	unsigned char *in = alloc_big(in_bytes), *got = alloc_big(out_bytes), *want = alloc_big(out_bytes);
	cpu_quantize(d, in, x, rows, K);
	for (int pass = 0; pass < 2; pass++) /* the call's counters must be reset */
		cr_assert_eq(kern_cpu_ops.gateup_swiglu(&s, l, got, in, rows), 0);
	cr_assert_eq(kern_cpu_ops.linear(&s, l, both, in, rows, true), 0);
	for (int r = 0; r < rows; r++)
		for (int i = 0; i < n; i += 16) {
			float gate[16] = {0}, up[16] = {0};
			const float *at = both + (size_t)r * (size_t)n * 2 + i;
			const size_t some = (size_t)(n - i < 16 ? n - i : 16);
			memcpy(gate, at, some * 4);
			memcpy(up, at + n, some * 4);
			d->isa->store_glu(&(struct cpu_glu){.act = KERN_SILU,
							    .out = floats + (size_t)r * (size_t)n + i,
							    .gate = gate,
							    .up = up,
							    .n_rows = 1,
							    .n = (int)some});
		}
	cpu_quantize(d, want, floats, rows, n);
	cr_assert_eq(memcmp(got, want, out_bytes), 0, "mode %d, %d wide, %d rows, %d threads", (int)compute,
		     n, rows, threads);
	alloc_big_free(in, in_bytes);
	alloc_big_free(got, out_bytes);
	alloc_big_free(want, out_bytes);
	free(x);
	free(both);
	free(floats);
	kern_cpu_ops.linear_free(l);
	kern_cpu_ops.close(d);
}

Test(operand, what_gate_and_up_give_is_quantized_as_its_floats)
{
	static const int wide[] = {16, 100, 128, 200, 1000}, rows[] = {1, 2, 9, 64, 300};
	for (int compute = KERN_COMPUTE_BF16; compute <= KERN_COMPUTE_INT8; compute++)
		for (int i = 0; i < 25; i++)
			for (int threads = 1; threads <= 3; threads++)
				check_gateup((enum kern_compute)compute, wide[i / 5], rows[i % 5], threads);
}

/* Run all rows of a prompt and then one decode step. out: attention's results as the device's operands. */
static void attend(struct kern_dev *d, int heads, int kv_heads, int dim, const float *qkv, unsigned char *out)
{
	enum { PROMPT = MOST_ROWS - 1 };
	static float rope[MOST_ROWS][2][64 * 4];
	const size_t width = (size_t)((heads + 2 * kv_heads) * dim),
		     row = cpu_operand_bytes(d, 1, heads * dim);
	struct kern_stream s = {.dev = d};
	struct kern_kv *kv = kern_cpu_ops.kv_new(d, 1, kv_heads, dim, 16, 32, 1);
	struct kern_linear *l = reader(d, heads * dim);
	float *q = xcalloc((size_t)MOST_ROWS * (size_t)(heads * dim), 4);
	int32_t tokens[MOST_ROWS] = {0}, tables[32];
	for (int i = 0; i < 32; i++)
		tables[i] = 31 - i;
	for (int i = 0; i < 2; i++) {
		const int32_t n = i ? 1 : PROMPT, row0[] = {0, n}, pos0 = i ? PROMPT : 0, last = n - 1;
		const struct kern_batch b = {.n_rows = n,
					     .n_seqs = 1,
					     .token_at = tokens,
					     .row0 = row0,
					     .pos0 = &pos0,
					     .tables = tables,
					     .table_stride = 32,
					     .n_logits = 1,
					     .logits_row = &last};
		const struct kern_qkv_args in = {.q = q,
						 .qkv = qkv + (size_t)pos0 * width,
						 .rope = rope,
						 .n_q_heads = heads,
						 .n_kv_heads = kv_heads,
						 .head_dim = dim,
						 .kv = kv};
		const struct kern_attn_args a = {.out = out + (size_t)pos0 * row,
						 .q = q,
						 .kv = kv,
						 .n_q_heads = heads,
						 .n_kv_heads = kv_heads,
						 .head_dim = dim,
						 .scale = 0.1f};
		cr_assert_eq(kern_cpu_ops.batch_set(&s, &b), 0);
		cr_assert_eq(kern_cpu_ops.qkv(&s, &in), 0);
		cr_assert_eq(kern_cpu_ops.attention(&s, &a), 0);
	}
	free(q);
	kern_cpu_ops.linear_free(l);
	kern_cpu_ops.kv_free(kv);
}

static void check_attention(enum kern_compute compute, int heads, int kv_heads, int dim, int threads)
{
	struct kern_dev *f32 = device(KERN_COMPUTE_F32, 1), *d = device(compute, threads);
	const int width = heads * dim;
	float *qkv = kt_floats((size_t)MOST_ROWS * (size_t)((heads + 2 * kv_heads) * dim));
	const size_t floats_bytes = cpu_operand_bytes(f32, MOST_ROWS, width),
		     bytes = cpu_operand_bytes(d, MOST_ROWS, width);
	unsigned char *floats = alloc_big(floats_bytes), *got = alloc_big(bytes), *want = alloc_big(bytes);
	attend(f32, heads, kv_heads, dim, qkv, floats);
	attend(d, heads, kv_heads, dim, qkv, got);
	cpu_quantize(d, want, (const float *)(const void *)floats, MOST_ROWS, width);
	cr_assert_eq(memcmp(got, want, bytes), 0, "mode %d, %d heads of %d, %d threads", (int)compute, heads,
		     dim, threads);
	alloc_big_free(floats, floats_bytes);
	alloc_big_free(got, bytes);
	alloc_big_free(want, bytes);
	free(qkv);
	kern_cpu_ops.close(f32);
	kern_cpu_ops.close(d);
}

Test(operand, what_attention_gives_is_quantized_as_its_floats)
{
	for (int compute = KERN_COMPUTE_BF16; compute <= KERN_COMPUTE_INT8; compute++)
		for (int threads = 1; threads <= 3; threads++) {
			check_attention((enum kern_compute)compute, 4, 2, 128, threads);
			check_attention((enum kern_compute)compute, 6, 2, 64, threads);
			check_attention((enum kern_compute)compute, 2, 1, 256, threads);
		}
}
