#include "bench/kernels_ops.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum probe_kind kernels_peak_of(const char *mode)
{
	static const struct {
		const char *by;
		enum probe_kind ints, floats;
	} known[] = {
		{" by avx512vnni", PROBE_INT8_VNNI, PROBE_KINDS},
		{" by avxvnni", PROBE_INT8_AVXVNNI, PROBE_KINDS},
		{" by avx2", PROBE_INT8_AVX2, PROBE_F32},
		{" by avx512bf16", PROBE_KINDS, PROBE_BF16},
		{" by amx", PROBE_INT8_AMX, PROBE_BF16_AMX},
		{" by avx512", PROBE_KINDS, PROBE_F32},
	};
	const bool ints = strncmp(mode, "int", 3) == 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strstr(mode, known[i].by) && (ints || strncmp(mode, "bf16", 4) == 0))
			return ints ? known[i].ints : known[i].floats;
	return strncmp(mode, "f32", 3) == 0 ? PROBE_F32 : PROBE_KINDS;
}

/* A product of a 2-byte query or weight takes two 1-byte products if K and V have one byte, and three if they
 * have two. */
enum probe_kind kernels_attention_peak(const char *isa, enum kern_kv_type kv, bool bf16, double *part)
{
	static const enum probe_kind best[] = {PROBE_INT8_AMX, PROBE_INT8_VNNI, PROBE_INT8_AVXVNNI,
					       PROBE_INT8_AVX2};
	*part = 1;
	if (kv == KERN_KV_BF16 && bf16 && !strcmp(isa, "avx512") && probe_can(PROBE_BF16_AMX))
		return PROBE_BF16_AMX;
	if (kv != KERN_KV_INT8 && kv != KERN_KV_INT16)
		return strcmp(isa, "plain") ? PROBE_F32 : PROBE_KINDS;
	*part = kv == KERN_KV_INT8 ? 1.0 / 2 : 1.0 / 3;
	for (int i = strcmp(isa, "avx512") ? 2 : 0; i < 4 && strcmp(isa, "plain"); i++)
		if (probe_can(best[i]))
			return best[i];
	return PROBE_KINDS;
}

/* ---- linear layers ---- */

struct linear {
	const struct kernels_run *r;
	const struct layer_shape *z;
	struct layer_copies l;
	void *out, *in;
	int rows;
};

static void call_linear(void *arg, int i)
{
	const struct linear *x = arg;
	layers_call(x->r->ops, x->r->stream, x->z, x->l.copies[i % x->l.n_copies], x->out, x->in, x->rows);
}

/* Allocate n random floats on the device, of its operand type or F32; NULL: out of memory. */
static void *random_floats(const struct kernels_run *r, enum kern_dtype t, size_t n, size_t *bytes)
{
	*bytes = n * (t == KERN_F32 ? 4 : 2);
	void *p = r->ops->mem_new(r->dev, *bytes), *host = xmalloc(*bytes);
	layers_fill_floats(host, t, n);
	if (p) {
		r->ops->upload(r->stream, p, host, *bytes);
		r->ops->stream_sync(r->stream);
	}
	free(host);
	return p;
}

/* Load a layer with k inputs: a device has room for operands only of the widths of its layers. */
static struct kern_linear *reader(const struct kernels_run *r, int k)
{
	enum { N = 16 };
	struct kern_linear *w = NULL;
	struct why why;
	float *zeros = xcalloc((size_t)k * N, sizeof *zeros);
	const struct kern_linear_src src = {
		.name = "reader", .k = k, .n_parts = 1, .parts = {{.dtype = KERN_F32, .n = N, .w = zeros}}};
	r->ops->linear_load(r->dev, &src, &w, &why);
	free(zeros);
	return w;
}

/* Fill `in`, which has room for them, with the operands that a norm makes of random rows. */
static int make_operand(const struct kernels_run *r, void *in, int rows, int k)
{
	size_t x_bytes, w_bytes;
	void *x = random_floats(r, KERN_F32, (size_t)rows * (size_t)k, &x_bytes),
	     *w = random_floats(r, KERN_F32, (size_t)k, &w_bytes);
	int e = x && w ? r->ops->rmsnorm(r->stream, in, x, NULL, w, rows, k, 1e-6f) : -ENOMEM;
	r->ops->stream_sync(r->stream);
	r->ops->mem_free(r->dev, x, x_bytes);
	r->ops->mem_free(r->dev, w, w_bytes);
	return e;
}

