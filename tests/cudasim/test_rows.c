/* Operations on single rows of the CUDA table: norm, q/k norm with rotation and KV store,
 * embedding, gather; memory, streams and what open() refuses. */
#include "tests/cudasim/cuda_test.h"

static double op_unit(bool bf16)
{
	return bf16 ? 0x1p-8 : 0x1p-11; /* half a unit in the last place, relative */
}

/* ---- rmsnorm ---- */

static void check_rmsnorm(bool bf16, int hidden, bool with_add)
{
	enum { ROWS = 5 };
	const size_t n = (size_t)ROWS * (size_t)hidden;
	float *x = kt_floats(n), *add = kt_floats(n), *w = kt_floats((size_t)hidden), *got = xcalloc(n, 4);
	float *one = xcalloc((size_t)hidden, 4), *residual = xcalloc(n, 4);
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
			tol[r * hidden + i] = (op_unit(bf16) + 1e-6) * fabs(ref[r * hidden + i]) + 1e-6;
		}
	}
	struct ct t;
	ct_open(&t, bf16, (struct kt_size){.rows = ROWS});
	void *dx = ct_put(&t, x, n * 4), *da = ct_put(&t, add, n * 4),
	     *dw = ct_put(&t, w, (size_t)hidden * 4);
	void *out = ct_new(&t, n * 2);
	cr_assert_eq(t.ops->rmsnorm(t.s, out, dx, with_add ? da : NULL, dw, ROWS, hidden, 1e-6f), 0);
	ct_get_op(&t, got, out, n);
	ct_get(&t, residual, dx, n * 4);
	kt_near(got, ref, tol, n, ct_name(&t));
	for (size_t e = 0; e < n; e++)
		cr_assert(residual[e] == (with_add ? x[e] + add[e] : x[e]), "residual at %zu", e);
	/* the last row by itself has the same bits */
	void *d1 = ct_put(&t, residual + (size_t)(ROWS - 1) * (size_t)hidden, (size_t)hidden * 4);
	cr_assert_eq(t.ops->rmsnorm(t.s, out, d1, NULL, dw, 1, hidden, 1e-6f), 0);
	ct_get_op(&t, one, out, (size_t)hidden);
	kt_same(one, got + (size_t)(ROWS - 1) * (size_t)hidden, (size_t)hidden, "alone");
	void *all[] = {dx, da, dw, out, d1};
	for (int i = 0; i < 5; i++)
		ct_del(&t, all[i], 0);
	ct_close(&t);
	free(x);
	free(add);
	free(w);
	free(got);
	free(one);
	free(residual);
	free(ref);
	free(tol);
}

Test(rows, rmsnorm_adds_the_residual_and_normalizes)
{
	static const int sizes[] = {1, 7, 33, 64, 172, 1024, 5000};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		for (int bf16 = 0; bf16 < 2; bf16++) {
			check_rmsnorm(bf16, sizes[i], true);
			check_rmsnorm(bf16, sizes[i], false);
		}
}

/* ---- q, k: norm and rotation ---- */

struct qk {
	int dim, rope_dim, heads, kv_heads;
	enum kern_rope_style style;
	bool norm;
};

enum { QK_ROWS = 20, QK_POS = 3, QK_CONTEXT = QK_ROWS + QK_POS };

static void qk_reference(const struct qk *m, const float *in, const float *norm, const float *rope,
			 double *out)
{
	double ss = 0;
	for (int i = 0; i < m->dim; i++)
		ss += (double)in[i] * (double)in[i];
	for (int i = 0; i < m->dim; i++)
		out[i] = (double)in[i] * (m->norm ? (double)norm[i] / sqrt(ss / m->dim + 1e-6) : 1);
	for (int i = 0; i < m->rope_dim / 2; i++) {
		const bool halves = m->style == KERN_ROPE_HALVES;
		double *a = &out[halves ? i : 2 * i], *b = &out[halves ? i + m->rope_dim / 2 : 2 * i + 1];
		const double va = *a, vb = *b, c = (double)rope[2 * i], s = (double)rope[2 * i + 1];
		*a = va * c - vb * s;
		*b = vb * c + va * s;
	}
}

