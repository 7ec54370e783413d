/* nccl.cu - collectives between GPUs, over NCCL; the contract is kernels/coll.h.
 *
 * NCCL's own all-reduce adds in an order that depends on the size of the message, hence on the batch.  Here
 * NCCL only moves bytes.  A kernel adds in the order of the ranks, on the compute stream, using only work
 * that a graph can capture.  Values are added in one of two ways, with the same bits:
 *
 *   gathered    every rank receives all partial values and adds them: one NCCL operation
 *   by shares   rank r receives the r-th share of the values from all ranks and adds it, then every rank
 *               receives the sums: two operations, and 2 / n_ranks of the bytes
 *
 *   stage [piece]              this rank's part, if it cannot be sent in place
 *   all   [n_ranks][piece]     all ranks' parts
 *   host  [1 + n_ranks][HOST_BYTES]   pinned: host bytes of this rank, then of all ranks
 *
 * No driver call may wait for another rank, since only this file's waits check whether waiting still makes
 * sense.  Host bytes therefore pass through pinned memory (a copy into other memory returns only when done),
 * and pace() never queues more operations than the driver takes without waiting.
 *
 * A step's graph contains its collective operations.  All ranks launch the same graph, because they capture
 * it together.  A communicator ends only when no graph holds its operations: the worker's `over` frees the
 * graphs first.  During a capture, when nothing runs, the end is deferred.
 *
 * The communicator is non-blocking, so that a waiting rank can check whether waiting still makes sense.
 * After an error it is aborted, which ends its kernels, so that the stream drains.
 *
 * Ranks meet like those of the CPU (shm.h), which belong to one user on one host.  There they share NCCL's
 * unique id, which rank 0 makes after all have arrived.  Making an id opens a socket and starts a thread that
 * stays until as many ranks have connected, whichever they are.  If every hello published one, each unused id
 * would remain, and a partly used one would break the next group.  The ranks' connections stay open and show
 * when a process has ended, which NCCL does not report within a host.
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
	PIECE = 1 << 20, /* most floats of one rank that move at a time; more if a row has more */
	/* Sums go by shares if that saves a rank this many received bytes.  The second operation costs about
	 * 10 us, in which NVLink moves 4 MB and a PCIe 4.0 slot 0.2 MB; the limit is between the two. */
	SAVED_BYTES = 1 << 20,
	SHARE_ALIGN = 4,       /* floats: NCCL moves 16 bytes at a time if everything is aligned to 16 */
	HOST_BYTES = 64 << 10, /* host bytes of one rank that move at a time */
	PLACES = 512,          /* tokens that move at a time; their places are kernel arguments */
	PACE = 16, /* pieces; at most twice as many are queued.  The driver queues about 1000 launches, and a
		    * step has about ten per piece */
	THREADS = 256,
	POLL_US = 20,
	SPIN_US = 200, /* about the time of a small model's step, within which a wait does not sleep */
	LOOK_US = 1000,
	LEFT_US = 500000, /* time for operations of a rank that has left to finish here */
};

/* Memory that the ranks share until the communicator exists. */
struct meeting {
	uint32_t has_id;
	ncclUniqueId id;
};

struct coll {
	struct shm_joined place;
	int64_t looked_us, hung_us; /* time of the last look for ranks; time a rank was first missed, or 0 */
	ncclComm_t comm;            /* NULL: not made yet, or aborted */
	struct kern_dev *dev;
	cudaStream_t s, own; /* stream of the last operation; own: the first */
	cudaEvent_t event;
	cudaEvent_t paced[2]; /* in rotation: after the last PACE pieces, and after the PACE pieces before */
	unsigned n_pieces;
	float *stage, *all;
	size_t piece; /* floats */
	char *host;
	int rank, n_ranks;
	int timeout_ms;
	int late_ms; /* timeout_ms, or more until nccl_warmed_up() */
	bool (*cancelled)(void *arg);
	void *cancelled_arg;
	void (*over)(void *arg); /* NULL once called */
	void *over_arg;
	int rc; /* 0 while the group is intact */
	struct why why;
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
	decltype(&ncclGroupStart) group_start;
	decltype(&ncclGroupEnd) group_end;
	decltype(&ncclSend) send;
	decltype(&ncclRecv) recv;
	decltype(&ncclBroadcast) broadcast;
} nccl; /* stays open until the process ends */

/* Keep NCCL on the loopback interface; otherwise it would listen on a network interface.  "=" means exactly
 * this name, not names that begin with it. */
static void stay_on_host(void)
{
	setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
}

