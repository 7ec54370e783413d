/* measure_seq.c - attention and the sampler, as a worker's steps call them. */
#include "base/alloc.h"
#include "base/clock.h"
#include "tests/gpu/measure.h"
#include "worker/graphs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLD_BYTES = 256 << 20, LAYERS_MOST = 64, UNEVEN_LEAST = 128, UNEVEN_MOST = 8192 };

static uint32_t next(uint64_t *s)
{
	*s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
	return (uint32_t)(*s >> 32);
}

/* ---- attention ---- */

struct attention {
	struct measure *m;
	struct kern_kv *kv;
	void *q, *out;
	int n_layers, n, rows, context; /* sequences; new rows and tokens of each; context 0: uneven */
	int tokens;                     /* in all sequences */
	int pad_to;
};

static int attention_call(void *arg, int i)
{
	const struct attention *a = arg;
	const struct layers_model *z = a->m->model;
	return a->m->ops->attention(a->m->s, &(struct kern_attn_args){.out = a->out,
								      .q = a->q,
								      .kv = a->kv,
								      .layer = i % a->n_layers,
								      .n_q_heads = z->heads,
								      .n_kv_heads = z->kv_heads,
								      .head_dim = z->dim,
								      .scale = 1 / sqrtf((float)z->dim)});
}

/* Fill one block with random K and V in every layer and copy it: zeros would be faster than a model's
 * values. */
static void fill_cache(struct attention *a, int n_blocks)
{
	struct measure *m = a->m;
	const struct layers_model *z = m->model;
	const int32_t row0[2] = {0, MEASURE_BLOCK}, pos0 = 0, table = 0, token_at[MEASURE_BLOCK] = {0};
	const size_t width = (size_t)((z->heads + 2 * z->kv_heads) * z->dim), rope_n = MEASURE_BLOCK * 64;
	float *turn = xmalloc(rope_n * 2 * sizeof *turn);
	int32_t(*pairs)[2] = xcalloc((size_t)n_blocks, sizeof *pairs);
	for (size_t i = 0; i < rope_n * 2; i++)
		turn[i] = i % 2 ? 0.6f : 0.8f;
	void *in = measure_random(m, MEASURE_BLOCK * width), *rope = measure_mem(m, rope_n * 8),
	     *q = measure_mem(m, MEASURE_BLOCK * width * 4);
	measure_must(m->ops->upload(m->s, rope, turn, rope_n * 8), "upload");
	measure_must(m->ops->batch_set(m->s, &(struct kern_batch){.n_rows = MEASURE_BLOCK,
								  .n_seqs = 1,
								  .token_at = token_at,
								  .row0 = row0,
								  .pos0 = &pos0,
								  .tables = &table,
								  .table_stride = 1}),
		     "batch");
	for (int layer = 0; layer < a->n_layers; layer++)
		measure_must(
			m->ops->qkv(m->s, &(struct kern_qkv_args){.q = q,
								  .qkv = in,
								  .rope = rope,
								  .rope_dim = z->dim < 128 ? z->dim : 128,
								  .n_q_heads = z->heads,
								  .n_kv_heads = z->kv_heads,
								  .head_dim = z->dim,
								  .kv = a->kv,
								  .layer = layer}),
			"qkv");
	for (int b = 1; b < n_blocks; b++)
		pairs[b - 1][1] = b;
	measure_must(m->ops->kv_copy(m->s, a->kv, (const int32_t(*)[2])pairs, n_blocks - 1), "copies");
	measure_must(m->ops->stream_sync(m->s), "the cache");
	m->ops->mem_free(m->dev, in, MEASURE_BLOCK * width * (m->info.operand == KERN_F32 ? 4 : 2));
	m->ops->mem_free(m->dev, rope, rope_n * 8);
	m->ops->mem_free(m->dev, q, MEASURE_BLOCK * width * 4);
	free(turn);
	free(pairs);
}

/* Set the batch as a step does: decodes are padded to the size of a graph. */
static void set_batch(struct attention *a, const int *lengths, int n_blocks)
{
	int32_t row0[MEASURE_SEQS + 1] = {0}, pos0[MEASURE_SEQS];
	int stride = 0, used = 0, sizes[GRAPHS_MAX];
	for (int i = 0; i < a->n; i++) {
		const int blocks = (lengths[i] + MEASURE_BLOCK - 1) / MEASURE_BLOCK;
		stride = blocks > stride ? blocks : stride;
		row0[i + 1] = (i + 1) * a->rows;
		pos0[i] = lengths[i] - a->rows;
	}
	int32_t *tables = xcalloc((size_t)a->n * (size_t)stride, 4),
		*token_at = xcalloc((size_t)(a->n * a->rows), 4);
	for (int i = 0; i < a->n; i++) /* scatter the blocks, as in a pool that has been in use */
		for (int b = 0; b * MEASURE_BLOCK < lengths[i]; b++)
			tables[i * stride + b] = (int32_t)((int64_t)used++ * 7919 % n_blocks);
	a->pad_to = 0;
	if (a->rows == 1 && a->m->ops->graph_begin) {
		const int n_sizes = graphs_sizes(a->m->small ? 16 : MEASURE_SEQS, sizes);
		for (int i = 0; i < n_sizes && !a->pad_to; i++)
			a->pad_to = sizes[i] >= a->n ? sizes[i] : 0;
	}
	measure_must(a->m->ops->batch_set(a->m->s, &(struct kern_batch){.n_rows = a->n * a->rows,
									.n_seqs = a->n,
									.token_at = token_at,
									.row0 = row0,
									.pos0 = pos0,
									.tables = tables,
									.table_stride = stride,
									.pad_to = a->pad_to}),
		     "batch");
	measure_must(a->m->ops->stream_sync(a->m->s), "batch");
	free(tables);
	free(token_at);
}

