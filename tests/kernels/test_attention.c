/* Compare paged attention with a double-precision reference. The bits of a result must not depend on how a
 * prompt is chunked, on the other sequences of the batch, or on the order in which a device works. */
#include "tests/kernels/kern_test.h"

enum { SEQS = 8 };

/* Classes of K and V types. On the CPU each type is a class; on other devices K and V have the operands'
 * type. */
static const struct kv_class {
	enum kern_kv_type kv;
	enum kern_dtype stored; /* type that K and V are rounded to */
	double tol;             /* additional tolerance of a result */
	int bytes;              /* bytes per value */
} kv_classes[] = {{KERN_KV_F32, KERN_F32, 3e-6, 4},
		  {KERN_KV_BF16, KERN_BF16, 3e-6, 2},
		  {KERN_KV_INT16, KERN_F32, 5e-4, 2},
		  {KERN_KV_INT8, KERN_F32, 0.03, 1}};

static int classes(void)
{
	return kt_on_cpu() ? (int)(sizeof kv_classes / sizeof kv_classes[0]) : kt_classes();
}

static enum kern_dtype operand(int c)
{
	return kt_on_cpu() ? KERN_F32 : kt_operand(c);
}

static enum kern_dtype stored(int c)
{
	return kt_on_cpu() ? kv_classes[c].stored : kt_operand(c);
}

struct model {
	int dim, heads, kv_heads, block_size, window;
	int n_kinds, kind; /* kinds of layers with tables of their own, and the layers' kind; 0: one */
	float cap;         /* soft cap of scores */
	bool sinks, alibi;
};

/* Attention sink of a head: some are above all scores, some far below. */
static float sink_of(int head)
{
	static const float sinks[] = {0.5f, -2, 3, -INFINITY, 100, 1.25f};
	return sinks[head % 6];
}

/* ALiBi's slope of a head: some hide all but the last keys, some hardly matter. */
static float slope_of(int head)
{
	static const float slopes[] = {0.5f, 0.25f, 0.00390625f, 0.7f, 2, 0.03f};
	return slopes[head % 6];
}

/* One sequence. qkv holds q, k, v concatenated per row [n][(Hq + 2 Hkv) D], as the qkv operation reads
 * them. */
struct seq {
	int n;
	float *qkv;
	float *kept; /* qkv with K and V rounded as this class's cache stores them */
	int32_t *table;
};

struct world {
	struct kt t;
	struct model m;
	struct kern_kv *kv;
	void *rope, *q, *in, *out, *sinks, *alibi; /* on the device; rope has cos 1, sin 0: no rotation */
	int max_rows;
};

static int width(const struct model *m)
{
	return (m->heads + 2 * m->kv_heads) * m->dim;
}

static int blocks_of(const struct model *m, int n)
{
	return (n + m->block_size - 1) / m->block_size;
}

static size_t q_width(const struct model *m)
{
	return (size_t)(m->heads * m->dim);
}

/* Make n random sequences. Their block tables name scattered blocks, the same in every world. */
static void seqs_make(struct seq *s, const int *lengths, int n, const struct model *m, int c)
{
	int total = 0, next = 0;
	for (int i = 0; i < n; i++)
		total += blocks_of(m, lengths[i]);
	int32_t *order = xmalloc((size_t)total * sizeof *order);
	for (int i = 0; i < total; i++)
		order[i] = i;
	for (int i = total - 1; i > 0; i--) {
		int j = (int)(kt_rand() % (uint32_t)(i + 1));
		int32_t swap = order[i];
		order[i] = order[j];
		order[j] = swap;
	}
	for (int i = 0; i < n; i++) {
		const size_t all = (size_t)lengths[i] * (size_t)width(m);
		s[i].n = lengths[i];
		s[i].qkv = kt_floats(all);
		kt_round(operand(c), s[i].qkv, all);
		s[i].kept = xmemdup(s[i].qkv, all * sizeof(float));
		for (int t = 0; t < lengths[i]; t++)
			kt_round(stored(c), s[i].kept + (size_t)t * (size_t)width(m) + q_width(m),
				 (size_t)width(m) - q_width(m));
		s[i].table = xmemdup(order + next, (size_t)blocks_of(m, lengths[i]) * sizeof *order);
		next += blocks_of(m, lengths[i]);
	}
	free(order);
}