template <typename F> static bool find(void *lib, const char *name, F *out)
{
	*out = (F)dlsym(lib, name);
	return *out != NULL;
}

static int open_library(struct why *why)
{
	if (nccl.open)
		return 0;
	stay_on_host();
	void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return err_why(
			why, -ENOTSUP,
			"several GPUs serve a model together through NCCL, and libnccl.so.2 cannot be "
			"opened: install NCCL (libnccl2), name its folder in LD_LIBRARY_PATH, or serve "
			"with --tp 1");
	nccl.open = find(lib, "ncclGetUniqueId", &nccl.get_unique_id) &&
		    find(lib, "ncclCommInitRankConfig", &nccl.comm_init) &&
		    find(lib, "ncclCommGetAsyncError", &nccl.async_error) &&
		    find(lib, "ncclCommAbort", &nccl.comm_abort) &&
		    find(lib, "ncclGetErrorString", &nccl.error_string) &&
		    find(lib, "ncclAllGather", &nccl.all_gather) &&
		    find(lib, "ncclGroupStart", &nccl.group_start) &&
		    find(lib, "ncclGroupEnd", &nccl.group_end) && find(lib, "ncclSend", &nccl.send) &&
		    find(lib, "ncclRecv", &nccl.recv) && find(lib, "ncclBroadcast", &nccl.broadcast);
	return nccl.open
		       ? 0
		       : err_why(why, -ENOTSUP,
				 "libnccl.so.2 is too old: install NCCL 2.14 or later, or serve with --tp 1");
}

/* ---- failures ---- */

static bool captured(cudaStream_t s)
{
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	return cudaStreamIsCapturing(s, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

/* End the communicator's kernels, including those of a graph; during a capture, leave that for later. */
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
	c->rc = err_why(&c->why, rc, "%s", what);
	end_comm(c);
	return rc;
}

/* Check the connected ranks: rank 0 is connected with all, the others with rank 0. */
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

/* Return whether waiting, since t0, still makes sense: 0, or the error that ends it. */
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

/* Wait until a call on the non-blocking communicator, which returned r, has begun. */
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

/* Wait until the event is done. */
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

/* Wait after each piece if needed, so that launches queued after it never wait in the driver.  A graph is one
 * launch. */
static int pace(struct coll *c)
{
	if (++c->n_pieces % PACE || captured(c->s))
		return 0;
	const unsigned k = c->n_pieces / PACE;
	int e = record(c->paced[k & 1], c->s);
	return e ? e : await(c, c->paced[(k - 1) & 1]);
}

static int nccl_look(struct coll *c, int64_t since_us)
{
	return c->rc ? c->rc : look(c, since_us, true);
}

static int nccl_sync(struct coll *c, struct kern_stream *s)
{
	cudaStream_t stream = s ? s->s : c->s;
	int e = c->rc;
	if (!e && !(e = record(c->event, stream)))
		e = await(c, c->event);
	/* Aborted kernels end; the buffers are free when this returns. */
	if (c->rc) {
		end_comm(c);
		cudaStreamSynchronize(stream);
	}
	return e;
}

/* ---- kernels ---- */

/* Compute x[i] = the sum of all ranks' values in the order of the ranks.  This rank's values are in x, those
 * of rank r in all + r * stride. */
static __global__ void sum_parts_kernel(float *x, const float *all, size_t stride, size_t n, int rank,
					int n_ranks)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= n)
		return;
	const float mine = x[i];
	float sum = rank ? all[i] : mine;
	for (int r = 1; r < n_ranks; r++)
		sum = f32_add_rn(sum, r == rank ? mine : all[(size_t)r * stride + i]);
	x[i] = sum;
}

/* Copy one rank's rows to their columns of the full rows. */
static __global__ void place_cols_kernel(float *out, const float *part, int width, size_t stride, size_t n)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
	if (i < n)
		out[i / (size_t)width * stride + i % (size_t)width] = part[i];
}

struct places {
	int32_t at[PLACES];
};

static __global__ void take_tokens_kernel(int32_t *out, const int32_t *tokens, const struct places p, int n)
{
	const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
	if (i < n)
		out[i] = tokens[p.at[i]];
}

static __global__ void put_tokens_kernel(int32_t *tokens, const int32_t *in, const struct places p, int n)
{
	const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
	if (i < n)
		tokens[p.at[i]] = in[i];
}

static unsigned grid_of(size_t n)
{
	return (unsigned)((n + THREADS - 1) / THREADS);
}

/* ---- operations ---- */

