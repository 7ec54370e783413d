/* shapes_seq.c - the checks of shapes.c with sequences: embedding, norm, rotation, attention, sampler. */
#include "tests/gpu/shapes.h"

#include "base/alloc.h"
#include "kernels/half.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, SEQS_MAX = 16, TAIL = 3, ROPE_BASE = 1000000 };

static const char *type_of(const struct shapes *z)
{
	return z->type == KERN_BF16 ? "bf16" : "f16";
}

static bool rows_same(const char *got, const char *first, int rows, size_t row_bytes)
{
	for (int r = 0; r < rows; r++)
		if (memcmp(got + (size_t)r * row_bytes, first + (size_t)(r % PERIOD) * row_bytes, row_bytes))
			return false;
	return true;
}

/* ---- rows ---- */

/* Set a batch of one sequence from its beginning; its tokens are the buffer's first PERIOD tokens,
 * repeated. */
static void set_prompt(const struct side *d, int rows)
{
	const int n_blocks = (rows + BLOCK - 1) / BLOCK;
	const int32_t row0[2] = {0, rows}, pos0 = 0;
	int32_t *at = xmalloc((size_t)rows * 4), *table = xcalloc((size_t)n_blocks, 4);
	for (int r = 0; r < rows; r++)
		at[r] = r % PERIOD;
	shapes_must(d->ops->batch_set(d->s, &(struct kern_batch){.n_rows = rows,
								 .n_seqs = 1,
								 .token_at = at,
								 .row0 = row0,
								 .pos0 = &pos0,
								 .tables = table,
								 .table_stride = n_blocks,
								 .n_logits = PERIOD,
								 .logits_row = at}),
		    "batch");
	shapes_must(d->ops->stream_sync(d->s), "batch");
	free(at);
	free(table);
}

/* The embedding's values must be exact; the gathered rows are the first PERIOD. */
void shapes_check_embed(struct shapes *z)
{
	static const int rows[] = {PERIOD, 100};
	const struct side *d = &z->dev;
	const size_t hidden = (size_t)z->m->shapes[0].k, vocab = (size_t)z->m->shapes[4].n;
	struct why why = {""};
	struct kern_embed *e;
	int32_t ids[PERIOD];
	uint16_t *table = xmalloc(vocab * hidden * 2);
	shapes_fill(table, z->type, vocab * hidden, 6);
	for (int i = 0; i < PERIOD; i++)
		ids[i] = (int32_t)(i ? shapes_random(7, (uint64_t)i) % vocab : vocab - 1);
	const struct kern_embed_src src = {table, z->type, (int)vocab, (int)hidden, false};
	if (d->ops->embed_load(d->dev, &src, &e, &why)) {
		fprintf(stderr, "gpu_shapes: %s\n", why.text);
		exit(1);
	}
	float *expected = xmalloc(PERIOD * hidden * 4), *got = xmalloc(100 * hidden * 4);
	for (size_t i = 0; i < PERIOD; i++)
		for (size_t h = 0; h < hidden; h++)
			expected[i * hidden + h] = half_load(table, z->type, (size_t)ids[i] * hidden + h);
	free(table);
	void *tokens = side_put(d, ids, sizeof ids), *x = side_new(d, 100 * hidden * 4),
	     *some = side_new(d, PERIOD * hidden * 4);
	for (int i = 0; i < 2; i++) {
		set_prompt(d, rows[i]);
		shapes_must(d->ops->embed(d->s, e, tokens, 0, x), "embed");
		side_get(d, got, x, (size_t)rows[i] * hidden * 4);
		shapes_result(z, "embed", type_of(z), rows[i], shapes_error(got, expected, PERIOD * hidden),
			      0, rows_same((char *)got, (char *)expected, rows[i], hidden * 4));
	}
	shapes_must(d->ops->gather(d->s, some, x, (int)hidden), "gather");
	side_get(d, got, some, PERIOD * hidden * 4);
	shapes_result(z, "gather", type_of(z), PERIOD, shapes_error(got, expected, PERIOD * hidden), 0, true);
	side_free(d, tokens, sizeof ids);
	side_free(d, x, 100 * hidden * 4);
	side_free(d, some, PERIOD * hidden * 4);
	d->ops->embed_free(e);
	free(expected);
	free(got);
}

