/* nccl.cu - collectives between GPUs, over NCCL; the contract is kernels/coll.h.
 *
 * NCCL's own all-reduce adds in an order that changes with the size of the message, hence with
 * the batch.  Here it only moves bytes: partial rows are gathered (ncclAllGather) and added by a
 * kernel of ours in the order of the ranks, on the compute stream, with nothing that a captured
 * graph could not hold.
 *
 *   stage [piece]              this rank's part, where it cannot be sent from where it lies
 *   all   [n_ranks][piece]     everybody's
 *   host  [1 + n_ranks][HOST_BYTES]   pinned: of bytes of the host, this rank's and everybody's
 *
 * No call of the driver may wait for another rank, since only our own waits look whether that is still
 * worth while.  Hence bytes of the host go through pinned memory (a copy into other memory returns when
 * it is done), and no more operations are queued than the driver takes without waiting (pace()).
 *
 * A step in a graph has its operations in it.  All ranks launch the same graph, since what is captured is
 * theirs together.  A communicator ends only when no graph holds its operations any more: the worker's
 * `over` frees them first; within a capture, where nothing runs, the end is put off.
 *
 * The communicator does not block, so that a rank that waits can look whether that is still worth
 * while.  After an error it is aborted, which ends its kernels: the stream then drains.
 *
 * Ranks meet as those of the CPU do (shm.h), of one user on one host; what they share there is NCCL's
 * unique id, which rank 0 makes when all have come.  Making one opens a socket and starts a thread
 * that stays until as many ranks have connected, whichever they are: published in a hello, each that was
 * not used would be left over, and one that was used in part would spoil the next group.  Their
 * connections stay, and say when a process has ended, which NCCL does not within a host.
 *
 * The library is opened by name when ranks meet: a GPU that serves alone does not need it. */
#include "kernels/cuda/cuda.cuh"

#include <assert.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "base/clock.h"
#include "kernels/coll.h"
#include "kernels/cpu/shm.h"
}

enum {
	PIECE = 1 << 20,       /* floats of one rank that move at a time; more where a row has more */
	HOST_BYTES = 64 << 10, /* bytes of the host of one rank that move at a time */
	PACE = 16, /* pieces; up to twice as many are queued.  The driver holds about 1000 launches, and a
		      step has some ten for each piece */
	THREADS = 256,
	POLL_US = 20,
	SPIN_US = 200, /* a step of a small model takes about as long: no sleep within it */
	LOOK_US = 1000,
	LEFT_US = 500000, /* for what a rank that has left did before, and is not done here yet */
};

/* What the ranks share until the communicator is there. */
struct meeting {
	uint32_t has_id;
	ncclUniqueId id;
};

struct coll {
	struct shm_joined place;
	int64_t looked_us, hung_us; /* when a rank was last looked for, and first missed (0) */
	ncclComm_t comm;            /* NULL: not there yet, or aborted */
	struct kern_dev *dev;
	cudaStream_t s, own; /* where the last operation went, in order with it; a stream for the first */
	cudaEvent_t event;
	cudaEvent_t paced[2]; /* after the last but one and the last PACE pieces, in turn */
	unsigned n_pieces;
	float *stage, *all;
	size_t piece; /* floats */
	char *host;
	int rank, n_ranks;
	int timeout_ms;
	int late_ms; /* timeout_ms, or more until the group is settled */
	bool (*cancelled)(void *arg);
	void *cancelled_arg;
	void (*over)(void *arg); /* NULL once it was called */
	void *over_arg;
	int rc; /* 0 while the group is whole */
	char why[192];
};

/* ---- the library ---- */

static struct {
	bool open;
	decltype(&ncclGetUniqueId) get_unique_id;
	decltype(&ncclCommInitRankConfig) comm_init;
	decltype(&ncclCommGetAsyncError) async_error;
	decltype(&ncclCommAbort) comm_abort;
	decltype(&ncclGetErrorString) error_string;
	decltype(&ncclAllGather) all_gather;
	decltype(&ncclBroadcast) broadcast;
} nccl; /* for the life of the process */

/* NCCL would listen at an interface of the network; =: that name, and none that begins like it. */
static void stay_on_host(void)
{
	setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
}

