/* rows.c - operations on single rows: the batch, embedding, norms, rotation and KV store, gather. */
#include "kernels/cpu/attention/kv.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/touch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int cpu_batch_set(struct kern_stream *s, const struct kern_batch *in)
{
	struct kern_dev *d = s->dev;
	struct cpu_batch *b = &d->batch;
	const size_t stride = (size_t)d->args.max_blocks_per_seq;
	assert(in->n_rows >= 0 && in->n_rows <= d->args.max_rows);
	assert(in->n_seqs >= 0 && in->n_seqs <= d->args.max_seqs);
	assert(in->n_logits >= 0 && in->n_logits <= d->args.max_logits && !in->pad_to);
	b->n_rows = in->n_rows;
	b->n_seqs = in->n_seqs;
	b->n_logits = in->n_logits;
	if (in->n_rows)
		memcpy(b->token_at, in->token_at, (size_t)in->n_rows * sizeof *b->token_at);
	for (int i = 0; i < in->n_logits; i++) {
		assert(in->logits_row[i] >= 0 && in->logits_row[i] < in->n_rows);
		b->logits_row[i] = in->logits_row[i];
	}
	int used = 0;
	b->row0[0] = 0;
	assert(!in->n_seqs || in->row0[0] == 0);
	for (int q = 0; q < in->n_seqs; q++) {
		int first = in->row0[q], end = in->row0[q + 1], last = in->pos0[q] + end - first;
		assert(first <= end && end <= in->n_rows && in->pos0[q] >= 0 && last <= d->args.max_context);
		b->row0[q + 1] = end;
		b->pos0[q] = in->pos0[q];
		for (int r = first; r < end; r++)
			b->row_seq[r] = q;
		int blocks = d->block_size ? (last + d->block_size - 1) / d->block_size : 0;
		if (first == end || !blocks)
			continue;
		assert(blocks <= in->table_stride && (size_t)blocks <= stride);
		for (int k = 0; k < d->args.n_kinds; k++) {
			int32_t *table = cpu_table(d, q, k);
			memcpy(table, kern_batch_table(in, q, d->args.n_kinds, k),
			       (size_t)blocks * sizeof *table);
			for (int i = in->pos0[q] / d->block_size; i < blocks; i++)
				used = table[i] >= used ? table[i] + 1 : used;
		}
	}
	cpu_touch_used(d->touch, used);
	assert(b->row0[in->n_seqs] == in->n_rows);
	return 0;
}

struct rows_job {
	struct kern_dev *dev;
	const struct kern_embed *embed;
	const int32_t *tokens;
	int first; /* first token in the table */
	const struct kern_qkv_args *qkv;
	int pieces; /* tasks per row, among which heads are divided */
	void *out;
	size_t row; /* bytes of a row of out */
	float *x;
	const float *add, *weight;
	int hidden;
	float eps;
	enum kern_map map;
	float by;
};

static void embed_row(void *arg, int t, int thread)
{
	const struct rows_job *j = arg;
	const int id = j->tokens[j->dev->batch.token_at[t]] - j->first;
	float *x = j->x + (size_t)t * (size_t)j->embed->hidden;
	(void)thread;
	if (id >= 0 && id < j->embed->n_vocab)
		cpu_unpack_row(&j->embed->linear, id, x);
	else
		memset(x, 0, (size_t)j->embed->hidden * sizeof *x);
}

int cpu_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x)
{
	struct rows_job j = {.dev = s->dev, .embed = e, .tokens = tokens, .first = first, .x = x};
	cpu_run(s->dev, s->dev->batch.n_rows, (int64_t)s->dev->batch.n_rows * e->hidden * 4, embed_row, &j);
	return 0;
}

/* Return where a thread stores a row of floats before converting it to an operand: its scratch or, if the row
 * is too long, `wide`, which has room for all rows. */
static float *wide_row(const struct kern_dev *d, int t, int thread, int width)
{
	return width <= 2 * ROWS_MAX * BLOCK_N ? d->scratch[thread].c : d->wide + (size_t)t * (size_t)width;
}

/* A row without a norm: x += add, then out = x. */
static void plain_row(const struct rows_job *j, int t)
{
	const size_t n = (size_t)j->hidden, at = (size_t)t * n;
	float *x = j->x + at;
	for (size_t i = 0; j->add && i < n; i++)
		x[i] += j->add[at + i];
	if (cpu_has_operands(j->dev))
		cpu_quantize_row(j->dev, (unsigned char *)j->out + (size_t)t * j->row, x, j->hidden);
	else
		memcpy((float *)j->out + at, x, n * sizeof *x);
}