static int add_parts(struct coll *c, float *x, size_t n)
{
	return KERN_LAUNCH(sum_parts_kernel, grid_of(n), THREADS, 0, c->s, x, c->all, n, n, c->rank,
			   c->n_ranks);
}

static int sum_gathered(struct coll *c, float *x, size_t n)
{
	int e = begun(c, nccl.all_gather(x, c->all, n, ncclFloat32, c->comm, c->s));
	return e ? e : add_parts(c, x, n);
}

/* Send every other rank its share of x, and receive this rank's share from each of them. */
static int exchange_shares(struct coll *c, const float *x, size_t share)
{
	const int n = c->n_ranks;
	ncclResult_t r = nccl.group_start();
	const bool open = r == ncclSuccess;
	for (int k = 1; k < n && (r == ncclSuccess || r == ncclInProgress); k++) {
		const int to = (c->rank + k) % n, from = (c->rank + n - k) % n;
		r = nccl.send(x + (size_t)to * share, share, ncclFloat32, to, c->comm, c->s);
		if (r == ncclSuccess || r == ncclInProgress)
			r = nccl.recv(c->all + (size_t)from * share, share, ncclFloat32, from, c->comm, c->s);
	}
	const ncclResult_t end = open ? nccl.group_end() : r;
	return begun(c, r == ncclSuccess || r == ncclInProgress ? end : r);
}

/* n: a multiple of n_ranks */
static int sum_by_shares(struct coll *c, float *x, size_t n)
{
	const size_t share = n / (size_t)c->n_ranks;
	float *const mine = x + (size_t)c->rank * share;
	int e = exchange_shares(c, x, share);
	if (!e)
		e = add_parts(c, mine, share);
	return e ? e : begun(c, nccl.all_gather(mine, x, share, ncclFloat32, c->comm, c->s));
}

/* Return how many of the next n values are added by shares; 0: that would save less than SAVED_BYTES. */
static size_t n_by_shares(const struct coll *c, size_t n)
{
	const size_t ranks = (size_t)c->n_ranks, others = ranks - 1;
	const size_t gathered = n * others, shared = 2 * n / ranks * others;
	const size_t most = min(n, c->piece * ranks);
	return gathered < shared + SAVED_BYTES / sizeof(float) ? 0 : most - most % (ranks * SHARE_ALIGN);
}