template <typename F> static bool find(void *lib, const char *name, F *out)
{
	*out = (F)dlsym(lib, name);
	return *out != NULL;
}

static int open_library(char *why, size_t why_n)
{
	if (nccl.open)
		return 0;
	stay_on_host();
	void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return err_why(
			why, why_n, -ENOTSUP,
			"several GPUs serve a model together through NCCL, and libnccl.so.2 cannot be "
			"opened: install NCCL (libnccl2), name its folder in LD_LIBRARY_PATH, or serve "
			"with --tp 1");
	nccl.open = find(lib, "ncclGetUniqueId", &nccl.get_unique_id) &&
		    find(lib, "ncclCommInitRankConfig", &nccl.comm_init) &&
		    find(lib, "ncclCommGetAsyncError", &nccl.async_error) &&
		    find(lib, "ncclCommAbort", &nccl.comm_abort) &&
		    find(lib, "ncclGetErrorString", &nccl.error_string) &&
		    find(lib, "ncclAllGather", &nccl.all_gather) &&
		    find(lib, "ncclBroadcast", &nccl.broadcast);
	return nccl.open
		       ? 0
		       : err_why(why, why_n, -ENOTSUP,
				 "libnccl.so.2 is too old: install NCCL 2.14 or later, or serve with --tp 1");
}

/* ---- what goes wrong ---- */

static bool captured(cudaStream_t s)
{
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	return cudaStreamIsCapturing(s, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

/* Ends the communicator's kernels, also those of a graph; after a capture, if there is one. */
static void end_comm(struct coll *c)
{
	if (captured(c->s))
		return;
	if (c->over)
		c->over(c->over_arg);
	c->over = NULL;
	if (c->comm)
		nccl.comm_abort(c->comm);
	c->comm = NULL;
}

static int broke(struct coll *c, int rc, const char *what)
{
	if (c->rc)
		return c->rc;
	c->rc = err_why(c->why, sizeof c->why, rc, "%s", what);
	end_comm(c);
	return rc;
}

/* Is every rank there that this one is connected with: of rank 0 all, else rank 0? */
static int look_for_ranks(struct coll *c)
{
	const int64_t now = clock_us();
	int lost = -1;
	if (now - c->looked_us < LOOK_US)
		return 0;
	c->looked_us = now;
	for (int r = 0; r < c->n_ranks; r++)
		if (c->place.fd[r] >= 0 && shm_hung_up(c->place.fd[r]))
			lost = r;
	if (lost < 0)
		return 0;
	if (!c->hung_us)
		c->hung_us = now;
	if (now - c->hung_us < LEFT_US)
		return 0;
	char what[64];
	snprintf(what, sizeof what, "rank %d has ended", lost);
	return broke(c, -ECONNRESET, what);
}

/* Since t0 something is waited for: is that still worth while? */
static int look(struct coll *c, int64_t t0, bool limited)
{
	ncclResult_t state = ncclSuccess;
	if (c->cancelled && c->cancelled(c->cancelled_arg))
		return broke(c, -ECANCELED, "waiting for the other ranks was cut short");
	if (c->comm && (nccl.async_error(c->comm, &state) != ncclSuccess ||
			(state != ncclSuccess && state != ncclInProgress)))
		return broke(c, -ECONNRESET, nccl.error_string(state));
	if (look_for_ranks(c))
		return c->rc;
	if (limited && clock_us() - t0 > (int64_t)c->late_ms * 1000)
		return broke(c, -ECONNRESET, "a rank did not arrive in time");
	return 0;
}

static void pause_since(int64_t t0)
{
	if (clock_us() - t0 > SPIN_US)
		usleep(POLL_US);
}

/* What a call on a communicator that does not block gave: until it is under way. */
static int begun(struct coll *c, ncclResult_t r)
{
	const int64_t t0 = clock_us();
	while (r == ncclInProgress) {
		if (look(c, t0, true))
			return c->rc;
		if (nccl.async_error(c->comm, &r) != ncclSuccess)
			r = ncclInternalError;
		pause_since(t0);
	}
	return r == ncclSuccess ? 0 : broke(c, -ECONNRESET, nccl.error_string(r));
}

/* Until what stands before the event is done. */
static int await(struct coll *c, cudaEvent_t event)
{
	const int64_t t0 = clock_us();
	cudaError_t e;
	while ((e = cudaEventQuery(event)) == cudaErrorNotReady) {
		cudaGetLastError();
		if (look(c, t0, true))
			return c->rc;
		pause_since(t0);
	}
	return cuda_check(e, "stream") ? -EIO : 0;
}

static int record(cudaEvent_t event, cudaStream_t s)
{
	return cuda_check(cudaEventRecord(event, s), "event") ? -EIO : 0;
}

/* Called after every piece: what is queued behind the others stays less than makes a launch wait.  A graph is
 * one launch. */
static int pace(struct coll *c)
{
	if (++c->n_pieces % PACE || captured(c->s))
		return 0;
	const unsigned k = c->n_pieces / PACE;
	int e = record(c->paced[k & 1], c->s);
	return e ? e : await(c, c->paced[(k - 1) & 1]);
}

static int nccl_sync(struct coll *c, struct kern_stream *s)
{
	cudaStream_t stream = s ? s->s : c->s;
	int e = c->rc;
	if (!e && !(e = record(c->event, stream)))
		e = await(c, c->event);
	/* Aborted kernels end: the buffers are free when this returns. */
	if (c->rc) {
		end_comm(c);
		cudaStreamSynchronize(stream);
	}
	return e;
}

/* ---- kernels ---- */

/* x[i] = the ranks' values, added in their order. */
static __global__ void sum_parts_kernel(float *x, const float *all, size_t piece, size_t n, int n_ranks)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= n)
		return;
	float sum = all[i];
	for (int r = 1; r < n_ranks; r++)
		sum = f32_add_rn(sum, all[(size_t)r * piece + i]);
	x[i] = sum;
}

