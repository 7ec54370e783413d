/* Paged attention of the CUDA table: near a double-precision reference, and the same bits however
 * a prompt is cut, with whatever batch mates, in whatever order blocks and threads run. */
#include "tests/cudasim/cuda_test.h"

struct model {
	int dim, heads, kv_heads, block_size, window;
};

/* One sequence: its q, k, v side by side [n][(Hq + 2 Hkv) D]. */
struct seq {
	int n;
	float *qkv;
	int32_t *table;
};

struct world {
	struct ct t;
	struct model m;
	struct kern_kv *kv;
	void *rope, *q, *in, *out; /* cos 1, sin 0: no rotation */
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

static void seqs_make(struct seq *s, const int *lengths, int n, const struct model *m, bool bf16)
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
		ct_round(bf16, s[i].qkv, all);
		s[i].table = xmemdup(order + next, (size_t)blocks_of(m, lengths[i]) * sizeof *order);
		next += blocks_of(m, lengths[i]);
	}
	free(order);
}

static void seqs_free(struct seq *s, int n)
{
	for (int i = 0; i < n; i++) {
		free(s[i].qkv);
		free(s[i].table);
	}
}

static void world_open(struct world *w, bool bf16, const struct model *m, const struct seq *s, int n,
		       int max_rows)
{
	int context = 0, blocks = 0;
	for (int i = 0; i < n; i++) {
		context = s[i].n > context ? s[i].n : context;
		blocks += blocks_of(m, s[i].n);
	}
	*w = (struct world){.m = *m, .max_rows = max_rows};
	ct_open(&w->t, bf16,
		(struct kt_size){
			.rows = max_rows, .seqs = n, .context = context, .block_size = m->block_size});
	w->kv = w->t.ops->kv_new(w->t.dev, 2, m->kv_heads, m->dim, m->block_size, blocks, 4);
	cr_assert(w->kv != NULL);
	float *rope = xcalloc((size_t)context * (size_t)m->dim, sizeof *rope);
	for (int i = 0; i < context * m->dim; i += 2)
		rope[i] = 1;
	w->rope = ct_put(&w->t, rope, (size_t)context * (size_t)m->dim * sizeof *rope);
	w->q = ct_new(&w->t, (size_t)max_rows * (size_t)(m->heads * m->dim) * 2);
	w->out = ct_new(&w->t, (size_t)max_rows * (size_t)(m->heads * m->dim) * 2);
	w->in = ct_new(&w->t, (size_t)max_rows * (size_t)width(m) * 2);
	free(rope);
}

static void world_close(struct world *w)
{
	ct_del(&w->t, w->in, 0);
	ct_del(&w->t, w->out, 0);
	ct_del(&w->t, w->q, 0);
	ct_del(&w->t, w->rope, 0);
	w->t.ops->kv_free(w->kv);
	ct_close(&w->t);
}

