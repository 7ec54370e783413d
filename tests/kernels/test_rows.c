/* Operations on single rows: norm, q/k norm and rotation, embedding, gather; the same bits on
 * every table, near a double-precision reference. */
#include "tests/kernels/kern_test.h"

/* ---- rmsnorm ---- */

static void check_rmsnorm(int hidden, bool with_add)
{
	enum { ROWS = 5 };
	const size_t n = (size_t)ROWS * (size_t)hidden;
	float *x = kt_floats(n), *add = kt_floats(n), *w = kt_floats((size_t)hidden);
	float *got = kt_floats(n), *want = NULL;
	double *ref = xmalloc(n * sizeof *ref), *tol = xmalloc(n * sizeof *tol);
	for (int r = 0; r < ROWS; r++) {
		double ss = 0;
		for (int i = 0; i < hidden; i++) {
			size_t at = (size_t)(r * hidden + i);
			ref[at] = (double)x[at] + (with_add ? (double)add[at] : 0);
			ss += ref[at] * ref[at];
		}
		for (int i = 0; i < hidden; i++) {
			ref[r * hidden + i] *= (double)w[i] / sqrt(ss / hidden + 1e-6);
			tol[r * hidden + i] = 1e-6 * (1 + fabs(ref[r * hidden + i]));
		}
	}
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i], (struct kt_size){.threads = 2, .rows = ROWS}))
			continue;
		float *in = xmemdup(x, n * sizeof *x);
		t.ops->rmsnorm(t.s, got, in, with_add ? add : NULL, w, ROWS, hidden, 1e-6f);
		kt_near(got, ref, tol, n, t.isa);
		for (size_t e = 0; e < n; e++)
			cr_assert(in[e] == (with_add ? x[e] + add[e] : x[e]), "residual at %zu", e);
		if (want)
			kt_same(got, want, n, t.isa);
		else
			want = xmemdup(got, n * sizeof *got);
		free(in);
		kt_close(&t);
	}
	free(x);
	free(add);
	free(w);
	free(got);
	free(want);
	free(ref);
	free(tol);
}

Test(rows, rmsnorm_adds_the_residual_and_normalizes)
{
	static const int sizes[] = {1, 7, 16, 33, 64, 172, 1024, 5000};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		check_rmsnorm(sizes[i], true);
		check_rmsnorm(sizes[i], false);
	}
}

/* ---- q, k: norm and rotation ---- */

struct qk {
	int dim, rope_dim, heads, kv_heads;
	enum kern_rope_style style;
	bool norm;
};

enum { QK_ROWS = 20, QK_POS = 3 };

static void qk_reference(const struct qk *m, const float *in, const float *norm, const float *rope,
			 double *out)
{
	double ss = 0;
	for (int d = 0; d < m->dim; d++)
		ss += (double)in[d] * (double)in[d];
	for (int d = 0; d < m->dim; d++)
		out[d] = (double)in[d] * (m->norm ? (double)norm[d] / sqrt(ss / m->dim + 1e-6) : 1);
	for (int i = 0; i < m->rope_dim / 2; i++) {
		int a = m->style == KERN_ROPE_HALVES ? i : 2 * i;
		int b = m->style == KERN_ROPE_HALVES ? i + m->rope_dim / 2 : 2 * i + 1;
		double c = (double)rope[2 * i], s = (double)rope[2 * i + 1], x = out[a], y = out[b];
		out[a] = x * c - y * s;
		out[b] = y * c + x * s;
	}
}

/* Each row attends to itself alone (a window of 1), so attention returns the stored v; k is seen
 * through the scores of a second run with all of the past. */