/* Rows of one rank to their columns among everybody's. */
static __global__ void place_cols_kernel(float *out, const float *part, int width, size_t stride, size_t n)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	if (i < n)
		out[i / (size_t)width * stride + i % (size_t)width] = part[i];
}

static unsigned grid_of(size_t n)
{
	return (unsigned)((n + THREADS - 1) / THREADS);
}

/* ---- operations ---- */

static int nccl_sum_rows(struct coll *c, struct kern_stream *s, void *x, int n_rows, int width)
{
	const size_t n = (size_t)n_rows * (size_t)width;
	c->s = s->s;
	for (size_t at = 0, part; at < n && !c->rc; at += part) {
		float *here = (float *)x + at;
		part = min(n - at, c->piece);
		int e = begun(c, nccl.all_gather(here, c->all, part, ncclFloat32, c->comm, c->s));
		if (!e)
			e = KERN_LAUNCH(sum_parts_kernel, grid_of(part), THREADS, 0, c->s, here, c->all, part,
					part, c->n_ranks);
		if (e || (e = pace(c)))
			return e;
	}
	return c->rc;
}

static int nccl_gather_cols(struct coll *c, struct kern_stream *s, void *out, const void *in, int n_rows,
			    const int *widths)
{
	size_t stride = 0, widest = 1, done;
	for (int r = 0; r < c->n_ranks; r++) {
		stride += (size_t)widths[r];
		widest = max(widest, (size_t)widths[r]);
	}
	const size_t mine = (size_t)widths[c->rank], most = c->piece / widest;
	assert(most > 0);
	c->s = s->s;
	for (size_t row = 0; row < (size_t)n_rows && !c->rc; row += done) {
		done = min((size_t)n_rows - row, most);
		/* Every rank sends as much as the widest: from a buffer that has as much. */
		int e = cuda_check(cudaMemcpyAsync(c->stage, (const float *)in + row * mine,
						   done * mine * sizeof(float), cudaMemcpyDeviceToDevice,
						   c->s),
				   "logits to send");
		const size_t each = done * widest;
		if (!e)
			e = begun(c, nccl.all_gather(c->stage, c->all, each, ncclFloat32, c->comm, c->s));
		float *to = (float *)out + row * stride;
		for (int r = 0; out && !e && r < c->n_ranks; to += widths[r++]) {
			const size_t n = done * (size_t)widths[r];
			if (n)
				e = KERN_LAUNCH(place_cols_kernel, grid_of(n), THREADS, 0, c->s, to,
						c->all + (size_t)r * each, widths[r], stride, n);
		}
		if (e || (e = pace(c)))
			return e;
	}
	return c->rc;
}