static void seqs_free(struct seq *s, int n)
{
	for (int i = 0; i < n; i++) {
		free(s[i].qkv);
		free(s[i].kept);
		free(s[i].table);
	}
}

static bool world_open(struct world *w, int c, int way, int threads, const struct model *m,
		       const struct seq *s, int n, int max_rows)
{
	int context = 0, blocks = 0;
	for (int i = 0; i < n; i++) {
		context = s[i].n > context ? s[i].n : context;
		blocks += blocks_of(m, s[i].n);
	}
	*w = (struct world){.m = *m, .max_rows = max_rows};
	if (!kt_open(&w->t, kt_on_cpu() ? 0 : c, way,
		     (struct kt_size){.threads = threads,
				      .kv = kt_on_cpu() ? kv_classes[c].kv : KERN_KV_MODE,
				      .rows = max_rows,
				      .seqs = n,
				      .context = context,
				      .block_size = m->block_size,
				      .kinds = m->n_kinds}))
		return false;
	const size_t op = kt_op_size(w->t.op), rows = (size_t)max_rows;
	w->kv = w->t.ops->kv_new(w->t.dev, 2, m->kv_heads, m->dim, m->block_size, blocks, 4);
	cr_assert(w->kv != NULL);
	float *rope = xcalloc((size_t)context * (size_t)m->dim, sizeof *rope);
	for (int i = 0; i < context * m->dim; i += 2)
		rope[i] = 1;
	w->rope = kt_put(&w->t, rope, (size_t)context * (size_t)m->dim * sizeof *rope);
	w->q = kt_new(&w->t, rows * q_width(m) * op);
	w->out = kt_new(&w->t, rows * q_width(m) * op);
	w->in = kt_new(&w->t, rows * (size_t)width(m) * op);
	free(rope);
	float *of_heads = xcalloc((size_t)m->heads, sizeof *of_heads);
	for (int h = 0; h < m->heads; h++)
		of_heads[h] = sink_of(h);
	w->sinks = m->sinks ? kt_put(&w->t, of_heads, (size_t)m->heads * sizeof *of_heads) : NULL;
	for (int h = 0; h < m->heads; h++)
		of_heads[h] = slope_of(h);
	w->alibi = m->alibi ? kt_put(&w->t, of_heads, (size_t)m->heads * sizeof *of_heads) : NULL;
	free(of_heads);
	return true;
}

static void world_close(struct world *w)
{
	w->t.ops->kv_free(w->kv);
	kt_close(&w->t);
}

static void run_batch(struct world *w, const struct kern_batch *b)
{
	const struct model *m = &w->m;
	const struct kern_qkv_args qkv = {
		.q = w->q,
		.qkv = w->in,
		.rope = w->rope,
		.rope_dim = m->dim,
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.kv = w->kv,
		.kind = m->kind,
		.layer = 1,
	};
	const struct kern_attn_args attn = {
		.out = w->out,
		.q = w->q,
		.kv = w->kv,
		.kind = m->kind,
		.layer = 1,
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.scale = 1 / sqrtf((float)m->dim),
		.cap = m->cap,
		.window = m->window,
		.sinks = w->sinks,
		.alibi = w->alibi,
	};
	cr_assert_eq(w->t.ops->batch_set(w->t.s, b), 0);
	cr_assert_eq(w->t.ops->qkv(w->t.s, &qkv), 0);
	cr_assert_eq(w->t.ops->attention(w->t.s, &attn), 0);
}