static void check_qkv(struct qk m)
{
	const int width = (m.heads + 2 * m.kv_heads) * m.dim, q_width = m.heads * m.dim;
	const size_t nq = (size_t)(QK_ROWS * q_width);
	float *in = kt_floats((size_t)(QK_ROWS * width)), *qn = kt_floats((size_t)m.dim),
	      *kn = kt_floats((size_t)m.dim);
	float *rope = kt_floats((size_t)((QK_ROWS + QK_POS) * m.rope_dim) + 1);
	float *q = kt_floats(nq), *v = kt_floats(nq), *want = NULL, *want_attn = NULL;
	double *ref = xmalloc(nq * sizeof *ref), *tol = xmalloc(nq * sizeof *tol),
	       *vref = xmalloc(nq * sizeof *vref);
	for (int r = 0; r < QK_ROWS; r++)
		for (int h = 0; h < m.heads; h++) {
			const float *row = in + r * width;
			size_t at = (size_t)(r * q_width + h * m.dim);
			qk_reference(&m, row + h * m.dim, qn, rope + (r + QK_POS) * m.rope_dim, ref + at);
			for (int d = 0; d < m.dim; d++) {
				tol[at + (size_t)d] = 2e-6;
				vref[at + (size_t)d] = (double)
					row[(m.heads + m.kv_heads + h / (m.heads / m.kv_heads)) * m.dim + d];
			}
		}
	for (int i = 0; i < KT_ISAS; i++) {
		struct kt t;
		if (!kt_open(&t, kt_isas[i],
			     (struct kt_size){
				     .threads = 1 + i % 2, .rows = QK_ROWS, .context = QK_ROWS + QK_POS}))
			continue;
		struct kern_kv *kv = t.ops->kv_new(t.dev, 1, m.kv_heads, m.dim, 16, 2, 0);
		int32_t row0[] = {0, QK_ROWS}, pos0[] = {QK_POS}, table[] = {1, 0}, token_at[QK_ROWS] = {0};
		t.ops->batch_set(t.s, &(struct kern_batch){.n_rows = QK_ROWS,
							   .n_seqs = 1,
							   .token_at = token_at,
							   .row0 = row0,
							   .pos0 = pos0,
							   .tables = table,
							   .table_stride = 2});
		t.ops->qkv(t.s, &(struct kern_qkv_args){.q = q,
							.qkv = in,
							.q_norm = m.norm ? qn : NULL,
							.k_norm = m.norm ? kn : NULL,
							.eps = 1e-6f,
							.rope = rope,
							.rope_dim = m.rope_dim,
							.style = m.style,
							.n_q_heads = m.heads,
							.n_kv_heads = m.kv_heads,
							.head_dim = m.dim,
							.kv = kv});
		kt_near(q, ref, tol, nq, t.isa);
		struct kern_attn_args a = {.out = v,
					   .q = q,
					   .kv = kv,
					   .n_q_heads = m.heads,
					   .n_kv_heads = m.kv_heads,
					   .head_dim = m.dim,
					   .scale = 1,
					   .window = 1};
		t.ops->attention(t.s, &a);
		kt_near(v, vref, tol, nq, "v through a window of 1");
		a.window = 0;
		t.ops->attention(t.s, &a);
		if (want) {
			kt_same(q, want, nq, t.isa);
			kt_same(v, want_attn, nq, t.isa);
		} else {
			want = xmemdup(q, nq * sizeof *q);
			want_attn = xmemdup(v, nq * sizeof *v);
		}
		t.ops->kv_free(kv);
		kt_close(&t);
	}
	float *all[] = {in, qn, kn, rope, q, v, want, want_attn};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		free(all[i]);
	free(ref);
	free(tol);
	free(vref);
}

Test(rows, qkv_normalizes_rotates_and_stores)
{
	for (int style = KERN_ROPE_HALVES; style <= KERN_ROPE_PAIRS; style++)
		for (int norm = 0; norm < 2; norm++) {
			enum kern_rope_style s = (enum kern_rope_style)style;
			check_qkv((struct qk){8, 8, 4, 2, s, norm});
			check_qkv((struct qk){64, 64, 2, 2, s, norm});
			check_qkv((struct qk){128, 128, 2, 1, s, norm});
			check_qkv((struct qk){24, 10, 3, 1, s, norm}); /* a part of the head only */
			check_qkv((struct qk){16, 0, 2, 1, s, norm});
		}
}

/* Rotating q and k of equal content gives scores that depend on the distance alone. */
Test(rows, rotation_keeps_the_length_of_a_head)
{
	enum { D = 64 };
	float in[3 * D], q[D], rope[8 * D];
	for (int p = 0; p < 8; p++)
		for (int i = 0; i < D / 2; i++) {
			float angle = (float)p * powf(10000, -2.0f * (float)i / D);
			rope[p * D + 2 * i] = cosf(angle);
			rope[p * D + 2 * i + 1] = sinf(angle);
		}
	for (int i = 0; i < 3 * D; i++)
		in[i] = kt_float();
	struct kt t;
	cr_assert(kt_open(&t, "plain", (struct kt_size){.threads = 1, .rows = 1, .context = 8}));
	struct kern_kv *kv = t.ops->kv_new(t.dev, 1, 1, D, 16, 1, 0);
	int32_t row0[] = {0, 1}, pos0[] = {7}, zero[] = {0};
	t.ops->batch_set(t.s, &(struct kern_batch){.n_rows = 1,
						   .n_seqs = 1,
						   .token_at = zero,
						   .row0 = row0,
						   .pos0 = pos0,
						   .tables = zero,
						   .table_stride = 1});
	t.ops->qkv(t.s, &(struct kern_qkv_args){.q = q,
						.qkv = in,
						.rope = rope,
						.rope_dim = D,
						.n_q_heads = 1,
						.n_kv_heads = 1,
						.head_dim = D,
						.kv = kv});
	double was = 0, is = 0;
	for (int i = 0; i < D; i++) {
		was += (double)in[i] * (double)in[i];
		is += (double)q[i] * (double)q[i];
	}
	cr_assert(fabs(was - is) < 1e-4);
	t.ops->kv_free(kv);
	kt_close(&t);
}