static void report_attention(const struct attention *a, double us, double copy_gbps)
{
	const struct layers_model *z = a->m->model;
	const size_t each = a->m->info.kv == KERN_KV_F32 ? 4 : 2;
	const double seen = a->tokens - (double)a->n * (a->rows - 1) / 2,
		     bytes = 2.0 * (double)each * z->kv_heads * z->dim * a->tokens,
		     tflops = 4e-6 * seen * a->rows * z->heads * z->dim / us, gbps = 1e-3 * bytes / us;
	const char *kind = a->rows > 1 ? "prefill" : a->context ? "decode" : "uneven";
	printf("%-8s %3d x %5d tokens, %4d rows each, padded to %3d: %10.2f us %7.0f GB/s (%5.1f%% of the "
	       "copy) "
	       "%7.1f TFLOP/s\n",
	       kind, a->n, a->context, a->rows, a->pad_to, us, gbps, 100 * gbps / copy_gbps, tflops);
	fprintf(a->m->json,
		"{\"model\": \"%s\", \"kind\": \"%s\", \"batch\": %d, \"context\": %d, \"tokens\": %d, "
		"\"rows\": "
		"%d, \"pad_to\": %d, \"us\": %.3f, \"bytes\": %.0f, \"of_copy\": %.4f, \"tflop_per_s\": "
		"%.2f}\n",
		z->name, kind, a->n, a->context, a->tokens, a->rows, a->pad_to, us, bytes, gbps / copy_gbps,
		tflops);
	fflush(stdout);
	fflush(a->m->json);
}

static void attention_case(struct measure *m, int n, int context, int rows, double copy_gbps)
{
	const struct layers_model *z = m->model;
	struct attention a = {.m = m, .n = n, .rows = rows, .context = context};
	int lengths[MEASURE_SEQS], n_blocks = 0;
	uint64_t random = 88172645463325252u;
	for (int i = 0; i < n; i++) {
		lengths[i] = context ? context
				     : UNEVEN_LEAST + (int)(next(&random) % (UNEVEN_MOST - UNEVEN_LEAST + 1));
		if (!context && m->small)
			lengths[i] = 16 + lengths[i] % 200;
		a.tokens += lengths[i];
		n_blocks += (lengths[i] + MEASURE_BLOCK - 1) / MEASURE_BLOCK;
	}
	const double layer = 4.0 * z->kv_heads * z->dim * a.tokens;
	a.n_layers = m->small ? 2 : (int)(COLD_BYTES / layer) + 1;
	a.n_layers = a.n_layers > LAYERS_MOST ? LAYERS_MOST : a.n_layers;
	a.kv = m->ops->kv_new(m->dev, a.n_layers, z->kv_heads, z->dim, MEASURE_BLOCK, n_blocks, 0);
	if (!a.kv)
		measure_die("the cache", strerror(ENOMEM));
	fill_cache(&a, n_blocks);
	set_batch(&a, lengths, n_blocks);
	const size_t wide = (size_t)(z->heads * z->dim),
		     n_rows = (size_t)(a.pad_to > n * rows ? a.pad_to : n * rows);
	a.q = measure_random(m, n_rows * wide);
	a.out = measure_mem(m, n_rows * wide * 4);
	struct kern_queue k;
	const struct queue q = kern_queue(&k, m, a.pad_to > 0);
	report_attention(&a, measure_us(&q, attention_call, &a, a.n_layers), copy_gbps);
	m->ops->mem_free(m->dev, a.q, n_rows * wide * (m->info.operand == KERN_F32 ? 4 : 2));
	m->ops->mem_free(m->dev, a.out, n_rows * wide * 4);
	m->ops->kv_free(a.kv);
}

int measure_attention(struct measure *m)
{
	/* Sequences, tokens (0: uneven), rows.  The first six are the most informative. */
	static const int cases[][3] = {{64, 0, 1},     {1, 1024, 1},    {1, 32768, 1},  {16, 4096, 1},
				       {64, 1024, 1},  {1, 2048, 2048}, {1, 4096, 1},   {4, 4096, 1},
				       {4, 32768, 1},  {16, 1024, 1},   {16, 32768, 1}, {64, 4096, 1},
				       {64, 8192, 1},  {256, 1024, 1},  {1, 512, 512},  {1, 2048, 512},
				       {1, 8192, 512}, {1, 32768, 512}},
			 few[][3] = {{8, 0, 1}, {3, 300, 1}, {1, 100, 40}};
	const int(*c)[3] = m->small ? few : cases, n = m->small ? 3 : 18, n_first = m->small ? 2 : 6;
	measure_open(m, false);
	const double copy_gbps = measure_copy_gbps(m);
	for (int i = 0; i < n; i++)
		if (measure_has(m, i < n_first))
			attention_case(m, c[i][0], c[i][1], c[i][2], copy_gbps);
	measure_close(m);
	return 0;
}

