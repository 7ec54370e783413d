/* nccl.cc - stand-in for NCCL: the shared memory of kernels/cpu/coll.c moves the bytes.
 *
 * A unique id names a meeting place.  A communicator joins in a thread, like a non-blocking one.  An
 * operation waits for its stream, then copies: queueing on a wrong stream, or a buffer that is not ready,
 * gives wrong values.  A captured operation does this whenever its graph is launched.  The end of a
 * communicator waits for such graphs, as in NCCL; here this ends the process. */
#include <nccl.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdlib.h>
#include <string>
#include <string.h>
#include <thread>
#include <vector>

extern "C" {
#include "kernels/cpu/coll.h"
}
#include "tests/cudasim/mem.h"
#include "tests/cudasim/sim.h"

enum { LATE_MS = 60000 };

struct ncclComm {
	struct coll *coll;
	struct coll_rendezvous *mine;
	std::string rendezvous;
	int rank, n_ranks;
	std::atomic<int> state;
	std::atomic<bool> quit;
	std::thread joiner;
	std::function<ncclResult_t()> later; /* the operation to begin after `asks` queries; asks -1: never */
	int asks;
	std::shared_ptr<int> in_graphs = std::make_shared<int>(0); /* each captured operation holds one */
};

static std::mutex lock;
static std::map<std::string, struct coll_rendezvous *> places; /* meeting places of this process */

static int slow;

static thread_local bool stuck;

void cudasim_nccl_stuck(bool is)
{
	stuck = is;
}

void cudasim_nccl_slow(int asks)
{
	slow = asks;
}

/* Check the interface.  The first call decides for the whole process where NCCL looks for other ranks. */
static void check_interface(void)
{
	const char *name = getenv("NCCL_SOCKET_IFNAME");
	if (!name || !*name)
		cudasim_fail("NCCL is used, and would listen at an interface of the network");
}

static ncclResult_t result_of(int rc)
{
	return rc == 0 ? ncclSuccess : rc == -EPROTO ? ncclInvalidArgument : ncclRemoteError;
}

const char *ncclGetErrorString(ncclResult_t r)
{
	return r == ncclSuccess           ? "no error"
	       : r == ncclInProgress      ? "in progress"
	       : r == ncclInvalidArgument ? "invalid argument"
	       : r == ncclRemoteError     ? "a remote process has ended, or the network failed"
					  : "internal error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	struct coll_rendezvous *m;
	char text[COLL_RENDEZVOUS_SIZE];
	check_interface();
	cudasim_counts.nccl_ids++;
	if (coll_shm_ops.rendezvous_new(&m, text, NULL) || strlen(text) >= sizeof id->internal)
		return ncclInternalError;
	memset(id, 0, sizeof *id);
	memcpy(id->internal, text, strlen(text));
	std::lock_guard<std::mutex> hold(lock);
	places[text] = m;
	return ncclSuccess;
}

static bool must_quit(void *arg)
{
	return ((ncclComm *)arg)->quit;
}

static void join(ncclComm *c)
{
	if (c->n_ranks == 1) {
		c->state = ncclSuccess;
		return;
	}
	struct coll_args a = {};
	a.rank = c->rank;
	a.n_ranks = c->n_ranks;
	a.rendezvous = c->rendezvous.c_str();
	a.mine = c->rank ? NULL : &c->mine;
	a.timeout_ms = LATE_MS;
	a.cancelled = must_quit;
	a.cancelled_arg = c;
	c->state = result_of(coll_shm_ops.join(&c->coll, &a, NULL));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	check_interface();
	ncclComm *c = new ncclComm();
	c->rendezvous = std::string(id.internal, strnlen(id.internal, sizeof id.internal));
	c->rank = rank;
	c->n_ranks = n_ranks;
	c->state = ncclInProgress;
	if (rank == 0) {
		std::lock_guard<std::mutex> hold(lock);
		c->mine = places[c->rendezvous];
		places.erase(c->rendezvous);
	}
	*comm = c;
	if (config->blocking || (rank == 0 && !c->mine))
		return ncclInvalidArgument;
	c->joiner = std::thread(join, c);
	return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
	if (comm->later && comm->asks > 0 && --comm->asks == 0) {
		comm->later();
		comm->later = nullptr;
	}
	*state = (ncclResult_t)comm->state.load();
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	cudasim_group_outside("ncclCommAbort");
	if (comm->in_graphs.use_count() > 1)
		cudasim_fail("ncclCommAbort waits for ever: %ld operations are in graphs",
			     comm->in_graphs.use_count() - 1);
	comm->quit = true;
	if (comm->joiner.joinable())
		comm->joiner.join();
	coll_shm_ops.leave(comm->coll);
	cudasim_group_over(comm);
	delete comm;
	return ncclSuccess;
}