/* Run rows done[i] .. done[i] + take[i] of each sequence as one batch; out[i] is [n][Hq D]. */
static void step(struct world *w, const struct seq *s, int n, const int *done, const int *take,
		 float *const *out)
{
	const struct model *m = &w->m;
	const size_t in_width = (size_t)width(m);
	int32_t row0[SEQS + 1] = {0}, pos0[SEQS], stride = 0;
	cr_assert(n <= SEQS);
	for (int i = 0; i < n; i++) {
		stride = blocks_of(m, s[i].n) > stride ? blocks_of(m, s[i].n) : stride;
		pos0[i] = done[i];
		row0[i + 1] = row0[i] + take[i];
	}
	const int n_kinds = m->n_kinds ? m->n_kinds : 1;
	const size_t rows = (size_t)row0[n], words = (size_t)(n * n_kinds * stride);
	cr_assert(row0[n] <= w->max_rows);
	int32_t *tables = xmalloc(words * sizeof *tables), *token_at = xcalloc(rows, sizeof *token_at);
	float *in = xmalloc(rows * in_width * sizeof *in), *all = xmalloc(rows * q_width(m) * sizeof *all);
	memset(tables, 0x7f, words * sizeof *tables); /* unused entries must never be followed */
	for (int i = 0; i < n; i++) {
		const size_t used = (size_t)blocks_of(m, done[i] + take[i]) * sizeof *tables;
		for (int k = 0; k < n_kinds; k++) /* tables of other kinds name block 0 */
			memset(tables + (i * n_kinds + k) * stride, 0, used);
		memcpy(tables + (i * n_kinds + m->kind) * stride, s[i].table, used);
		memcpy(in + (size_t)row0[i] * in_width, s[i].qkv + (size_t)done[i] * in_width,
		       (size_t)take[i] * in_width * sizeof *in);
	}
	kt_set_op(&w->t, w->in, in, rows * in_width);
	run_batch(w, &(struct kern_batch){.n_rows = row0[n],
					  .n_seqs = n,
					  .token_at = token_at,
					  .row0 = row0,
					  .pos0 = pos0,
					  .tables = tables,
					  .table_stride = stride});
	kt_get_op(&w->t, all, w->out, rows * q_width(m));
	for (int i = 0; i < n; i++)
		memcpy(out[i] + (size_t)done[i] * q_width(m), all + (size_t)row0[i] * q_width(m),
		       (size_t)take[i] * q_width(m) * sizeof *all);
	free(tables);
	free(token_at);
	free(in);
	free(all);
}

/* Run sequence i in chunks of cut[i] rows, all unfinished sequences in one batch. */
static void run_cut(struct world *w, const struct seq *s, int n, const int *cut, float *const *out)
{
	int done[SEQS] = {0};
	for (;;) {
		struct seq now[SEQS];
		float *now_out[SEQS];
		int now_done[SEQS], now_take[SEQS], k = 0, rows = 0;
		for (int i = 0; i < n; i++) {
			int take = s[i].n - done[i] < cut[i] ? s[i].n - done[i] : cut[i];
			if (!take || rows + take > w->max_rows)
				continue;
			now[k] = s[i];
			now_out[k] = out[i];
			now_done[k] = done[i];
			now_take[k++] = take;
			rows += take;
			done[i] += take;
		}
		if (!k)
			return;
		step(w, now, k, now_done, now_take, now_out);
	}
}