/* ---- the sampler ---- */

enum { SAMPLER_CALLS = 16 };

struct sampler {
	struct measure *m;
	void *logits, *tokens;
	int vocab, n;
	struct kern_sample_row rows[MEASURE_SEQS];
	struct kern_sample_out out;
};

static int sample(struct sampler *x)
{
	return x->m->ops->sample(x->m->s, x->logits, x->vocab, x->tokens, x->rows, x->n, &x->out);
}

/* Measure as steps call the sampler: one call's result is awaited while the next call runs. */
static void sampler_case(struct sampler *x, const char *how)
{
	int64_t within = 0;
	measure_must(sample(x), "sample");
	measure_must(x->m->ops->stream_sync(x->m->s), "sample");
	const int64_t t0 = clock_us();
	for (int i = 0; i < SAMPLER_CALLS; i++) {
		const int64_t t = clock_us();
		measure_must(sample(x), "sample");
		within += clock_us() - t;
		if (i % 2)
			measure_must(x->m->ops->stream_sync(x->m->s), "sample");
	}
	const double us = (double)(clock_us() - t0) / SAMPLER_CALLS, host = (double)within / SAMPLER_CALLS;
	printf("%-16s %4d rows %10.1f us, the host in the call %8.1f us\n", how, x->n, us, host);
	fprintf(x->m->json, "{\"how\": \"%s\", \"rows\": %d, \"us\": %.2f, \"host_us\": %.2f}\n", how, x->n,
		us, host);
	fflush(stdout);
	fflush(x->m->json);
}

static void put_logits(struct sampler *x, int most, float spread)
{
	const size_t n = (size_t)most * (size_t)x->vocab;
	float *host = xmalloc(n * 4);
	uint64_t s = 88172645463325252u;
	for (size_t i = 0; i < n; i++) /* a sum of uniform values */
		host[i] = ((float)(next(&s) >> 8) + (float)(next(&s) >> 8) - 0x1p24f) * 0x1p-24f * spread;
	measure_must(x->m->ops->upload(x->m->s, x->logits, host, n * 4), "upload");
	measure_must(x->m->ops->stream_sync(x->m->s), "upload");
	free(host);
}

int measure_sampler(struct measure *m)
{
	static const struct {
		const char *name;
		float spread, temperature, top_p;
		int top_k;
	} hows[] = {{"greedy", 10, 0, 1, 0},
		    {"temperature", 10, 1, 1, 0},
		    {"top-k, top-p", 10, 0.7f, 0.9f, 50},
		    {"top-p", 10, 1, 0.9f, 0},
		    {"flat logits", 0.01f, 1, 1, 0},
		    {"flat, top-p", 0.01f, 1, 0.9f, 0}};
	static const int sizes[] = {1, 16, 64, 128, 256}, few[] = {1, 5};
	const int n_sizes = m->small ? 2 : 5, most = m->small ? 5 : 256;
	measure_open(m, false);
	struct sampler *x = xcalloc(1, sizeof *x);
	x->m = m;
	x->vocab = m->model->shapes[LAYERS_SHAPES - 1].n;
	x->logits = measure_mem(m, (size_t)most * (size_t)x->vocab * 4);
	x->tokens = measure_mem(m, (size_t)most * 8);
	int32_t *pinned = m->ops->host_new(m->dev, (size_t)most * 12);
	if (!pinned)
		measure_die("pinned memory", strerror(ENOMEM));
	x->out = (struct kern_sample_out){
		.token = pinned, .rank = pinned + most, .logprob = (float *)(void *)(pinned + 2 * most)};
	for (size_t h = 0; h < sizeof hows / sizeof *hows; h++) {
		if (!h || hows[h].spread != hows[h - 1].spread)
			put_logits(x, most, hows[h].spread);
		for (int i = 0; i < most; i++)
			x->rows[i] = (struct kern_sample_row){.row = i,
							      .hist0 = 2 * i,
							      .n_hist = 1,
							      .forced = -1,
							      .temperature = hows[h].temperature,
							      .top_p = hows[h].top_p,
							      .top_k = hows[h].top_k,
							      .repetition = 1,
							      .seed = (uint64_t)i,
							      .n_logprobs = -1};
		for (int i = 0; i < n_sizes; i++) {
			x->n = m->small ? few[i] : sizes[i];
			sampler_case(x, hows[h].name);
		}
	}
	m->ops->host_free(m->dev, pinned, (size_t)most * 12);
	m->ops->mem_free(m->dev, x->logits, (size_t)most * (size_t)x->vocab * 4);
	m->ops->mem_free(m->dev, x->tokens, (size_t)most * 8);
	free(x);
	measure_close(m);
	return 0;
}