/* Set the probe of the instruction that the products use.  Floats that an integer mode keeps as stored are
 * multiplied in FP32. */
static void set_peak(const struct kernels_run *r, bool codes, bool head, struct kernels_case *c)
{
	const bool int8 = r->compute == KERN_COMPUTE_INT8, int16 = r->compute == KERN_COMPUTE_INT16;
	const bool int8_head = head && (r->head == KERN_HEAD_INT8 || (int8 && r->head == KERN_HEAD_MODE));
	char mode[40];
	snprintf(mode, sizeof mode, "%s", r->info.mode);
	c->peak_part = 1;
	if (int8_head && !int8 && !int16) /* the mode's operands are first converted to those of int16 */
		snprintf(mode, sizeof mode, "int16%s",
			 strstr(r->info.mode, " by ") ? strstr(r->info.mode, " by ") : "");
	c->peak = kernels_peak_of(mode);
	if ((int16 && !codes && !int8_head) || (int8 && head && !int8_head))
		c->peak = PROBE_F32;
	else if (int16 || (int8_head && !int8))
		c->peak_part = 0.5;
}

/* Limit of the head's rows, because a service computes logits of the last rows only. */
enum { HEAD_ROWS_MAX = 64 };

static int bench_shape(struct kernels_run *r, const struct layer_shape *z, struct kernels_point *layer)
{
	const enum kern_dtype dtype = z->head && r->weights == KERN_AWQ4 ? KERN_F16 : r->weights;
	const int most =
		z->head && r->rows[r->n_rows - 1] > HEAD_ROWS_MAX ? HEAD_ROWS_MAX : r->rows[r->n_rows - 1];
	const size_t in_bytes = r->ops->operand_bytes(r->dev, most, z->k),
		     out_bytes = (size_t)most * (size_t)z->n * 4;
	struct linear x = {.r = r, .z = z};
	int e = dtype == KERN_CODES ? layers_load_gguf(&x.l, r->ops, r->dev, z, r->gguf, r->cold_bytes)
				    : layers_load(&x.l, r->ops, r->dev, z, dtype, 128, r->cold_bytes);
	if (e)
		return e;
	x.in = r->ops->mem_new(r->dev, in_bytes);
	x.out = r->ops->mem_new(r->dev, out_bytes);
	if (!x.in || !x.out || (e = make_operand(r, x.in, most, z->k))) {
		fprintf(stderr, "quern bench kernels: no memory for %d rows of %s\n", most, z->name);
		e = e ? e : -ENOMEM;
	}
	for (int i = 0; i < r->n_rows && r->rows[i] <= most && !e; i++) {
		struct kernels_point p;
		x.rows = r->rows[i];
		struct kernels_case c = {.op = z->name,
					 .rows = x.rows,
					 .bytes = x.l.bytes,
					 .ops = 2.0 * z->k * z->n * x.rows,
					 .memory = PROBE_READ,
					 .call = call_linear,
					 .arg = &x};
		set_peak(r, dtype == KERN_AWQ4 || dtype == KERN_CODES, z->head, &c);
		kernels_measure(r->meter, &c, &p);
		r->report(r->arg, &p);
		if (z->head)
			continue;
		/* Sums over all shapes: gbs and gops hold bytes and operations, roof_gbs the time at the
		 * roof. */
		layer[i].us += p.us;
		layer[i].gbs += c.bytes;
		layer[i].gops += c.ops;
		layer[i].roof_gbs += p.us * p.share;
		layer[i].pairs = p.pairs;
	}
	r->ops->mem_free(r->dev, x.in, in_bytes);
	r->ops->mem_free(r->dev, x.out, out_bytes);
	layers_free(&x.l, r->ops);
	return e;
}

int kernels_linears(struct kernels_run *r, bool layers, bool head)
{
	struct kernels_point *sum = xcalloc((size_t)r->n_rows, sizeof *sum);
	int e = 0;
	for (int i = 0; i < LAYERS_SHAPES && !e; i++)
		if (r->model->shapes[i].head ? head : layers)
			e = bench_shape(r, &r->model->shapes[i], sum);
	for (int i = 0; i < r->n_rows && layers && !e; i++) {
		const double bytes = sum[i].gbs, ops = sum[i].gops, us = sum[i].us;
		struct kernels_point p = {.op = "layer",
					  .kv = "",
					  .rows = r->rows[i],
					  .us = us,
					  .gbs = bytes / us * 1e-3,
					  .gops = ops / us * 1e-3,
					  .intensity = ops / bytes,
					  .share = sum[i].roof_gbs / us,
					  .pairs = sum[i].pairs};
		if (p.share > 0)
			p.roof_gbs = p.gbs / p.share, p.roof_gops = p.gops / p.share;
		r->report(r->arg, &p);
	}
	free(sum);
	return e;
}

