#include "bench/kernels.h"

#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/alloc.h"
#include "base/file.h"
#include "bench/layers.h"
#include "bench/kernels_tune.h"
#include "cli/terminal/environment.h"
#include "kernels/kern.h"

enum {
	MAX_ROWS_LISTED = 16,
	BLOCK = 16, /* tokens of a cache block */
};

static const double least_seconds = 0.3;

struct options {
	const struct layers_model *model;
	const char *model_dir; /* --tune: instead of it */
	const char *device, *isa, *out;
	enum kern_dtype dtype;
	int threads, context, tp, n_rows;
	int rows[MAX_ROWS_LISTED];
	bool json, no_head, fast, tune, rows_given;
};

struct bench {
	struct options o;
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	struct kern_info info;
	double read_gbs, peak_gflops; /* of this machine, now */
	bool first;                   /* no JSON record is written yet */
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- peak rates of the machine ---- */

#if defined(__x86_64__)

__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, size_t n)
{
	__m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
	for (size_t i = 0; i + 256 <= n; i += 256) {
		for (int l = 0; l < 256; l += 64)
			_mm_prefetch(p + i + 2048 + l, _MM_HINT_T0);
		a = _mm512_add_epi64(a, _mm512_loadu_si512(p + i));
		b = _mm512_add_epi64(b, _mm512_loadu_si512(p + i + 64));
		c = _mm512_add_epi64(c, _mm512_loadu_si512(p + i + 128));
		d = _mm512_add_epi64(d, _mm512_loadu_si512(p + i + 192));
	}
	a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
	return (uint64_t)_mm512_reduce_add_epi64(a);
}

__attribute__((target("avx512f"))) static float fma_avx512(long n)
{
	__m512 a[12], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
	for (int i = 0; i < 12; i++)
		a[i] = _mm512_set1_ps((float)i);
	for (long k = 0; k < n; k += 12 * 16)
		for (int i = 0; i < 12; i++)
			a[i] = _mm512_fmadd_ps(a[i], x, y);
	for (int i = 1; i < 12; i++)
		a[0] = _mm512_add_ps(a[0], a[i]);
	return _mm512_reduce_add_ps(a[0]);
}