/* Bytes of the host go through the same buffers, in order with what went before. */
static int send_host(struct coll *c, const void *bytes, size_t n)
{
	memcpy(c->host, bytes, n);
	return cuda_check(cudaMemcpyAsync(c->stage, c->host, n, cudaMemcpyHostToDevice, c->s),
			  "bytes to send");
}

/* They lie behind this rank's own when it returns. */
static int take_host(struct coll *c, const void *from, size_t n)
{
	int e = cuda_check(cudaMemcpyAsync(c->host + HOST_BYTES, from, n, cudaMemcpyDeviceToHost, c->s),
			   "bytes of the others");
	return e ? e : nccl_sync(c, NULL);
}

static int nccl_gather(struct coll *c, void *all, const void *mine, size_t bytes)
{
	for (size_t at = 0, part; at < bytes && !c->rc; at += part) {
		part = min(bytes - at, (size_t)HOST_BYTES);
		int e = send_host(c, (const char *)mine + at, part);
		if (!e)
			e = begun(c, nccl.all_gather(c->stage, c->all, part, ncclInt8, c->comm, c->s));
		if (e || (e = take_host(c, c->all, part * (size_t)c->n_ranks)))
			return e;
		for (int r = 0; r < c->n_ranks; r++)
			memcpy((char *)all + (size_t)r * bytes + at, c->host + HOST_BYTES + (size_t)r * part,
			       part);
	}
	return c->rc;
}

static int nccl_broadcast(struct coll *c, void *bytes_of_rank_0, size_t bytes)
{
	for (size_t at = 0, part; at < bytes && !c->rc; at += part) {
		char *here = (char *)bytes_of_rank_0 + at;
		part = min(bytes - at, (size_t)HOST_BYTES);
		int e = c->rank ? 0 : send_host(c, here, part);
		if (!e)
			e = begun(c, nccl.broadcast(c->stage, c->stage, part, ncclInt8, 0, c->comm, c->s));
		if (e || (e = take_host(c, c->stage, part)))
			return e;
		if (c->rank)
			memcpy(here, c->host + HOST_BYTES, part);
	}
	return c->rc;
}

static int nccl_barrier(struct coll *c)
{
	char all[COLL_RANKS_MAX], mine = 0;
	return nccl_gather(c, all, &mine, 1);
}

/* ---- meeting ---- */

/* Called before there are other threads that look at the environment, as those of the device do. */
static int nccl_meet_new(struct coll_meet **out, char *text, char *why, size_t why_n)
{
	stay_on_host();
	return shm_meet_new(out, text, why, why_n);
}

static size_t host_bytes(const struct coll *c)
{
	return (size_t)HOST_BYTES * (size_t)(c->n_ranks + 1);
}

static void nccl_leave(struct coll *c)
{
	if (!c)
		return;
	/* A communicator is not used twice, and its regular end would wait for the others. */
	broke(c, -ECONNRESET, "this rank has left");
	end_comm(c);
	shm_leave(&c->place);
	cudaEvent_t events[] = {c->event, c->paced[0], c->paced[1]};
	for (cudaEvent_t e : events)
		if (e)
			cudaEventDestroy(e);
	if (c->own)
		cudaStreamDestroy(c->own);
	cuda_host_free(c->dev, c->host, host_bytes(c));
	cuda_mem_free(c->dev, c->stage, c->piece * sizeof(float));
	cuda_mem_free(c->dev, c->all, c->piece * sizeof(float) * (size_t)c->n_ranks);
	free(c);
}

static int buffers_new(struct coll *c, char *why, size_t why_n)
{
	const size_t bytes = c->piece * sizeof(float);
	c->stage = (float *)cuda_mem_new(c->dev, bytes);
	c->all = (float *)cuda_mem_new(c->dev, bytes * (size_t)c->n_ranks);
	c->host = (char *)cuda_host_new(c->dev, host_bytes(c));
	if (!c->stage || !c->all || !c->host)
		return err_why(why, why_n, -ENOMEM,
			       "out of memory: %zu bytes, and %zu of the host, to exchange with %d ranks",
			       bytes * (size_t)(c->n_ranks + 1), host_bytes(c), c->n_ranks);
	cudaEvent_t *const events[] = {&c->event, &c->paced[0], &c->paced[1]};
	int e = cuda_check(cudaStreamCreateWithFlags(&c->own, cudaStreamNonBlocking), "stream");
	for (size_t i = 0; !e && i < sizeof events / sizeof *events; i++)
		e = cuda_check(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), "event");
	if (e)
		return err_why(why, why_n, -EIO, "no stream for the group");
	c->s = c->own;
	return 0;
}