static void reference_row(const struct model *m, const struct seq *s, int row, double *out)
{
	const int in = width(m), group = m->heads / m->kv_heads;
	int from = m->window && row >= m->window ? row - m->window + 1 : 0;
	double *p = xmalloc((size_t)(row + 1) * sizeof *p);
	for (int h = 0; h < m->heads; h++) {
		const float *q = s->kept + (size_t)row * (size_t)in + h * m->dim;
		const int k0 = (m->heads + h / group) * m->dim, v0 = k0 + m->kv_heads * m->dim;
		double max = -INFINITY, sum = 0;
		for (int t = from; t <= row; t++) {
			const float *k = s->kept + (size_t)t * (size_t)in + k0;
			p[t] = 0;
			for (int d = 0; d < m->dim; d++)
				p[t] += (double)q[d] * (double)k[d];
			p[t] /= sqrt(m->dim);
			if (m->cap > 0)
				p[t] = (double)m->cap * tanh(p[t] / (double)m->cap);
			if (m->alibi)
				p[t] += (double)slope_of(h) * (t - row);
			max = p[t] > max ? p[t] : max;
		}
		for (int t = from; t <= row; t++)
			sum += p[t] = exp(p[t] - max);
		if (m->sinks)
			sum += exp((double)sink_of(h) - max);
		for (int d = 0; d < m->dim; d++) {
			double o = 0;
			for (int t = from; t <= row; t++)
				o += p[t] * (double)s->kept[(size_t)t * (size_t)in + (size_t)(v0 + d)];
			out[h * m->dim + d] = o / sum;
		}
	}
	free(p);
}

/* p and the result are rounded to the operand type: half a unit each for values below 1. */
static void check_reference(const struct model *m, const struct seq *s, const float *out, int first, int c,
			    const char *what)
{
	const size_t n = q_width(m);
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	for (size_t i = 0; i < n; i++)
		tol[i] = (kt_on_cpu() ? kv_classes[c].tol : 3e-6) + kt_unit(operand(c));
	for (int row = first; row < s->n; row += row < 40 || s->n - row < 3 ? 1 : 61) {
		reference_row(m, s, row, ref);
		kt_near(out + (size_t)row * n, ref, tol, n, what);
	}
	free(ref);
	free(tol);
}

/* Compare chunks of all, 64, 7 and 1 rows in each way with the first way's single chunk. In a brief run, only
 * one class of operands runs in a second order of blocks and threads: the classes share their code. */
static void check_class(int c, struct model m, int length)
{
	static const int cuts[] = {1 << 20, 64, 7, 1};
	char what[128];
	struct seq s;
	seqs_make(&s, &length, 1, &m, c);
	const size_t n = (size_t)length * q_width(&m);
	float *want = NULL, *got = xcalloc(n, sizeof *got);
	for (int way = 0; way < KT_WAYS; way++) {
		struct world w;
		if ((kt_brief() && c && way) || !world_open(&w, c, way, 1 + way % 2, &m, &s, 1, length))
			continue;
		/* Single rows are slow in plain C and in the emulator. */
		const bool slow = way == KT_WAYS - 1 || (kt_brief() && (way || length > 100));
		for (int i = 0; i < (slow ? 2 : 4); i++) {
			run_cut(&w, &s, 1, &cuts[i], &got);
			snprintf(what, sizeof what, "%s D %d heads %d/%d block %d window %d length %d cut %d",
				 w.t.isa, m.dim, m.heads, m.kv_heads, m.block_size, m.window, length,
				 cuts[i]);
			if (!want) {
				want = xmemdup(got, n * sizeof *got);
				check_reference(&m, &s, want, 0, c, what);
			}
			kt_same(got, want, n, what);
		}
		world_close(&w);
	}
	free(want);
	free(got);
	seqs_free(&s, 1);
}

static void check_model(struct model m, int length)
{
	for (int c = 0; c < classes(); c++)
		check_class(c, m, length);
}

Test(attention, matches_a_reference_and_itself_however_a_prompt_is_cut)
{
	check_model((struct model){.dim = 8, .heads = 4, .kv_heads = 2, .block_size = 16}, 300);
	check_model((struct model){.dim = 16, .heads = 3, .kv_heads = 3, .block_size = 32}, 77);
	check_model((struct model){.dim = 64, .heads = 4, .kv_heads = 1, .block_size = 16}, 530);
	check_model((struct model){.dim = 128, .heads = 4, .kv_heads = 2, .block_size = 32}, 261);
}

