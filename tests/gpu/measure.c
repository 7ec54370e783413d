/* measure.c - measures the rates of a device and its kernels.
 *
 *     gpu_measure device|linear|stream|attention|sampler [--device cuda:0]
 *                 [--model qwen3-8b|qwen3-0.6b|small] [--bf16] [--part first|rest] [--json FILE]
 *
 * Prints tables and appends lines of JSON to FILE; see measure.h.  linear compares with cuBLAS if it is
 * installed. */
#include "tests/gpu/measure.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/gpu/blas.h"
#include "tests/gpu/together.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { REPLAYS = 21, REPLAYS_LEAST = 5, CALLS_MAX = 256, LAUNCH_US = 3000, ENOUGH_US = 60000 };

void measure_die(const char *what, const char *why)
{
	fprintf(stderr, "gpu_measure: %s: %s\n", what, why);
	exit(1);
}

void measure_must(int rc, const char *what)
{
	if (rc)
		measure_die(what, strerror(-rc));
}

/* ---- the device ---- */

int measure_try(struct measure *m, bool fast, struct why *why)
{
	const int rows = m->small ? 128 : MEASURE_ROWS, seqs = m->small ? 16 : MEASURE_SEQS,
		  context = m->small ? 512 : MEASURE_CONTEXT;
	struct kern_open_args a = {.compute = KERN_COMPUTE_F32,
				   .model = m->bf16 ? KERN_BF16 : KERN_F16,
				   .max_rows = rows,
				   .max_seqs = seqs,
				   .max_logits = seqs,
				   .max_context = context,
				   .max_blocks_per_seq = context / MEASURE_BLOCK,
				   .n_vocab = m->model->shapes[LAYERS_SHAPES - 1].n,
				   .fast = fast};
	int rc = kern_find(m->device, &m->ops, &a.index, why);
	if (!rc)
		rc = m->ops->open(&m->dev, &a, why);
	if (rc)
		return rc;
	m->s = m->ops->stream_new(m->dev);
	m->ops->info(m->dev, &m->info);
	return 0;
}

void measure_open(struct measure *m, bool fast)
{
	struct why why = {""};
	if (measure_try(m, fast, &why))
		measure_die(m->device, why.text);
}

void measure_close(struct measure *m)
{
	m->ops->stream_free(m->s);
	m->ops->close(m->dev);
}

bool measure_has(const struct measure *m, bool first)
{
	return m->part == PART_ALL || (m->part == PART_FIRST) == first;
}

void *measure_mem(struct measure *m, size_t bytes)
{
	void *p = m->ops->mem_new(m->dev, bytes);
	if (!p)
		measure_die("memory of the device", strerror(ENOMEM));
	return p;
}

void *measure_random(struct measure *m, size_t n)
{
	const size_t bytes = n * (m->info.operand == KERN_F32 ? 4 : 2);
	void *host = xmalloc(bytes), *p = measure_mem(m, bytes);
	layers_fill_floats(host, m->info.operand, n);
	measure_must(m->ops->upload(m->s, p, host, bytes), "upload");
	measure_must(m->ops->stream_sync(m->s), "upload");
	free(host);
	return p;
}

/* ---- time ---- */

static int kern_begin(void *at)
{
	struct kern_queue *k = at;
	return k->m->ops->graph_begin(k->m->s);
}

static int kern_end(void *at)
{
	struct kern_queue *k = at;
	return k->m->ops->graph_end(k->m->s, &k->g);
}

static int kern_launch(void *at)
{
	struct kern_queue *k = at;
	return k->m->ops->graph_launch(k->m->s, k->g);
}

static int kern_sync(void *at)
{
	struct kern_queue *k = at;
	return k->m->ops->stream_sync(k->m->s);
}

static void kern_forget(void *at)
{
	struct kern_queue *k = at;
	k->m->ops->graph_free(k->g);
}

struct queue kern_queue(struct kern_queue *k, struct measure *m, bool graphs)
{
	*k = (struct kern_queue){.m = m};
	return (struct queue){.at = k,
			      .brief = m->small,
			      .begin = graphs && m->ops->graph_begin ? kern_begin : NULL,
			      .end = kern_end,
			      .launch = kern_launch,
			      .sync = kern_sync,
			      .forget = kern_forget};
}