static void rmsnorm_row(void *arg, int t, int thread)
{
	const struct rows_job *j = arg;
	struct kern_dev *d = j->dev;
	const size_t at = (size_t)t * (size_t)j->hidden;
	const bool wide = cpu_has_operands(d);
	if (!j->weight) {
		plain_row(j, t);
		return;
	}
	float *out = wide ? wide_row(d, t, thread, j->hidden) : (float *)j->out + at;
	d->isa->rmsnorm(out, j->x + at, j->add ? j->add + at : NULL, j->weight, j->hidden, j->eps);
	if (wide)
		cpu_quantize_row(d, (unsigned char *)j->out + (size_t)t * j->row, out, j->hidden);
}

int cpu_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		int hidden, float eps)
{
	struct rows_job j = {.dev = s->dev,
			     .out = out,
			     .row = cpu_operand_bytes(s->dev, 1, hidden),
			     .x = x,
			     .add = add,
			     .weight = weight,
			     .hidden = hidden,
			     .eps = eps};
	assert(!cpu_has_operands(s->dev) ||
	       (size_t)n_rows * (size_t)hidden * sizeof(float) <= s->dev->wide_bytes);
	cpu_run(s->dev, n_rows, (int64_t)n_rows * hidden * 2, rmsnorm_row, &j);
	return 0;
}

static void rmsnorm_f32_row(void *arg, int t, int thread)
{
	const struct rows_job *j = arg;
	float *x = j->x + (size_t)t * (size_t)j->hidden;
	(void)thread;
	j->dev->isa->rmsnorm(x, x, NULL, j->weight, j->hidden, j->eps);
}

int cpu_rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps)
{
	struct rows_job j = {.dev = s->dev, .x = x, .weight = weight, .hidden = hidden, .eps = eps};
	cpu_run(s->dev, n_rows, (int64_t)n_rows * hidden * 2, rmsnorm_f32_row, &j);
	return 0;
}

struct layernorm_job {
	struct kern_dev *dev;
	const struct kern_layernorm_args *a;
	size_t row; /* bytes of a row of out */
};

static void layernorm_row(void *arg, int t, int thread)
{
	const struct layernorm_job *j = arg;
	const struct kern_layernorm_args *a = j->a;
	struct kern_dev *d = j->dev;
	const size_t at = (size_t)t * (size_t)a->hidden;
	float *x = (float *)a->x + at, *out = x;
	const bool operand = a->out && cpu_has_operands(d);
	if (a->out)
		out = operand ? wide_row(d, t, thread, a->hidden) : (float *)a->out + at;
	d->isa->layernorm(out, x, a->add ? (const float *)a->add + at : NULL, a->weight, a->bias, a->hidden,
			  a->eps);
	if (operand)
		cpu_quantize_row(d, (unsigned char *)a->out + (size_t)t * j->row, out, a->hidden);
}

int cpu_layernorm(struct kern_stream *s, const struct kern_layernorm_args *a, int n_rows)
{
	struct layernorm_job j = {s->dev, a, cpu_operand_bytes(s->dev, 1, a->hidden)};
	assert(!a->out || !cpu_has_operands(s->dev) ||
	       (size_t)n_rows * (size_t)a->hidden * sizeof(float) <= s->dev->wide_bytes);
	cpu_run(s->dev, n_rows, (int64_t)n_rows * a->hidden * 3, layernorm_row, &j);
	return 0;
}

int cpu_positions(struct kern_stream *s, void *x, const void *table, int hidden)
{
	const struct cpu_batch *b = &s->dev->batch;
	for (int t = 0; t < b->n_rows; t++) {
		const int seq = b->row_seq[t], pos = b->pos0[seq] + t - b->row0[seq];
		const float *from = (const float *)table + (size_t)pos * (size_t)hidden;
		float *to = (float *)x + (size_t)t * (size_t)hidden;
		for (int i = 0; i < hidden; i++)
			to[i] += from[i];
	}
	return 0;
}

enum { ACT_PIECE = 4 * ACT_GROUP }; /* values of a task of activate() */

struct act_job {
	struct kern_dev *dev;
	const struct kern_act_args *a;
	unsigned char *out;
	float *x;
	size_t row; /* bytes of a row of out */
	int width, pieces;
};

/* Compiled once for all instruction sets, so that the bits do not depend on them. */
static float activated(const struct kern_act_args *a, float g)
{
	switch (a->act) {
	case KERN_SILU:
		return g / (1 + expf(-g));
	case KERN_GELU_TANH:
		return g / (1 + expf(-g * (1.5957691216057f + 0.0713548162726f * g * g)));
	case KERN_GELU_SIGMOID:
		return g / (1 + expf(-1.702f * g));
	case KERN_GELU:
		return 0.5f * g * (1 + erff(g * 0.70710678118655f));
	case KERN_RELU:
		return g > 0 ? g : 0 * g; /* NaN stays */
	case KERN_RELU2:
		return g > 0 ? g * g : 0 * g;
	case KERN_XIELU:
		break;
	}
	return g > 0 ? a->alpha_p * g * g + a->beta * g
		     : (expm1f(g < a->eps ? g : a->eps) - g) * a->alpha_n + a->beta * g;
}