/* Return F32 values that are exact in BF16 too. */
static float *random_floats(size_t n, uint64_t seed, float scale)
{
	uint16_t *half = xmalloc(n * 2);
	float *out = xmalloc(n * 4);
	shapes_fill(half, KERN_BF16, n, seed);
	for (size_t i = 0; i < n; i++)
		out[i] = half_load(half, KERN_BF16, i) * scale;
	free(half);
	return out;
}

/* Return the norm's result in the side's operand type; x_after gets x after the norm. */
static void *run_norm(const struct side *d, int rows, size_t hidden, size_t *row_bytes, float *x_after)
{
	const size_t n = (size_t)rows * hidden, bytes = n * side_op_bytes(d);
	float *weight = random_floats(hidden, 8, 20), *x1 = random_floats(PERIOD * hidden, 9, 10),
	      *add1 = random_floats(PERIOD * hidden, 10, 5), *x = xmalloc(n * 4), *add = xmalloc(n * 4);
	for (int r = 0; r < rows; r++) {
		const size_t from = (size_t)(r % PERIOD) * hidden, to = (size_t)r * hidden;
		memcpy(x + to, x1 + from, hidden * 4);
		memcpy(add + to, add1 + from, hidden * 4);
	}
	void *dx = side_put(d, x, n * 4), *da = side_put(d, add, n * 4),
	     *dw = side_put(d, weight, hidden * 4), *out = side_new(d, bytes), *got = xmalloc(bytes);
	shapes_must(d->ops->rmsnorm(d->s, out, dx, da, dw, rows, (int)hidden, 1e-6f), "rmsnorm");
	side_get(d, got, out, bytes);
	side_get(d, x_after, dx, PERIOD * hidden * 4);
	side_free(d, dx, n * 4);
	side_free(d, da, n * 4);
	side_free(d, dw, hidden * 4);
	side_free(d, out, bytes);
	free(weight);
	free(x1);
	free(add1);
	free(x);
	free(add);
	*row_bytes = hidden * side_op_bytes(d);
	return got;
}

void shapes_check_norm(struct shapes *z)
{
	static const int rows[] = {PERIOD, 14, 100};
	const size_t hidden = (size_t)z->m->shapes[0].k, n = PERIOD * hidden;
	size_t bytes, cpu_bytes;
	float *x = xmalloc(n * 4), *cpu_x = xcalloc(n, 4), *a = xmalloc(n * 4);
	float *expected = z->cpu.ops ? run_norm(&z->cpu, PERIOD, hidden, &cpu_bytes, cpu_x)
				     : xcalloc(n, sizeof *expected);
	char *first = NULL;
	bool compare = shapes_reference(z, "rmsnorm", type_of(z), expected, NULL, n, false);
	compare = shapes_reference(z, "rmsnorm's x", type_of(z), cpu_x, NULL, n, true) && compare;
	for (int i = 0; i < 3 && compare; i++) {
		char *got = run_norm(&z->dev, rows[i], hidden, &bytes, x);
		first = first ? first : got;
		for (size_t k = 0; k < n; k++)
			a[k] = half_load(got, z->dev.op, k);
		shapes_result(z, "rmsnorm", type_of(z), rows[i], shapes_error(a, expected, n),
			      shapes_limit(z, false),
			      rows_same(got, first, rows[i], bytes) && !memcmp(x, cpu_x, n * 4));
		if (got != first)
			free(got);
	}
	free(first);
	free(expected);
	free(x);
	free(cpu_x);
	free(a);
}

/* ---- attention ---- */

/* Sequences of these lengths in a paged cache, with scattered blocks. */
struct paged {
	struct shapes *z;
	const int *lengths;
	int n_seqs, n_blocks, stride;
	int32_t *tables; /* [n_seqs][stride] */
	float *rope, *norm;
};