__attribute__((target("avx2,fma"))) static float fma_avx2(long n)
{
	__m256 a[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
	float out[8];
	for (int i = 0; i < 12; i++)
		a[i] = _mm256_set1_ps((float)i);
	for (long k = 0; k < n; k += 12 * 8)
		for (int i = 0; i < 12; i++)
			a[i] = _mm256_fmadd_ps(a[i], x, y);
	for (int i = 1; i < 12; i++)
		a[0] = _mm256_add_ps(a[0], a[i]);
	_mm256_storeu_ps(out, a[0]);
	return out[0] + out[5];
}

#endif

static uint64_t read_plain(const char *p, size_t n)
{
	uint64_t s = 0, v;
	for (size_t i = 0; i + 8 <= n; i += 8) {
		memcpy(&v, p + i, 8);
		s += v;
	}
	return s;
}

/* The work of one thread; sum and total keep the compiler from removing it. */
struct meter {
	pthread_t thread;
	const char *isa, *from;
	size_t bytes; /* to read */
	long fmas;
	uint64_t sum;
	float total;
};

static void *meter_read(void *arg)
{
	struct meter *m = arg;
#if defined(__x86_64__)
	if (!strcmp(m->isa, "avx512")) {
		m->sum += read_avx512(m->from, m->bytes);
		return NULL;
	}
#endif
	m->sum += read_plain(m->from, m->bytes);
	return NULL;
}

static void *meter_fma(void *arg)
{
	struct meter *m = arg;
#if defined(__x86_64__)
	m->total += strcmp(m->isa, "avx512") ? fma_avx2(m->fmas) : fma_avx512(m->fmas);
#endif
	return NULL;
}

/* Seconds until all are done. */
static double meter_all(struct meter *m, int n, void *(*fn)(void *))
{
	double t = now();
	int started = 0;
	while (started < n - 1 && !pthread_create(&m[started].thread, NULL, fn, &m[started]))
		started++;
	for (int i = started; i < n; i++)
		fn(&m[i]);
	for (int i = 0; i < started; i++)
		pthread_join(m[i].thread, NULL);
	return now() - t;
}

/* Memory reads in GB/s, of memory that no cache holds, and fused multiply-adds in GFLOP/s (0 for
 * the plain kernels: their peak depends on the library); all threads at once, best of five. */
static void measure(const struct bench *b, double *read_gbs, double *peak_gflops)
{
	const int threads = b->info.n_threads > 0 ? b->info.n_threads : 1;
	const size_t n = 2 * (size_t)LAYERS_COLD_BYTES, each = n / (size_t)threads / 4096 * 4096;
	const long fmas = 200000000;
	struct meter *m = xcalloc((size_t)threads, sizeof *m);
	char *p = alloc_big(n);
	*read_gbs = *peak_gflops = 0;
	if (p)
		memset(p, 1, n);
	for (int i = 0; i < threads; i++)
		m[i] = (struct meter){
			.isa = b->info.isa, .from = p + each * (size_t)i, .bytes = each, .fmas = fmas};
	for (int round = 0; round < 5; round++) {
		double rate = p ? (double)each * threads / meter_all(m, threads, meter_read) * 1e-9 : 0;
		*read_gbs = rate > *read_gbs && m[0].sum ? rate : *read_gbs;
		if (strncmp(b->info.isa, "avx", 3))
			continue;
		rate = 2 * (double)fmas * threads / meter_all(m, threads, meter_fma) * 1e-9;
		*peak_gflops = rate > *peak_gflops && m[0].total > 0 ? rate : *peak_gflops;
	}
	alloc_big_free(p, n);
	free(m);
}

/* The machine may be shared: the better of the beginning and the end counts. */
static void measure_machine(struct bench *b)
{
	double read, peak;
	measure(b, &read, &peak);
	b->read_gbs = read > b->read_gbs ? read : b->read_gbs;
	b->peak_gflops = peak > b->peak_gflops ? peak : b->peak_gflops;
}

/* ---- results ---- */

static double share(double part, double of)
{
	return of > 0 ? 100 * part / of : 0;
}

static void report(struct bench *b, const char *op, int rows, double us, double bytes, double flops)
{
	const double gbs = bytes / us * 1e-3, gflops = flops / us * 1e-3;
	if (b->o.json) {
		printf("%s\n  {\"op\": \"%s\", \"rows\": %d, \"us\": %.2f, \"gb_per_s\": %.3f, "
		       "\"share_of_read\": %.4f, "
		       "\"gflop_per_s\": %.3f, \"share_of_peak\": %.4f}",
		       b->first ? "" : ",", op, rows, us, gbs, share(gbs, b->read_gbs) / 100, gflops,
		       share(gflops, b->peak_gflops) / 100);
		b->first = false;
		return;
	}
	printf("%-22s %5d %10.1f us %8.2f GB/s (%5.1f%%) %9.2f GFLOP/s (%5.1f%%)\n", op, rows, us, gbs,
	       share(gbs, b->read_gbs), gflops, share(gflops, b->peak_gflops));
	fflush(stdout);
}

/* ---- linear layers ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The fastest call within least_seconds: on a shared machine the slower ones measure other programs. */
static double time_layer(struct bench *b, const struct layer_shape *z, const struct layer_copies *l, int rows,
			 void *out, void *in)
{
	enum { CALLS = 2000 };
	double t[CALLS], end = now() + least_seconds;
	int n = 0;
	for (int i = 0; n < CALLS && (n < 4 || now() < end); i++) {
		const struct kern_linear *w = l->copies[i % l->n_copies];
		double t0 = now();
		layers_call(b->ops, b->s, z, w, out, in, rows);
		b->ops->stream_sync(b->s);
		if (i > 0)
			t[n++] = now() - t0;
	}
	qsort(t, (size_t)n, sizeof *t, compare);
	return t[0] * 1e6;
}

static int bench_linears(struct bench *b)
{
	const struct layers_model *m = b->o.model;
	const int max_rows = b->o.rows[b->o.n_rows - 1];
	double layer_us[MAX_ROWS_LISTED] = {0}, layer_bytes = 0, layer_flops = 0;
	for (int i = 0; i < LAYERS_SHAPES; i++) {
		const struct layer_shape *z = &m->shapes[i];
		const enum kern_dtype dtype = z->head && b->o.dtype == KERN_AWQ4 ? KERN_F16 : b->o.dtype;
		struct layer_copies l;
		if (z->head && b->o.no_head)
			continue;
		int e = layers_load(&l, b->ops, b->dev, z, dtype, 128);
		if (e)
			return e;
		size_t in_bytes = (size_t)max_rows * (size_t)z->k * 4,
		       out_bytes = (size_t)max_rows * (size_t)z->n * 4;
		void *in = b->ops->mem_new(b->dev, in_bytes), *out = b->ops->mem_new(b->dev, out_bytes);
		void *host = xmalloc(in_bytes);
		layers_fill_floats(host, KERN_F32, in_bytes / 4);
		b->ops->upload(b->s, in, host, in_bytes);
		for (int r = 0; r < b->o.n_rows; r++) {
			int rows = b->o.rows[r];
			double us = time_layer(b, z, &l, rows, out, in), flops = 2.0 * z->k * z->n;
			report(b, z->name, rows, us, l.bytes, flops * rows);
			if (!z->head)
				layer_us[r] += us;
			if (!z->head && r == 0) {
				layer_bytes += l.bytes;
				layer_flops += flops;
			}
		}
		free(host);
		b->ops->mem_free(b->dev, in, in_bytes);
		b->ops->mem_free(b->dev, out, out_bytes);
		layers_free(&l, b->ops);
	}
	for (int r = 0; r < b->o.n_rows; r++)
		report(b, "all of a layer", b->o.rows[r], layer_us[r], layer_bytes,
		       layer_flops * b->o.rows[r]);
	if (!b->o.json)
		for (int r = 0; r < b->o.n_rows; r++)
			printf("%d layers, %d rows: %.1f tokens/s\n", m->layers, b->o.rows[r],
			       b->o.rows[r] / (layer_us[r] * m->layers * 1e-6));
	return 0;
}

/* ---- attention ---- */

struct attention {
	struct kern_kv *kv;
	void *q, *out;
	int32_t *tables, *row0, *pos0, *token_at;
	int seqs, rows; /* rows of each */
};

static double time_attention(struct bench *b, struct attention *a, int n_layers)
{
	enum { CALLS = 2000 };
	const struct layers_model *m = b->o.model;
	double t[CALLS], end = now() + least_seconds;
	int n = 0;
	for (int i = 0; n < CALLS && (n < 4 || now() < end); i++) {
		struct kern_attn_args args = {.out = a->out,
					      .q = a->q,
					      .kv = a->kv,
					      .layer = i % n_layers,
					      .n_q_heads = m->heads,
					      .n_kv_heads = m->kv_heads,
					      .head_dim = m->dim,
					      .scale = 0.088f};
		double t0 = now();
		b->ops->attention(b->s, &args);
		b->ops->stream_sync(b->s);
		if (i >= n_layers)
			t[n++] = now() - t0;
	}
	qsort(t, (size_t)n, sizeof *t, compare);
	return t[0] * 1e6;
}

/* seqs sequences at the end of the context, rows new tokens each. */
static int bench_attention(struct bench *b, const char *name, int seqs, int rows)
{
	const struct layers_model *m = b->o.model;
	const int blocks = (b->o.context + BLOCK - 1) / BLOCK,
		  n_layers = seqs * b->o.context >= 32768 ? 2 : 8;
	struct attention a = {.seqs = seqs, .rows = rows};
	const size_t q_bytes = (size_t)(seqs * rows) * (size_t)(m->heads * m->dim) * 4;
	a.kv = b->ops->kv_new(b->dev, n_layers, m->kv_heads, m->dim, BLOCK, seqs * blocks, 0);
	if (!a.kv) {
		fprintf(stderr, "quern bench kernels: cannot allocate the cache of %d x %d tokens\n", seqs,
			b->o.context);
		return -1;
	}
	a.q = b->ops->mem_new(b->dev, q_bytes);
	a.out = b->ops->mem_new(b->dev, q_bytes);
	a.tables = xmalloc((size_t)(seqs * blocks) * sizeof(int32_t));
	a.row0 = xcalloc((size_t)seqs + 1, sizeof(int32_t));
	a.pos0 = xcalloc((size_t)seqs, sizeof(int32_t));
	a.token_at = xcalloc((size_t)(seqs * rows), sizeof(int32_t));
	for (int i = 0; i < seqs * blocks; i++)
		a.tables[i] = (int)((int64_t)i * 7919 % (seqs * blocks)); /* scattered */
	for (int i = 0; i < seqs; i++) {
		a.row0[i + 1] = a.row0[i] + rows;
		a.pos0[i] = b->o.context - rows;
	}
	b->ops->batch_set(b->s, &(struct kern_batch){.n_rows = seqs * rows,
						     .n_seqs = seqs,
						     .token_at = a.token_at,
						     .row0 = a.row0,
						     .pos0 = a.pos0,
						     .tables = a.tables,
						     .table_stride = blocks});
	/* Fresh memory is one shared zero page: every block is written once to be backed by memory. */
	int32_t(*pairs)[2] = xmalloc((size_t)(seqs * blocks) * sizeof *pairs);
	for (int i = 0; i < seqs * blocks; i++)
		pairs[i][0] = i, pairs[i][1] = (i + 1) % (seqs * blocks);
	b->ops->kv_copy(b->s, a.kv, (const int32_t(*)[2])pairs, seqs * blocks);
	double us = time_attention(b, &a, n_layers), seen = (double)b->o.context - (rows - 1) / 2.0;
	double bytes = (double)seqs * b->o.context * m->kv_heads * m->dim * 2 * 4;
	report(b, name, seqs * rows, us, bytes, 4.0 * seqs * rows * seen * m->heads * m->dim);
	b->ops->mem_free(b->dev, a.q, q_bytes);
	b->ops->mem_free(b->dev, a.out, q_bytes);
	b->ops->kv_free(a.kv);
	free(pairs);
	free(a.tables);
	free(a.row0);
	free(a.pos0);
	free(a.token_at);
	return 0;
}

/* ---- sampling ---- */

static void bench_sample(struct bench *b, const char *name, int n, struct kern_sample_row r)
{
	enum { V = 151936, CALLS = 50 };
	const size_t bytes = (size_t)n * V * 4, one = (size_t)n * 4;
	float *host = xmalloc(bytes);
	char *out = b->ops->host_new(b->dev, 3 * one);
	struct kern_sample_row *rows = xmalloc((size_t)n * sizeof *rows);
	void *logits = b->ops->mem_new(b->dev, bytes), *tokens = b->ops->mem_new(b->dev, (size_t)n * 4);
	double t[CALLS];
	uint64_t s = 88172645463325252u;
	for (size_t i = 0; i < (size_t)n * V; i++) { /* a sum of uniform values, like a model's */
		float x = 0;
		for (int k = 0; k < 4; k++) {
			s ^= s << 13, s ^= s >> 7, s ^= s << 17;
			x += (float)(s >> 40) * 0x1p-24f - 0.5f;
		}
		host[i] = x * 6;
	}
	if (!out || !logits || !tokens) {
		fprintf(stderr, "out of memory for the sampler's results\n");
		exit(1);
	}
	b->ops->upload(b->s, logits, host, bytes);
	for (int i = 0; i < n; i++) {
		rows[i] = r;
		rows[i].row = rows[i].hist0 = i;
		rows[i].seed = (uint64_t)i;
	}
	for (int i = 0; i < CALLS; i++) {
		double t0 = now();
		b->ops->sample(b->s, logits, V, tokens, rows, n,
			       &(struct kern_sample_out){.token = (void *)out,
							 .logprob = (void *)(out + one),
							 .rank = (void *)(out + 2 * one)});
		b->ops->stream_sync(b->s);
		t[i] = now() - t0;
	}
	qsort(t, CALLS, sizeof *t, compare);
	report(b, name, n, t[0] * 1e6, (double)bytes, 0);
	b->ops->mem_free(b->dev, logits, bytes);
	b->ops->mem_free(b->dev, tokens, (size_t)n * 4);
	b->ops->host_free(b->dev, out, 3 * one);
	free(host);
	free(rows);
}

/* ---- options ---- */

static const char usage[] =
	"usage: quern bench kernels [options]\n"
	"Measures linear layers, attention and sampling of a model's shapes, and what share they reach of\n"
	"this machine's memory bandwidth and FP32 peak, measured in the same run.\n\n"
	"  --model NAME      qwen3-0.6b (default) or qwen3-8b; with --tune also a model's directory\n"
	"  --dtype TYPE      awq (default; the head is F16), f16, bf16 or f32\n"
	"  --rows LIST       rows of a batch, ascending (default 1,2,4,8,16,64,256)\n"
	"  --context N       tokens that attention looks back on (default 2048)\n"
	"  --no-head         do not measure the head\n"
	"  --device D        cpu (default), cpu:NODE, cuda:N\n"
	"  --isa NAME        avx512, avx2 or plain (default: the best there is)\n"
	"  --threads N       (default: one per core)\n"
	"  --fast            on a GPU: layers of many rows through cuBLAS; bits then depend on the batch\n"
	"  --tune            on a GPU: from how many rows on --fast is faster, layer by layer, 1 to 8192\n"
	"                    rows; writes what it finds for workers that serve with --fast\n"
	"  --tp N            --tune: the parts of the model's layers that N devices have (1)\n"
	"  --out FILE        --tune: the file (default: where workers look, tune-DEVICE.json in\n"
	"                    $XDG_CACHE_HOME/quern or ~/.cache/quern)\n"
	"  --json            one JSON object on stdout\n"
	"  --help            this text\n";

static int bad(const char *fmt, const char *arg)
{
	fprintf(stderr, "quern bench kernels: ");
	fprintf(stderr, fmt, arg);
	fprintf(stderr, " (see --help)\n");
	return 2;
}

static int parse_number(const char *s, int low, int high, int *out)
{
	char *end;
	long v = strtol(s, &end, 10);
	if (end == s || *end || v < low || v > high)
		return -1;
	*out = (int)v;
	return 0;
}

static int parse_rows(struct options *o, const char *s)
{
	char *list = xstrdup(s), *save = NULL;
	int e = 0;
	o->n_rows = 0;
	for (char *p = strtok_r(list, ",", &save); p && !e; p = strtok_r(NULL, ",", &save)) {
		if (o->n_rows == MAX_ROWS_LISTED || parse_number(p, 1, 8192, &o->rows[o->n_rows]))
			e = -1;
		else if (o->n_rows && o->rows[o->n_rows] <= o->rows[o->n_rows - 1])
			e = -1;
		else
			o->n_rows++;
	}
	free(list);
	return e || !o->n_rows ? -1 : 0;
}

static int parse_name(const char *s, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(s, names[i]))
			return i;
	return -1;
}