/* ---- attention ---- */

struct attention {
	const struct kernels_run *r;
	struct kern_attn_args a;
	int n_layers, blocks; /* blocks of one sequence */
	void *qkv, *q, *out, *rope;
	size_t qkv_bytes, q_bytes, rope_bytes;
	int32_t *tables, *row0, *pos0, *token_at;
	struct kern_linear *reader;
};

static void call_attention(void *arg, int i)
{
	struct attention *x = arg;
	x->a.layer = i % x->n_layers;
	x->r->ops->attention(x->r->stream, &x->a);
}

static void set_batch(struct attention *x, int seqs, int rows, int pos)
{
	for (int i = 0; i < seqs; i++) {
		x->row0[i + 1] = x->row0[i] + rows;
		x->pos0[i] = pos;
	}
	x->r->ops->batch_set(x->r->stream, &(struct kern_batch){.n_rows = seqs * rows,
								.n_seqs = seqs,
								.token_at = x->token_at,
								.row0 = x->row0,
								.pos0 = x->pos0,
								.tables = x->tables,
								.table_stride = x->blocks});
}

/* Compute keys and values of the first sequence, and copy them to the others.  Memory that was never written
 * would be a single page of zeros. */
static void fill_cache(struct attention *x, int seqs)
{
	const struct kernels_run *r = x->r;
	const struct layers_model *m = r->model;
	for (int pos = 0; pos < r->context; pos += KERNELS_PREFILL) {
		const int left = r->context - pos;
		set_batch(x, 1, left < KERNELS_PREFILL ? left : KERNELS_PREFILL, pos);
		for (int l = 0; l < x->n_layers; l++)
			r->ops->qkv(r->stream, &(struct kern_qkv_args){.q = x->q,
								       .qkv = x->qkv,
								       .rope = x->rope,
								       .rope_dim = m->dim,
								       .n_q_heads = m->heads,
								       .n_kv_heads = m->kv_heads,
								       .head_dim = m->dim,
								       .kv = x->a.kv,
								       .layer = l});
	}
	for (int s = 1; s < seqs; s++)
		for (int i = 0; i < x->blocks; i++)
			r->ops->kv_copy(r->stream, x->a.kv,
					&(const int32_t[2]){x->tables[i], x->tables[s * x->blocks + i]}, 1);
	r->ops->stream_sync(r->stream);
}

static void attention_fini(struct attention *x)
{
	const struct kernels_run *r = x->r;
	r->ops->mem_free(r->dev, x->qkv, x->qkv_bytes);
	r->ops->mem_free(r->dev, x->rope, x->rope_bytes);
	r->ops->mem_free(r->dev, x->q, x->q_bytes);
	r->ops->mem_free(r->dev, x->out, x->q_bytes);
	r->ops->kv_free(x->a.kv);
	if (x->reader)
		r->ops->linear_free(x->reader);
	free(x->tables);
	free(x->row0);
	free(x->pos0);
	free(x->token_at);
}