static size_t bytes_of(size_t count, ncclDataType_t type)
{
	return type == ncclFloat32 ? 4 * count : count;
}

static ncclResult_t begin(ncclComm *c, std::function<ncclResult_t()> op)
{
	if (!slow)
		return op();
	c->later = std::move(op);
	c->asks = slow;
	c->state = ncclInProgress;
	return ncclInProgress;
}

/* Finish an operation and count the bytes received from other ranks. */
static ncclResult_t done(ncclComm_t comm, cudaStream_t s, uint64_t received)
{
	std::lock_guard<std::recursive_mutex> hold(cudasim_lock());
	cudasim_counts.nccl_ops++;
	cudasim_counts.nccl_received += received;
	cudasim_group_op(comm, s);
	return (ncclResult_t)comm->state.load();
}

/* Gather from all ranks.  The other ranks are awaited here, where NCCL's kernel would wait; the caller's own
 * wait then ends by the communicator's state. */
static ncclResult_t all_gather(const void *send, void *recv, size_t bytes, ncclComm_t comm, cudaStream_t s)
{
	std::vector<char> mine(bytes), all(bytes * (size_t)comm->n_ranks);
	cudasim_group_copy(s, mine.data(), send, bytes, cudaMemcpyDeviceToHost);
	comm->state = ncclSuccess;
	if (comm->n_ranks == 1)
		all = mine;
	else
		comm->state = result_of(coll_shm_ops.gather(comm->coll, all.data(), mine.data(), bytes));
	if (comm->state == ncclSuccess)
		cudasim_group_copy(s, recv, all.data(), all.size(), cudaMemcpyHostToDevice);
	return done(comm, s, bytes * (size_t)(comm->n_ranks - 1));
}

static ncclResult_t now(ncclComm_t comm, cudaStream_t s, const std::function<ncclResult_t()> &op)
{
	if (!stuck)
		return op();
	comm->state = ncclSuccess;
	cudasim_group_stuck(comm, s);
	return done(comm, s, 0);
}

/* Keep the operation in a graph, or do it now.  After an error, later operations of the graph do nothing. */
static ncclResult_t now_or_keep(ncclComm_t comm, cudaStream_t s, std::function<ncclResult_t()> op)
{
	const bool kept = cudasim_group_capture(s, [=, held = comm->in_graphs] {
		if (comm->state == ncclSuccess)
			now(comm, s, op);
	});
	if (!kept)
		return now(comm, s, op);
	comm->state = ncclSuccess;
	return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t s)
{
	const size_t bytes = bytes_of(count, type);
	return begin(comm, [=] {
		return now_or_keep(comm, s, [=] { return all_gather(send, recv, bytes, comm, s); });
	});
}

/* ---- between two ranks ---- */

struct message {
	bool sent;
	char *at;
	size_t bytes;
	int peer;
};

/* Messages since this thread's ncclGroupStart(). */
static thread_local struct {
	bool open;
	std::vector<message> messages;
	ncclComm_t comm;
	cudaStream_t s;
} group;

