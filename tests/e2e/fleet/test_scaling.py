"""Several workers: started with the service, added and removed while it runs."""

import os
import re
import signal
import time

import pytest

from service import DEMO, eventually, marked, no_processes_left

PROMPT = "Once upon a time"
LONG = dict(max_tokens=400, seed=4, ignore_eos=True)


def serving(c):
    return [w for w in c.workers() if w["state"] == "serving"]


def workers_of(s):
    return [pid for pid, name in marked(s.mark).items() if name.startswith("quern-worker")]


def all_serve(c, n):
    return eventually(lambda: (w := serving(c)) and len(w) == n and w, 60, f"{n} serving workers")


def test_serve_starts_several_replicas(start):
    s = start(DEMO, "--replicas", 3)
    with s.client() as c:
        workers = all_serve(c, 3)
        assert {w["pid"] for w in workers} == set(workers_of(s))
        known = c.generate(PROMPT, **LONG).tokens
        jobs = [c.submit(PROMPT, stream=False, **LONG) for _ in range(6)]
        assert [j.done().tokens for j in jobs] == [known] * 6
    assert s.end() == 0
    no_processes_left(s.mark)


def test_replica_of_two_workers_gives_the_same_tokens(start):
    s = start(DEMO)
    with s.client() as c:
        known = c.generate(PROMPT, max_tokens=60, temperature=0).tokens
    s.end()
    s = start(DEMO, "--tp", 2)
    with s.client() as c:
        assert c.generate(PROMPT, max_tokens=60, temperature=0).tokens == known
        assert sorted(w["rank"] for w in all_serve(c, 2)) == [0, 1]


def test_each_named_device_gets_a_worker(start):
    s = start(DEMO, "--device", "cpu,cpu:0")
    with s.client() as c:
        assert sorted(w["device"] for w in all_serve(c, 2)) == ["cpu", "cpu:0"]


def test_workers_of_one_device_share_its_cores(start):
    cores = len(os.sched_getaffinity(0))
    s = start(DEMO, "--replicas", 2)
    with s.client() as c:
        threads = [w["threads"] for w in all_serve(c, 2)]
    assert sum(threads) <= max(cores, 2)


@pytest.mark.parametrize("options", [("--device", "cpu,cpu", "--replicas", 1), ("--device", "cpu,cpu,cpu", "--tp", 2)])
def test_unused_devices_are_named(run, options):
    r = run("serve", DEMO, *map(str, options))
    assert r.returncode == 2 and "--device" in r.stderr


def test_workers_on_later_devices_count_when_scaled_up(start, run):
    s = start(DEMO, "--device", "cpu,cpu,cpu:0")
    with s.client() as c:
        for w in all_serve(c, 3):
            if w["device"] == "cpu":
                assert run("drain", str(w["worker"]), "--to", s.jobs).returncode == 0
        assert run("scale", "2", "--to", s.jobs).returncode == 0
        assert sorted(w["device"] for w in all_serve(c, 2)) == ["cpu", "cpu:0"]
    # Three workers from the start and one more. A worker that was silent for a while joins again with its pid.
    assert len(set(re.findall(r"worker joins .*?pid=(\d+)", s.log()))) == 4


def test_scaling_up_and_down_while_jobs_run(start, run):
    s = start(DEMO)
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
        jobs = [c.submit(PROMPT, stream=False, **LONG) for _ in range(8)]
        r = run("scale", "3", "--to", s.jobs)
        assert (r.returncode, r.stdout) == (0, "3 replicas serve\n"), r.stderr
        all_serve(c, 3)
        jobs += [c.submit(PROMPT, stream=False, **LONG) for _ in range(8)]
        r = run("scale", "1", "--to", s.jobs)
        assert (r.returncode, r.stdout) == (0, "1 replica serves\n"), r.stderr
        assert [j.done().tokens for j in jobs] == [known] * len(jobs)
    eventually(lambda: len(workers_of(s)) == 1, what="one worker's process")
    s.idle()
    assert s.end() == 0


def test_drained_worker_is_not_started_again(start, run):
    s = start(DEMO, "--replicas", 2)
    with s.client() as c:
        victim = all_serve(c, 2)[0]
        known = c.generate(PROMPT, **LONG).tokens
        jobs = [c.submit(PROMPT, stream=False, **LONG) for _ in range(6)]
        r = run("drain", str(victim["worker"]), "--to", s.jobs)
        assert r.returncode == 0, r.stderr
        assert [j.done().tokens for j in jobs] == [known] * len(jobs)
        eventually(lambda: victim["pid"] not in workers_of(s), what="its end")
        assert len(workers_of(s)) == 1 and len(serving(c)) == 1


def test_killed_replica_is_replaced_while_the_other_serves(start):
    s = start(DEMO, "--replicas", 2)
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
        jobs = [c.submit(PROMPT, stream=False, **LONG) for _ in range(6)]
        dead = all_serve(c, 2)[0]["pid"]
        os.kill(dead, signal.SIGKILL)
        assert [j.done().tokens for j in jobs] == [known] * len(jobs)
        eventually(lambda: dead not in [w["pid"] for w in c.workers()], what="the loss of the worker")
        all_serve(c, 2)


def stay(s, c, n):
    """Wait until there are n workers, and no more join."""
    eventually(lambda: len(workers_of(s)) == n and len(serving(c)) == n, 60, f"{n} workers and no more")
    time.sleep(1)
    assert len(workers_of(s)) == n and len(serving(c)) == n


def test_worker_about_to_be_restarted_is_not_when_scaled_down(start):
    s = start(DEMO, "--replicas", 3)
    with s.client() as c:
        dead = all_serve(c, 3)[0]["pid"]
        os.kill(dead, signal.SIGKILL)
        c.call("scale", replicas=2)
        stay(s, c, 2)
    assert s.end() == 0


def test_ranks_of_a_broken_tp_group_exit_when_scaled_down(start):
    s = start(DEMO, "--replicas", 2, "--tp", 2)
    with s.client() as c:
        dead = all_serve(c, 4)[0]["pid"]
        os.kill(dead, signal.SIGKILL)
        c.call("scale", replicas=1)
        stay(s, c, 2)
    assert s.end() == 0


def test_after_a_restart_of_the_controller_scaled_workers_serve_again(start, run):
    s = start(DEMO)
    assert run("scale", "3", "--to", s.jobs).returncode == 0
    with s.client() as c:
        before = {w["pid"] for w in all_serve(c, 3)}
    (controller,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    os.kill(controller, signal.SIGKILL)
    eventually(lambda: controller not in marked(s.mark), what="its end")
    with s.client() as c:
        assert {w["pid"] for w in all_serve(c, 3)} == before
