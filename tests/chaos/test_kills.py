"""Random SIGKILL, SIGSTOP and SIGCONT of workers and controller under load: every job ends with exactly the tokens of
an undisturbed run."""

import os
import signal
import time
from collections import Counter

import pytest

from load import Load, specs, undisturbed
from service import DEMO, eventually, marked, no_processes_left

KINDS = ["kill worker", "stop worker", "pause worker", "kill controller", "stop controller", "pause controller", "kill both"]


def processes(s, name):
    return [pid for pid, n in marked(s.mark).items() if n.startswith(name)]


def send(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass        # it was being replaced


def pause(pid, dice):
    send(pid, signal.SIGSTOP)
    time.sleep(dice.uniform(0.05, 1.5))
    send(pid, signal.SIGCONT)


def strike(s, kind, dice):
    what, _, target = kind.partition(" ")
    workers, controllers = processes(s, "quern-worker"), processes(s, "quern-contr")
    victims = [dice.choice(p) for p, name in ((workers, "worker"), (controllers, "controller")) if p and target in (name, "both")]
    for pid in victims:
        if what == "pause":
            pause(pid, dice)
        else:
            send(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
    return set() if what == "pause" else set(victims)


def ask(s, op):
    """Return the reply; None: there is no reply now. Use a new connection each time, since the controller may be
    new."""
    with s.client() as c:
        try:
            return c.recv(c.send({"op": op}), 2)
        except TimeoutError:
            return None


def ready(s):
    reply = ask(s, "ping")
    return reply and reply["ready"]


def all_serve(s, n, gone):
    """Return true if n workers serve and none of them is gone, so that the controller has noticed the loss."""
    reply = ask(s, "workers")
    serving = {w["pid"] for w in reply["workers"] if w["state"] == "serving"} if reply else set()
    return len(serving) == n and not serving & gone


def disturb(s, load, n, kinds, dice):
    """Strike n times. Return counts by kind, and the times until the service is ready. Before each strike all workers
    serve, and the jobs in flight at the previous strike have ended."""
    counts, took = Counter(), []
    n_workers = len(processes(s, "quern-worker"))
    for _ in range(n):
        time.sleep(dice.uniform(0, 0.6))
        kind = dice.choice(kinds)
        counts[kind] += 1
        gone = strike(s, kind, dice)
        t = time.monotonic()
        eventually(lambda: ready(s), 60, f"a service that is ready after '{kind}'")
        took.append(time.monotonic() - t)
        eventually(lambda: all_serve(s, n_workers, gone), 60, f"workers that serve after '{kind}'")
        load.wait_ended(load.jobs_under_way())
    return counts, took


@pytest.mark.parametrize("options, kinds", [
    (("--replicas", "2"), KINDS),
    (("--tp", "2"), KINDS),
    (("--kv-bytes", "2M", "--max-seqs", "4"), KINDS[:3]),      # during preemption and swapping
], ids=["two replicas", "two ranks", "short of blocks"])
def test_every_job_ends_with_the_tokens_of_an_undisturbed_run(start, dice, long, figures, options, kinds):
    s = start(DEMO, "--worker-wait", "120", *options)
    n_strikes, n_jobs = (200, 500) if long else (8, 24)
    jobs = specs(40 if long else 12, 200)
    known = undisturbed(s.jobs, jobs)
    load = Load(s.jobs, jobs)
    try:
        counts, took = disturb(s, load, n_strikes, kinds, dice)
        eventually(lambda: load.ended >= n_jobs or load.failures, 600, "the jobs")
    finally:
        load.stop()
    load.check(known)
    assert load.ended >= n_jobs
    s.idle()
    assert len(processes(s, "quern-contr")) == 1
    figures(f"{sum(counts.values())} strikes ({', '.join(f'{n} {k}' for k, n in sorted(counts.items()))}), {load.ended} jobs, "
            f"{load.resubmitted} resubmitted, ready again after at most {max(took):.2f} s, median {sorted(took)[len(took) // 2]:.2f} s")
    assert s.end() == 0
    no_processes_left(s.mark)