Test(attention, head_sizes_up_to_256)
{
	static const int dims[] = {40, 80, 96, 120, 256};
	for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
		check_model((struct model){.dim = dims[i], .heads = 2, .kv_heads = 1, .block_size = 16}, 70);
}

Test(attention, any_number_of_query_heads_shares_a_kv_head)
{
	static const int dims[] = {24, 64, 128};
	for (int group = 1; group <= 8; group++)
		for (size_t d = 0; d < (kt_brief() ? 1 : 3); d++)
			check_model(
				(struct model){
					.dim = dims[d], .heads = 2 * group, .kv_heads = 2, .block_size = 16},
				40);
	check_model((struct model){.dim = 16, .heads = 71, .kv_heads = 1, .block_size = 64}, 30);
}

Test(attention, lengths_around_the_edges_of_steps_tiles_and_chunks)
{
	static const int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 272};
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		check_model((struct model){.dim = 16, .heads = 2, .kv_heads = 1, .block_size = 16},
			    lengths[i]);
}

Test(attention, a_window_sees_only_the_last_tokens)
{
	static const int windows[] = {1, 2, 5, 16, 33, 100, 256, 300};
	for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
		check_model(
			(struct model){
				.dim = 16, .heads = 4, .kv_heads = 2, .block_size = 16, .window = windows[i]},
			330);
}

/* The soft caps are low enough to change every score. */
Test(attention, scores_have_a_soft_cap)
{
	check_model((struct model){.dim = 16, .heads = 4, .kv_heads = 2, .block_size = 16, .cap = 0.25f},
		    kt_brief() ? 90 : 300);
	check_model(
		(struct model){
			.dim = 64, .heads = 3, .kv_heads = 1, .block_size = 16, .window = 40, .cap = 0.5f},
		130);
}

Test(attention, scores_fall_with_the_distance_by_the_slope_of_the_head)
{
	check_model((struct model){.dim = 64, .heads = 6, .kv_heads = 2, .block_size = 16, .alibi = true},
		    kt_brief() ? 90 : 600);
	check_model(
		(struct model){
			.dim = 16, .heads = 6, .kv_heads = 3, .block_size = 16, .window = 40, .alibi = true},
		kt_brief() ? 270 : 530);
	check_model((struct model){.dim = 128, .heads = 6, .kv_heads = 6, .block_size = 16, .alibi = true},
		    40);
}

Test(attention, sinks_count_in_the_sum_alone)
{
	check_model((struct model){.dim = 64, .heads = 6, .kv_heads = 2, .block_size = 16, .sinks = true},
		    kt_brief() ? 90 : 300);
	check_model(
		(struct model){
			.dim = 16, .heads = 6, .kv_heads = 3, .block_size = 16, .window = 40, .sinks = true},
		kt_brief() ? 270 : 530);
	check_model((struct model){.dim = 128, .heads = 6, .kv_heads = 1, .block_size = 16, .sinks = true},
		    40);
}

/* Decode at the given rows of a prompt and compare with the same rows of the whole prompt and with a
 * reference. Each way runs with one thread more than the previous way. */
static void check_decode(int c, struct model m, const int *rows, size_t n_rows, int length, int threads)
{
	struct seq s;
	seqs_make(&s, &length, 1, &m, c);
	const size_t n = (size_t)length * q_width(&m);
	float *want = NULL, *got = xcalloc(n, sizeof *got);
	for (int way = 0; way < KT_WAYS - 1; way++) {
		struct world w;
		if (!world_open(&w, c, way, threads + way, &m, &s, 1, 2048))
			continue;
		run_cut(&w, &s, 1, &(int){2048}, &got);
		if (!want) {
			want = xmemdup(got, n * sizeof *got);
			check_reference(&m, &s, want, length - 3, c, "prefill");
		}
		kt_same(got, want, n, w.t.isa);
		for (size_t i = 0; i < n_rows; i++) {
			const size_t at = (size_t)rows[i] * q_width(&m);
			memset(got + at, 0, q_width(&m) * sizeof *got);
			step(&w, &s, 1, &rows[i], &(int){1}, &got);
			kt_same(got + at, want + at, q_width(&m), "decode");
		}
		world_close(&w);
		if (kt_brief())
			break;
	}
	free(want);
	free(got);
	seqs_free(&s, 1);
}

