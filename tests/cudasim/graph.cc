/* graph.cc - streams captured into graphs.
 *
 * A graph is the queued work in the order of its capture, with the arguments of that time; replaying does
 * that work again.  A stream that waits for an event of a captured stream is captured too (a fork).  The
 * origin must have waited for it (the join) when the capture ends.  Calls that the real runtime refuses
 * during a capture are refused here and invalidate the capture; for a thread-local capture, only calls of
 * that thread.
 *
 * An operation that waits for other ranks is done when the graph is launched.  On a device it would block
 * later work of the stream; here it blocks the host, as such operations do without a graph. */
#include "tests/cudasim/capture.h"

#include <list>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cudasim/dependent.h"
#include "tests/cudasim/mem.h"

/* Device memory that an instantiated graph takes, and that each of its nodes takes. */
enum { EXEC_BYTES = 64 << 10, NODE_BYTES = 1 << 10 };

using hold = std::lock_guard<std::recursive_mutex>;

struct node {
	std::function<void()> body;
	bool of_group; /* it waits for other ranks */
};
typedef std::vector<node> nodes;
typedef std::map<cudaStream_t, size_t> seen; /* number of nodes of each stream before a point */

struct cudasim_graph {
	std::shared_ptr<nodes> work;
};

struct cudasim_exec {
	std::shared_ptr<nodes> work; /* also used by launches in flight */
	uint64_t bytes;
};

struct capture {
	cudaStream_t origin;
	cudaStreamCaptureMode mode;
	std::thread::id by;
	bool broken;
	std::shared_ptr<nodes> work;
	std::map<cudaStream_t, seen> streams;
};

struct captured_event {
	struct capture *of;
	seen before;
};

static std::list<capture> captures; /* in flight */
static std::map<cudaEvent_t, captured_event> events;

static capture *capture_of(cudaStream_t s)
{
	for (auto &c : captures)
		if (c.streams.count(s))
			return &c;
	return nullptr;
}

static cudaError_t refuse(capture *c, cudaError_t e, const char *what)
{
	fprintf(stderr, "cudasim: %s while a stream is captured\n", what);
	if (c)
		c->broken = true;
	return e;
}

static void merge(seen *into, const seen &from)
{
	for (auto &it : from)
		if ((*into)[it.first] < it.second)
			(*into)[it.first] = it.second;
}

/* ---- called by the runtime ---- */

bool cudasim_captured(cudaStream_t s)
{
	return capture_of(s) != nullptr;
}

void cudasim_capture_work(cudaStream_t s, std::function<void()> body)
{
	capture *c = capture_of(s);
	c->work->push_back({std::move(body), false});
	c->streams[s][s]++;
}

bool cudasim_group_capture(cudaStream_t s, std::function<void()> body)
{
	hold held(cudasim_lock());
	capture *c = capture_of(s);
	if (!c)
		return false;
	c->work->push_back({std::move(body), true});
	c->streams[s][s]++;
	return true;
}

static bool forbids(const capture &c)
{
	return c.mode == cudaStreamCaptureModeGlobal ||
	       (c.mode == cudaStreamCaptureModeThreadLocal && c.by == std::this_thread::get_id());
}

void cudasim_group_outside(const char *what)
{
	hold held(cudasim_lock());
	for (auto &c : captures)
		if (forbids(c))
			cudasim_fail("%s while a stream is captured", what);
}

cudaError_t cudasim_capture_forbids(const char *what)
{
	for (auto &c : captures)
		if (forbids(c))
			return refuse(&c, cudaErrorStreamCaptureUnsupported, what);
	return cudaSuccess;
}

cudaError_t cudasim_capture_forbids_on(cudaStream_t s, const char *what)
{
	capture *c = capture_of(s);
	return c ? refuse(c, cudaErrorStreamCaptureUnsupported, what) : cudaSuccess;
}

cudaError_t cudasim_capture_forbids_event(cudaEvent_t e, const char *what)
{
	auto it = events.find(e);
	return it == events.end() ? cudaSuccess : refuse(it->second.of, cudaErrorCapturedEvent, what);
}

bool cudasim_capture_record(cudaEvent_t e, cudaStream_t s)
{
	capture *c = capture_of(s);
	events.erase(e);
	if (c)
		events[e] = {c, c->streams[s]};
	return c != nullptr;
}