struct on_side {
	const struct side *d;
	struct kern_kv *kv;
	void *rope, *norm;
};

/* Runs of `rows` rows each, which end `before` tokens before the sequences' ends. */
struct piece {
	int seq0, n_seqs, rows, before, pad_to;
	bool attend;
};

static size_t wide(const struct paged *p)
{
	const struct layers_model *m = p->z->m;
	return (size_t)((m->heads + 2 * m->kv_heads) * m->dim);
}

static void paged_init(struct paged *p)
{
	const int half = p->z->m->dim / 2;
	int most = 0, used = 0;
	for (int i = 0; i < p->n_seqs; i++) {
		const int n = (p->lengths[i] + BLOCK - 1) / BLOCK;
		p->n_blocks += n;
		p->stride = n > p->stride ? n : p->stride;
		most = p->lengths[i] > most ? p->lengths[i] : most;
	}
	p->tables = xcalloc((size_t)p->n_seqs * (size_t)p->stride, 4);
	for (int i = 0; i < p->n_seqs; i++)
		for (int b = 0; b * BLOCK < p->lengths[i]; b++)
			p->tables[i * p->stride + b] = (int32_t)((int64_t)used++ * 7919 % p->n_blocks);
	p->rope = xmalloc((size_t)most * (size_t)half * 8);
	for (int at = 0; at < most; at++)
		for (int i = 0; i < half; i++) {
			const double angle = at * pow(ROPE_BASE, -(double)i / half);
			p->rope[(at * half + i) * 2] = (float)cos(angle);
			p->rope[(at * half + i) * 2 + 1] = (float)sin(angle);
		}
	p->norm = random_floats((size_t)p->z->m->dim, 11, 30);
}

static void paged_open(const struct paged *p, const struct side *d, struct on_side *o)
{
	const struct layers_model *m = p->z->m;
	int most = 0;
	for (int i = 0; i < p->n_seqs; i++)
		most = p->lengths[i] > most ? p->lengths[i] : most;
	*o = (struct on_side){.d = d,
			      .kv = d->ops->kv_new(d->dev, 1, m->kv_heads, m->dim, BLOCK, p->n_blocks, 0)};
	shapes_must(o->kv ? 0 : -ENOMEM, "the cache");
	o->rope = side_put(d, p->rope, (size_t)most * (size_t)m->dim * 4);
	o->norm = side_put(d, p->norm, (size_t)m->dim * 4);
}

static void paged_close(const struct paged *p, struct on_side *o)
{
	int most = 0;
	for (int i = 0; i < p->n_seqs; i++)
		most = p->lengths[i] > most ? p->lengths[i] : most;
	o->d->ops->kv_free(o->kv);
	side_free(o->d, o->rope, (size_t)most * (size_t)p->z->m->dim * 4);
	side_free(o->d, o->norm, (size_t)p->z->m->dim * 4);
}

static void set_piece(const struct paged *p, const struct on_side *o, const struct piece *x)
{
	int32_t row0[SEQS_MAX + 1] = {0}, pos0[SEQS_MAX];
	int32_t *at = xcalloc((size_t)(x->n_seqs * x->rows), 4);
	for (int i = 0; i < x->n_seqs; i++) {
		row0[i + 1] = (i + 1) * x->rows;
		pos0[i] = p->lengths[x->seq0 + i] - x->before - x->rows;
	}
	shapes_must(
		o->d->ops->batch_set(o->d->s, &(struct kern_batch){.n_rows = x->n_seqs * x->rows,
								   .n_seqs = x->n_seqs,
								   .token_at = at,
								   .row0 = row0,
								   .pos0 = pos0,
								   .tables = p->tables + x->seq0 * p->stride,
								   .table_stride = p->stride,
								   .pad_to = x->pad_to}),
		"batch");
	shapes_must(o->d->ops->stream_sync(o->d->s), "batch");
	free(at);
}