Test(attention, decode_of_a_long_context_has_the_bits_of_its_prefill)
{
	static const int rows[] = {0,    1,    15,   16,   255,  256,  257,  511,  512,  700,  1023, 1024,
				   1025, 1299, 2047, 2048, 3000, 4095, 4096, 4500, 4997, 4998, 4999};
	const int length = kt_brief() ? 1300 : 5000;
	size_t n = 0;
	while (n < sizeof rows / sizeof rows[0] && rows[n] < length)
		n++;
	for (int c = 0; c < (kt_brief() ? 1 : classes()); c++) {
		check_decode(c, (struct model){.dim = 64, .heads = 2, .kv_heads = 1, .block_size = 16}, rows,
			     n, length, 1);
		if (!kt_brief())
			check_decode(c,
				     (struct model){.dim = 128, .heads = 8, .kv_heads = 1, .block_size = 32},
				     rows, n, length, 1);
	}
}

/* With a single sequence, the threads divide its KV heads. */
Test(attention, heads_are_shared_out_with_the_same_bits)
{
	static const int rows[] = {0, 1, 17, 100, 255, 256, 300, 511, 512, 600, 767, 768, 1023, 1099};
	for (int c = 0; c < (kt_brief() ? 1 : classes()); c++)
		for (int threads = 2; threads <= (kt_brief() ? 2 : 9); threads += threads < 4 ? 2 : 5) {
			check_decode(c,
				     (struct model){.dim = 64, .heads = 16, .kv_heads = 8, .block_size = 16},
				     rows, sizeof rows / sizeof rows[0], 1100, threads);
			check_decode(c,
				     (struct model){.dim = 32,
						    .heads = 6,
						    .kv_heads = 6,
						    .block_size = 16,
						    .sinks = true,
						    .alibi = true},
				     rows, sizeof rows / sizeof rows[0], 1100, threads);
		}
}

Test(attention, batch_mates_change_nothing)
{
	enum { N = 5 };
	static const int lengths[N] = {300, 1, 45, 270, 128}, cuts[N] = {64, 1, 7, 3, 200};
	struct model m = {.dim = 64, .heads = 6, .kv_heads = 2, .block_size = 16};
	for (int c = 0; c < classes(); c++) {
		struct seq s[N];
		float *alone[N] = {0}, *mixed[N];
		seqs_make(s, lengths, N, &m, c);
		for (int i = 0; i < N; i++)
			mixed[i] = xcalloc((size_t)lengths[i] * q_width(&m), sizeof(float));
		for (int way = 0; way < KT_WAYS; way++)
			for (int threads = 1; threads <= (kt_on_cpu() ? 3 : 1); threads++) {
				struct world w;
				if (!world_open(&w, c, way, threads, &m, s, N, 512))
					break;
				for (int q = 0; q < N && !alone[q]; q++) {
					alone[q] = xcalloc((size_t)lengths[q] * q_width(&m), sizeof(float));
					run_cut(&w, &s[q], 1, &(int){512}, &alone[q]);
				}
				run_cut(&w, s, N, cuts, mixed);
				for (int q = 0; q < N; q++)
					kt_same(mixed[q], alone[q], (size_t)lengths[q] * q_width(&m),
						w.t.isa);
				world_close(&w);
			}
		for (int i = 0; i < N; i++) {
			free(alone[i]);
			free(mixed[i]);
		}
		seqs_free(s, N);
	}
}

/* Each kind of layers has tables of its own. */
Test(attention, a_layer_uses_the_tables_of_its_kind)
{
	for (int kind = 0; kind < 3; kind++)
		check_model((struct model){.dim = 64,
					   .heads = 4,
					   .kv_heads = 2,
					   .block_size = 16,
					   .window = kind ? 40 : 0,
					   .n_kinds = 3,
					   .kind = kind},
			    150);
}