bool cudasim_capture_wait(cudaStream_t s, cudaEvent_t e, cudaError_t *result)
{
	auto it = events.find(e);
	capture *c = capture_of(s);
	*result = cudaSuccess;
	if (it == events.end()) {
		if (c)
			*result = refuse(c, cudaErrorStreamCaptureIsolation,
					 "a wait for an event from outside");
		return c != nullptr;
	}
	if (c && c != it->second.of)
		*result = refuse(c, cudaErrorStreamCaptureMerge, "a wait for an event of another capture");
	else
		merge(&it->second.of->streams[s], it->second.before);
	return true;
}

void cudasim_capture_forget(cudaEvent_t e)
{
	events.erase(e);
}

/* ---- capturing ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
	hold held(cudasim_lock());
	if (capture_of(s))
		return refuse(capture_of(s), cudaErrorIllegalState, "a second beginning");
	captures.push_back({s, mode, std::this_thread::get_id(), false, std::make_shared<nodes>(), {}});
	captures.back().streams[s];
	return cudaSuccess;
}

/* Return whether the origin comes after all work of the other streams. */
static bool joined(capture *c)
{
	seen &all = c->streams[c->origin];
	for (auto &it : c->streams)
		if (all[it.first] < it.second[it.first])
			return false;
	return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
	hold held(cudasim_lock());
	capture *c = capture_of(s);
	*graph = nullptr;
	if (!c)
		return cudaErrorIllegalState;
	if (c->origin != s)
		return refuse(c, cudaErrorStreamCaptureUnmatched, "the end asked of a forked stream");
	cudaError_t e = c->broken    ? cudaErrorStreamCaptureInvalidated
			: !joined(c) ? cudaErrorStreamCaptureUnjoined
				     : cudaSuccess;
	if (e == cudaSuccess)
		*graph = new cudasim_graph{c->work};
	for (auto it = events.begin(); it != events.end();)
		it = it->second.of == c ? events.erase(it) : std::next(it);
	for (auto it = captures.begin(); it != captures.end(); ++it)
		if (&*it == c) {
			captures.erase(it);
			break;
		}
	return e;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
	hold held(cudasim_lock());
	capture *c = capture_of(s);
	*status = !c          ? cudaStreamCaptureStatusNone
		  : c->broken ? cudaStreamCaptureStatusInvalidated
			      : cudaStreamCaptureStatusActive;
	return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void *all, size_t *n)
{
	hold held(cudasim_lock());
	if (all)
		cudasim_fail("the nodes of a graph can only be counted");
	*n = graph->work->size();
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
	hold held(cudasim_lock());
	cudaError_t e = cudasim_capture_forbids("cudaGraphInstantiate");
	(void)flags;
	if (e != cudaSuccess)
		return e;
	*exec = new cudasim_exec{graph->work, EXEC_BYTES + NODE_BYTES * graph->work->size()};
	cudasim_counts.live_bytes += (*exec)->bytes;
	return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s)
{
	hold held(cudasim_lock());
	(void)exec;
	return cudasim_capture_forbids_on(s, "cudaGraphUpload");
}

/* Launch without the lock, which other ranks of this process need meanwhile. */
static void launch_of_group(const nodes &work, cudaStream_t s)
{
	for (auto &n : work) {
		if (n.of_group) {
			n.body();
		} else {
			hold held(cudasim_lock());
			cudasim_push_of_graph(s, n.body);
		}
	}
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
	std::shared_ptr<nodes> work;
	bool of_group = false;
	{
		hold held(cudasim_lock());
		cudaError_t e = cudasim_capture_forbids_on(s, "cudaGraphLaunch");
		if (e != cudaSuccess)
			return e;
		cudasim_counts.graphs++;
		work = exec->work;
		cudasim_counts.graph_nodes += work->size();
		for (auto &n : *work)
			of_group = of_group || n.of_group;
		if (!of_group)
			cudasim_push(s, [work] {
				race_stream_op(nullptr); /* ordered with all other work */
				for (auto &n : *work)
					n.body();
				race_stream_op(nullptr);
			});
	}
	if (of_group)
		launch_of_group(*work, s);
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	hold held(cudasim_lock());
	cudasim_counts.live_bytes -= exec->bytes;
	delete exec;
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	hold held(cudasim_lock());
	delete graph;
	return cudaSuccess;
}
