/* Capturing on the emulated device: the work that a graph replays, and the refusal of calls that the real
 * runtime refuses during a capture. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cuda/ptx.cuh"
#include "tests/cudasim/cudasim.h"

enum { N = 32 };

struct device {
	cudaStream_t s, side;
	cudaEvent_t forked, joined;
	float *p, *host; /* device memory; pinned memory */
};

static struct device device_new(void)
{
	struct device d;
	void *p, *host;
	cr_assert(cudaStreamCreateWithFlags(&d.s, cudaStreamNonBlocking) == cudaSuccess);
	cr_assert(cudaStreamCreateWithFlags(&d.side, cudaStreamNonBlocking) == cudaSuccess);
	cr_assert(cudaEventCreateWithFlags(&d.forked, cudaEventDisableTiming) == cudaSuccess);
	cr_assert(cudaEventCreateWithFlags(&d.joined, cudaEventDisableTiming) == cudaSuccess);
	cr_assert(cudaMalloc(&p, N * sizeof(float)) == cudaSuccess);
	cr_assert(cudaMemset(p, 0, N * sizeof(float)) == cudaSuccess);
	cr_assert(cudaHostAlloc(&host, N * sizeof(float), 0) == cudaSuccess);
	d.p = (float *)p;
	d.host = (float *)host;
	return d;
}

static void device_del(struct device *d)
{
	cudaFree(d->p);
	cudaFreeHost(d->host);
	cudaEventDestroy(d->forked);
	cudaEventDestroy(d->joined);
	cudaStreamDestroy(d->side);
	cudaStreamDestroy(d->s);
}

static float first(struct device *d)
{
	float got[N];
	cr_assert(cudaStreamSynchronize(d->s) == cudaSuccess);
	cr_assert(cudaMemcpy(got, d->p, sizeof got, cudaMemcpyDeviceToHost) == cudaSuccess);
	return got[0];
}

static void add_kernel(float *p, float v)
{
	if (threadIdx.x == 0)
		p[0] = p[0] + v;
}

static void begin(struct device *d)
{
	cr_assert(cudaStreamBeginCapture(d->s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
}

static cudaGraphExec_t end(struct device *d)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cr_assert(cudaStreamEndCapture(d->s, &graph) == cudaSuccess);
	cr_assert(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
	cr_assert(cudaGraphDestroy(graph) == cudaSuccess);
	return exec;
}

Test(capture, what_is_captured_is_not_done_before_the_launch_and_once_for_each)
{
	struct device d = device_new();
	float v = 3;
	begin(&d);
	cr_assert(KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, v) == 0);
	cudaGraphExec_t exec = end(&d);
	v = 100; /* a graph keeps the arguments of its capture */
	cr_assert(first(&d) == 0);
	for (int i = 0; i < 4; i++)
		cr_assert(cudaGraphLaunch(exec, d.s) == cudaSuccess);
	cr_assert(KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, 0.5f) == 0);
	cr_assert(cudaGraphLaunch(exec, d.s) == cudaSuccess);
	cudaGraphExecDestroy(exec); /* finishes the launches in flight */
	cr_assert(first(&d) == 15.5f, "%f", (double)first(&d));
	device_del(&d);
}

Test(capture, copies_read_pinned_memory_and_sets_are_done_at_each_replay)
{
	struct device d = device_new();
	begin(&d);
	cr_assert(cudaMemsetAsync(d.p, 0, 4, d.s) == cudaSuccess);
	cr_assert(KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, 1.0f) == 0);
	cr_assert(cudaMemcpyAsync(d.p + 1, d.host, 4, cudaMemcpyHostToDevice, d.s) == cudaSuccess);
	cudaGraphExec_t exec = end(&d);
	for (int i = 0; i < 3; i++) {
		float got[2];
		d.host[0] = (float)(10 + i);
		cr_assert(cudaGraphLaunch(exec, d.s) == cudaSuccess);
		cr_assert(first(&d) == 1);
		cudaMemcpy(got, d.p, sizeof got, cudaMemcpyDeviceToHost);
		cr_assert(got[1] == (float)(10 + i));
	}
	cudaGraphExecDestroy(exec);
	device_del(&d);
}

Test(capture, a_stream_that_waits_for_a_captured_one_is_captured_until_it_is_joined)
{
	struct device d = device_new();
	begin(&d);
	cr_assert(cudaEventRecord(d.forked, d.s) == cudaSuccess);
	cr_assert(cudaStreamWaitEvent(d.side, d.forked, 0) == cudaSuccess);
	cr_assert(KERN_LAUNCH(add_kernel, 1, 32, 0, d.side, d.p, 2.0f) == 0);
	cr_assert(cudaEventRecord(d.joined, d.side) == cudaSuccess);
	cr_assert(cudaStreamWaitEvent(d.s, d.joined, 0) == cudaSuccess);
	cudaGraphExec_t exec = end(&d);
	cr_assert(cudaStreamSynchronize(d.side) == cudaSuccess);
	cr_assert(first(&d) == 0);
	cr_assert(cudaGraphLaunch(exec, d.s) == cudaSuccess);
	cr_assert(first(&d) == 2);
	cr_assert(KERN_LAUNCH(add_kernel, 1, 32, 0, d.side, d.p, 1.0f) == 0); /* not captured any more */
	cr_assert(cudaStreamSynchronize(d.side) == cudaSuccess);
	cr_assert(first(&d) == 3);
	cudaGraphExecDestroy(exec);
	device_del(&d);
}