static int attention_init(struct attention *x, const struct kernels_run *r, int seqs)
{
	const struct layers_model *m = r->model;
	const int blocks = (r->context + KERNELS_BLOCK - 1) / KERNELS_BLOCK, n = seqs * blocks;
	const double layer =
		(double)r->ops->kv_block_bytes(r->dev, 1, m->kv_heads, m->dim, KERNELS_BLOCK) * n;
	const double layers = (double)r->cold_bytes / layer + 1;
	*x = (struct attention){.r = r, .n_layers = layers < 64 ? (int)layers : 64, .blocks = blocks};
	x->q_bytes = (size_t)KERNELS_PREFILL * (size_t)(m->heads * m->dim) * 4;
	x->qkv = random_floats(r, r->info.operand,
			       (size_t)KERNELS_PREFILL * (size_t)((m->heads + 2 * m->kv_heads) * m->dim),
			       &x->qkv_bytes);
	x->rope = random_floats(r, KERN_F32, (size_t)r->context * (size_t)m->dim, &x->rope_bytes);
	x->q = r->ops->mem_new(r->dev, x->q_bytes);
	x->out = r->ops->mem_new(r->dev, x->q_bytes);
	x->tables = xmalloc((size_t)n * sizeof(int32_t));
	x->row0 = xcalloc((size_t)seqs + 1, sizeof(int32_t));
	x->pos0 = xcalloc((size_t)seqs, sizeof(int32_t));
	x->token_at = xcalloc((size_t)KERNELS_PREFILL, sizeof(int32_t));
	for (int i = 0; i < n; i++)
		x->tables[i] = (int)((int64_t)i * 7919 % n); /* scattered over the pool */
	x->a = (struct kern_attn_args){
		.out = x->out,
		.q = x->q,
		.kv = r->ops->kv_new(r->dev, x->n_layers, m->kv_heads, m->dim, KERNELS_BLOCK, n, 0),
		.n_q_heads = m->heads,
		.n_kv_heads = m->kv_heads,
		.head_dim = m->dim,
		.scale = 0.088f};
	x->reader = reader(r, m->heads * m->dim);
	if (x->a.kv && x->reader && x->qkv && x->rope && x->q && x->out)
		return 0;
	fprintf(stderr, "quern bench kernels: no memory for a cache of %d x %d tokens\n", seqs, r->context);
	return -ENOMEM;
}

/* Measure seqs sequences at the end of the context, with rows new tokens each. */
static int bench_attention(struct kernels_run *r, const char *op, int seqs, int rows)
{
	const struct layers_model *m = r->model;
	struct attention x;
	struct kernels_point p;
	const double seen = (double)r->context - (rows - 1) / 2.0;
	int e = attention_init(&x, r, seqs);
	if (!e) {
		fill_cache(&x, seqs);
		set_batch(&x, seqs, rows, r->context - rows);
		struct kernels_case c = {.op = op,
					 .rows = seqs * rows,
					 .bytes = (double)r->ops->kv_block_bytes(r->dev, 1, m->kv_heads,
										 m->dim, KERNELS_BLOCK) *
						  seqs * x.blocks,
					 .ops = 4.0 * seqs * rows * seen * m->heads * m->dim,
					 .memory = PROBE_READ,
					 .call = call_attention,
					 .arg = &x};
		c.peak = kernels_attention_peak(r->info.isa, r->kv, strncmp(r->info.mode, "bf16", 4) == 0,
						&c.peak_part);
		kernels_measure(r->meter, &c, &p);
		r->report(r->arg, &p);
	}
	attention_fini(&x);
	return e;
}

int kernels_attention(struct kernels_run *r)
{
	const int rows = r->context < KERNELS_PREFILL ? r->context : KERNELS_PREFILL;
	int e = bench_attention(r, "attention decode", 1, 1);
	e = e ? e : bench_attention(r, "attention decode", KERNELS_SEQS, 1);
	return e ? e : bench_attention(r, "attention prefill", 1, rows);
}

/* ---- norms ---- */

struct norm {
	const struct kernels_run *r;
	void *out, *x, *add, *w;
	int rows;
};

static void call_norm(void *arg, int i)
{
	const struct norm *n = arg;
	(void)i;
	n->r->ops->rmsnorm(n->r->stream, n->out, n->x, n->add, n->w, n->rows, n->r->model->shapes[0].k,
			   1e-6f);
}

/* The norm includes the residual addition and, in an integer mode, the quantization of its output. */
int kernels_norms(struct kernels_run *r)
{
	const int k = r->model->shapes[0].k, most = r->rows[r->n_rows - 1];
	const size_t row = (size_t)k * 4, operand = r->ops->operand_bytes(r->dev, 1, k),
		     out_bytes = r->ops->operand_bytes(r->dev, most, k);
	size_t x_bytes, w_bytes, add_bytes;
	struct norm n = {.r = r, .out = r->ops->mem_new(r->dev, out_bytes)};
	n.x = random_floats(r, KERN_F32, (size_t)most * (size_t)k, &x_bytes);
	n.w = random_floats(r, KERN_F32, (size_t)k, &w_bytes);
	n.add = r->ops->mem_new(r->dev, add_bytes = x_bytes); /* zeros, so that x does not change */
	struct kern_linear *w = reader(r, k);
	const bool ok = n.out && n.x && n.add && n.w && w;
	if (!ok)
		fprintf(stderr, "quern bench kernels: no memory for %d rows\n", most);
	for (int i = 0; i < r->n_rows && ok; i++) {
		struct kernels_point p;
		n.rows = r->rows[i];
		struct kernels_case c = {.op = "norm",
					 .rows = n.rows,
					 .bytes = (double)n.rows * (double)(3 * row + operand),
					 .memory = PROBE_READ_L2,
					 .peak = PROBE_KINDS,
					 .call = call_norm,
					 .arg = &n};
		kernels_measure(r->meter, &c, &p);
		r->report(r->arg, &p);
	}
	if (w)
		r->ops->linear_free(w);
	r->ops->mem_free(r->dev, n.out, out_bytes);
	r->ops->mem_free(r->dev, n.x, x_bytes);
	r->ops->mem_free(r->dev, n.w, w_bytes);
	r->ops->mem_free(r->dev, n.add, add_bytes);
	return ok ? 0 : -ENOMEM;
}