enum { GO_ON = -1 };

/* Combinations that make no sense.  GO_ON, or the exit status. */
static int check_options(struct options *o)
{
	if (o->model_dir && !o->tune)
		return bad("no shapes are known for '%s'", o->model_dir);
	if (o->model_dir && !file_is_dir(o->model_dir))
		return bad("'%s' is neither a known name nor a model's directory", o->model_dir);
	if (o->out && !o->tune)
		return bad("%s is for --tune", "--out");
	if (o->tp > 1 && !o->model_dir)
		return bad("%s is for --tune with a model's directory", "--tp");
	if (o->tune && o->fast)
		return bad("%s measures both ways", "--tune");
	if (o->tune && !o->rows_given)
		parse_rows(o, "1,8,16,32,48,64,96,128,192,256,384,512,1024,2048,4096,8192");
	return GO_ON;
}

static const struct option longs[] = {
	{"model", required_argument, NULL, 'm'},
	{"dtype", required_argument, NULL, 't'},
	{"rows", required_argument, NULL, 'r'},
	{"context", required_argument, NULL, 'c'},
	{"no-head", no_argument, NULL, 'n'},
	{"device", required_argument, NULL, 'd'},
	{"isa", required_argument, NULL, 'i'},
	{"threads", required_argument, NULL, 'j'},
	{"fast", no_argument, NULL, 'f'},
	{"tune", no_argument, NULL, 'T'},
	{"tp", required_argument, NULL, 'p'},
	{"out", required_argument, NULL, 'o'},
	{"json", no_argument, NULL, 'J'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* An option with a checked value.  GO_ON, or the exit status. */
static int parse_value(struct options *o, int letter, const char *value)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16", "awq"}; /* in the order of kern_dtype */
	const char *const models[LAYERS_MODELS] = {layers_models[0].name, layers_models[1].name};
	int i;
	switch (letter) {
	case 'm':
		i = parse_name(value, models, LAYERS_MODELS);
		o->model_dir = i < 0 ? value : NULL;
		o->model = &layers_models[i < 0 ? 0 : i];
		return GO_ON;
	case 't':
		i = parse_name(value, dtypes, 4);
		o->dtype = (enum kern_dtype)(i < 0 ? 0 : i);
		return i < 0 ? bad("'%s' is not a type of weights", value) : GO_ON;
	case 'r':
		o->rows_given = true;
		return parse_rows(o, value) ? bad("'%s' is not an ascending list of 1 to 8192 rows", value)
					    : GO_ON;
	case 'p':
		return parse_number(value, 1, 64, &o->tp) ? bad("'%s' is not a number of devices", value)
							  : GO_ON;
	case 'c':
		return parse_number(value, 16, 1 << 20, &o->context)
			       ? bad("'%s' is not a context length", value)
			       : GO_ON;
	default: /* 'j' */
		return parse_number(value, 1, 4096, &o->threads)
			       ? bad("'%s' is not a number of threads", value)
			       : GO_ON;
	}
}

/* GO_ON, or the exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	int c, status = GO_ON;
	*o = (struct options){
		.model = &layers_models[0], .device = "cpu", .dtype = KERN_AWQ4, .context = 2048, .tp = 1};
	parse_rows(o, "1,2,4,8,16,64,256");
	optind = 1;
	while (status == GO_ON && (c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'f':
			o->fast = true;
			break;
		case 'T':
			o->tune = true;
			break;
		case 'n':
			o->no_head = true;
			break;
		case 'J':
			o->json = true;
			break;
		case 'd':
			o->device = optarg;
			break;
		case 'i':
			o->isa = optarg;
			break;
		case 'o':
			o->out = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		case '?':
			return 2;
		default:
			status = parse_value(o, c, optarg);
		}
	if (status != GO_ON)
		return status;
	return optind < argc ? bad("'%s' is not expected", argv[optind]) : check_options(o);
}

static int open_device(struct bench *b)
{
	enum { SEQS = 16, MIN_ROWS = 512 };
	char why[512] = "";
	int index, rows = b->o.rows[b->o.n_rows - 1];
	struct kern_open_args a = {
		.compute = KERN_COMPUTE_F32,
		.n_threads = b->o.threads,
		.isa = b->o.isa,
		.max_rows = rows > MIN_ROWS ? rows : MIN_ROWS,
		.max_seqs = SEQS,
		.max_logits = SEQS,
		.max_context = b->o.context,
		.max_blocks_per_seq = (b->o.context + BLOCK - 1) / BLOCK,
		.fast = b->o.fast,
	};
	int e = kern_find(b->o.device, &b->ops, &index, why, sizeof why);
	a.index = index;
	if (!e)
		e = b->ops->open(&b->dev, &a, why, sizeof why);
	if (e) {
		fprintf(stderr, "quern bench kernels: %s\n", why);
		return e;
	}
	b->s = b->ops->stream_new(b->dev);
	b->ops->info(b->dev, &b->info);
	return 0;
}

static int run(struct bench *b)
{
	const int rows = b->o.context < 512 ? b->o.context : 512;
	const struct kern_sample_row greedy = {.forced = -1, .top_p = 1, .repetition = 1, .n_logprobs = -1};
	struct kern_sample_row nucleus = greedy;
	nucleus.temperature = 0.7f;
	nucleus.top_p = 0.9f;
	nucleus.top_k = 50;
	if (bench_linears(b) || bench_attention(b, "attention decode", 1, 1) ||
	    bench_attention(b, "attention decode", 16, 1) || bench_attention(b, "attention prefill", 1, rows))
		return 1;
	bench_sample(b, "sample greedy", 1, greedy);
	bench_sample(b, "sample top-k, top-p", 1, nucleus);
	bench_sample(b, "sample top-k, top-p", 16, nucleus);
	return 0;
}

static int tune(const struct options *o)
{
	const struct environment env = environment_read();
	return kernels_tune(&(struct kernels_tune){.device = o->device,
						   .model_dir = o->model_dir,
						   .model = o->model,
						   .dtype = o->dtype,
						   .tp = o->tp,
						   .rows = o->rows,
						   .n_rows = o->n_rows,
						   .out = o->out,
						   .xdg_cache = env.cache_dir,
						   .home = env.home,
						   .json = o->json});
}

int cmd_bench_kernels(int argc, char **argv)
{
	struct bench b = {.first = true};
	int e = parse_options(&b.o, argc, argv);
	if (e != GO_ON)
		return e;
	if (b.o.tune)
		return tune(&b.o);
	if (open_device(&b))
		return 1;
	measure_machine(&b);
	if (b.o.json)
		printf("{\"device\": \"%s\", \"isa\": \"%s\", \"threads\": %d, \"model\": \"%s\", "
		       "\"numerics\": \"%s\", \"read_gb_per_s\": %.3f, "
		       "\"peak_gflop_per_s\": %.3f, \"results\": [",
		       b.info.name, b.info.isa, b.info.n_threads, b.o.model->name, b.info.numerics,
		       b.read_gbs, b.peak_gflops);
	else
		printf("%s, %s (%s), %d threads; %s; memory reads %.1f GB/s, FP32 peak %.1f GFLOP/s\n",
		       b.info.name, b.info.isa, b.info.numerics, b.info.n_threads, b.o.model->name,
		       b.read_gbs, b.peak_gflops);
	e = run(&b);
	measure_machine(&b);
	if (b.o.json)
		printf("\n], \"read_gb_per_s_best\": %.3f, \"peak_gflop_per_s_best\": %.3f}\n", b.read_gbs,
		       b.peak_gflops);
	else
		printf("best of begin and end: memory reads %.1f GB/s, FP32 peak %.1f GFLOP/s\n", b.read_gbs,
		       b.peak_gflops);
	b.ops->stream_free(b.s);
	b.ops->close(b.dev);
	return e;
}