/* Rows done[i] .. done[i] + take[i] of each sequence in one batch; out[i] is [n][Hq D]. */
static void step(struct world *w, const struct seq *s, int n, const int *done, const int *take,
		 float *const *out)
{
	enum { SEQS = 8 };
	const struct model *m = &w->m;
	const size_t q_width = (size_t)(m->heads * m->dim), in_width = (size_t)width(m);
	int32_t row0[SEQS + 1] = {0}, pos0[SEQS], stride = 0;
	cr_assert(n <= SEQS);
	for (int i = 0; i < n; i++) {
		stride = blocks_of(m, s[i].n) > stride ? blocks_of(m, s[i].n) : stride;
		pos0[i] = done[i];
		row0[i + 1] = row0[i] + take[i];
	}
	const size_t rows = (size_t)row0[n];
	cr_assert(row0[n] <= w->max_rows);
	int32_t *tables = xmalloc((size_t)(n * stride) * sizeof *tables);
	int32_t *token_at = xcalloc(rows, sizeof *token_at);
	float *in = xmalloc(rows * in_width * sizeof *in), *all = xmalloc(rows * q_width * sizeof *all);
	memset(tables, 0x7f,
	       (size_t)(n * stride) * sizeof *tables); /* what is not needed is never followed */
	for (int i = 0; i < n; i++) {
		memcpy(tables + i * stride, s[i].table,
		       (size_t)blocks_of(m, done[i] + take[i]) * sizeof *tables);
		memcpy(in + (size_t)row0[i] * in_width, s[i].qkv + (size_t)done[i] * in_width,
		       (size_t)take[i] * in_width * sizeof *in);
	}
	ct_set_op(&w->t, w->in, in, rows * in_width);
	struct kern_batch b = {
		.n_rows = row0[n],
		.n_seqs = n,
		.token_at = token_at,
		.row0 = row0,
		.pos0 = pos0,
		.tables = tables,
		.table_stride = stride,
	};
	struct kern_qkv_args qkv = {
		.q = w->q,
		.qkv = w->in,
		.rope = w->rope,
		.rope_dim = m->dim,
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.kv = w->kv,
		.layer = 1,
	};
	struct kern_attn_args attn = {
		.out = w->out,
		.q = w->q,
		.kv = w->kv,
		.layer = 1,
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.scale = 1 / sqrtf((float)m->dim),
		.window = m->window,
	};
	cr_assert_eq(w->t.ops->batch_set(w->t.s, &b), 0);
	cr_assert_eq(w->t.ops->qkv(w->t.s, &qkv), 0);
	cr_assert_eq(w->t.ops->attention(w->t.s, &attn), 0);
	ct_get_op(&w->t, all, w->out, rows * q_width);
	for (int i = 0; i < n; i++)
		memcpy(out[i] + (size_t)done[i] * q_width, all + (size_t)row0[i] * q_width,
		       (size_t)take[i] * q_width * sizeof *all);
	free(tables);
	free(token_at);
	free(in);
	free(all);
}

/* Sequence i in pieces of cut[i] rows, all sequences side by side while they last. */
static void run_cut(struct world *w, const struct seq *s, int n, const int *cut, float *const *out)
{
	int done[8] = {0};
	for (;;) {
		struct seq now[8];
		float *now_out[8];
		int now_done[8], now_take[8], k = 0, rows = 0;
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
		const float *q = s->qkv + (size_t)row * (size_t)in + h * m->dim;
		const int k0 = (m->heads + h / group) * m->dim, v0 = k0 + m->kv_heads * m->dim;
		double max = -INFINITY, sum = 0;
		for (int t = from; t <= row; t++) {
			const float *k = s->qkv + (size_t)t * (size_t)in + k0;
			p[t] = 0;
			for (int d = 0; d < m->dim; d++)
				p[t] += (double)q[d] * (double)k[d];
			p[t] /= sqrt(m->dim);
			max = p[t] > max ? p[t] : max;
		}
		for (int t = from; t <= row; t++)
			sum += p[t] = exp(p[t] - max);
		for (int d = 0; d < m->dim; d++) {
			double o = 0;
			for (int t = from; t <= row; t++)
				o += p[t] * (double)s->qkv[(size_t)t * (size_t)in + (size_t)(v0 + d)];
			out[h * m->dim + d] = o / sum;
		}
	}
	free(p);
}

/* p and the result are rounded to the operand type: half a unit each of values below 1. */
static void check_reference(const struct model *m, const struct seq *s, const float *out, bool bf16,
			    const char *what)
{
	const size_t n = (size_t)(m->heads * m->dim);
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	for (size_t i = 0; i < n; i++)
		tol[i] = bf16 ? 0x1p-8 : 0x1p-11;
	for (int row = 0; row < s->n; row += row < 40 || s->n - row < 3 ? 1 : 61) {
		reference_row(m, s, row, ref);
		kt_near(out + (size_t)row * n, ref, tol, n, what);
	}
	free(ref);
	free(tol);
}