static int by_value(const void *x, const void *y)
{
	const double a = *(const double *)x, b = *(const double *)y;
	return (a > b) - (a < b);
}

static void run_calls(int (*call)(void *arg, int i), void *arg, int n)
{
	for (int i = 0; i < n; i++)
		measure_must(call(arg, i), "a call");
}

double measure_us(const struct queue *q, int (*call)(void *arg, int i), void *arg, int least)
{
	double us[REPLAYS];
	int n = q->brief ? 1 : 4, done = 0;
	run_calls(call, arg, 1); /* loads the kernels */
	measure_must(q->sync(q->at), "a call");
	int64_t t = clock_us();
	run_calls(call, arg, n);
	measure_must(q->sync(q->at), "a call");
	const double once = (double)(clock_us() - t) / n;
	n = once > 0 && LAUNCH_US / once < CALLS_MAX ? (int)(LAUNCH_US / once) : CALLS_MAX;
	n = q->brief ? 1 : n < least ? least : n;
	if (q->begin) {
		measure_must(q->begin(q->at), "graph");
		run_calls(call, arg, n);
		measure_must(q->end(q->at), "graph");
	}
	const int64_t from = clock_us();
	const int most = q->brief ? 1 : REPLAYS;
	for (int i = -1; i < most && (done < REPLAYS_LEAST || clock_us() - from < ENOUGH_US); i++) {
		t = clock_us();
		if (q->begin)
			measure_must(q->launch(q->at), "replay");
		else
			run_calls(call, arg, n);
		measure_must(q->sync(q->at), "replay");
		if (i >= 0)
			us[done++] = (double)(clock_us() - t) / n;
	}
	if (q->begin)
		q->forget(q->at);
	qsort(us, (size_t)done, sizeof *us, by_value);
	return us[done / 2];
}

/* ---- the device's own rates ---- */

struct areas {
	struct measure *m;
	void *a, *b, *host;
	size_t bytes;
};

static int copy_call(void *arg, int i)
{
	const struct areas *x = arg;
	return x->m->ops->copy(x->m->s, i % 2 ? x->a : x->b, i % 2 ? x->b : x->a, x->bytes);
}

static int up_call(void *arg, int i)
{
	const struct areas *x = arg;
	(void)i;
	return x->m->ops->upload(x->m->s, x->a, x->host, x->bytes);
}

static int down_call(void *arg, int i)
{
	const struct areas *x = arg;
	(void)i;
	return x->m->ops->download(x->m->s, x->host, x->a, x->bytes);
}

static int norm_call(void *arg, int i)
{
	const struct areas *x = arg;
	(void)i;
	return x->m->ops->rmsnorm(x->m->s, x->b, x->a, NULL, x->a, 1, 1024, 1e-6f);
}

double measure_copy_gbps(struct measure *m)
{
	struct areas x = {.m = m, .bytes = m->small ? 1 << 16 : (size_t)1 << 30};
	struct kern_queue k;
	const struct queue q = kern_queue(&k, m, false);
	x.a = measure_random(m, x.bytes / (m->info.operand == KERN_F32 ? 4 : 2));
	x.b = measure_mem(m, x.bytes);
	const double us = measure_us(&q, copy_call, &x, 4);
	m->ops->mem_free(m->dev, x.a, x.bytes);
	m->ops->mem_free(m->dev, x.b, x.bytes);
	return 2e-3 * (double)x.bytes / us;
}