/* Rank 0 makes the id, the others wait for it. */
static int share_id(struct coll *c, ncclUniqueId *id, char *why, size_t why_n)
{
	struct meeting *m = (struct meeting *)c->place.base;
	const int64_t t0 = clock_us();
	if (c->rank == 0) {
		ncclResult_t r = nccl.get_unique_id(&m->id);
		if (r != ncclSuccess)
			return err_why(
				why, why_n, -ENOTSUP,
				"NCCL cannot wait for the other ranks: %s; with NCCL_DEBUG=WARN it says why",
				nccl.error_string(r));
		__atomic_store_n(&m->has_id, 1, __ATOMIC_RELEASE);
	}
	while (!__atomic_load_n(&m->has_id, __ATOMIC_ACQUIRE)) {
		if (look(c, t0, false))
			return err_why(why, why_n, c->rc, "%s", c->why);
		pause_since(t0);
	}
	*id = m->id;
	return 0;
}

static int init_comm(struct coll *c, char *why, size_t why_n)
{
	ncclUniqueId id;
	int rc = share_id(c, &id, why, why_n);
	if (rc)
		return rc;
	const int64_t t0 = clock_us();
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	ncclResult_t r = nccl.comm_init(&c->comm, c->n_ranks, id, c->rank, &config);
	while (r == ncclInProgress && !look(c, t0, false)) {
		if (nccl.async_error(c->comm, &r) != ncclSuccess)
			r = ncclInternalError;
		pause_since(t0);
	}
	if (!c->rc && r != ncclSuccess)
		broke(c, -ESTALE, nccl.error_string(r));
	return c->rc ? err_why(why, why_n, c->rc, "%s", c->why) : 0;
}

static int nccl_join(struct coll **out, const struct coll_args *a, char *why, size_t why_n)
{
	if (a->n_ranks < 1 || a->n_ranks > COLL_RANKS_MAX || a->rank < 0 || a->rank >= a->n_ranks)
		return err_why(why, why_n, -EINVAL, "rank %d of %d: at most %d are possible", a->rank,
			       a->n_ranks, COLL_RANKS_MAX);
	int rc = open_library(why, why_n);
	if (rc)
		return rc;
	struct coll *c = (struct coll *)xcalloc(1, sizeof *c);
	c->dev = a->dev;
	c->rank = a->rank;
	c->n_ranks = a->n_ranks;
	c->timeout_ms = a->timeout_ms;
	c->late_ms = max(a->timeout_ms, (int)COLL_FIRST_MS);
	c->cancelled = a->cancelled;
	c->cancelled_arg = a->cancelled_arg;
	c->over = a->over;
	c->over_arg = a->over_arg;
	c->piece = max((size_t)PIECE, (size_t)a->max_cols);
	if ((rc = shm_join(&c->place, a, sizeof(struct meeting), why, why_n))) {
		free(c);
		return rc;
	}
	if ((rc = buffers_new(c, why, why_n)) || (rc = init_comm(c, why, why_n))) {
		nccl_leave(c);
		return rc;
	}
	*out = c;
	return 0;
}

static void nccl_settled(struct coll *c)
{
	c->late_ms = c->timeout_ms;
}

static const char *nccl_why(const struct coll *c)
{
	return c->why;
}

extern "C" __attribute__((visibility("default"))) const struct coll_ops coll_nccl_ops = {
	.abi = COLL_ABI,
	.name = "NCCL",
	.meet_new = nccl_meet_new,
	.meet_free = shm_meet_free,
	.join = nccl_join,
	.leave = nccl_leave,
	.why = nccl_why,
	.settled = nccl_settled,
	.sum_rows = nccl_sum_rows,
	.gather_cols = nccl_gather_cols,
	.sync = nccl_sync,
	.gather = nccl_gather,
	.broadcast = nccl_broadcast,
	.barrier = nccl_barrier,
};
