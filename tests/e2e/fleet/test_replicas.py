"""Several replicas of the demo model give the tokens of a single replica, whatever happens to them."""

import os
import random
import signal
import subprocess
import tempfile
import uuid

import pytest

from jobclient import JobClient, JobError
from service import BIN, DEMO, QUERN, eventually, no_processes_left, spawn

PROMPTS = [f"Once upon a time, {w}" for w in ("there was a", "a little", "in a small", "two", "the sun", "my dog")]
LONG = dict(max_tokens=300, ignore_eos=True, temperature=1.0, seed=11)
QUIET = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def serving(client):
    return [r for r in client.status()["replicas"] if r["state"] == "serving"]


def expect_serving(client, n):
    return eventually(lambda: len(serving(client)) == n and client.status(), what=f"{n} replicas that serve")


@pytest.fixture(scope="module")
def undisturbed():
    """The tokens of a single worker."""
    from service import Service
    s = Service(DEMO)
    with s.client() as c:
        tokens = [c.generate(p, **LONG).tokens for p in PROMPTS]
    s.stop()
    return tokens


class ByHand:
    """A controller and workers, each started by the test."""

    def __init__(self, *options):
        self.dir = tempfile.TemporaryDirectory(prefix="quern-test-")
        self.mark = uuid.uuid4().hex
        self.bus, self.jobs = f"ipc://{self.dir.name}/bus", f"ipc://{self.dir.name}/jobs"
        self.options, self.workers = options, []
        self.start_controller()

    def start_controller(self):
        self.controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", self.bus, "--jobs", self.jobs,
                                 "--http", "none", *self.options], self.mark, **QUIET)

    def worker(self, *options):
        p = spawn([BIN / "quern-worker", "--bus", self.bus, "--threads", "1", *options], self.mark, **QUIET)
        self.workers.append(p)
        return p

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.controller.send_signal(signal.SIGTERM)
        assert self.controller.wait(60) == 0
        for w in self.workers:
            w.wait(60)
        no_processes_left(self.mark)
        self.dir.cleanup()


def test_two_replicas_give_the_tokens_of_one_and_share_the_load(undisturbed):
    with ByHand() as s, JobClient(s.jobs) as c:
        s.worker()
        s.worker()
        expect_serving(c, 2)
        jobs = [c.submit(p, **LONG) for p in PROMPTS]
        assert [j.done().tokens for j in jobs] == undisturbed
        assert all(r["generated_tokens"] > 0 for r in serving(c))


def test_replica_killed_under_load_costs_no_token(undisturbed):
    with ByHand() as s, JobClient(s.jobs) as c:
        first = s.worker()
        s.worker()
        expect_serving(c, 2)
        jobs = [c.submit(p, **LONG) for p in PROMPTS]
        for j in jobs:
            j.first_delta()
        first.kill()
        assert [j.done().tokens for j in jobs] == undisturbed
        assert c.ping()["ready"] is True
        expect_serving(c, 1)


def test_workers_killed_repeatedly_while_others_join_cost_no_token(undisturbed):
    rng = random.Random(3)
    with ByHand() as s, JobClient(s.jobs) as c:
        s.worker()
        s.worker()
        expect_serving(c, 2)
        for _ in range(6):
            jobs = [c.submit(p, **LONG) for p in PROMPTS]
            jobs[0].first_delta()
            alive = [w for w in s.workers if w.poll() is None]
            rng.choice(alive).kill()
            s.worker()
            assert [j.done().tokens for j in jobs] == undisturbed


def test_worker_drained_by_hand_exits_and_costs_no_token(undisturbed):
    with ByHand() as s, JobClient(s.jobs) as c:
        first = s.worker()
        expect_serving(c, 1)
        (row,) = c.workers()
        s.worker()
        expect_serving(c, 2)
        jobs = [c.submit(p, **LONG) for p in PROMPTS]
        jobs[0].first_delta()
        c.call("drain", worker=row["worker"])
        assert first.wait(30) == 0
        assert [j.done().tokens for j in jobs] == undisturbed
        assert len(c.workers()) == 1


def test_worker_that_gets_sigterm_moves_its_jobs_and_exits(undisturbed):
    with ByHand() as s, JobClient(s.jobs) as c:
        first = s.worker("--leave-timeout", "60")
        s.worker()
        expect_serving(c, 2)
        jobs = [c.submit(p, **LONG) for p in PROMPTS]
        for j in jobs:
            j.first_delta()
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
        assert [j.done().tokens for j in jobs] == undisturbed
        assert len(c.workers()) == 1


def test_workers_wait_for_the_next_controller(undisturbed):
    """An upgrade of the controller keeps the worker process, with its weights loaded."""
    with ByHand("--keep-workers") as s, JobClient(s.jobs) as c:
        worker = s.worker("--grace", "20")
        expect_serving(c, 1)
        assert c.generate(PROMPTS[0], **LONG).tokens == undisturbed[0]
        s.controller.send_signal(signal.SIGTERM)
        assert s.controller.wait(60) == 0
        s.start_controller()
        with JobClient(s.jobs) as again:
            expect_serving(again, 1)
            assert [w["pid"] for w in again.workers()] == [worker.pid]
            assert again.generate(PROMPTS[0], **LONG).tokens == undisturbed[0]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