static int nccl_sum_rows(struct coll *c, struct kern_stream *s, void *x, int n_rows, int width)
{
	const size_t n = (size_t)n_rows * (size_t)width;
	c->s = s->s;
	for (size_t at = 0, part; at < n && !c->rc; at += part) {
		float *here = (float *)x + at;
		const size_t shared = n_by_shares(c, n - at);
		part = shared ? shared : min(n - at, c->piece);
		int e = shared ? sum_by_shares(c, here, part) : sum_gathered(c, here, part);
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
		/* Every rank sends as much as the widest, from a buffer of that size. */
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

static int nccl_share_tokens(struct coll *c, struct kern_stream *s, int32_t *tokens, const int32_t *at, int n)
{
	int32_t *const stage = (int32_t *)(void *)c->stage;
	struct places p;
	c->s = s->s;
	for (int first = 0, part; first < n && !c->rc; first += part) {
		part = min(n - first, (int)PLACES);
		const unsigned grid = grid_of((size_t)part);
		memcpy(p.at, at + first, (size_t)part * sizeof *at);
		int e = c->rank ? 0
				: KERN_LAUNCH(take_tokens_kernel, grid, THREADS, 0, c->s, stage, tokens, p,
					      part);
		if (!e)
			e = begun(c, nccl.broadcast(stage, stage, (size_t)part * sizeof *stage, ncclInt8, 0,
						    c->comm, c->s));
		if (!e && c->rank)
			e = KERN_LAUNCH(put_tokens_kernel, grid, THREADS, 0, c->s, tokens, stage, p, part);
		if (e || (e = pace(c)))
			return e;
	}
	return c->rc;
}

/* Host bytes pass through the same buffers, in stream order. */
static int send_host(struct coll *c, const void *bytes, size_t n)
{
	memcpy(c->host, bytes, n);
	return cuda_check(cudaMemcpyAsync(c->stage, c->host, n, cudaMemcpyHostToDevice, c->s),
			  "bytes to send");
}

/* Receive bytes into the host buffer, after this rank's own bytes. */
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

/* Called before other threads exist that read the environment, such as the device's threads. */
static int nccl_rendezvous_new(struct coll_rendezvous **out, char *text, struct why *why)
{
	stay_on_host();
	return shm_rendezvous_new(out, text, why);
}

static size_t host_bytes(const struct coll *c)
{
	return (size_t)HOST_BYTES * (size_t)(c->n_ranks + 1);
}

static void nccl_leave(struct coll *c)
{
	if (!c)
		return;
	/* A communicator is not reused, and a regular end would wait for the other ranks. */
	broke(c, -ECONNRESET, "this rank has left");
	end_comm(c);
	if (c->s) /* wait for the aborted kernels, and for later ones on the stream, which use the buffers */
		cudaStreamSynchronize(c->s);
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

static int buffers_new(struct coll *c, struct why *why)
{
	const size_t bytes = c->piece * sizeof(float);
	c->stage = (float *)cuda_mem_new(c->dev, bytes);
	c->all = (float *)cuda_mem_new(c->dev, bytes * (size_t)c->n_ranks);
	c->host = (char *)cuda_host_new(c->dev, host_bytes(c));
	if (!c->stage || !c->all || !c->host)
		return err_why(why, -ENOMEM,
			       "out of memory: %zu bytes, and %zu of the host, to exchange with %d ranks",
			       bytes * (size_t)(c->n_ranks + 1), host_bytes(c), c->n_ranks);
	cudaEvent_t *const events[] = {&c->event, &c->paced[0], &c->paced[1]};
	int e = cuda_check(cudaStreamCreateWithFlags(&c->own, cudaStreamNonBlocking), "stream");
	for (size_t i = 0; !e && i < sizeof events / sizeof *events; i++)
		e = cuda_check(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), "event");
	if (e)
		return err_why(why, -EIO, "no stream for the group");
	c->s = c->own;
	return 0;
}

/* Get the id: rank 0 makes it, the other ranks wait for it. */
static int share_id(struct coll *c, ncclUniqueId *id, struct why *why)
{
	struct meeting *m = (struct meeting *)c->place.base;
	const int64_t t0 = clock_us();
	if (c->rank == 0) {
		ncclResult_t r = nccl.get_unique_id(&m->id);
		if (r != ncclSuccess)
			return err_why(
				why, -ENOTSUP,
				"NCCL cannot wait for the other ranks: %s; with NCCL_DEBUG=WARN it says why",
				nccl.error_string(r));
		__atomic_store_n(&m->has_id, 1, __ATOMIC_RELEASE);
	}
	while (!__atomic_load_n(&m->has_id, __ATOMIC_ACQUIRE)) {
		if (look(c, t0, false))
			return err_why(why, c->rc, "%s", c->why.text);
		pause_since(t0);
	}
	*id = m->id;
	return 0;
}

static int init_comm(struct coll *c, struct why *why)
{
	ncclUniqueId id;
	int rc = share_id(c, &id, why);
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
	return c->rc ? err_why(why, c->rc, "%s", c->why.text) : 0;
}

static int nccl_join(struct coll **out, const struct coll_args *a, struct why *why)
{
	if (a->n_ranks < 1 || a->n_ranks > COLL_RANKS_MAX || a->rank < 0 || a->rank >= a->n_ranks)
		return err_why(why, -EINVAL, "rank %d of %d: at most %d are possible", a->rank, a->n_ranks,
			       COLL_RANKS_MAX);
	int rc = open_library(why);
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
	if ((rc = shm_join(&c->place, a, sizeof(struct meeting), why))) {
		free(c);
		return rc;
	}
	if ((rc = buffers_new(c, why)) || (rc = init_comm(c, why))) {
		nccl_leave(c);
		return rc;
	}
	*out = c;
	return 0;
}

static void nccl_warmed_up(struct coll *c)
{
	c->late_ms = c->timeout_ms;
}

static const char *nccl_why(const struct coll *c)
{
	return c->why.text;
}

extern "C" __attribute__((visibility("default"))) const struct coll_ops coll_nccl_ops = {
	.abi = COLL_ABI,
	.name = "NCCL",
	.rendezvous_new = nccl_rendezvous_new,
	.rendezvous_free = shm_rendezvous_free,
	.join = nccl_join,
	.leave = nccl_leave,
	.why = nccl_why,
	.warmed_up = nccl_warmed_up,
	.sum_rows = nccl_sum_rows,
	.gather_cols = nccl_gather_cols,
	.share_tokens = nccl_share_tokens,
	.sync = nccl_sync,
	.look = nccl_look,
	.gather = nccl_gather,
	.broadcast = nccl_broadcast,
	.barrier = nccl_barrier,
};
