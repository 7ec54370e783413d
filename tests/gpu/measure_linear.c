/* measure_linear.c - linear layers by number of rows: AWQ and plain, in the default mode and with --fast,
 * compared with cuBLAS with plain weights in the same run; and the stream kernels with weights that stay in
 * L2. */
#include "base/alloc.h"
#include "tests/gpu/blas.h"

#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 32 << 20, FAST_LEAST = 64, HEAD_MOST = 256, LEAST_CALLS = 8 };

struct linear {
	struct measure *m;
	const struct layer_shape *l;
	struct layer_copies copies;
	struct blas *blas;
	char *weights; /* cuBLAS's weights: n_weights copies, used in rotation */
	size_t n_weights;
	void *in, *out;
	int rows;
	double copy_gbps;
};

static int our_call(void *arg, int i)
{
	const struct linear *x = arg;
	return layers_call(x->m->ops, x->m->s, x->l, x->copies.copies[i % x->copies.n_copies], x->out, x->in,
			   x->rows);
}

static int blas_call(void *arg, int i)
{
	const struct linear *x = arg;
	const size_t one = (size_t)x->l->k * (size_t)x->l->n * 2;
	return blas_linear(x->blas, x->out, x->in, x->weights + (size_t)i % x->n_weights * one, x->rows,
			   x->l->n, x->l->k, x->m->bf16);
}

static void report(const struct linear *x, const char *type, const char *mode, double us, double bytes)
{
	const double gbps = 1e-3 * bytes / us,
		     tflops = 2e-6 * x->rows * (double)x->l->k * (double)x->l->n / us;
	printf("%-8s %5d rows  %-5s %-8s %10.2f us %8.0f GB/s (%4.1f%% of the copy) %8.1f TFLOP/s\n",
	       x->l->name, x->rows, type, mode, us, gbps, 100 * gbps / x->copy_gbps, tflops);
	fprintf(x->m->json,
		"{\"model\": \"%s\", \"layer\": \"%s\", \"rows\": %d, \"type\": \"%s\", \"mode\": \"%s\", "
		"\"us\": %.3f, \"bytes\": %.0f, \"of_copy\": %.4f, \"tflop_per_s\": %.2f}\n",
		x->m->model->name, x->l->name, x->rows, type, mode, us, bytes, gbps / x->copy_gbps, tflops);
	fflush(stdout);
	fflush(x->m->json);
}

static const struct {
	int rows;
	bool first;
} many[] = {{1, true},    {2, false},  {4, false},   {8, false},    {16, true},   {32, false},  {64, true},
	    {128, false}, {256, true}, {512, false}, {1024, false}, {2048, true}, {8192, false}},
  few[] = {{1, true}, {17, true}, {70, false}};

/* Return the i-th number of rows; -1: not measured now; 0: no more. */
static int rows_at(const struct measure *m, size_t i)
{
	if (i >= (m->small ? sizeof few / sizeof *few : sizeof many / sizeof *many))
		return 0;
	if (!measure_has(m, m->small ? few[i].first : many[i].first))
		return -1;
	return m->small ? few[i].rows : many[i].rows;
}

/* Measure one kind of weights on an opened device. */
static void ours(struct linear *x, struct measure *m, enum kern_dtype type, const char *mode, int from)
{
	struct kern_queue k;
	const struct queue q = kern_queue(&k, m, true);
	x->m = m;
	measure_must(layers_load(&x->copies, m->ops, m->dev, x->l, type, 128, LAYERS_COLD_BYTES), x->l->name);
	measure_must(m->ops->batch_set(m->s, &(struct kern_batch){.pad_to = q.begin ? 1 : 0}), "batch");
	for (size_t i = 0; (x->rows = rows_at(m, i)); i++) {
		if (x->rows < from || (x->l->head && x->rows > HEAD_MOST))
			continue;
		report(x,
		       type == KERN_AWQ4   ? "awq"
		       : type == KERN_BF16 ? "bf16"
					   : "f16",
		       mode,
		       measure_us(&q, our_call, x,
				  x->copies.n_copies > LEAST_CALLS ? x->copies.n_copies : LEAST_CALLS),
		       x->copies.bytes);
	}
	layers_free(&x->copies, m->ops);
}