static void act_piece(void *arg, int task, int thread)
{
	const struct act_job *j = arg;
	const int t = task / j->pieces, k0 = task % j->pieces * ACT_PIECE;
	const int n = j->width - k0 < ACT_PIECE ? j->width - k0 : ACT_PIECE;
	float *x = j->x + (size_t)t * (size_t)j->width + k0;
	unsigned char *out = j->out + (size_t)t * j->row;
	(void)thread;
	for (int i = 0; i < n; i++)
		x[i] = activated(j->a, x[i]);
	if (cpu_has_operands(j->dev))
		cpu_quantize_piece(j->dev, out, x, j->width, k0, n);
	else
		memcpy((float *)(void *)out + k0, x, (size_t)n * sizeof *x);
}

int cpu_activate(struct kern_stream *s, void *out, void *x, int n_rows, int width,
		 const struct kern_act_args *a)
{
	struct kern_dev *d = s->dev;
	struct act_job j = {.dev = d,
			    .a = a,
			    .out = out,
			    .x = x,
			    .row = cpu_operand_bytes(d, 1, width),
			    .width = width,
			    .pieces = (width + ACT_PIECE - 1) / ACT_PIECE};
	cpu_run(d, n_rows * j.pieces, (int64_t)n_rows * width * 8, act_piece, &j);
	if (cpu_has_operands(d))
		cpu_quantize_end(d, out, n_rows, width);
	return 0;
}

struct add_job {
	float *x;
	const float *y, *by;
	int width;
};

static void add_row(void *arg, int t, int thread)
{
	const struct add_job *j = arg;
	float *x = j->x + (size_t)t * (size_t)j->width;
	const float *y = j->y + (size_t)t * (size_t)j->width, by = j->by ? j->by[t] : 1;
	(void)thread;
	for (int i = 0; i < j->width; i++)
		x[i] += by * y[i];
}

int cpu_add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width)
{
	struct add_job j = {x, y, by, width};
	cpu_run(s->dev, n_rows, (int64_t)n_rows * width / 8, add_row, &j);
	return 0;
}

enum { MAP_PIECE = 4096 }; /* values in a task: a row of logits is long */

static void map_piece(void *arg, int task, int thread)
{
	const struct rows_job *j = arg;
	const int row = task / j->pieces, at = task % j->pieces * MAP_PIECE;
	const int n = j->hidden - at < MAP_PIECE ? j->hidden - at : MAP_PIECE;
	float *x = j->x + (size_t)row * (size_t)j->hidden + at;
	(void)thread;
	if (j->map == KERN_MAP_SOFTCAP)
		j->dev->isa->softcap(x, n, j->by);
	else
		for (int i = 0; i < n; i++)
			x[i] *= j->by;
}

int cpu_map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by)
{
	struct rows_job j = {.dev = s->dev, .x = x, .hidden = width, .map = what, .by = by};
	j.pieces = (width + MAP_PIECE - 1) / MAP_PIECE;
	cpu_run(s->dev, n_rows * j.pieces, (int64_t)n_rows * width, map_piece, &j);
	return 0;
}

static void squares_row(void *arg, int t, int thread)
{
	const struct rows_job *j = arg;
	const struct kern_qkv_args *a = j->qkv;
	const int q = a->n_q_heads * a->head_dim, k = a->n_kv_heads * a->head_dim;
	const float *row = (const float *)a->qkv + (size_t)t * (size_t)(q + 2 * k);
	(void)thread;
	j->x[2 * t] = j->dev->isa->square_sum(row, q);
	j->x[2 * t + 1] = j->dev->isa->square_sum(row + q, k);
}

