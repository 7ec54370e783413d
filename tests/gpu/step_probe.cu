/* step_probe.cu - the CUDA table with events about every step and its copies; see step_probe.h.
 * Takes the place of kernels/kern.c: a worker's code that is linked with it opens this table.  The linker
 * sends the table's cudaMemcpyAsync() here (--wrap). */
#include "tests/gpu/step_probe.h"
#include "kernels/cuda/cuda.cuh"

#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" {
#include "kernels/coll.h"
extern const struct kern_ops kern_cuda_ops;
}

/* In the emulator the function is one of C++: its name in the object has the arguments. */
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

struct kern_ops probed;
struct span steps[PROBE_STEPS], copies[PROBE_COPIES];
int n_steps, n_copies;
cudaStream_t stream; /* of the step that is open */
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

int batch_set(struct kern_stream *s, const struct kern_batch *b)
{
	if (noting && !open_step && n_steps < PROBE_STEPS) {
		check(cudaEventRecord(steps[n_steps].from, s->s));
		stream = s->s;
		open_step = true;
	}
	return kern_cuda_ops.batch_set(s, b);
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

void probe_start(void)
{
	make(steps, PROBE_STEPS);
	make(copies, PROBE_COPIES);
	n_steps = n_copies = 0;
	noting = true;
}

void probe_stop(struct probe_figures *out)
{
	noting = open_step = false;
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

extern "C" int kern_find(const char *device, const struct kern_ops **ops, int *index, char *why, size_t why_n)
{
	(void)device;
	(void)why;
	(void)why_n;
	probed = kern_cuda_ops;
	probed.batch_set = batch_set;
	probed.event_record = event_record;
	*ops = &probed;
	*index = 0;
	return 0;
}

extern "C" int kern_find_coll(const char *device, const struct coll_ops **ops, char *why, size_t why_n)
{
	(void)ops;
	return err_why(why, why_n, -ENOTSUP, "%s: one GPU alone is measured", device);
}