/* Return Q, K and V of the rows before norm and rotation; each value depends on its sequence and position. */
static uint16_t *piece_inputs(const struct paged *p, const struct piece *x, size_t rows)
{
	uint16_t *in = xcalloc(rows * wide(p), 2);
	for (int i = 0; i < x->n_seqs; i++)
		for (int r = 0; r < x->rows; r++) {
			const int pos = p->lengths[x->seq0 + i] - x->before - x->rows + r;
			shapes_fill(in + (size_t)(i * x->rows + r) * wide(p), p->z->type, wide(p),
				    (uint64_t)(x->seq0 + i) * 1000003 + (uint64_t)pos);
		}
	return in;
}

/* Store K and V, and attend.  q and out: the rows' values in the side's operand type, or NULL. */
static void run_piece(const struct paged *p, const struct on_side *o, const struct piece *x, void *q,
		      void *out)
{
	const struct layers_model *m = p->z->m;
	const struct side *d = o->d;
	const size_t each = side_op_bytes(d), rows = (size_t)(x->n_seqs * x->rows),
		     padded = (size_t)x->pad_to > rows ? (size_t)x->pad_to : rows,
		     n = padded * (size_t)(m->heads * m->dim), in_bytes = padded * wide(p) * each;
	uint16_t *in = piece_inputs(p, x, padded);
	void *di = side_put_op(d, in, p->z->type, padded * wide(p)), *dq = side_new(d, n * each),
	     *dout = side_new(d, n * each);
	set_piece(p, o, x);
	shapes_must(d->ops->qkv(d->s, &(struct kern_qkv_args){.q = dq,
							      .qkv = di,
							      .q_norm = o->norm,
							      .k_norm = o->norm,
							      .eps = 1e-6f,
							      .rope = o->rope,
							      .rope_dim = m->dim,
							      .n_q_heads = m->heads,
							      .n_kv_heads = m->kv_heads,
							      .head_dim = m->dim,
							      .kv = o->kv}),
		    "qkv");
	if (x->attend)
		shapes_must(
			d->ops->attention(d->s, &(struct kern_attn_args){.out = dout,
									 .q = dq,
									 .kv = o->kv,
									 .n_q_heads = m->heads,
									 .n_kv_heads = m->kv_heads,
									 .head_dim = m->dim,
									 .scale = 1 / sqrtf((float)m->dim)}),
			"attention");
	const size_t got = rows * (size_t)(m->heads * m->dim) * each;
	if (q)
		side_get(d, q, dq, got);
	if (out)
		side_get(d, out, dout, got);
	shapes_must(d->ops->stream_sync(d->s), "attention");
	side_free(d, di, in_bytes);
	side_free(d, dq, n * each);
	side_free(d, dout, n * each);
	free(in);
}

/* Fill the cache with all but the last `rows` tokens of each sequence. */
static void fill_cache(const struct paged *p, const struct on_side *o, int rows)
{
	const int chunk = p->z->small ? 64 : 2048;
	for (int s = 0; s < p->n_seqs; s++)
		for (int before = rows; before < p->lengths[s];) {
			const int left = p->lengths[s] - before, n = left < chunk ? left : chunk;
			run_piece(p, o, &(struct piece){.seq0 = s, .n_seqs = 1, .rows = n, .before = before},
				  NULL, NULL);
			before += n;
		}
}

static double op_error(const struct shapes *z, const void *got, const float *expected, size_t n)
{
	float *a = xmalloc(n * sizeof *a);
	for (size_t i = 0; i < n; i++)
		a[i] = half_load(got, z->dev.op, i);
	const double e = shapes_error(a, expected, n);
	free(a);
	return e;
}

/* Check the last rows of one sequence: a few against the CPU's, then as the end of a prompt's chunk and
 * alone. */