/* Cuts of all, 64, 7 and (short ones) 1 row, against all at once. */
static void check_model(struct model m, int length)
{
	static const int cuts[] = {1 << 20, 64, 7, 1};
	char what[128];
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct seq s;
		struct world w;
		seqs_make(&s, &length, 1, &m, bf16);
		const size_t n = (size_t)length * (size_t)(m.heads * m.dim);
		float *want = NULL, *got = xcalloc(n, sizeof *got);
		world_open(&w, bf16, &m, &s, 1, length);
		for (int c = 0; c < (length > 100 ? 3 : 4); c++) {
			cudasim_seed((uint64_t)c);
			run_cut(&w, &s, 1, &cuts[c], &got);
			snprintf(what, sizeof what, "%s D %d heads %d/%d block %d window %d length %d cut %d",
				 ct_name(&w.t), m.dim, m.heads, m.kv_heads, m.block_size, m.window, length,
				 cuts[c]);
			if (!want) {
				want = xmemdup(got, n * sizeof *got);
				check_reference(&m, &s, want, bf16, what);
			}
			kt_same(got, want, n, what);
		}
		world_close(&w);
		free(want);
		free(got);
		seqs_free(&s, 1);
	}
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
	for (int group = 1; group <= 8; group++)
		check_model((struct model){.dim = 24, .heads = 2 * group, .kv_heads = 2, .block_size = 16},
			    40);
	check_model((struct model){.dim = 16, .heads = 71, .kv_heads = 1, .block_size = 64}, 30);
}

Test(attention, lengths_around_the_edges_of_steps_and_chunks)
{
	static const int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 272};
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		check_model((struct model){.dim = 16, .heads = 2, .kv_heads = 1, .block_size = 16},
			    lengths[i]);
}

Test(attention, a_window_sees_only_the_last_tokens)
{
	static const int windows[] = {1, 2, 5, 33, 100, 256, 300};
	for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
		check_model(
			(struct model){
				.dim = 16, .heads = 4, .kv_heads = 2, .block_size = 16, .window = windows[i]},
			330);
}

/* The last rows of a long sequence, one by one, against the same rows of the whole prompt. */
Test(attention, decode_of_a_long_context_has_the_bits_of_its_prefill)
{
	enum { LENGTH = 5000, LAST = 3 };
	struct model m = {.dim = 64, .heads = 2, .kv_heads = 1, .block_size = 16};
	const int length = LENGTH;
	const size_t width_q = (size_t)(m.heads * m.dim), n = (size_t)LENGTH * width_q;
	struct seq s;
	struct world w;
	float *want = xcalloc(n, sizeof *want), *got = xcalloc(n, sizeof *got);
	seqs_make(&s, &length, 1, &m, false);
	world_open(&w, false, &m, &s, 1, 2048);
	run_cut(&w, &s, 1, &(int){2048}, &want);
	double ref[128], tol[128];
	for (int i = 0; i < 128; i++)
		tol[i] = 0x1p-11;
	for (int row = LENGTH - LAST; row < LENGTH; row++) {
		step(&w, &s, 1, &row, &(int){1}, &got);
		reference_row(&m, &s, row, ref);
		kt_near(got + (size_t)row * width_q, ref, tol, width_q, "decode");
		kt_same(got + (size_t)row * width_q, want + (size_t)row * width_q, width_q, "decode");
	}
	world_close(&w);
	free(want);
	free(got);
	seqs_free(&s, 1);
}

Test(attention, batch_mates_and_the_order_of_blocks_change_nothing)
{
	enum { N = 5 };
	static const int lengths[N] = {300, 1, 45, 270, 128}, cuts[N] = {64, 1, 7, 3, 200};
	struct model m = {.dim = 64, .heads = 6, .kv_heads = 2, .block_size = 16};
	struct seq s[N];
	struct world w;
	float *alone[N] = {0}, *mixed[N];
	seqs_make(s, lengths, N, &m, true);
	world_open(&w, true, &m, s, N, 512);
	for (int i = 0; i < N; i++) {
		const size_t n = (size_t)lengths[i] * (size_t)(m.heads * m.dim);
		mixed[i] = xcalloc(n, sizeof(float));
		alone[i] = xcalloc(n, sizeof(float));
		run_cut(&w, &s[i], 1, &(int){512}, &alone[i]);
	}
	for (uint64_t seed = 0; seed < 2; seed++) {
		cudasim_seed(seed);
		run_cut(&w, s, N, cuts, mixed);
		for (int q = 0; q < N; q++)
			kt_same(mixed[q], alone[q], (size_t)lengths[q] * (size_t)(m.heads * m.dim), "mixed");
	}
	for (int i = 0; i < N; i++) {
		free(alone[i]);
		free(mixed[i]);
	}
	world_close(&w);
	seqs_free(s, N);
}