/* Infinite or NaN K and V of later tokens, or of tokens outside the window, must not change a row, not even
 * as 0 times infinity. */
Test(attention, what_a_row_does_not_see_never_touches_it)
{
	struct model m = {.dim = 16, .heads = 2, .kv_heads = 1, .block_size = 16, .window = 20};
	const int length = 60, all = 1 << 20;
	const size_t n = q_width(&m);
	float *clean = xcalloc((size_t)length * n, sizeof *clean);
	float *poisoned = xcalloc((size_t)length * n, sizeof *poisoned);
	for (int c = 0; c < classes(); c++) {
		struct seq s;
		seqs_make(&s, &length, 1, &m, c);
		for (int way = 0; way < KT_WAYS; way++) {
			struct world w;
			if (!world_open(&w, c, way, 1, &m, &s, 1, length))
				continue;
			run_cut(&w, &s, 1, &all, &clean);
			float *at = s.qkv + (size_t)30 * (size_t)width(&m) + n, keep[32];
			memcpy(keep, at, sizeof keep);
			for (int d = 0; d < 32; d++)
				at[d] = d % 2 ? NAN : INFINITY;
			run_cut(&w, &s, 1, &all, &poisoned);
			memcpy(at, keep, sizeof keep);
			kt_same(poisoned, clean, 30 * n, "rows before the token");
			kt_same(poisoned + 50 * n, clean + 50 * n, 10 * n, "rows that no longer see it");
			world_close(&w);
		}
		seqs_free(&s, 1);
	}
	free(clean);
	free(poisoned);
}

/* Copy blocks to the host and back to other blocks on a separate stream, some after a copy on the device. */
static void check_moves(struct world *w, struct seq *s, int c)
{
	const struct model *m = &w->m;
	float a[40 * 48], b[40 * 48], *pa = a, *pb = b;
	const struct kern_ops *ops = w->t.ops;
	ops->kv_free(w->kv);
	w->kv = ops->kv_new(w->t.dev, 2, m->kv_heads, m->dim, m->block_size, 8, 4);
	run_cut(w, s, 1, &(int){40}, &pa);
	int32_t out[3][2] = {{s->table[0], 3}, {s->table[1], 0}, {s->table[2], 1}};
	int32_t in[3][2] = {{3, 6}, {0, 5}, {1, 3}}, copy[2][2] = {{6, 7}, {7, 4}};
	struct kern_stream *side = ops->stream_new(w->t.dev);
	struct kern_event *e = ops->event_new(w->t.dev);
	cr_assert_eq(ops->kv_swap_out(side, w->kv, out, 3), 0);
	cr_assert_eq(ops->kv_swap_in(side, w->kv, in, 3), 0);
	cr_assert(ops->event_record(e, side) == 0 && ops->event_wait(e, w->t.s) == 0);
	cr_assert_eq(ops->kv_copy(w->t.s, w->kv, copy, 2), 0);
	int32_t moved[3] = {4, 5, 3}, *was = s->table;
	s->table = moved;
	step(w, s, 1, &(int){39}, &(int){1}, &pb);
	s->table = was;
	kt_same(b + 39 * 48, a + 39 * 48, 48, w->t.isa);
	cr_assert(ops->event_done(e));
	ops->event_free(e);
	ops->stream_free(side);
	/* K and V of 2 layers, 2 heads, 16 tokens; a head of 24 may be padded to 32 and have scales */
	const int64_t bytes = ops->kv_block_bytes(w->t.dev, 2, 2, 24, 16),
		      op = kt_on_cpu() ? kv_classes[c].bytes : (int64_t)kt_op_size(w->t.op);
	const int64_t scales = kt_on_cpu() && c > 1 ? 2 * 2 * 2 * 16 * 4 : 0;
	cr_assert(bytes >= 2 * 2 * 2 * 16 * 24 * op + scales && bytes <= 2 * 2 * 2 * 16 * 32 * op + scales);
}