/* q comes out; k and v are seen through attention of one visible token (window 1): its v. */
static void check_qk(struct qk m, bool bf16)
{
	const size_t width = (size_t)((m.heads + 2 * m.kv_heads) * m.dim), qw = (size_t)(m.heads * m.dim);
	float *in = kt_floats(QK_ROWS * width), *qn = kt_floats((size_t)m.dim),
	      *kn = kt_floats((size_t)m.dim);
	float *rope = xcalloc((size_t)(QK_CONTEXT * m.rope_dim) + 1, 4), *got = xcalloc(QK_ROWS * qw, 4);
	int32_t row0[] = {0, QK_ROWS}, pos0[] = {QK_POS}, table[] = {1, 0}, token_at[QK_ROWS] = {0};
	ct_round(bf16, in, QK_ROWS * width);
	for (int i = 0; i < QK_CONTEXT * m.rope_dim; i += 2) {
		rope[i] = cosf((float)i);
		rope[i + 1] = sinf((float)i);
	}
	struct ct t;
	ct_open(&t, bf16, (struct kt_size){.rows = QK_ROWS, .context = QK_CONTEXT});
	struct kern_kv *kv = t.ops->kv_new(t.dev, 1, m.kv_heads, m.dim, 16, 2, 0);
	void *din = ct_put_op(&t, in, QK_ROWS * width), *q = ct_new(&t, QK_ROWS * qw * 2);
	void *out = ct_new(&t, QK_ROWS * qw * 2);
	void *drope = ct_put(&t, rope, (size_t)(QK_CONTEXT * m.rope_dim) * 4 + 4);
	void *dqn = ct_put(&t, qn, (size_t)m.dim * 4), *dkn = ct_put(&t, kn, (size_t)m.dim * 4);
	struct kern_batch b = {
		.n_rows = QK_ROWS,
		.n_seqs = 1,
		.token_at = token_at,
		.row0 = row0,
		.pos0 = pos0,
		.tables = table,
		.table_stride = 2,
	};
	struct kern_qkv_args a = {
		.q = q,
		.qkv = din,
		.q_norm = m.norm ? dqn : NULL,
		.k_norm = m.norm ? dkn : NULL,
		.eps = 1e-6f,
		.rope = drope,
		.rope_dim = m.rope_dim,
		.style = m.style,
		.n_q_heads = m.heads,
		.n_kv_heads = m.kv_heads,
		.head_dim = m.dim,
		.kv = kv,
	};
	struct kern_attn_args attn = {
		.out = out,
		.q = q,
		.kv = kv,
		.n_q_heads = m.heads,
		.n_kv_heads = m.kv_heads,
		.head_dim = m.dim,
		.scale = 1,
		.window = 1,
	};
	cr_assert_eq(t.ops->batch_set(t.s, &b), 0);
	cr_assert_eq(t.ops->qkv(t.s, &a), 0);
	cr_assert_eq(t.ops->attention(t.s, &attn), 0);
	ct_get_op(&t, got, q, QK_ROWS * qw);
	for (int r = 0; r < QK_ROWS; r++)
		for (int h = 0; h < m.heads; h++) {
			double ref[256], tol[256];
			qk_reference(&m, in + (size_t)r * width + (size_t)(h * m.dim), qn,
				     rope + (size_t)((QK_POS + r) * m.rope_dim), ref);
			for (int i = 0; i < m.dim; i++)
				tol[i] = (op_unit(bf16) + 1e-5) * (fabs(ref[i]) + 0.01);
			kt_near(got + (size_t)r * qw + (size_t)(h * m.dim), ref, tol, (size_t)m.dim, "q");
		}
	ct_get_op(&t, got, out, QK_ROWS * qw);
	for (int r = 0; r < QK_ROWS; r++)
		for (int h = 0; h < m.heads; h++)
			kt_same(got + (size_t)r * qw + (size_t)(h * m.dim),
				in + (size_t)r * width +
					(size_t)((m.heads + m.kv_heads + h / (m.heads / m.kv_heads)) * m.dim),
				(size_t)m.dim, "v");
	void *all[] = {din, q, out, drope, dqn, dkn};
	for (int i = 0; i < 6; i++)
		ct_del(&t, all[i], 0);
	t.ops->kv_free(kv);
	ct_close(&t);
	free(in);
	free(qn);
	free(kn);
	free(rope);
	free(got);
}