/* A later token, or one outside the window, never reaches a row: not even as 0 times infinity. */
Test(attention, what_a_row_does_not_see_never_touches_it)
{
	struct model m = {.dim = 16, .heads = 2, .kv_heads = 1, .block_size = 16, .window = 20};
	const int length = 60, all = 1 << 20;
	const size_t q_width = (size_t)(m.heads * m.dim);
	struct seq s;
	struct world w;
	float *clean = xcalloc((size_t)length * q_width, sizeof *clean);
	float *poisoned = xcalloc((size_t)length * q_width, sizeof *poisoned);
	seqs_make(&s, &length, 1, &m, false);
	world_open(&w, false, &m, &s, 1, length);
	run_cut(&w, &s, 1, &all, &clean);
	float *at = s.qkv + (size_t)30 * (size_t)width(&m) + q_width;
	for (int d = 0; d < 32; d++)
		at[d] = d % 2 ? NAN : INFINITY;
	run_cut(&w, &s, 1, &all, &poisoned);
	kt_same(poisoned, clean, 30 * q_width, "rows before the token");
	kt_same(poisoned + 50 * q_width, clean + 50 * q_width, 10 * q_width, "rows that no longer see it");
	world_close(&w);
	free(clean);
	free(poisoned);
	seqs_free(&s, 1);
}

Test(attention, blocks_keep_their_content_through_copies_and_swaps)
{
	struct model m = {.dim = 24, .heads = 2, .kv_heads = 2, .block_size = 16};
	const int length = 40;
	struct seq s;
	struct world w;
	float a[40 * 48], b[40 * 48], *pa = a, *pb = b;
	seqs_make(&s, &length, 1, &m, true);
	world_open(&w, true, &m, &s, 1, length);
	w.t.ops->kv_free(w.kv);
	w.kv = w.t.ops->kv_new(w.t.dev, 2, m.kv_heads, m.dim, m.block_size, 8, 4);
	run_cut(&w, &s, 1, &(int){40}, &pa);
	/* out to the host and back into other blocks, one of them by way of a copy; on a stream of its own */
	int32_t out[3][2] = {{s.table[0], 3}, {s.table[1], 0}, {s.table[2], 1}};
	int32_t in[3][2] = {{3, 6}, {0, 5}, {1, 3}}, copy[2][2] = {{6, 7}, {7, 4}};
	struct kern_stream *side = w.t.ops->stream_new(w.t.dev);
	struct kern_event *e = w.t.ops->event_new(w.t.dev);
	cr_assert_eq(w.t.ops->kv_swap_out(side, w.kv, out, 3), 0);
	cr_assert_eq(w.t.ops->kv_swap_in(side, w.kv, in, 3), 0);
	cr_assert(w.t.ops->event_record(e, side) == 0 && w.t.ops->event_wait(e, w.t.s) == 0);
	cr_assert_eq(w.t.ops->kv_copy(w.t.s, w.kv, copy, 2), 0);
	int32_t moved[3] = {4, 5, 3}, *was = s.table;
	s.table = moved;
	step(&w, &s, 1, &(int){39}, &(int){1}, &pb);
	s.table = was;
	kt_same(b + 39 * 48, a + 39 * 48, 48, "moved");
	cr_assert_eq(w.t.ops->kv_block_bytes(w.t.dev, 2, 2, 24, 16), 2 * 2 * 2 * 16 * 32 * 2);
	cr_assert(w.t.ops->event_done(e));
	w.t.ops->event_free(e);
	w.t.ops->stream_free(side);
	world_close(&w);
	seqs_free(&s, 1);
}