static void theirs(struct linear *x, struct measure *m)
{
	const struct queue q = blas_queue(x->blas);
	const size_t one = (size_t)x->l->k * (size_t)x->l->n;
	x->m = m;
	x->n_weights = LAYERS_COLD_BYTES / (one * 2) + 1;
	x->weights = measure_random(m, one * x->n_weights);
	for (size_t i = 0; (x->rows = rows_at(m, i)); i++) {
		if (x->rows < 0 || (x->l->head && x->rows > HEAD_MOST))
			continue;
		report(x, m->bf16 ? "bf16" : "f16", "cublas", measure_us(&q, blas_call, x, LEAST_CALLS),
		       (double)one * 2);
	}
	m->ops->mem_free(m->dev, x->weights, one * x->n_weights * 2);
}

static void skipped(struct measure *m, const char *what, const char *why)
{
	printf("skipped: %s: %s\n", what, why);
	fprintf(m->json, "{\"skipped\": \"%s\", \"reason\": \"%s\"}\n", what, why);
}

int measure_linear(struct measure *m)
{
	const enum kern_dtype plain_type = m->bf16 ? KERN_BF16 : KERN_F16;
	struct why why = {""};
	struct measure fast = *m;
	struct linear x = {0};
	int most_k = 0, most_n = 0;
	measure_open(m, false);
	x.copy_gbps = measure_copy_gbps(m);
	const bool has_fast = measure_try(&fast, true, &why) == 0;
	if (!has_fast)
		skipped(m, "--fast", why.text);
	void *ws = measure_mem(m, WORKSPACE);
	if (blas_open(&x.blas, ws, WORKSPACE, &why))
		skipped(m, "cuBLAS", why.text);
	for (int i = 0; i < LAYERS_SHAPES; i++) {
		const struct layer_shape *l = &m->model->shapes[i];
		most_k = l->k > most_k ? l->k : most_k;
		most_n = l->n > most_n && !l->head ? l->n : most_n;
	}
	const size_t rows = m->small ? 128 : MEASURE_ROWS;
	size_t out_bytes = rows * (size_t)most_n * 4;
	const size_t head_bytes = HEAD_MOST * (size_t)m->model->shapes[LAYERS_SHAPES - 1].n * 4;
	out_bytes = head_bytes > out_bytes ? head_bytes : out_bytes;
	x.in = measure_random(m, rows * (size_t)most_k);
	x.out = measure_mem(m, out_bytes);
	for (int i = 0; i < LAYERS_SHAPES; i++) {
		x.l = &m->model->shapes[i];
		if (!x.l->head)
			ours(&x, m, KERN_AWQ4, "default", 1);
		ours(&x, m, plain_type, "default", 1);
		if (has_fast && !x.l->head) {
			ours(&x, &fast, KERN_AWQ4, "fast", FAST_LEAST);
			ours(&x, &fast, plain_type, "fast", FAST_LEAST);
		}
		if (x.blas)
			theirs(&x, m);
	}
	blas_close(x.blas);
	if (has_fast)
		measure_close(&fast);
	m->ops->mem_free(m->dev, ws, WORKSPACE);
	measure_close(m);
	return 0;
}

enum { L2_MOST = 28 << 20 };

/* Measure one row with one copy of the weights: limited by the issue of instructions, not by memory. */
int measure_stream(struct measure *m)
{
	struct linear x = {.m = m, .rows = 1};
	measure_open(m, false);
	for (int i = 0; i < LAYERS_SHAPES; i++) {
		const struct layer_shape *l = x.l = &m->model->shapes[i];
		struct kern_queue k;
		const struct queue q = kern_queue(&k, m, true);
		if (l->head || (size_t)l->k * (size_t)l->n / 2 > L2_MOST)
			continue;
		measure_must(layers_load(&x.copies, m->ops, m->dev, l, KERN_AWQ4, 128, 1), l->name);
		measure_must(m->ops->batch_set(m->s, &(struct kern_batch){.pad_to = q.begin ? 1 : 0}),
			     "batch");
		x.in = measure_random(m, (size_t)l->k);
		x.out = measure_mem(m, (size_t)l->n * 4);
		const double us = measure_us(&q, our_call, &x, LEAST_CALLS);
		printf("stream_l2 layer=%s us=%.3f gb_per_s=%.0f\n", l->name, us, 1e-3 * x.copies.bytes / us);
		fprintf(m->json,
			"{\"probe\": \"stream_l2\", \"layer\": \"%s\", \"k\": %d, \"n\": %d, \"us\": %.3f, "
			"\"gb_per_s\": %.1f}\n",
			l->name, l->k, l->n, us, 1e-3 * x.copies.bytes / us);
		m->ops->mem_free(m->dev, x.in, (size_t)l->k * (m->info.operand == KERN_F32 ? 4 : 2));
		m->ops->mem_free(m->dev, x.out, (size_t)l->n * 4);
		layers_free(&x.copies, m->ops);
	}
	measure_close(m);
	return 0;
}