Test(rows, q_and_k_are_normalized_and_rotated_and_v_is_stored)
{
	static const struct qk shapes[] = {
		{64, 64, 4, 2, KERN_ROPE_HALVES, true},  {128, 128, 2, 2, KERN_ROPE_HALVES, false},
		{64, 32, 3, 1, KERN_ROPE_PAIRS, false},  {40, 40, 6, 3, KERN_ROPE_PAIRS, true},
		{256, 64, 1, 1, KERN_ROPE_HALVES, true}, {16, 0, 2, 1, KERN_ROPE_HALVES, false},
	};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int bf16 = 0; bf16 < 2; bf16++)
			check_qk(shapes[i], bf16);
}

/* ---- embedding and gather ---- */

Test(rows, embedding_rows_are_looked_up_and_gathered_whatever_their_type)
{
	enum { V = 50, H = 72, T = 5 };
	static const enum kern_dtype types[] = {KERN_F32, KERN_F16, KERN_BF16};
	int32_t tokens[] = {9, 49, 0, 7, 7, 1000}, token_at[T] = {1, 2, 3, 4, 5}, row0[] = {0, T},
		pos0[] = {0};
	int32_t want_rows[] = {3, 0, 3}, table[1] = {0};
	for (int i = 0; i < 6; i++) {
		const bool bf16 = i % 2;
		struct kt_part e = kt_part(types[i / 2], H, V, 0, false);
		struct kern_embed *emb;
		struct ct t;
		char why[256] = "";
		float x[T * H], y[3 * H];
		ct_open(&t, bf16, (struct kt_size){.rows = T, .logits = 3, .context = 16});
		cr_assert_eq(t.ops->embed_load(t.dev, e.w, types[i / 2], V, H, &emb, why, sizeof why), 0,
			     "%s", why);
		void *dt = ct_put(&t, tokens, sizeof tokens), *dx = ct_new(&t, sizeof x),
		     *dy = ct_new(&t, sizeof y);
		struct kern_batch b = {
			.n_rows = T,
			.n_seqs = 1,
			.token_at = token_at,
			.row0 = row0,
			.pos0 = pos0,
			.tables = table,
			.table_stride = 1,
			.n_logits = 3,
			.logits_row = want_rows,
		};
		cr_assert_eq(t.ops->batch_set(t.s, &b), 0);
		cr_assert_eq(t.ops->embed(t.s, emb, dt, 0, dx), 0);
		cr_assert_eq(t.ops->gather(t.s, dy, dx, H), 0);
		ct_get(&t, x, dx, sizeof x);
		ct_get(&t, y, dy, sizeof y);
		ct_round(bf16, e.f, V * H);
		for (int r = 0; r < T; r++) {
			const int id = tokens[token_at[r]];
			for (int k = 0; k < H; k++)
				cr_assert(x[r * H + k] == (id < V ? e.f[id * H + k] : 0), "row %d", r);
		}
		/* As one rank's part: the table of the tokens from 3 on. */
		cr_assert_eq(t.ops->embed(t.s, emb, dt, 3, dx), 0);
		ct_get(&t, x, dx, sizeof x);
		for (int r = 0; r < T; r++) {
			const int id = tokens[token_at[r]] - 3;
			for (int k = 0; k < H; k++)
				cr_assert(x[r * H + k] == (id >= 0 && id < V ? e.f[id * H + k] : 0), "row %d", r);
		}
		cr_assert_eq(t.ops->embed(t.s, emb, dt, 0, dx), 0);
		ct_get(&t, x, dx, sizeof x);
		for (int r = 0; r < 3; r++)
			kt_same(y + r * H, x + want_rows[r] * H, H, "gathered");
		cr_assert_eq(t.ops->embed_bytes(emb), V * H * 2);
		cr_assert(t.ops->embed_linear(emb) != NULL);
		ct_del(&t, dt, 0);
		ct_del(&t, dx, 0);
		ct_del(&t, dy, 0);
		t.ops->embed_free(emb);
		ct_close(&t);
		kt_part_fini(&e);
	}
}