static void check_sequence(const struct paged *p, const struct on_side *dev, const struct on_side *cpu, int s,
			   char *last)
{
	struct shapes *z = p->z;
	char name[64];
	const int length = p->lengths[s], tail = length < TAIL ? length : TAIL, most = z->small ? 40 : 500,
		  chunk = length < most ? length : most;
	const size_t row = (size_t)(z->m->heads * z->m->dim), bytes = row * side_op_bytes(&z->dev);
	struct piece x = {.seq0 = s, .n_seqs = 1, .rows = tail, .attend = true};
	float *q_cpu = xcalloc((size_t)tail * row, 4), *out_cpu = xcalloc((size_t)tail * row, 4);
	if (cpu->d)
		run_piece(p, cpu, &x, q_cpu, out_cpu);
	snprintf(name, sizeof name, "qkv at %d", length);
	bool compare = shapes_reference(z, name, type_of(z), q_cpu, NULL, (size_t)tail * row, false);
	snprintf(name, sizeof name, "attention over %d", length);
	compare = shapes_reference(z, name, type_of(z), out_cpu, NULL, (size_t)tail * row, false) && compare;
	if (!compare) {
		free(q_cpu);
		free(out_cpu);
		return;
	}
	char *q = xmalloc((size_t)tail * bytes), *few = xmalloc((size_t)tail * bytes),
	     *many = xmalloc((size_t)chunk * bytes), *one = xmalloc(bytes);
	run_piece(p, dev, &x, q, few);
	x.rows = chunk;
	run_piece(p, dev, &x, NULL, many);
	x.rows = 1;
	run_piece(p, dev, &x, NULL, one);
	memcpy(last, few + (size_t)(tail - 1) * bytes, bytes);
	snprintf(name, sizeof name, "qkv at %d", length);
	shapes_result(z, name, type_of(z), tail, op_error(z, q, q_cpu, (size_t)tail * row),
		      shapes_limit(z, false), true);
	snprintf(name, sizeof name, "attention over %d", length);
	shapes_result(z, name, type_of(z), chunk, op_error(z, few, out_cpu, (size_t)tail * row),
		      2 * shapes_limit(z, false),
		      !memcmp(many + (size_t)(chunk - tail) * bytes, few, (size_t)tail * bytes) &&
			      !memcmp(one, last, bytes));
	free(q_cpu);
	free(out_cpu);
	free(q);
	free(few);
	free(many);
	free(one);
}

void shapes_check_attention(struct shapes *z)
{
	static const int all[] = {32768, 1, 15, 16, 17, 255, 256, 257, 511, 1000, 2048, 4099},
			 few[] = {300, 1, 17, 40};
	struct paged p = {.z = z, .lengths = z->small ? few : all, .n_seqs = z->small ? 4 : 12};
	struct on_side dev = {0}, cpu = {0};
	const size_t bytes = (size_t)(z->m->heads * z->m->dim) * side_op_bytes(&z->dev);
	char *alone = xmalloc((size_t)p.n_seqs * bytes), *together = xmalloc((size_t)p.n_seqs * bytes);
	paged_init(&p);
	if (z->dev.ops) {
		paged_open(&p, &z->dev, &dev);
		fill_cache(&p, &dev, 0);
	}
	if (z->cpu.ops) {
		paged_open(&p, &z->cpu, &cpu);
		fill_cache(&p, &cpu, 0);
	}
	for (int s = 0; s < p.n_seqs; s++)
		check_sequence(&p, &dev, &cpu, s, alone + (size_t)s * bytes);
	/* Only tables with graphs pad their batches. */
	for (int pad_to = 0; z->dev.ops && pad_to <= (z->dev.ops->graph_begin ? SEQS_MAX : 0);
	     pad_to += SEQS_MAX) {
		struct piece x = {.n_seqs = p.n_seqs, .rows = 1, .attend = true, .pad_to = pad_to};
		run_piece(&p, &dev, &x, NULL, together);
		shapes_result(z, pad_to ? "attention, padded" : "attention, a batch", type_of(z), p.n_seqs, 0,
			      0, !memcmp(alone, together, (size_t)p.n_seqs * bytes));
	}
	if (dev.d)
		paged_close(&p, &dev);
	if (cpu.d)
		paged_close(&p, &cpu);
	free(p.tables);
	free(p.rope);
	free(p.norm);
	free(alone);
	free(together);
}

/* ---- the sampler ---- */

struct draws {
	int32_t *token, *rank;
	float *logprob;
};

