/* nccl.cc - NCCL's stand-in: the shared memory of kernels/cpu/coll.c moves the bytes.
 * A unique id is a place to meet.  A communicator joins in a thread, as one that does not block
 * does.  An operation waits for its stream, then copies: a stream that it was not queued on, or a
 * buffer that was not ready, shows as wrong values.  Captured, it does so whenever its graph is launched; the
 * end of a communicator waits for such graphs, as NCCL's does, which here ends the process. */
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
	struct coll_meet *mine;
	std::string meet;
	int rank, n_ranks;
	std::atomic<int> state;
	std::atomic<bool> quit;
	std::thread joiner;
	std::function<ncclResult_t()> later; /* what is to be under way after so many asks; -1: never */
	int asks;
	std::shared_ptr<int> in_graphs = std::make_shared<int>(0); /* held by every captured operation */
};

static std::mutex lock;
static std::map<std::string, struct coll_meet *> places; /* of this process */

static int slow;

void cudasim_nccl_slow(int asks)
{
	slow = asks;
}

/* Where it looks for other ranks is settled by the first call, for all of the process. */
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
	struct coll_meet *m;
	char text[COLL_MEET_SIZE];
	check_interface();
	cudasim_counts.nccl_ids++;
	if (coll_shm_ops.meet_new(&m, text, NULL, 0) || strlen(text) >= sizeof id->internal)
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
	a.meet = c->meet.c_str();
	a.mine = c->rank ? NULL : &c->mine;
	a.timeout_ms = LATE_MS;
	a.cancelled = must_quit;
	a.cancelled_arg = c;
	c->state = result_of(coll_shm_ops.join(&c->coll, &a, NULL, 0));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	check_interface();
	ncclComm *c = new ncclComm();
	c->meet = std::string(id.internal, strnlen(id.internal, sizeof id.internal));
	c->rank = rank;
	c->n_ranks = n_ranks;
	c->state = ncclInProgress;
	if (rank == 0) {
		std::lock_guard<std::mutex> hold(lock);
		c->mine = places[c->meet];
		places.erase(c->meet);
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

/* What the other ranks do is waited for here, where NCCL's kernel would: our own wait is then
 * seen to end by the communicator's state. */
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
	cudasim_group_op(comm, s);
	return (ncclResult_t)comm->state.load();
}

/* In a graph, or now.  After an error the graph's later ones do nothing. */
static ncclResult_t all_gather_or_keep(const void *send, void *recv, size_t bytes, ncclComm_t comm,
				       cudaStream_t s)
{
	const bool kept = cudasim_group_capture(s, [=, held = comm->in_graphs] {
		if (comm->state == ncclSuccess)
			all_gather(send, recv, bytes, comm, s);
	});
	if (!kept)
		return all_gather(send, recv, bytes, comm, s);
	comm->state = ncclSuccess;
	return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t s)
{
	const size_t bytes = bytes_of(count, type);
	return begin(comm, [=] { return all_gather_or_keep(send, recv, bytes, comm, s); });
}

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
	cudasim_group_op(comm, s);
	return (ncclResult_t)comm->state.load();
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t s)
{
	const size_t bytes = bytes_of(count, type);
	if (root != 0)
		return ncclInvalidArgument;
	return begin(comm, [=] { return broadcast(send, recv, bytes, comm, s); });
}
