/* step_probe.cu - the CUDA table with events about every step; see step_probe.h.
 * Takes the place of kernels/kern.c: a worker's code that is linked with it opens this table. */
#include "tests/gpu/step_probe.h"
#include "kernels/cuda/cuda.cuh"

#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" {
#include "kernels/coll.h"
extern const struct kern_ops kern_cuda_ops;
}

namespace
{

struct kern_ops probed;
cudaEvent_t from[PROBE_STEPS], to[PROBE_STEPS];
int n_steps;
bool noting, open_step;

void check(cudaError_t e)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "gpu_bench_step: %s\n", cudaGetErrorString(e));
	exit(1);
}

int batch_set(struct kern_stream *s, const struct kern_batch *b)
{
	if (noting && !open_step && n_steps < PROBE_STEPS) {
		check(cudaEventRecord(from[n_steps], s->s));
		open_step = true;
	}
	return kern_cuda_ops.batch_set(s, b);
}

/* The last call of a step in the worker. */
int event_record(struct kern_event *e, struct kern_stream *s)
{
	if (open_step)
		check(cudaEventRecord(to[n_steps++], s->s));
	open_step = false;
	return kern_cuda_ops.event_record(e, s);
}

} // namespace

void probe_start(void)
{
	for (int i = 0; i < PROBE_STEPS && !from[i]; i++) {
		check(cudaEventCreate(&from[i]));
		check(cudaEventCreate(&to[i]));
	}
	n_steps = 0;
	noting = true;
}

void probe_stop(int *n, double *busy_ms, double *idle_ms)
{
	noting = open_step = false;
	*busy_ms = *idle_ms = 0;
	for (int i = 0; i < n_steps; i++) {
		float ms = 0;
		check(cudaEventSynchronize(to[i]));
		check(cudaEventElapsedTime(&ms, from[i], to[i]));
		*busy_ms += (double)ms;
		if (i) {
			check(cudaEventElapsedTime(&ms, to[i - 1], from[i]));
			*idle_ms += (double)ms;
		}
	}
	*n = n_steps;
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