/* ---- the device ---- */

Test(device, memory_is_zeroed_and_copies_arrive_in_order_of_events)
{
	struct ct t;
	ct_open(&t, false, (struct kt_size){0});
	static const size_t sizes[] = {1, 1000, 5 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		unsigned char *d = ct_new(&t, sizes[i]), *h = t.ops->host_new(t.dev, sizes[i]);
		unsigned char *back = t.ops->host_new(t.dev, sizes[i]);
		cr_assert(h && back && (uintptr_t)d % 64 == 0);
		memset(back, 1, sizes[i]);
		ct_get(&t, back, d, sizes[i]);
		for (size_t b = 0; b < sizes[i]; b++)
			cr_assert_eq(back[b], 0);
		memset(h, 7, sizes[i]);
		struct kern_stream *other = t.ops->stream_new(t.dev);
		struct kern_event *e = t.ops->event_new(t.dev);
		cr_assert_eq(t.ops->upload(other, d, h, sizes[i]), 0);
		cr_assert(t.ops->event_record(e, other) == 0 && t.ops->event_wait(e, t.s) == 0);
		ct_get(&t, back, d, sizes[i]);
		cr_assert_eq(back[sizes[i] - 1], 7);
		cr_assert(t.ops->event_done(e));
		t.ops->event_free(e);
		t.ops->stream_free(other);
		ct_del(&t, d, sizes[i]);
		t.ops->host_free(t.dev, h, sizes[i]);
		t.ops->host_free(t.dev, back, sizes[i]);
	}
	ct_close(&t);
}

Test(device, info_names_the_operand_type_and_what_decides_bits)
{
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct ct t;
		struct kern_info in;
		ct_open(&t, bf16, (struct kt_size){0});
		t.ops->info(t.dev, &in);
		cr_assert_eq(in.operand, bf16 ? KERN_BF16 : KERN_F16);
		cr_assert(in.kv == in.operand && in.name[0] && in.bytes_free > 0 &&
			  in.bytes_total >= in.bytes_free);
		cr_assert(strstr(in.numerics, bf16 ? " bf16" : " f16") && strstr(in.numerics, in.isa));
		ct_close(&t);
	}
}

Test(device, a_model_trained_in_bf16_gets_operands_of_its_range)
{
	char why[256];
	const struct kern_open_args a = {.index = -1,
					 .compute = KERN_COMPUTE_F32,
					 .model = KERN_BF16,
					 .max_rows = 1,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 1,
					 .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct kern_info in;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), 0, "%s", why);
	kern_cuda_ops.info(d, &in);
	cr_assert_eq(in.operand, KERN_BF16);
	kern_cuda_ops.close(d);
}

Test(device, what_cannot_be_opened_is_refused_with_the_reason)
{
	char why[256];
	struct kern_dev *d;
	struct kern_open_args a = {.index = -1};
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -EINVAL);
	a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
	a.index = 900;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENODEV);
	cr_assert(strstr(why, "cuda:900"), "%s", why);
	a.index = 0;
	a.compute = KERN_COMPUTE_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "int8") && d == NULL, "%s", why);
}