/* Exchange messages by a gather of all ranks' data: sizes first, then every message padded to the largest. */
static ncclResult_t exchange(const std::vector<message> &messages, ncclComm_t comm, cudaStream_t s)
{
	const size_t n = (size_t)comm->n_ranks, me = (size_t)comm->rank;
	std::vector<uint64_t> mine(n), sizes(n * n);
	uint64_t most = 0, came = 0;
	for (const message &m : messages)
		if (m.sent)
			mine[(size_t)m.peer] += m.bytes;
	comm->state =
		result_of(coll_shm_ops.gather(comm->coll, sizes.data(), mine.data(), n * sizeof mine[0]));
	if (comm->state != ncclSuccess)
		return done(comm, s, 0);
	for (uint64_t z : sizes)
		most = z > most ? z : most;
	std::vector<char> out(n * most), all(n * n * most);
	std::vector<size_t> at(n);
	for (const message &m : messages)
		if (m.sent) {
			char *to = out.data() + (size_t)m.peer * most + at[(size_t)m.peer];
			cudasim_group_copy(s, to, m.at, m.bytes, cudaMemcpyDeviceToHost);
			at[(size_t)m.peer] += m.bytes;
		}
	comm->state = result_of(coll_shm_ops.gather(comm->coll, all.data(), out.data(), out.size()));
	at.assign(n, 0);
	for (const message &m : messages)
		if (!m.sent && comm->state == ncclSuccess) {
			const size_t from = (size_t)m.peer;
			cudasim_group_copy(s, m.at, all.data() + (from * n + me) * most + at[from], m.bytes,
					   cudaMemcpyHostToDevice);
			at[from] += m.bytes;
			came += m.bytes;
		}
	for (size_t r = 0; r < n && comm->state == ncclSuccess; r++)
		if (at[r] != sizes[r * n + me])
			cudasim_fail("rank %zu receives %zu bytes of the %zu that rank %zu sends", me, at[r],
				     (size_t)sizes[r * n + me], r);
	return done(comm, s, came);
}

ncclResult_t ncclGroupStart(void)
{
	group = {};
	group.open = true;
	return ncclSuccess;
}

static ncclResult_t add(bool sent, const void *at, size_t count, ncclDataType_t type, int peer,
			ncclComm_t comm, cudaStream_t s)
{
	if (!group.open)
		cudasim_fail(
			"a rank sends or receives outside of a group: two ranks would wait for each other");
	if (peer < 0 || peer >= comm->n_ranks || peer == comm->rank)
		return ncclInvalidArgument;
	group.messages.push_back({sent, (char *)at, bytes_of(count, type), peer});
	group.comm = comm;
	group.s = s;
	return ncclSuccess;
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t s)
{
	return add(true, send, count, type, peer, comm, s);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t s)
{
	return add(false, recv, count, type, peer, comm, s);
}

ncclResult_t ncclGroupEnd(void)
{
	ncclComm_t const comm = group.comm;
	cudaStream_t const s = group.s;
	group.open = false;
	if (group.messages.empty())
		return ncclSuccess;
	return begin(comm, [=, messages = std::move(group.messages)] {
		return now_or_keep(comm, s, [=] { return exchange(messages, comm, s); });
	});
}

/* ---- from rank 0 ---- */

static ncclResult_t broadcast(const void *send, void *recv, size_t bytes, ncclComm_t comm, cudaStream_t s)
{
	std::vector<char> all(bytes);
	if (comm->rank == 0)
		cudasim_group_copy(s, all.data(), send, bytes, cudaMemcpyDeviceToHost);
	comm->state = ncclSuccess;
	if (comm->n_ranks > 1)
		comm->state = result_of(coll_shm_ops.broadcast(comm->coll, all.data(), bytes));
	if (comm->state == ncclSuccess)
		cudasim_group_copy(s, recv, all.data(), bytes, cudaMemcpyHostToDevice);
	return done(comm, s, comm->rank ? bytes : 0);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t s)
{
	const size_t bytes = bytes_of(count, type);
	if (root != 0)
		return ncclInvalidArgument;
	return begin(comm,
		     [=] { return now(comm, s, [=] { return broadcast(send, recv, bytes, comm, s); }); });
}