int cpu_qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		    int n_kv_heads, int head_dim)
{
	const struct kern_qkv_args a = {
		.qkv = qkv, .n_q_heads = n_q_heads, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
	struct rows_job j = {.dev = s->dev, .x = squares, .qkv = &a};
	cpu_run(s->dev, n_rows, (int64_t)n_rows * (n_q_heads + n_kv_heads) * head_dim, squares_row, &j);
	return 0;
}

/* Return the factor of a norm over all heads; 0: none. */
static float norm_by(const struct kern_qkv_args *a, int t, int k, int width)
{
	if (!a->squares)
		return 0;
	return 1.0f / sqrtf(((const float *)a->squares)[2 * t + k] / (float)width + a->eps);
}

/* Process some of the KV heads of a row, and their share of the query heads. */
static void qkv_task(void *arg, int task, int thread)
{
	const struct rows_job *j = arg;
	const struct kern_qkv_args *a = j->qkv;
	const struct cpu_batch *b = &j->dev->batch;
	const int t = task / j->pieces, piece = task % j->pieces;
	const int seq = b->row_seq[t], pos = b->pos0[seq] + t - b->row0[seq], dim = a->head_dim;
	const int32_t *table = cpu_table(j->dev, seq, a->kind);
	const int block = table[pos / a->kv->block_size], at = pos % a->kv->block_size;
	const int q0 = a->n_q_heads * piece / j->pieces, q1 = a->n_q_heads * (piece + 1) / j->pieces;
	const int k0 = a->n_kv_heads * piece / j->pieces, k1 = a->n_kv_heads * (piece + 1) / j->pieces;
	const size_t width = (size_t)(a->n_q_heads + 2 * a->n_kv_heads) * (size_t)dim;
	const float *row = (const float *)a->qkv + (size_t)t * width, *q = row + (size_t)q0 * (size_t)dim;
	float *k = j->dev->scratch[thread].head;
	assert(block >= 0 && block < a->kv->n_blocks);
	struct cpu_head h = {
		.dst = (float *)a->q + ((size_t)t * (size_t)a->n_q_heads + (size_t)q0) * (size_t)dim,
		.src = q,
		.dim = dim,
		.norm = a->q_norm,
		.by = norm_by(a, t, 0, a->q_width),
		.layer = a->norm == KERN_NORM_LAYER,
		.after = a->norm_after,
		.clip = a->clip,
		.eps = a->eps,
		.rope = a->rope_dim ? (const float *)a->rope + (size_t)pos * (size_t)a->rope_dim : NULL,
		.rope_dim = a->rope_dim,
		.style = a->style,
	};
	/* A norm over all heads has separate weights for each head. */
	const size_t next = a->squares || a->norm_each ? (size_t)dim : 0;
	if (a->q_beta > 0)
		h.scale = 1 + a->q_beta * logf((float)(1 + pos / a->q_floor));
	for (int i = q0; i < q1; i++, h.dst += dim, h.src += dim) {
		h.norm = a->q_norm ? (const float *)a->q_norm + (size_t)i * next : NULL;
		h.bias = a->q_norm_bias ? (const float *)a->q_norm_bias + (size_t)i * next : NULL;
		j->dev->isa->head(&h);
	}
	h.by = norm_by(a, t, 1, a->k_width);
	h.scale = 0;
	h.src = row + (size_t)(a->n_q_heads + k0) * (size_t)dim;
	for (int i = k0; i < k1; i++, h.src += dim) {
		h.dst = k;
		h.norm = a->k_norm ? (const float *)a->k_norm + (size_t)i * next : NULL;
		h.bias = a->k_norm_bias ? (const float *)a->k_norm_bias + (size_t)i * next : NULL;
		j->dev->isa->head(&h);
		const float *v = h.src + (size_t)a->n_kv_heads * (size_t)dim;
		float clipped[HEAD_MAX];
		for (int e = 0; a->clip > 0 && e < dim; e++)
			clipped[e] = v[e] > a->clip ? a->clip : v[e] < -a->clip ? -a->clip : v[e];
		cpu_kv_store(a->kv, a->layer, block, at, i, k, a->clip > 0 ? clipped : v);
	}
}

int cpu_qkv(struct kern_stream *s, const struct kern_qkv_args *a)
{
	const int n = s->dev->batch.n_rows, n_threads = s->dev->n_threads;
	struct rows_job j = {.dev = s->dev, .qkv = a, .pieces = 1};
	assert(a->head_dim == a->kv->dim && a->n_kv_heads == a->kv->n_kv_heads && a->head_dim <= HEAD_MAX);
	assert(a->layer >= 0 && a->layer < a->kv->n_layers && a->kv->block_size == s->dev->block_size);
	assert(!(a->squares && (a->norm_after || a->norm == KERN_NORM_LAYER)));
	assert(a->rope_dim >= 0 && a->rope_dim % 2 == 0 && a->rope_dim <= a->head_dim);
	if (n < 2 * n_threads)
		j.pieces = n_threads < a->n_kv_heads ? n_threads : a->n_kv_heads;
	/* Most of the time is spent on cache lines of K and V that are not yet loaded. */
	const int64_t row = (int64_t)(a->n_q_heads + 2 * a->n_kv_heads) * a->head_dim * 8;
	cpu_run(s->dev, n * j.pieces, n * row, qkv_task, &j);
	return 0;
}

int cpu_gather(struct kern_stream *s, void *out, const void *x, int hidden)
{
	const struct cpu_batch *b = &s->dev->batch;
	const size_t n = (size_t)hidden;
	for (int i = 0; i < b->n_logits; i++)
		memcpy((float *)out + (size_t)i * n, (const float *)x + (size_t)b->logits_row[i] * n,
		       n * sizeof(float));
	return 0;
}