Test(capture, a_fork_that_is_not_joined_is_no_graph)
{
	struct device d = device_new();
	cudaGraph_t graph;
	begin(&d);
	cudaEventRecord(d.forked, d.s);
	cudaStreamWaitEvent(d.side, d.forked, 0);
	cudaEventRecord(d.joined, d.side);
	KERN_LAUNCH(add_kernel, 1, 32, 0, d.side, d.p, 2.0f); /* after the recorded event */
	cudaStreamWaitEvent(d.s, d.joined, 0);
	cr_assert(cudaStreamEndCapture(d.s, &graph) == cudaErrorStreamCaptureUnjoined && !graph);
	device_del(&d);
}

/* Make a call that invalidates the capture, as on a GPU. */
static cudaError_t forbidden(struct device *d, int which)
{
	void *p = NULL;
	float pageable[N] = {};
	switch (which) {
	case 0:
		return cudaMalloc(&p, 4);
	case 1:
		return cudaFree(d->p);
	case 2:
		return cudaHostAlloc(&p, 4, 0);
	case 3:
		return cudaStreamSynchronize(d->s);
	case 4:
		return cudaDeviceSynchronize();
	case 5:
		return cudaMemcpy(d->p, pageable, 4, cudaMemcpyHostToDevice);
	case 6:
		return cudaMemset(d->p, 0, 4);
	case 7:
		return cudaMemcpyAsync(d->p, pageable, 4, cudaMemcpyHostToDevice, d->s);
	case 8:
		return cudaMemcpyAsync(pageable, d->p, 4, cudaMemcpyDeviceToHost, d->s);
	default:
		return cudaFreeHost(d->host);
	}
}

Test(capture, what_waits_or_allocates_is_refused_and_voids_the_capture)
{
	struct device d = device_new();
	for (int i = 0; i < 10; i++) {
		cudaGraph_t graph;
		cudaStreamCaptureStatus status;
		begin(&d);
		cr_assert(forbidden(&d, i) == cudaErrorStreamCaptureUnsupported, "call %d", i);
		cudaStreamIsCapturing(d.s, &status);
		cr_assert(status == cudaStreamCaptureStatusInvalidated);
		cr_assert(cudaStreamEndCapture(d.s, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
	}
	device_del(&d);
}

Test(capture, events_of_a_capture_cannot_be_asked_and_those_of_before_not_waited_for)
{
	struct device d = device_new();
	cudaGraph_t graph;
	cudaEventRecord(d.joined, d.s);
	begin(&d);
	cudaEventRecord(d.forked, d.s);
	cr_assert(cudaEventQuery(d.forked) == cudaErrorCapturedEvent);
	cr_assert(cudaEventSynchronize(d.forked) == cudaErrorCapturedEvent);
	cr_assert(cudaStreamWaitEvent(d.s, d.joined, 0) == cudaErrorStreamCaptureIsolation);
	cr_assert(cudaStreamEndCapture(d.s, &graph) == cudaErrorStreamCaptureInvalidated);
	cr_assert(cudaEventSynchronize(d.joined) == cudaSuccess);
	device_del(&d);
}

Test(capture, beginning_twice_and_ending_what_was_not_begun_are_refused)
{
	struct device d = device_new();
	cudaGraph_t graph;
	cr_assert(cudaStreamEndCapture(d.s, &graph) == cudaErrorIllegalState);
	begin(&d);
	cr_assert(cudaStreamBeginCapture(d.s, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
	cr_assert(cudaStreamEndCapture(d.s, &graph) == cudaErrorStreamCaptureInvalidated);
	device_del(&d);
}

Test(capture, a_graph_takes_device_memory_until_it_ends)
{
	struct device d = device_new();
	const uint64_t before = cudasim_stats().live_bytes;
	begin(&d);
	KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, 1.0f);
	cudaGraphExec_t exec = end(&d);
	cr_assert(cudasim_stats().live_bytes > before);
	cudaGraphExecDestroy(exec);
	cr_assert(cudasim_stats().live_bytes == before);
	device_del(&d);
}

/* A capture launches nothing.  Each launch of the graph has its two kernels and its copy. */
Test(capture, counts_what_graphs_have_in_them_when_they_are_launched)
{
	struct device d = device_new();
	cudasim_count_again();
	begin(&d);
	KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, 1.0f);
	cudaMemcpyAsync(d.host, d.p, 4, cudaMemcpyDeviceToHost, d.s);
	KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, 1.0f);
	cudaGraphExec_t exec = end(&d);
	cr_assert(cudasim_stats().launched == 0 && cudasim_stats().copies == 0);
	cudaGraphLaunch(exec, d.s);
	cudaGraphLaunch(exec, d.s);
	KERN_LAUNCH(add_kernel, 1, 32, 0, d.s, d.p, 1.0f);
	cr_assert(cudasim_stats().graph_nodes == 6 && cudasim_stats().launched == 1);
	cr_assert(cudasim_stats().copies == 0);
	cudaGraphExecDestroy(exec);
	device_del(&d);
}