/* ---- embedding and gather ---- */

Test(rows, embedding_rows_are_read_through_the_token_buffer_and_serve_as_the_head)
{
	enum { H = 40, ROWS = 6, V = 100 };
	static const int32_t tokens[] = {99, 0, 63, 64, 5, 5, 17}, token_at[ROWS] = {0, 1, 2, 3, 4, 6};
	for (int d = KERN_F32; d <= KERN_BF16; d++) {
		struct kt_part p = kt_part((enum kern_dtype)d, H, V, 0, false);
		for (int i = 0; i < KT_ISAS; i++) {
			struct kt t;
			struct kern_embed *e;
			float x[ROWS * H], y[V];
			int32_t row0[] = {0, ROWS}, pos0[] = {0};
			struct kern_batch b = {.n_rows = ROWS,
					       .n_seqs = 1,
					       .token_at = token_at,
					       .row0 = row0,
					       .pos0 = pos0};
			if (!kt_open(&t, kt_isas[i],
				     (struct kt_size){.threads = 2, .rows = ROWS, .context = ROWS}))
				continue;
			cr_assert_eq(t.ops->embed_load(t.dev, p.w, (enum kern_dtype)d, V, H, &e, NULL, 0), 0);
			t.ops->batch_set(t.s, &b);
			t.ops->embed(t.s, e, tokens, 0, x);
			for (int r = 0; r < ROWS; r++)
				kt_same(x + r * H, p.f + tokens[token_at[r]] * H, H, "embedding");
			/* As one rank's part: the table of the tokens from 10 on. */
			t.ops->embed(t.s, e, tokens, 10, x);
			for (int r = 0; r < ROWS; r++) {
				static const float zeros[H];
				const int id = tokens[token_at[r]] - 10;
				kt_same(x + r * H, id < 0 ? zeros : p.f + id * H, H, "a part's embedding");
			}
			t.ops->embed(t.s, e, tokens, 0, x);
			t.ops->linear(t.s, t.ops->embed_linear(e), y, x, 1, true);
			double dot = 0;
			for (int k = 0; k < H; k++)
				dot += (double)p.f[99 * H + k] * (double)p.f[99 * H + k];
			cr_assert(fabs((double)y[99] - dot) < 1e-5 * dot);
			cr_assert(t.ops->embed_bytes(e) >= V * H * (d == KERN_F32 ? 4 : 2));
			t.ops->embed_free(e);
			kt_close(&t);
		}
		kt_part_fini(&p);
	}
	struct kt t;
	struct kern_embed *e;
	char why[128];
	cr_assert(kt_open(&t, "plain", (struct kt_size){.threads = 1, .rows = 1}));
	cr_assert_eq(t.ops->embed_load(t.dev, tokens, KERN_AWQ4, 8, 8, &e, why, sizeof why), -ENOTSUP);
	kt_close(&t);
}

Test(rows, gather_takes_the_rows_whose_logits_are_wanted)
{
	enum { H = 5 };
	float x[4 * H], out[3 * H];
	int32_t row0[] = {0, 4}, pos0[] = {0}, token_at[4] = {0}, want[] = {3, 0, 3};
	struct kt t;
	for (int i = 0; i < 4 * H; i++)
		x[i] = (float)i;
	cr_assert(kt_open(&t, "plain", (struct kt_size){.threads = 1, .rows = 4, .logits = 3, .context = 4}));
	t.ops->batch_set(t.s, &(struct kern_batch){.n_rows = 4,
						   .n_seqs = 1,
						   .token_at = token_at,
						   .row0 = row0,
						   .pos0 = pos0,
						   .n_logits = 3,
						   .logits_row = want});
	t.ops->gather(t.s, out, x, H);
	for (int i = 0; i < 3; i++)
		kt_same(out + i * H, x + want[i] * H, H, "gathered row");
	kt_close(&t);
}