static void draw(const struct side *d, const float *logits, int vocab, int n, struct draws *out)
{
	const size_t bytes = (size_t)n * (size_t)vocab * 4;
	struct kern_sample_row *rows = xcalloc((size_t)n, sizeof *rows);
	int32_t *zeros = xcalloc((size_t)n * 2, 4);
	void *dl = side_put(d, logits, bytes), *dt = side_put(d, zeros, (size_t)n * 8);
	for (int i = 0; i < n; i++) /* every fourth row is greedy; the others use one filter or all */
		rows[i] = (struct kern_sample_row){.row = i,
						   .hist0 = 2 * i,
						   .n_prompt = 1,
						   .n_hist = 1,
						   .forced = -1,
						   .temperature = i % 4 ? 0.8f : 0,
						   .top_p = i % 4 == 2 ? 0.9f : 1,
						   .top_k = i % 4 == 3 ? 50 : 0,
						   .repetition = 1,
						   .seed = (uint64_t)i * 77,
						   .position = (uint32_t)i};
	shapes_must(d->ops->sample(d->s, dl, vocab, dt, rows, n,
				   &(struct kern_sample_out){
					   .token = out->token, .rank = out->rank, .logprob = out->logprob}),
		    "sample");
	shapes_must(d->ops->stream_sync(d->s), "sample");
	side_free(d, dl, bytes);
	side_free(d, dt, (size_t)n * 8);
	free(rows);
	free(zeros);
}

/* Allocate results in memory that the side's kernels may write. */
static struct draws draws_new(const struct side *d, int n)
{
	int32_t *p = d->ops->host_new(d->dev, (size_t)n * 12);
	shapes_must(p ? 0 : -ENOMEM, "pinned memory");
	return (struct draws){.token = p, .rank = p + n, .logprob = (float *)(void *)(p + 2 * n)};
}

static void draws_free(const struct side *d, struct draws *x, int n)
{
	d->ops->host_free(d->dev, x->token, (size_t)n * 12);
}

/* Equal logits must give equal tokens on every device. */
void shapes_check_sampler(struct shapes *z)
{
	static const int all[] = {1, 16, 32, 33, 64, 65, 100, 256}, few[] = {1, 5};
	const int n_sizes = z->small ? 2 : 8, vocab = z->m->shapes[4].n, most = z->small ? 5 : 256;
	float *logits = xmalloc((size_t)most * (size_t)vocab * 4);
	for (size_t i = 0; i < (size_t)most * (size_t)vocab; i++) { /* a sum of uniform values */
		const uint64_t r = shapes_random(12, i);
		logits[i] = (float)((int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) +
				    (int)(r >> 48) - 2 * 65535) *
			    (6.0f / 65536);
	}
	const size_t n_most = (size_t)most;
	int32_t *token = xcalloc(n_most * 3, 4), *rank = token + most;
	float *logprob = (float *)(void *)(rank + most);
	struct draws b = {0};
	if (z->cpu.ops) {
		struct draws a = draws_new(&z->cpu, most);
		draw(&z->cpu, logits, vocab, most, &a);
		memcpy(token, a.token, n_most * 4);
		memcpy(rank, a.rank, n_most * 4);
		memcpy(logprob, a.logprob, n_most * 4);
		draws_free(&z->cpu, &a, most);
	}
	const bool compare =
		shapes_reference(z, "sampler", "f32", (float *)(void *)token, NULL, n_most * 3, true);
	if (compare)
		b = draws_new(&z->dev, most);
	for (int i = 0; i < n_sizes && compare; i++) {
		const int n = z->small ? few[i] : all[i];
		bool same = true;
		draw(&z->dev, logits, vocab, n, &b);
		for (int k = 0; k < n; k++)
			same = same && token[k] == b.token[k] && rank[k] == b.rank[k];
		shapes_result(z, "sampler", "f32", n, shapes_error(b.logprob, logprob, (size_t)n), 1e-5,
			      same);
	}
	if (compare)
		draws_free(&z->dev, &b, most);
	free(token);
	free(logits);
}
