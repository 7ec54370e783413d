/* test_local_workers.c - a worker declares its host and its pid.  The supervisor learns a pid, and may kill
 * that process, only if the kernel or the supervisor's token proves that the worker is that process. */
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdee"

static struct rig *rig_on(const char *bus)
{
	struct engine_config c = {.supervised = true, .local_token = TOKEN};
	snprintf(c.bus, sizeof c.bus, "%s", bus);
	return rig_new(&c);
}

static struct rig *rig_on_ipc(void)
{
	char bus[64];
	snprintf(bus, sizeof bus, "ipc:///tmp/quern-test-%d", (int)getpid());
	return rig_on(bus);
}

static void *hello(struct rig *r, int64_t pid, const char *token)
{
	struct bus_msg m = {.type = BUS_HELLO, .hello = {.device = "cpu", .pid = pid}};
	struct bus_load load;
	gethostname(m.hello.host, sizeof m.hello.host - 1);
	snprintf(m.hello.token, sizeof m.hello.token, "%s", token);
	void *peer = rig_peer(r, "peer");
	rig_peer_send(peer, &m);
	cr_assert_eq(rig_peer_recv(peer, &load), BUS_LOAD);
	return peer;
}

/* Lose a worker with this pid; return the pid in the supervisor's notice, 0: none. */
static int64_t lost_pid(struct rig *r, int64_t pid, const char *token)
{
	void *peer = hello(r, pid, token);
	zmq_send(peer, "garbage", 7, 0);
	cr_assert_eq(rig_peer_recv(peer, NULL), BUS_STOP);
	rig_status(r); /* the loss has been applied */
	int64_t lost = rig_notices(r, &r->n_lost) ? r->lost_pid : 0;
	rig_free(r);
	return lost;
}

Test(local_workers, on_ipc_the_kernel_names_the_process)
{
	cr_expect_eq(lost_pid(rig_on_ipc(), getpid(), ""), getpid());
}

Test(local_workers, on_ipc_no_other_process_can_be_declared)
{
	cr_expect_eq(lost_pid(rig_on_ipc(), getppid(), ""), 0);
	cr_expect_eq(lost_pid(rig_on_ipc(), getppid(), TOKEN), 0);
}

Test(local_workers, on_tcp_a_pid_counts_with_the_token)
{
	cr_expect_eq(lost_pid(rig_on("tcp://127.0.0.1:*"), getpid(), TOKEN), getpid());
}

Test(local_workers, on_tcp_a_pid_without_the_token_is_only_declared)
{
	cr_expect_eq(lost_pid(rig_on("tcp://127.0.0.1:*"), getpid(), ""), 0);
	cr_expect_eq(lost_pid(rig_on("tcp://127.0.0.1:*"), getpid(), OTHER), 0);
}

Test(local_workers, without_a_token_of_the_supervisor_none_proves_anything)
{
	struct engine_config c = {.bus = "tcp://127.0.0.1:*"};
	cr_expect_eq(lost_pid(rig_new(&c), getpid(), ""), 0);
}

static uint32_t n_failed(const char *token)
{
	struct rig *r = rig_on("tcp://127.0.0.1:*");
	void *peer = hello(r, getpid(), token);
	rig_peer_send(peer, &(struct bus_msg){.type = BUS_FAILED, .failed = {1, "the model is not here"}});
	cr_assert_eq(rig_peer_recv(peer, NULL), BUS_STOP);
	rig_status(r);
	uint32_t n = rig_notices(r, &r->n_failed);
	rig_free(r);
	return n;
}

/* The failure ends a service that has not served yet. */
Test(local_workers, only_a_worker_of_the_supervisor_fails_the_start)
{
	cr_expect_eq(n_failed(""), 0);
	cr_expect_eq(n_failed(TOKEN), 1);
}

/* A kept pid protects a process that should end. */
Test(local_workers, only_workers_of_the_supervisor_are_kept)
{
	struct rig *r = rig_on("tcp://127.0.0.1:*");
	rig_worker(r, &(struct fake_config){.pid = getpid(), .token = TOKEN});
	rig_worker(r, &(struct fake_config){.pid = getppid()});
	rig_wait_replicas(r, 2, "serving");
	rig_order(r, ENGINE_SCALE, 2, 0);
	rig_expect_order(r);
	cr_assert_eq(rig_notices(r, &r->n_keep), 1);
	cr_assert_eq(rig_notices(r, &r->n_kept), 1);
	cr_assert_eq(r->keep_pids[0], getpid());
	rig_free(r);
}