static int measure_device(struct measure *m)
{
	struct areas x = {.m = m, .bytes = m->small ? 1 << 16 : (size_t)256 << 20};
	struct driver_facts f;
	measure_open(m, false);
	const bool driver = driver_facts(&f) == 0;
	struct kern_queue k, kept;
	const struct queue stream = kern_queue(&k, m, false), graph = kern_queue(&kept, m, true);
	const double copy = measure_copy_gbps(m);
	x.a = measure_mem(m, x.bytes);
	x.b = measure_mem(m, x.bytes);
	if (!(x.host = m->ops->host_new(m->dev, x.bytes)))
		measure_die("pinned memory", strerror(ENOMEM));
	memset(x.host, 0x5a, x.bytes);
	const double up = 1e-3 * (double)x.bytes / measure_us(&stream, up_call, &x, 2),
		     down = 1e-3 * (double)x.bytes / measure_us(&stream, down_call, &x, 2);
	const double queued = measure_us(&stream, norm_call, &x, CALLS_MAX);
	measure_must(m->ops->batch_set(m->s, &(struct kern_batch){.pad_to = graph.begin ? 1 : 0}), "batch");
	const double replayed = measure_us(&graph, norm_call, &x, CALLS_MAX);
	printf("%s, %s, %s; %.1f GiB\n", m->info.name, m->info.isa, m->info.numerics,
	       (double)m->info.bytes_total / (1 << 30));
	if (driver)
		printf("driver for CUDA %d.%d; %d multiprocessors at %d MHz at most; memory at %d MHz, %d "
		       "bits; "
		       "L2 %.0f MiB\n",
		       f.version / 1000, f.version % 1000 / 10, f.sms, f.sm_mhz, f.memory_mhz, f.bus_bits,
		       f.l2_bytes / 1048576.0);
	printf("a copy reads and writes %.0f GB/s; from the host %.1f GB/s, to it %.1f; a small kernel in a "
	       "stream %.2f us, in a graph %.2f us\n",
	       copy, up, down, queued, replayed);
	fprintf(m->json,
		"{\"name\": \"%s\", \"isa\": \"%s\", \"numerics\": \"%s\", \"build\": \"%s\", "
		"\"memory_bytes\": "
		"%lld, \"cuda_driver\": %d, \"sms\": %d, \"sm_mhz\": %d, \"memory_mhz\": %d, \"bus_bits\": "
		"%d, "
		"\"l2_bytes\": %d, \"copy_gb_per_s\": %.1f, \"upload_gb_per_s\": %.2f, "
		"\"download_gb_per_s\": "
		"%.2f, \"small_kernel_queued_us\": %.3f, \"small_kernel_replayed_us\": %.3f}\n",
		m->info.name, m->info.isa, m->info.numerics, m->info.build, (long long)m->info.bytes_total,
		f.version, f.sms, f.sm_mhz, f.memory_mhz, f.bus_bits, f.l2_bytes, copy, up, down, queued,
		replayed);
	m->ops->host_free(m->dev, x.host, x.bytes);
	m->ops->mem_free(m->dev, x.a, x.bytes);
	m->ops->mem_free(m->dev, x.b, x.bytes);
	measure_close(m);
	return 0;
}

/* ---- options ---- */

int measure_main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct measure *m);
	} all[] = {{"device", measure_device},
		   {"linear", measure_linear},
		   {"stream", measure_stream},
		   {"attention", measure_attention},
		   {"sampler", measure_sampler}};
	struct measure m = {.device = "cuda:0", .model = &layers_models[1]};
	const char *path = "/dev/null";
	int (*run)(struct measure * m) = NULL;
	for (size_t i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
		if (!strcmp(argv[1], all[i].name))
			run = all[i].run;
	for (int i = 2; i < argc && run; i++) {
		if (!strcmp(argv[i], "--device") && i + 1 < argc)
			m.device = argv[++i];
		else if (!strcmp(argv[i], "--model") && i + 1 < argc)
			run = (m.model = together_find(argv[++i])) ? run : NULL;
		else if (!strcmp(argv[i], "--json") && i + 1 < argc)
			path = argv[++i];
		else if (!strcmp(argv[i], "--bf16"))
			m.bf16 = true;
		else if (!strcmp(argv[i], "--part") && i + 1 < argc && !strcmp(argv[i + 1], "first"))
			m.part = PART_FIRST, i++;
		else if (!strcmp(argv[i], "--part") && i + 1 < argc && !strcmp(argv[i + 1], "rest"))
			m.part = PART_REST, i++;
		else
			run = NULL;
	}
	if (!run) {
		fprintf(stderr, "usage: gpu_measure device|linear|stream|attention|sampler [--device cuda:0] "
				"[--model "
				"qwen3-8b|qwen3-0.6b|small] [--bf16] [--part first|rest] [--json FILE]\n");
		return 2;
	}
	if (!(m.json = fopen(path, "a")))
		measure_die(path, strerror(errno));
	m.small = m.model == &together_small;
	const int rc = run(&m);
	fclose(m.json);
	return rc;
}