@pytest.mark.parametrize("isas", [("avx2", "plain"), ("plain", "avx2"), (None, "plain")], ids=str)
def test_replicas_on_machines_that_differ_compute_in_one_mode(isas):
    """A machine without VNNI (simulated by the instruction set that hides it) computes in the mode of the first
    machine."""
    job = dict(max_tokens=40, ignore_eos=True, temperature=0, logprobs=1)
    with ByHand() as s, JobClient(s.jobs) as c:
        outputs = []
        for isa in isas:
            if s.workers:
                s.workers[-1].kill()
                eventually(lambda: not serving(c), what="no replica that serves")
            s.worker(*(["--isa", isa] if isa else []))
            expect_serving(c, 1)
            outputs.append((serving(c)[0]["numerics"], [c.generate(p, **job).outputs for p in PROMPTS[:3]]))
        assert outputs[0] == outputs[1]


def test_a_restarted_controller_agrees_on_the_mode_that_is_loaded():
    """The worker with the agreed mode ends with the controller; the other worker alone would choose another
    mode."""
    job = dict(max_tokens=40, ignore_eos=True, temperature=0, logprobs=1)
    with ByHand("--keep-workers") as s, JobClient(s.jobs) as c:
        first = s.worker("--isa", "plain", "--grace", "1")
        expect_serving(c, 1)
        second = s.worker("--grace", "60")
        expect_serving(c, 2)
        first.kill()
        expect_serving(c, 1)
        known = serving(c)[0]["numerics"], [c.generate(p, **job).outputs for p in PROMPTS[:3]]
        s.controller.kill()
        s.controller.wait()
        s.start_controller()
        with JobClient(s.jobs) as again:
            expect_serving(again, 1)
            assert (serving(again)[0]["numerics"], [again.generate(p, **job).outputs for p in PROMPTS[:3]]) == known
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0


def test_scale_up_without_a_supervisor_names_the_command():
    with ByHand() as s, JobClient(s.jobs) as c:
        s.worker()
        expect_serving(c, 1)
        with pytest.raises(JobError) as e:
            c.call("scale", replicas=2)
        assert e.value.code == "E_BAD_REQUEST" and f"--bus {s.bus}" in str(e.value)


def test_serve_starts_replicas_and_scales_under_load(start, undisturbed):
    s = start(DEMO, "--replicas", "2", "--threads", "1")
    with s.client() as c, s.client() as ops:
        expect_serving(c, 2)
        for n in (1, 3, 2, 1, 2):
            jobs = [c.submit(p, **LONG) for p in PROMPTS]
            jobs[0].first_delta()
            assert subprocess.run([QUERN, "scale", str(n), "--to", s.jobs], timeout=120, capture_output=True,
                                  text=True).stdout == f"{n} replica{'s serve' if n > 1 else ' serves'}\n"
            assert len(serving(ops)) == n
            assert [j.done().tokens for j in jobs] == undisturbed
        jobs = [c.submit(p, **LONG) for p in PROMPTS]
        jobs[0].first_delta()
        worker = ops.workers()[0]
        r = subprocess.run([QUERN, "drain", str(worker["worker"]), "--to", s.jobs], timeout=120, capture_output=True, text=True)
        assert r.stdout == f"worker {worker['worker']} has ended; 1 replica serves\n", r.stderr
        assert [j.done().tokens for j in jobs] == undisturbed
        eventually(lambda: not os.path.exists(f"/proc/{worker['pid']}"), what="the drained worker's end")
    assert s.end() == 0
    no_processes_left(s.mark)


def test_killed_replica_of_serve_is_replaced_while_the_other_serves(start, undisturbed):
    s = start(DEMO, "--replicas", "2", "--threads", "1")
    with s.client() as c:
        expect_serving(c, 2)
        pid = c.workers()[0]["pid"]
        jobs = [c.submit(p, **LONG) for p in PROMPTS]
        jobs[0].first_delta()
        os.kill(pid, signal.SIGKILL)
        assert [j.done().tokens for j in jobs] == undisturbed
        assert c.ping()["ready"] is True
        expect_serving(c, 2)
        assert pid not in [w["pid"] for w in c.workers() if w["state"] == "serving"]


def test_scale_to_a_device_that_cannot_start_fails_at_once_with_the_reason(start):
    """The order fails long before the timeout of ten minutes, and the other replica continues to serve."""
    s = start(DEMO)
    r = subprocess.run([QUERN, "scale", "2", "--device", "cuda:99", "--to", s.jobs], timeout=300, capture_output=True,
                       text=True)
    assert (r.returncode, r.stdout) == (1, "")
    assert "1 of 2 replicas serve; a worker cannot: worker " in r.stderr and "cuda:99" in r.stderr, r.stderr
    with s.client() as c:
        assert c.generate(PROMPTS[0], max_tokens=3).tokens