Test(attention, blocks_keep_their_content_through_copies_and_swaps)
{
	struct model m = {.dim = 24, .heads = 2, .kv_heads = 2, .block_size = 16};
	const int length = 40;
	for (int c = 0; c < classes(); c++) {
		struct seq s;
		seqs_make(&s, &length, 1, &m, c);
		for (int way = 0; way < KT_WAYS; way++) {
			struct world w;
			if (!world_open(&w, c, way, 1, &m, &s, 1, length))
				continue;
			check_moves(&w, &s, c);
			world_close(&w);
		}
		seqs_free(&s, 1);
	}
}

/* The results of this many chunks do not fit the scratch memory, so that one thread computes all chunks. The
 * bits must be those of chunks computed in parallel. All positions use the same block. */
Test(attention, a_context_beyond_the_room_for_chunks_has_the_same_bits)
{
	enum { CONTEXT = 1 << 19, DIM = 256, BLOCK = 64, HEADS = 16 };
	static float in[BLOCK * (HEADS + 2) * DIM], rope[BLOCK * DIM], out[2][HEADS * DIM];
	int32_t *table = xcalloc(CONTEXT / BLOCK, sizeof *table), row0[] = {0, BLOCK}, pos0 = 0;
	static int32_t token_at[BLOCK];
	if (!kt_on_cpu())
		cr_skip_test("of the CPU's pool");
	for (int i = 0; i < BLOCK * (HEADS + 2) * DIM; i++)
		in[i] = kt_float();
	for (int i = 0; i < BLOCK * DIM; i += 2)
		rope[i] = 1;
	for (int threads = 1; threads <= 2; threads++) {
		struct world w = {.m = {.dim = DIM, .heads = HEADS, .kv_heads = 1, .block_size = BLOCK}};
		if (!kt_open(&w.t, 0, 0,
			     (struct kt_size){.threads = threads,
					      .rows = BLOCK,
					      .seqs = 1,
					      .context = CONTEXT,
					      .block_size = BLOCK}))
			cr_assert(kt_open(&w.t, 0, KT_WAYS - 1,
					  (struct kt_size){.threads = threads,
							   .rows = BLOCK,
							   .seqs = 1,
							   .context = CONTEXT,
							   .block_size = BLOCK}));
		w.kv = w.t.ops->kv_new(w.t.dev, 2, 1, DIM, BLOCK, 1, 1);
		w.rope = kt_put(&w.t, rope, sizeof rope);
		w.q = kt_new(&w.t, HEADS * sizeof rope);
		w.out = kt_new(&w.t, HEADS * sizeof rope);
		w.in = kt_put(&w.t, in, sizeof in);
		struct kern_batch b = {.n_rows = BLOCK,
				       .n_seqs = 1,
				       .token_at = token_at,
				       .row0 = row0,
				       .pos0 = &pos0,
				       .tables = table,
				       .table_stride = CONTEXT / BLOCK};
		row0[1] = BLOCK, pos0 = 0;
		run_batch(&w, &b);
		/* Query the last position of the context with the block's last row. */
		const struct kern_attn_args a = {.out = w.out,
						 .q = w.q,
						 .kv = w.kv,
						 .layer = 1,
						 .n_q_heads = HEADS,
						 .n_kv_heads = 1,
						 .head_dim = DIM,
						 .scale = 0.0625f};
		b.n_rows = row0[1] = 1, pos0 = CONTEXT - 1;
		cr_assert_eq(w.t.ops->batch_set(w.t.s, &b), 0);
		cr_assert_eq(w.t.ops->attention(w.t.s, &a), 0);
		kt_get_op(&w.t, out[threads - 1], w.out, HEADS * DIM);
		world_close(&w);
	}
	kt_same(out[1], out[0], HEADS * DIM, "two threads");
	free(table);
}
