/* step_probe.cu - the CUDA table with events around every step and its copies; see step_probe.h.
 * It replaces kernels/kern.c: a worker's code that is linked with it opens this table.  The linker redirects
 * the table's cudaMemcpyAsync() to this file (--wrap).
 *
 * With stamps, a kernel of one thread follows every operation and adds up the time since the previous stamp:
 *
 *     batch_set | stamp 0 | stamp 1 | embed | stamp 2 | rmsnorm | stamp 3 | ... | sample | stamp n
 *                         '- empty -'
 *
 * The operations from embed to the head are captured with their stamps, so these run within the graph. */
#include "tests/gpu/step_probe.h"
#include "kernels/cuda/cuda.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#ifndef QUERN_CUDASIM
#include <cuda_profiler_api.h>
#endif

extern "C" {
#include "kernels/coll.h"
extern const struct kern_ops kern_cuda_ops;
}

/* In the emulator this is a C++ function: its symbol includes the argument types. */
#ifdef QUERN_CUDASIM
#define NAMED(prefix) __asm__(prefix "_Z15cudaMemcpyAsyncPvPKvm14cudaMemcpyKindP14cudasim_stream")
#else
#define NAMED(prefix) __asm__(prefix "cudaMemcpyAsync")
#endif
cudaError_t real_copy(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
	NAMED("__real_");
cudaError_t probed_copy(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
	NAMED("__wrap_");

namespace
{

struct span {
	cudaEvent_t from, to;
};

struct stamped_time {
	unsigned long long ns, n, last; /* sum, number; last: newest stamp's time, in stamp 0 */
};
enum { NAME_SIZE = 24, LINEARS = 4096, FIRST = 2 /* stamps before the first operation */ };

struct kern_ops probed;
bool stamps_on;
struct stamped_time *stamps; /* on the device, [PROBE_STAMPS] */
char stamp_names[PROBE_STAMPS][NAME_SIZE];
int n_stamps; /* in a captured step, or so far in the step being captured */
struct kern_stream *capturing;
struct {
	const struct kern_linear *w;
	char name[NAME_SIZE];
} linears[LINEARS];
int n_linears;
struct span steps[PROBE_STEPS], copies[PROBE_COPIES];
int n_steps, n_copies;
cudaStream_t stream; /* stream of the open step */
bool noting, open_step;

void check(cudaError_t e)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "gpu_bench_step: %s\n", cudaGetErrorString(e));
	exit(1);
}

void make(struct span *s, int n)
{
	for (int i = 0; i < n && !s[i].from; i++) {
		check(cudaEventCreateWithFlags(&s[i].from, cudaEventDefault));
		check(cudaEventCreateWithFlags(&s[i].to, cudaEventDefault));
	}
}

double between(cudaEvent_t from, cudaEvent_t to)
{
	float ms = 0;
	check(cudaEventSynchronize(to));
	check(cudaEventElapsedTime(&ms, from, to));
	return (double)ms;
}

/* ---- stamps ---- */

KERN_DEV unsigned long long time_ns(void)
{
#ifdef QUERN_CUDASIM
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
#else
	unsigned long long ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
#endif
}

__global__ void stamp_kernel(struct stamped_time *s, int i)
{
	const unsigned long long now = time_ns();
	if (i) {
		s[i].ns += now - s->last;
		s[i].n++;
	}
	s->last = now;
}

int stamp(struct kern_stream *s, int i)
{
	return KERN_LAUNCH(stamp_kernel, dim3(1), dim3(1), 0, s->s, stamps, i);
}

/* Add a stamp after a captured operation. */
int stamped(struct kern_stream *s, const char *name, int rc)
{
	if (rc || s != capturing)
		return rc;
	if (n_stamps == PROBE_STAMPS - 1) { /* one stamp is reserved for the sampler */
		fprintf(stderr, "gpu_bench_step: a step has more than %d operations\n", PROBE_STAMPS);
		exit(1);
	}
	snprintf(stamp_names[n_stamps], NAME_SIZE, "%s", name);
	return stamp(s, n_stamps++);
}

int graph_begin(struct kern_stream *s)
{
	const int rc = kern_cuda_ops.graph_begin(s);
	capturing = rc ? NULL : s;
	n_stamps = FIRST;
	return rc;
}

int graph_end(struct kern_stream *s, struct kern_graph **out)
{
	capturing = NULL;
	return kern_cuda_ops.graph_end(s, out);
}

/* Get a layer's name as in tests/sass: "model.layers.0.self_attn.o_proj.qweight" is o. */
void linear_name(char out[NAME_SIZE], const struct kern_linear_src *src)
{
	const char *name = src->name, *end = name + strlen(name), *dot = strrchr(name, '.');
	if (src->n_parts > 1) {
		snprintf(out, NAME_SIZE, "%s", src->n_parts == 3 ? "qkv" : "gate+up");
		return;
	}
	if (dot && (!strcmp(dot, ".weight") || !strcmp(dot, ".qweight")))
		end = dot;
	const char *from = end;
	while (from > name && from[-1] != '.')
		from--;
	if (end - from > 5 && !strncmp(end - 5, "_proj", 5))
		end -= 5;
	snprintf(out, NAME_SIZE, "%.*s", (int)(end - from), from);
}

int linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		struct why *why)
{
	const int rc = kern_cuda_ops.linear_load(d, src, out, why);
	if (!rc && n_linears < LINEARS) {
		linears[n_linears].w = *out;
		linear_name(linears[n_linears++].name, src);
	}
	return rc;
}

/* Return a layer's name.  A layer that linear_load() did not load is the head, a view of the embedding. */
const char *name_of(const struct kern_linear *w)
{
	for (int i = n_linears; i-- > 0;)
		if (linears[i].w == w)
			return linears[i].name;
	return "head";
}

int embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x)
{
	return stamped(s, "embed", kern_cuda_ops.embed(s, e, tokens, first, x));
}

int rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
	    int hidden, float eps)
{
	return stamped(s, "norm", kern_cuda_ops.rmsnorm(s, out, x, add, weight, n_rows, hidden, eps));
}

int linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
	   bool out_f32)
{
	return stamped(s, name_of(w), kern_cuda_ops.linear(s, w, out, in, n_rows, out_f32));
}

int gateup(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows)
{
	return stamped(s, name_of(w), kern_cuda_ops.gateup_swiglu(s, w, out, in, n_rows));
}

int rotate(struct kern_stream *s, const struct kern_qkv_args *a)
{
	return stamped(s, "rotate", kern_cuda_ops.qkv(s, a));
}

int attention(struct kern_stream *s, const struct kern_attn_args *a)
{
	return stamped(s, "attention", kern_cuda_ops.attention(s, a));
}

int gather(struct kern_stream *s, void *out, const void *x, int hidden)
{
	return stamped(s, "gather", kern_cuda_ops.gather(s, out, x, hidden));
}

int sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
	   const struct kern_sample_row *rows, int n, const struct kern_sample_out *out)
{
	const int rc = kern_cuda_ops.sample(s, logits, n_vocab, tokens, rows, n, out);
	return rc || !open_step || !stamps_on ? rc : stamp(s, n_stamps);
}

/* ---- steps ---- */

int batch_set(struct kern_stream *s, const struct kern_batch *b)
{
	const bool first = noting && !open_step && n_steps < PROBE_STEPS;
	if (first) {
		check(cudaEventRecord(steps[n_steps].from, s->s));
		stream = s->s;
		open_step = true;
	}
	int rc = kern_cuda_ops.batch_set(s, b);
	for (int i = 0; i < FIRST && !rc && first && stamps_on; i++)
		rc = stamp(s, i);
	return rc;
}

/* The last call of a step in the worker. */
int event_record(struct kern_event *e, struct kern_stream *s)
{
	if (open_step && s->s == stream) {
		check(cudaEventRecord(steps[n_steps++].to, s->s));
		open_step = false;
	}
	return kern_cuda_ops.event_record(e, s);
}

} // namespace

cudaError_t probed_copy(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
	if (!open_step || s != stream || n_copies == PROBE_COPIES)
		return real_copy(to, from, n, kind, s);
	check(cudaEventRecord(copies[n_copies].from, s));
	cudaError_t e = real_copy(to, from, n, kind, s);
	check(cudaEventRecord(copies[n_copies++].to, s));
	return e;
}

void probe_stamps(bool on)
{
	stamps_on = on;
	if (on && !stamps)
		check(cudaMalloc((void **)&stamps, PROBE_STAMPS * sizeof *stamps));
}

void probe_start(void)
{
	if (stamps_on)
		check(cudaMemset(stamps, 0, PROBE_STAMPS * sizeof *stamps));
	make(steps, PROBE_STEPS);
	make(copies, PROBE_COPIES);
	n_steps = n_copies = 0;
	noting = true;
#ifndef QUERN_CUDASIM
	check(cudaProfilerStart());
#endif
}

void probe_stop(struct probe_figures *out)
{
	noting = open_step = false;
#ifndef QUERN_CUDASIM
	check(cudaProfilerStop());
#endif
	*out = probe_figures();
	out->n_steps = n_steps;
	out->n_copies = n_copies;
	for (int i = 0; i < n_steps; i++) {
		out->busy_ms += between(steps[i].from, steps[i].to);
		if (i)
			out->idle_ms += between(steps[i - 1].to, steps[i].from);
	}
	for (int i = 0; i < n_copies; i++)
		out->copy_ms += between(copies[i].from, copies[i].to);
}

int probe_operations(struct probe_operation out[PROBE_NAMES], double *empty_us)
{
	static struct stamped_time host[PROBE_STAMPS];
	int n = 0;
	check(cudaDeviceSynchronize());
	check(cudaMemcpy(host, stamps, sizeof host, cudaMemcpyDeviceToHost));
	*empty_us = host[1].n ? 1e-3 * (double)host[1].ns / (double)host[1].n : 0;
	snprintf(stamp_names[n_stamps], NAME_SIZE, "sample");
	for (int i = FIRST; i <= n_stamps; i++) {
		int k = 0;
		while (k < n && strcmp(out[k].name, stamp_names[i]))
			k++;
		if (k == PROBE_NAMES)
			continue;
		if (k == n)
			out[n++] = {stamp_names[i], 0, 0};
		out[k].calls++;
		if (host[i].n)
			out[k].us += 1e-3 * (double)host[i].ns / (double)host[i].n - *empty_us;
	}
	return n;
}

extern "C" int kern_find(const char *device, const struct kern_ops **ops, int *index, struct why *why)
{
	(void)device;
	(void)why;

	probed = kern_cuda_ops;
	probed.batch_set = batch_set;
	probed.event_record = event_record;
	if (stamps_on) {
		probed.graph_begin = graph_begin;
		probed.graph_end = graph_end;
		probed.linear_load = linear_load;
		probed.embed = embed;
		probed.rmsnorm = rmsnorm;
		probed.linear = linear;
		probed.gateup_swiglu = gateup;
		probed.qkv = rotate;
		probed.attention = attention;
		probed.gather = gather;
		probed.sample = sample;
	}
	*ops = &probed;
	*index = 0;
	return 0;
}

extern "C" int kern_find_coll(const char *device, const struct coll_ops **ops, struct why *why)
{
	(void)ops;
	return err_why(why, -ENOTSUP, "%s: one GPU alone is measured", device);
}