/* ---- sampling ---- */

struct sampling {
	const struct kernels_run *r;
	void *logits, *tokens;
	struct kern_sample_row rows[KERNELS_SEQS];
	struct kern_sample_out out;
	int n;
};

static void call_sample(void *arg, int i)
{
	struct sampling *x = arg;
	(void)i;
	x->r->ops->sample(x->r->stream, x->logits, KERNELS_VOCAB, x->tokens, x->rows, x->n, &x->out);
}

static void bench_sample(struct sampling *x, const char *op, int n, struct kern_sample_row row)
{
	struct kernels_point p;
	x->n = n;
	for (int i = 0; i < n; i++) {
		x->rows[i] = row;
		x->rows[i].row = x->rows[i].hist0 = i;
		x->rows[i].seed = (uint64_t)i;
	}
	struct kernels_case c = {.op = op,
				 .rows = n,
				 .bytes = (double)n * KERNELS_VOCAB * 4,
				 .memory = PROBE_READ,
				 .peak = PROBE_KINDS,
				 .call = call_sample,
				 .arg = x};
	kernels_measure(x->r->meter, &c, &p);
	x->r->report(x->r->arg, &p);
}

/* Allocate sums of uniform values, distributed like a model's logits. */
static void *random_logits(const struct kernels_run *r, size_t n)
{
	float *host = xmalloc(n * sizeof *host);
	void *p = r->ops->mem_new(r->dev, n * sizeof *host);
	uint64_t s = 88172645463325252u;
	for (size_t i = 0; i < n; i++) {
		float x = 0;
		for (int k = 0; k < 4; k++) {
			s ^= s << 13, s ^= s >> 7, s ^= s << 17;
			x += (float)(s >> 40) * 0x1p-24f - 0.5f;
		}
		host[i] = x * 6;
	}
	if (p) {
		r->ops->upload(r->stream, p, host, n * sizeof *host);
		r->ops->stream_sync(r->stream);
	}
	free(host);
	return p;
}

int kernels_sampling(struct kernels_run *r)
{
	enum { N = KERNELS_SEQS };
	const size_t n = (size_t)N * KERNELS_VOCAB, one = N * 4;
	const struct kern_sample_row greedy = {.forced = -1, .top_p = 1, .repetition = 1, .n_logprobs = -1};
	struct kern_sample_row nucleus = greedy;
	struct sampling x = {.r = r};
	char *out = r->ops->host_new(r->dev, 3 * one);
	x.logits = random_logits(r, n);
	x.tokens = r->ops->mem_new(r->dev, one);
	nucleus.temperature = 0.7f;
	nucleus.top_p = 0.9f;
	nucleus.top_k = 50;
	const bool ok = out && x.logits && x.tokens;
	if (ok) {
		x.out = (struct kern_sample_out){.token = (void *)out,
						 .logprob = (void *)(out + one),
						 .rank = (void *)(out + 2 * one)};
		bench_sample(&x, "sample greedy", 1, greedy);
		bench_sample(&x, "sample top-k, top-p", 1, nucleus);
		bench_sample(&x, "sample top-k, top-p", N, nucleus);
	} else {
		fprintf(stderr, "quern bench kernels: no memory for the sampler's results\n");
	}
	r->ops->mem_free(r->dev, x.logits, n * 4);
	r->ops->mem_free(r->dev, x.tokens, one);
	r->ops->host_free(r->dev, out, 3 * one);
	return ok ? 0 : -ENOMEM;
}
